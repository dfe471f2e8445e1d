//! The inputs of the executor, in one table: the flags of its command line, the variables that it reads and the page of
//! the reference are made of it.

use std::fmt::Write as _;

macro_rules! inputs {
    ($($variant:ident $flag:literal $variable:literal $field:literal $default:literal $what:literal;)*) => {
        /// An input of the executor.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Input {
            $(#[doc = $what] $variant,)*
        }

        impl Input {
            /// All of them, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The flag, with its dashes; empty where there is none.
            pub const fn flag(self) -> &'static str {
                match self { $(Self::$variant => $flag,)* }
            }

            /// The variable, without a prefix.
            pub const fn variable(self) -> &'static str {
                match self { $(Self::$variant => $variable,)* }
            }

            /// The field of `environment.yaml`; empty where there is none.
            pub const fn field(self) -> &'static str {
                match self { $(Self::$variant => $field,)* }
            }

            /// What holds where nothing is given, in words; empty where something must be.
            pub const fn default(self) -> &'static str {
                match self { $(Self::$variant => $default,)* }
            }

            /// What it is, in a few words.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$variant => $what,)* }
            }
        }
    };
}

inputs! {
    Environment "--environment" "ENVIRONMENT" "name" "" "The environment; the file must be its own, and does not choose it";
    Scope "--target-scope" "TARGET_SCOPE" "" "platform" "What of it: platform, stack:<name> or app:<name>; a scope brings its predecessors along, but for a teardown, which removes what it names";
    DryRun "--dry-run" "DRY_RUN" "" "false" "Look and say what would happen; write nothing";
    KubeconfigData "" "KUBECONFIG_DATA" "" "the account of the pod" "The kubeconfig, in base64";
    KubeconfigPath "--kubeconfig" "KUBECONFIG_PATH" "" "the account of the pod" "The kubeconfig, as a file";
    Domain "--domain" "DOMAIN" "domain" "" "The DNS name of the environment, which must be that of data.domain in its env.yaml";
    GitRepository "--git-repository" "GIT_REPOSITORY" "gitRepository" "" "The GitOps repository: https, http or file, without credentials";
    GitRevision "--git-revision" "GIT_REVISION" "gitRevision" "" "What of it: a branch, a tag, or a commit of 40 digits";
    ClusterName "--cluster-name" "CLUSTER_NAME" "clusterName" "what forge.yaml says" "The cluster, which must be that of the environment in forge.yaml";
    ArgocdNamespace "--argocd-namespace" "ARGOCD_NAMESPACE" "argocdNamespace" "what forge.yaml says" "The namespace of Argo CD, which must be that in forge.yaml";
    WorkflowsNamespace "--workflows-namespace" "WORKFLOWS_NAMESPACE" "workflowsNamespace" "argo" "The namespace of Argo Workflows, where runs are recorded";
    SyncTimeout "--sync-timeout" "SYNC_TIMEOUT" "timeouts.sync" "what the graph says" "How long a sync may take, for nodes that say nothing of their own";
    HealthTimeout "--health-timeout" "HEALTH_TIMEOUT" "timeouts.health" "what the graph says" "How long health may take after it, for nodes that say nothing of their own";
    RunTimeout "--run-timeout" "RUN_TIMEOUT" "timeouts.run" "what the graph says" "How long the whole run may take";
    RetryLimit "--retry-limit" "RETRY_LIMIT" "retries.limit" "what the graph says" "How often a failed sync is tried again, for nodes that say nothing of their own";
    RetryBackoff "--retry-backoff" "RETRY_BACKOFF" "retries.backoff" "what the graph says" "The wait before the first";
    RetryFactor "--retry-factor" "RETRY_FACTOR" "retries.factor" "what the graph says" "Times this before each next";
    RetryMax "--retry-max" "RETRY_MAX" "retries.max" "what the graph says" "But never longer than this";
    Storage "--storage" "STORAGE" "" "false" "Whether something needs volumes: where the cluster is to be prepared, one of the default StorageClass is made and mounted before";
    Image "--image" "IMAGE" "" "the one that the cluster was prepared with" "The image of forge, by digest, that a cluster is prepared with";
    Charts "--charts" "CHARTS" "" "argo/charts of the GitOps repository, else that of argo-helm" "Where the charts of Argo are: a folder, oci://REGISTRY/PATH, or the URL of a repository";
    RegistryConfig "--registry-config" "REGISTRY_CONFIG" "" "Secret forge-registry, where it is mounted" "A file of credentials of registries, as Docker keeps them: of releases, and of charts that come from one";
    RegistryCa "--registry-ca" "REGISTRY_CA" "" "`ca.crt` of that Secret, where it has one" "A file of certificates, as PEM, of authorities that are trusted for registries besides those of the image";
    PlainHttp "--plain-http" "PLAIN_HTTP_REGISTRIES" "" "`plain-http` of that Secret, where it has one" "Registries, with their ports, that are asked without TLS, separated by commas";
    With "--with" "WITH" "" "nothing" "What is handed over to Argo CD itself: self-managed-argocd";
    Runner "--runner" "RUNNER" "" "what the workflow-controller allows" "How nodes are run: plugin, or pod where executor plugins are switched off";
    StaleAfter "--stale-after" "STALE_AFTER" "" "10m" "How old Argo CD's comparison may be before a validation calls it stale";
    Allow "--allow" "ALLOW" "" "none" "Codes of rules that a validation tells of live objects and does not count, separated by commas";
    Watch "--watch" "WATCH" "" "false" "Whether a validation goes on and tells every change";
    WatchTimeout "--watch-timeout" "WATCH_TIMEOUT" "" "until it is told to stop" "How long it goes on";
    PvPolicy "--pv-policy" "PV_POLICY" "" "retain" "What becomes of volumes at a teardown: retain, delete or snapshot";
    Confirm "--confirm" "CONFIRM" "" "none: a teardown wants it" "The name of the environment that is to be torn down";
    ReleaseFinalizer "--release-finalizer" "RELEASE_FINALIZER" "" "none" "Objects that are being deleted and whose finalizers a teardown gives up: Kind/namespace/name, with commas between them";
    LogLevel "--log-level" "LOG_LEVEL" "" "info" "How much is logged: error, warn, info, debug or trace";
    LogFormat "--log-format" "LOG_FORMAT" "" "text" "How it is logged: text or json";
    TraceId "--trace-id" "TRACE_ID" "" "a random one" "The trace that this is a part of: 32 hexadecimal digits";
    SpanId "--span-id" "SPAN_ID" "" "none" "The span that it is a part of: 16 hexadecimal digits";
    OtlpEndpoint "--otlp-endpoint" "OTEL_EXPORTER_OTLP_ENDPOINT" "" "none" "Where traces are sent to, as OTLP over HTTP";
    MetricsPushUrl "--metrics-push-url" "METRICS_PUSH_URL" "" "none" "A Pushgateway that is given the figures during the run and at its end";
}

/// The page of the reference.
pub fn reference() -> String {
    let mut page = String::from(
        "# Inputs of the executor\n\nGenerated from the table in `crates/forge-core/src/executor/input.rs`; `make bless` writes it again. [The guide](../guides/executor.md)\nsays what they are for.\n\nFlag goes over variable, variable over file. Everything that is given is checked, also what something goes over; an empty value\nis an error. The file is `/config/environment.yaml` (`--config FILE`), [its schema](schemas/ExecutorEnvironment.json). `forge executor`\nreads the same variables with `FORGE_` before their names, and never these.\n\n| what | flag | variable | in the file | if nothing is given |\n|---|---|---|---|---|\n",
    );
    let code = |name: &str| if name.is_empty() { String::new() } else { format!("`{name}`") };
    for input in Input::ALL {
        let default = if input.default().is_empty() { "an error" } else { input.default() };
        let what = input.what().replace('<', "&lt;");
        let (flag, variable, field) = (code(input.flag()), code(input.variable()), code(input.field()));
        let _ = writeln!(page, "| {what} | {flag} | {variable} | {field} | {default} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_name_is_used_twice_and_everything_has_a_flag_but_what_would_show_a_secret() {
        let unique = |names: Vec<&str>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
        let flags: Vec<&str> = Input::ALL.iter().map(|input| input.flag()).filter(|flag| !flag.is_empty()).collect();
        assert!(unique(flags.clone()) && unique(Input::ALL.iter().map(|input| input.variable()).collect()));
        assert!(unique(Input::ALL.iter().map(|input| input.field()).filter(|field| !field.is_empty()).collect()));
        assert_eq!(flags.len() + 1, Input::ALL.len());
        assert_eq!(Input::KubeconfigData.flag(), "");
        assert!(flags.iter().all(|flag| flag.starts_with("--")));
    }
}
