//! The custom resources of the example: kinds like those of known operators, in groups of our own, so that they meet
//! none of the real ones in a cluster that has them.
//!
//! All have the same status, which is what the sandbox fills in: `phase`, `observedGeneration` and `conditions`.

/// A kind of custom resource, and the one instance of it.
#[derive(Debug)]
pub struct Definition {
    /// Its group.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// Fields of `spec` that must be there.
    pub required: &'static [&'static str],
    /// Schema of the fields of `spec`.
    pub properties: &'static str,
    /// Name of the instance.
    pub instance: &'static str,
    /// `spec` of the instance.
    pub spec: &'static str,
    /// CEL over the instance: when it is healthy.
    pub healthy: &'static str,
}

impl Definition {
    /// Group and version of the instance.
    pub fn api_version(&self) -> String {
        format!("{}/v1", self.group)
    }

    /// Name of the CustomResourceDefinition.
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

pub(super) static CLUSTER_ISSUER: Definition = Definition {
    group: "certs.example.com",
    kind: "ClusterIssuer",
    plural: "clusterissuers",
    scope: "Cluster",
    required: &["server"],
    properties: "\
server:
  type: string
  minLength: 1
email:
  type: string
solver:
  type: string
  enum:
    - dns
    - http
  default: dns
",
    instance: "platform",
    spec: "\
server: https://acme.example.com/directory
email: platform@example.com
solver: dns
",
    healthy: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
};

pub(super) static CEPH_CLUSTER: Definition = Definition {
    group: "ceph.example.com",
    kind: "CephCluster",
    plural: "cephclusters",
    scope: "Namespaced",
    required: &["monitors", "storage"],
    properties: "\
monitors:
  type: integer
  minimum: 1
  maximum: 9
storage:
  type: object
  required:
    - devices
  properties:
    devices:
      type: integer
      minimum: 1
    replicas:
      type: integer
      minimum: 1
      default: 3
",
    instance: "main",
    spec: "\
monitors: 3
storage:
  devices: 6
  replicas: 3
",
    healthy: "object.status.phase == 'Ready'",
};

pub(super) static POSTGRES_CLUSTER: Definition = Definition {
    group: "postgres.example.com",
    kind: "PostgresCluster",
    plural: "postgresclusters",
    scope: "Namespaced",
    required: &["instances", "storage"],
    properties: "\
instances:
  type: integer
  minimum: 1
version:
  type: integer
  default: 17
storage:
  type: object
  required:
    - size
  properties:
    size:
      type: string
      pattern: ^[0-9]+(Mi|Gi|Ti)$
superuserFrom:
  description: Where the secret store keeps the credentials; never the credentials.
  type: string
",
    instance: "main",
    spec: "\
instances: 3
version: 17
storage:
  size: 20Gi
superuserFrom: platform/postgres/superuser
",
    healthy: "object.status.phase == 'Ready' && object.status.observedGeneration == object.metadata.generation",
};

pub(super) static KAFKA: Definition = Definition {
    group: "kafka.example.com",
    kind: "Kafka",
    plural: "kafkas",
    scope: "Namespaced",
    required: &["brokers"],
    properties: "\
brokers:
  type: integer
  minimum: 1
listeners:
  type: array
  items:
    type: object
    required:
      - name
      - port
    properties:
      name:
        type: string
      port:
        type: integer
        minimum: 1
        maximum: 65535
      tls:
        type: boolean
        default: true
",
    instance: "events",
    spec: "\
brokers: 3
listeners:
  - name: internal
    port: 9093
    tls: true
",
    healthy: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
};

pub(super) static PROMETHEUS: Definition = Definition {
    group: "monitoring.example.com",
    kind: "Prometheus",
    plural: "prometheuses",
    scope: "Namespaced",
    required: &["replicas"],
    properties: "\
replicas:
  type: integer
  minimum: 1
retention:
  type: string
  pattern: ^[0-9]+(h|d|w)$
  default: 15d
",
    instance: "platform",
    spec: "\
replicas: 2
retention: 15d
",
    healthy: "object.status.phase == 'Ready'",
};
