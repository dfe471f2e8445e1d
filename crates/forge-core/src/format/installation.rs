//! `forge.yaml`: the installation.

use schemars::JsonSchema;
use serde::Serialize;

use super::header;
use super::schedule::Schedule;
use super::window::{Window, WindowRule};
use crate::code::Code;
use crate::duration::Duration;
use crate::name::{EnvironmentName, Namespace};
use crate::yaml::{At, Decoder, Node};

/// The installation (SPEC.md section 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// Where releases are kept; absent where nothing is released through Forge yet.
    pub registry: Option<At<String>>,
    /// The Git repository that Argo CD reads.
    pub repository: Repository,
    /// Who installs Argo.
    pub argo: Argo,
    /// Environments in promotion order.
    pub environments: Vec<Environment>,
}

/// The Git repository that Argo CD reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repository {
    /// Its URL.
    pub url: At<String>,
    /// The branch.
    pub branch: At<String>,
}

/// Who installs Argo, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Argo {
    /// Argo CD.
    pub cd: ArgoInstall,
    /// Argo Workflows.
    pub workflows: ArgoInstall,
    /// Argo Events.
    pub events: ArgoEvents,
    /// Argo CD's namespace.
    pub namespace: Namespace,
}

/// Whether Forge installs a component or finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename_all = "lowercase")]
pub enum ArgoInstall {
    /// Forge installs it.
    Install,
    /// It is there, and somebody else's.
    Existing,
}

/// Whether Forge installs Argo Events, finds it, or does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename_all = "lowercase")]
pub enum ArgoEvents {
    /// Forge installs it.
    Install,
    /// It is there, and somebody else's.
    Existing,
    /// Nothing starts by event.
    None,
}

/// One environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Its name.
    pub name: At<EnvironmentName>,
    /// Its folder; its name unless the repository has another layout.
    pub path: String,
    /// A cluster registered with Argo CD.
    pub cluster: At<String>,
    /// Put before every namespace.
    pub namespace_prefix: String,
    /// Who syncs.
    pub sync: At<Sync>,
    /// When a run starts by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<At<Schedule>>,
    /// Changes go through pull requests.
    pub protected: bool,
    /// How many people other than the author must approve.
    pub approvals: u32,
    /// How far GitOps has been adopted here.
    pub adoption: Option<Adoption>,
    /// When promotion may happen.
    pub windows: Vec<WindowRule>,
    /// How long the previous environment must have run a release.
    pub soak: Option<Duration>,
}

/// Who syncs an environment after a push (SPEC.md section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename_all = "lowercase")]
pub enum Sync {
    /// Argo CD, by itself.
    Auto,
    /// A person or a run.
    Manual,
    /// A run that an event starts, in dependency order.
    Ordered,
}

/// How far GitOps has been adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename_all = "lowercase")]
pub enum Adoption {
    /// Not yet.
    Hold,
    /// Compare only.
    Shadow,
    /// Controlled sync.
    Staging,
    /// In full.
    Production,
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "Forge", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(super) struct File {
    #[schemars(extend("const" = super::API_VERSION))]
    api_version: String,
    #[schemars(extend("const" = "Forge"))]
    kind: String,
    metadata: Option<super::schema::Metadata>,
    spec: Spec,
}

/// The installation.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct Spec {
    /// Where releases are kept: `<registry>/<repo>/<project>:<commit>`.
    registry: Option<String>,
    repository: RepositorySpec,
    argo: Option<ArgoSpec>,
    /// In promotion order.
    #[schemars(length(min = 1))]
    environments: Vec<EnvironmentSpec>,
}

/// The Git repository that Argo CD reads.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct RepositorySpec {
    /// Its URL as Argo CD reads it.
    url: String,
    /// The branch; `main` if absent.
    branch: Option<String>,
}

/// Who installs Argo: `install`, or `existing` where it is there already.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct ArgoSpec {
    cd: Option<ArgoInstall>,
    workflows: Option<ArgoInstall>,
    /// Also `none`.
    events: Option<ArgoEvents>,
    /// Argo CD's namespace; `argocd` if absent.
    namespace: Option<Namespace>,
}

/// One environment.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct EnvironmentSpec {
    name: EnvironmentName,
    /// Its folder; its name if absent.
    path: Option<String>,
    /// A cluster registered with Argo CD; `in-cluster` is the one that runs it.
    cluster: String,
    /// Put before every namespace; needed where two environments share a cluster.
    namespace_prefix: Option<String>,
    /// Who syncs after a push.
    sync: Sync,
    /// When a run starts by itself: the five fields of cron, and an IANA time zone if it is not UTC.
    schedule: Option<Schedule>,
    /// Changes go through pull requests.
    protected: Option<bool>,
    /// How many people other than the author must approve a promotion.
    #[schemars(range(min = 0, max = 10))]
    approvals: Option<u32>,
    /// How far GitOps has been adopted here.
    adoption: Option<Adoption>,
    /// When promotion may happen.
    windows: Option<Vec<WindowSpec>>,
    /// How long the previous environment must have run a release.
    soak: Option<Duration>,
}

/// A promotion window.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes the file for the schema")]
enum WindowSpec {
    /// Promotion only inside it.
    Allow(Window),
    /// No promotion inside it.
    Deny(Window),
}

const INSTALL: [(&str, ArgoInstall); 2] = [("install", ArgoInstall::Install), ("existing", ArgoInstall::Existing)];

impl Installation {
    /// Takes the installation out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut fields = header::document(decoder, node, super::API_VERSION, "Forge")?;
        header::optional_name(decoder, &mut fields);
        let spec = decoder.required(&mut fields, "spec");
        decoder.finish(&fields);
        let mut spec = decoder.mapping(spec?, "spec")?;
        let registry = spec.take("registry").and_then(|node| text(decoder, node, "registry"));
        let repository = decoder.required(&mut spec, "repository").and_then(|node| repository(decoder, node));
        let argo = spec.take("argo");
        let argo = argo_section(decoder, argo);
        let list = decoder.required(&mut spec, "environments");
        let items = decoder.list(list, "environments");
        if let (Some(list), true) = (list, items.is_empty()) {
            decoder.report(Code::InvalidValue, list.at, "environments must not be empty");
        }
        let environments: Vec<_> = items.iter().filter_map(|item| environment(decoder, item)).collect();
        decoder.finish(&spec);
        let complete = environments.len() == items.len() && !items.is_empty();
        Some(Self { registry, repository: repository?, argo: argo?, environments }).filter(|_| complete)
    }
}

fn text(decoder: &mut Decoder<'_>, node: &Node<'_>, what: &str) -> Option<At<String>> {
    let text = decoder.text(node, what)?;
    if text.value.is_empty() || text.value.chars().any(char::is_whitespace) {
        decoder.report(Code::InvalidValue, node.at, format!("{what} must not be empty or hold white space"));
        return None;
    }
    Some(At::new(text.value.to_owned(), text.at))
}

fn repository(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Repository> {
    let mut fields = decoder.mapping(node, "repository")?;
    let url = decoder.required(&mut fields, "url").and_then(|node| text(decoder, node, "url"));
    let branch = match fields.take("branch") {
        Some(node) => text(decoder, node, "branch"),
        None => Some(At::new("main".to_owned(), node.at)),
    };
    decoder.finish(&fields);
    Some(Repository { url: url?, branch: branch? })
}

fn argo_section(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> Option<Argo> {
    let mut argo = Argo {
        cd: ArgoInstall::Install,
        workflows: ArgoInstall::Install,
        events: ArgoEvents::Install,
        namespace: "argocd".parse().ok()?,
    };
    let Some(node) = node else { return Some(argo) };
    let mut fields = decoder.mapping(node, "argo")?;
    if let Some(node) = fields.take("cd") {
        argo.cd = decoder.one_of(node, "argo.cd", &INSTALL)?;
    }
    if let Some(node) = fields.take("workflows") {
        argo.workflows = decoder.one_of(node, "argo.workflows", &INSTALL)?;
    }
    if let Some(node) = fields.take("events") {
        let words = [("install", ArgoEvents::Install), ("existing", ArgoEvents::Existing), ("none", ArgoEvents::None)];
        argo.events = decoder.one_of(node, "argo.events", &words)?;
    }
    if let Some(node) = fields.take("namespace") {
        argo.namespace = decoder.parse(node, "argo.namespace")?.value;
    }
    decoder.finish(&fields);
    Some(argo)
}

fn environment(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Environment> {
    let mut fields = decoder.mapping(node, "an environment")?;
    let name: Option<At<EnvironmentName>> =
        decoder.required(&mut fields, "name").and_then(|node| decoder.parse(node, "name"));
    let path = match fields.take("path") {
        Some(node) => folder(decoder, node),
        None => name.as_ref().map(|name| name.to_string()),
    };
    let cluster = decoder.required(&mut fields, "cluster").and_then(|node| text(decoder, node, "cluster"));
    let namespace_prefix = match fields.take("namespacePrefix") {
        Some(node) => prefix(decoder, node),
        None => Some(String::new()),
    };
    let sync = decoder.required(&mut fields, "sync").and_then(|node| {
        let words = [("auto", Sync::Auto), ("manual", Sync::Manual), ("ordered", Sync::Ordered)];
        decoder.one_of(node, "sync", &words).map(|sync| At::new(sync, node.at))
    });
    let schedule = fields.take("schedule").and_then(|node| decoder.parse(node, "schedule"));
    let protected = fields.take("protected").map_or(Some(false), |node| decoder.boolean(node, "protected"));
    let approvals = fields.take("approvals").map_or(Some(0), |node| decoder.number(node, "approvals", 0..=10));
    let adoption = fields.take("adoption").and_then(|node| {
        let words = [
            ("hold", Adoption::Hold),
            ("shadow", Adoption::Shadow),
            ("staging", Adoption::Staging),
            ("production", Adoption::Production),
        ];
        decoder.one_of(node, "adoption", &words)
    });
    let windows = fields.take("windows");
    let windows: Vec<_> =
        decoder.list(windows, "windows").iter().filter_map(|item| window_rule(decoder, item)).collect();
    let soak = fields.take("soak").and_then(|node| decoder.parse(node, "soak")).map(|soak| soak.value);
    decoder.finish(&fields);
    Some(Environment {
        name: name?,
        path: path?,
        cluster: cluster?,
        namespace_prefix: namespace_prefix?,
        sync: sync?,
        schedule,
        protected: protected?,
        approvals: approvals?,
        adoption,
        windows,
        soak,
    })
}

/// A folder of the repository: relative, and inside it.
fn folder(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<String> {
    let text = decoder.text(node, "path")?.value;
    let trimmed = text.trim_end_matches('/');
    let inside = !trimmed.is_empty()
        && trimmed.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && !text.contains('\\');
    if !inside {
        let message = "path must be a folder of this repository, without `.`, `..` and a leading `/`";
        decoder.report(Code::InvalidValue, node.at, message);
        return None;
    }
    Some(trimmed.to_owned())
}

/// What may stand before a namespace's name.
fn prefix(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<String> {
    let text = decoder.text(node, "namespacePrefix")?.value;
    // A prefix is good when a namespace that begins with it is.
    if format!("{text}x").parse::<Namespace>().is_err() {
        let message = "namespacePrefix must be lower-case letters, digits and `-`, starting with a letter or digit";
        decoder.report(Code::InvalidValue, node.at, message).fix("write it like `dev-`");
        return None;
    }
    Some(text.to_owned())
}

fn window_rule(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<WindowRule> {
    let mut fields = decoder.mapping(node, "a window")?;
    let (allow, deny) = (fields.take("allow"), fields.take("deny"));
    decoder.finish(&fields);
    match (allow, deny) {
        (Some(node), None) => decoder.parse(node, "allow").map(|window| WindowRule::Allow(window.value)),
        (None, Some(node)) => decoder.parse(node, "deny").map(|window| WindowRule::Deny(window.value)),
        _ => {
            decoder.report(Code::InvalidValue, node.at, "a window needs exactly one of `allow` and `deny`");
            None
        }
    }
}
