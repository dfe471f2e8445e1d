//! `sources/<repo>/<project>/`: what releases are built from, plain Kubernetes manifests.
//!
//! Objects name no namespace, because Argo CD's destination decides it. Every container is the sample workload: it
//! answers `/healthz` with 200 once `READY_AFTER` has passed, and with `RUN_ONCE` it ends well at that moment instead.

use super::{App, Definition, Flavour, SAMPLE_IMAGE, Stack};

/// The manifests of an application, as file name and text.
pub fn manifests(stack: &Stack, app: &App) -> Vec<(String, String)> {
    let source = Source { stack, app };
    let files = match app.flavour {
        Flavour::Deployment => vec![source.deployment(), source.service("")],
        Flavour::StatefulSet(size) => vec![source.stateful_set(size), source.service("  clusterIP: None\n")],
        Flavour::Job => vec![source.job()],
        Flavour::Ingress(host) => vec![source.deployment(), source.service(""), source.ingress(host)],
        Flavour::Crd(definition) => {
            vec![custom_resource_definition(definition), source.deployment(), source.service("")]
        }
        Flavour::CustomResource(definition) => vec![source.custom_resource(definition)],
    };
    files.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

type File = (&'static str, String);

struct Source<'t> {
    stack: &'t Stack,
    app: &'t App,
}

const SERVING: &str = "          ports:
            - name: http
              containerPort: 8080
          readinessProbe:
            httpGet:
              path: /healthz
              port: http
            periodSeconds: 1
          livenessProbe:
            tcpSocket:
              port: http
            periodSeconds: 10
";

const RUNNING_ONCE: &str = "            - name: RUN_ONCE
              value: \"true\"
";

const VOLUME_MOUNT: &str = "          volumeMounts:
            - name: data
              mountPath: /data
";

impl Source<'_> {
    fn labels(&self, indent: usize) -> String {
        let labels = format!(
            "labels:\n  app.kubernetes.io/name: {}\n  app.kubernetes.io/part-of: {}\n",
            self.app.project, self.stack.name
        );
        indented(&labels, indent)
    }

    fn metadata(&self) -> String {
        format!("metadata:\n  name: {}\n{}", self.app.project, self.labels(2))
    }

    fn selector(&self) -> String {
        format!("  selector:\n    matchLabels:\n      app.kubernetes.io/name: {}\n", self.app.project)
    }

    /// The pod of a workload. `of_pod` and `of_container` are further lines of those.
    fn template(&self, of_pod: &str, of_container: &str) -> String {
        let App { project, ready_after, .. } = self.app;
        format!(
            "  template:
    metadata:
{}    spec:
{of_pod}      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: {project}
          image: {SAMPLE_IMAGE}
          env:
            - name: READY_AFTER
              value: {ready_after}s
{of_container}          resources:
            requests:
              cpu: 5m
              memory: 8Mi
            limits:
              memory: 32Mi
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop:
                - ALL
",
            self.labels(6)
        )
    }

    fn deployment(&self) -> File {
        let text = format!(
            "apiVersion: apps/v1
kind: Deployment
{}spec:
  replicas: 1
{}{}",
            self.metadata(),
            self.selector(),
            self.template("", SERVING)
        );
        ("deployment.yaml", text)
    }

    fn stateful_set(&self, size: &str) -> File {
        let text = format!(
            "apiVersion: apps/v1
kind: StatefulSet
{}spec:
  replicas: 1
  serviceName: {}
{}{}  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes:
          - ReadWriteOnce
        resources:
          requests:
            storage: {size}
",
            self.metadata(),
            self.app.project,
            self.selector(),
            self.template("", &format!("{SERVING}{VOLUME_MOUNT}"))
        );
        ("statefulset.yaml", text)
    }

    fn job(&self) -> File {
        let text = format!(
            "apiVersion: batch/v1
kind: Job
{}spec:
  backoffLimit: 3
{}",
            self.metadata(),
            self.template("      restartPolicy: Never\n", RUNNING_ONCE)
        );
        ("job.yaml", text)
    }

    fn service(&self, of_spec: &str) -> File {
        let text = format!(
            "apiVersion: v1
kind: Service
{}spec:
{of_spec}  selector:
    app.kubernetes.io/name: {}
  ports:
    - name: http
      port: 80
      targetPort: http
",
            self.metadata(),
            self.app.project
        );
        ("service.yaml", text)
    }

    fn ingress(&self, host: &str) -> File {
        let project = self.app.project;
        let text = format!(
            "apiVersion: networking.k8s.io/v1
kind: Ingress
{}spec:
  ingressClassName: platform
  tls:
    - hosts:
        - {host}
      secretName: {project}-tls
  rules:
    - host: {host}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: {project}
                port:
                  name: http
",
            self.metadata()
        );
        ("ingress.yaml", text)
    }

    /// The instance. How long its operator takes is an annotation, for whoever plays the operator.
    fn custom_resource(&self, definition: &Definition) -> File {
        let text = format!(
            "apiVersion: {}
kind: {}
metadata:
  name: {}
{}  annotations:
    sample.example.com/ready-after: {}s
spec:
{}",
            definition.api_version(),
            definition.kind,
            definition.instance,
            self.labels(2),
            self.app.ready_after,
            indented(definition.spec, 2)
        );
        ("resource.yaml", text)
    }
}

fn custom_resource_definition(definition: &Definition) -> File {
    let required: String = definition.required.iter().map(|field| format!("                - {field}\n")).collect();
    let text = format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {}
spec:
  group: {}
  scope: {}
  names:
    kind: {}
    listKind: {}List
    plural: {}
    singular: {}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {{}}
      additionalPrinterColumns:
        - name: Phase
          type: string
          jsonPath: .status.phase
        - name: Age
          type: date
          jsonPath: .metadata.creationTimestamp
      schema:
        openAPIV3Schema:
          type: object
          required:
            - spec
          properties:
            spec:
              type: object
              required:
{required}              properties:
{}            status:
              type: object
              properties:
                phase:
                  type: string
                observedGeneration:
                  type: integer
                  format: int64
                conditions:
                  type: array
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys:
                    - type
                  items:
                    type: object
                    required:
                      - type
                      - status
                    properties:
                      type:
                        type: string
                      status:
                        type: string
                      reason:
                        type: string
                      message:
                        type: string
                      lastTransitionTime:
                        type: string
                        format: date-time
",
        definition.name(),
        definition.group,
        definition.scope,
        definition.kind,
        definition.kind,
        definition.plural,
        definition.kind.to_lowercase(),
        indented(definition.properties, 16)
    );
    ("crd.yaml", text)
}

fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines().map(|line| format!("{indent}{line}\n")).collect()
}
