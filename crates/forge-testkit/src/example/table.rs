//! The table: everything else in the example follows from it.

use super::definitions::{CEPH_CLUSTER, CLUSTER_ISSUER, KAFKA, POSTGRES_CLUSTER, PROMETHEUS};
use super::{App, Flavour, Stack};
use Flavour::{Crd, CustomResource, Deployment, Ingress, Job, StatefulSet};

/// The stacks, from the ground up.
pub static STACKS: [Stack; 11] = [
    Stack {
        name: "foundation",
        layer: 0,
        about: "what every namespace needs before anything else may run in it",
        depends_on: &[],
        apps: &[
            App::new("base", "network-policies", 2, Deployment).sync("2m").health("3m"),
            App::new("base", "cert-manager", 4, Crd(&CLUSTER_ISSUER)),
            App::new("base", "cluster-issuer", 2, CustomResource(&CLUSTER_ISSUER)).after(&["base/cert-manager"]),
            App::new("base", "external-secrets", 3, Deployment).after(&["base/cert-manager"]),
            App::new("base", "external-dns", 7, Deployment).retries(5),
        ],
    },
    Stack {
        name: "storage",
        layer: 1,
        about: "block and object storage; its cluster takes longest of all",
        depends_on: &["stack:foundation"],
        apps: &[
            App::new("storage", "ceph-operator", 5, Crd(&CEPH_CLUSTER)),
            App::new("storage", "ceph-cluster", 12, CustomResource(&CEPH_CLUSTER))
                .after(&["storage/ceph-operator"])
                .health("30m"),
            App::new("storage", "snapshots", 2, Deployment),
            App::new("storage", "object-store", 5, Deployment).after(&["storage/ceph-cluster"]).health("10m"),
        ],
    },
    Stack {
        name: "core",
        layer: 1,
        about: "the ways into the cluster and between its workloads",
        depends_on: &["stack:foundation"],
        apps: &[
            App::new("net", "ingress", 4, Deployment),
            App::new("net", "mesh-control", 9, Deployment).health("8m"),
            App::new("net", "mesh-gateway", 3, Deployment).after(&["net/mesh-control", "net/ingress"]),
            App::new("net", "metrics-server", 2, Deployment).sync("2m").health("3m"),
        ],
    },
    Stack {
        name: "security",
        layer: 2,
        about: "secrets and policies; only Vault waits for storage, policies do not",
        depends_on: &["stack:foundation"],
        apps: &[
            App::new("security", "vault", 8, Deployment).after(&["storage/ceph-cluster"]).health("15m"),
            App::new("security", "secret-store", 2, Deployment).after(&["security/vault"]),
            App::new("security", "policy-engine", 4, Deployment),
            App::new("security", "policies", 1, Deployment).after(&["security/policy-engine"]),
        ],
    },
    Stack {
        name: "data",
        layer: 3,
        about: "databases, caches and queues, on volumes and object storage",
        depends_on: &["stack:storage"],
        apps: &[
            App::new("data", "postgres-operator", 3, Crd(&POSTGRES_CLUSTER)),
            App::new("data", "postgres", 10, CustomResource(&POSTGRES_CLUSTER))
                .after(&["data/postgres-operator", "security/secret-store"])
                .health("20m"),
            App::new("data", "redis", 5, StatefulSet("1Gi")).sync("5m").health("10m"),
            App::new("data", "kafka-operator", 4, Crd(&KAFKA)),
            App::new("data", "kafka", 12, CustomResource(&KAFKA))
                .after(&["data/kafka-operator", "security/secret-store"])
                .health("15m")
                .retries(5),
            App::new("data", "schema-registry", 3, Deployment).after(&["data/kafka"]),
        ],
    },
    Stack {
        name: "observability",
        layer: 3,
        about: "metrics, logs, traces and who is woken by them",
        depends_on: &["stack:core"],
        apps: &[
            App::new("observe", "prometheus-operator", 3, Crd(&PROMETHEUS)),
            App::new("observe", "prometheus", 7, CustomResource(&PROMETHEUS))
                .after(&["observe/prometheus-operator", "storage/ceph-cluster"])
                .health("10m"),
            App::new("observe", "loki", 9, Deployment).after(&["storage/object-store"]),
            App::new("observe", "tempo", 4, Deployment).after(&["storage/object-store"]),
            App::new("observe", "grafana", 3, Deployment).after(&[
                "observe/prometheus",
                "observe/loki",
                "observe/tempo",
            ]),
            App::new("observe", "alerting", 2, Deployment).after(&["observe/prometheus"]).health("3m"),
        ],
    },
    Stack {
        name: "platform-services",
        layer: 4,
        about: "what teams share: identity, registry, mail, feature flags",
        depends_on: &["stack:core", "stack:security"],
        apps: &[
            App::new("services", "identity", 6, Deployment).after(&["data/postgres"]).health("8m"),
            App::new("services", "registry", 7, Deployment).after(&["services/identity", "storage/object-store"]),
            App::new("services", "mail-relay", 1, Deployment).sync("2m").health("2m"),
            App::new("services", "feature-flags", 3, Deployment).after(&["data/redis"]),
        ],
    },
    Stack {
        name: "developer-platform",
        layer: 5,
        about: "where developers look things up and work",
        depends_on: &["stack:platform-services"],
        apps: &[
            App::new("portal", "backstage", 8, Deployment).after(&["data/postgres"]).health("8m"),
            App::new("portal", "docs", 2, Deployment).after(&["storage/object-store"]),
            App::new("portal", "workspaces", 5, Deployment).after(&["services/registry"]),
        ],
    },
    Stack {
        name: "delivery",
        layer: 5,
        about: "how workloads are built, judged and rolled out",
        depends_on: &["stack:core"],
        apps: &[
            App::new("delivery", "rollouts", 3, Deployment).after(&["observe/prometheus-operator"]),
            App::new("delivery", "image-builder", 4, Deployment).after(&["services/registry"]),
            App::new("delivery", "image-scanner", 5, Deployment)
                .after(&["delivery/image-builder", "security/policies"]),
        ],
    },
    Stack {
        name: "application-infrastructure",
        layer: 5,
        about: "what the shop's own services find ready: schemas, topics, an API gateway",
        depends_on: &["stack:data"],
        apps: &[
            App::new("infra", "migrations", 4, Job).sync("10m").retries(1),
            App::new("infra", "event-bridge", 3, Deployment).after(&["observe/tempo"]),
            App::new("infra", "api-gateway", 4, Deployment).after(&["net/mesh-gateway", "services/identity"]),
        ],
    },
    Stack {
        name: "workloads",
        layer: 6,
        about: "the shop: what all of this is there for",
        depends_on: &["stack:application-infrastructure"],
        apps: &[
            App::new("shop", "catalog", 5, Deployment).after(&["delivery/rollouts", "services/feature-flags"]),
            App::new("shop", "payments", 6, Deployment).after(&["delivery/rollouts", "security/policies"]),
            App::new("shop", "orders", 4, Deployment).after(&["shop/catalog", "shop/payments"]),
            App::new("shop", "storefront", 3, Ingress("shop.example.com")).after(&["shop/orders"]).health("6m"),
        ],
    },
];
