//! `graph.yaml` and `<env>/graph.yaml`: what depends on what (SPEC.md section 3).

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::header;
use crate::code::Code;
use crate::duration::Duration;
use crate::gate::{ObjectRef, Retry, Timeouts};
use crate::name::{ApplicationId, NameError, NodeId, ProjectId, StackName, clip};
use crate::yaml::{At, Decoder, Fields, Node};

/// The dependency graph as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DependencyGraph {
    /// What holds for every node that does not say otherwise.
    pub defaults: Defaults,
    /// Deadline of a whole run.
    pub timeout: Duration,
    /// The stacks.
    pub stacks: Vec<Stack>,
}

/// What holds for every node that does not say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Defaults {
    /// How long a sync and health may take.
    pub timeouts: Timeouts,
    /// How a failed sync is tried again.
    pub retry: Retry,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            timeouts: Timeouts { sync: Duration::from_seconds(300), health: Duration::from_seconds(600) },
            retry: Retry { limit: 3, backoff: Duration::from_seconds(5), factor: 2, max: Duration::from_seconds(120) },
        }
    }
}

/// A group of applications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stack {
    /// Its name.
    pub name: At<StackName>,
    /// For people and pictures; never decides order.
    pub layer: Option<u32>,
    /// Every application here waits for all of these.
    pub depends_on: Vec<At<Reference>>,
    /// The applications.
    pub apps: Vec<App>,
}

/// One application of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// What it is.
    pub subject: At<Subject>,
    /// What it waits for.
    pub depends_on: Vec<At<Reference>>,
    /// Objects that must exist.
    pub requires: Vec<ObjectRef>,
    /// Objects that must hold, added to Argo CD's own health.
    pub health: Vec<Health>,
    /// Its own timeouts.
    pub timeouts: TimeoutsSpec,
    /// Its own retries.
    pub retry: RetrySpec,
}

/// What a node of the graph stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A project with a release pointer.
    Project(ProjectId),
    /// Any Argo CD Application; needs no pointer.
    Application(ApplicationId),
}

impl Subject {
    /// The identity that people write.
    pub fn id(&self) -> NodeId {
        match self {
            Self::Project(id) => id.into(),
            Self::Application(id) => id.into(),
        }
    }
}

/// An object whose state is part of a node's health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Which object.
    #[serde(flatten)]
    pub object: ObjectRef,
    /// A CEL expression over `object`.
    pub expr: At<String>,
}

/// Timeouts that may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Timeouts", deny_unknown_fields)]
pub struct TimeoutsSpec {
    /// How long a sync may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<Duration>,
    /// How long health may take after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Duration>,
}

impl TimeoutsSpec {
    /// These, and what they leave out from `rest`.
    pub fn or(self, rest: Timeouts) -> Timeouts {
        Timeouts { sync: self.sync.unwrap_or(rest.sync), health: self.health.unwrap_or(rest.health) }
    }
}

/// Retries that may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Retry", deny_unknown_fields)]
pub struct RetrySpec {
    /// How often a failed sync is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub limit: Option<u32>,
    /// Wait before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
    /// Times this before each next.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub factor: Option<u32>,
    /// But never longer than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
}

impl RetrySpec {
    /// These, and what they leave out from `rest`.
    pub fn or(self, rest: Retry) -> Retry {
        Retry {
            limit: self.limit.unwrap_or(rest.limit),
            backoff: self.backoff.unwrap_or(rest.backoff),
            factor: self.factor.unwrap_or(rest.factor),
            max: self.max.unwrap_or(rest.max),
        }
    }
}

/// How often a sync may be tried again at most, and at least.
pub const RETRY_LIMITS: std::ops::RangeInclusive<u32> = 0..=20;
/// By how much the wait may grow each time.
pub const RETRY_FACTORS: std::ops::RangeInclusive<u32> = 1..=10;

/// What `dependsOn` may name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// `stack:name`: every application of it.
    Stack(StackName),
    /// One node.
    Node(NodeId),
}

impl FromStr for Reference {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix("stack:") {
            Some(stack) => stack.parse().map(Self::Stack),
            None => text.parse().map(Self::Node),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stack(stack) => write!(f, "stack:{stack}"),
            Self::Node(node) => node.fmt(f),
        }
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Reference {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reference".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(stack:[a-z0-9]([-a-z0-9]*[a-z0-9])?|[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$",
        })
    }
}

/// What an environment changes about the graph.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphOverride {
    /// Only these stacks and nodes; all if empty.
    pub only: Vec<At<Reference>>,
    /// Not these.
    pub without: Vec<At<Reference>>,
    /// Timeouts for every node that has none of its own.
    pub timeouts: TimeoutsSpec,
    /// Retries for every node that has none of its own.
    pub retry: RetrySpec,
    /// Deadline of a whole run.
    pub timeout: Option<Duration>,
    /// Changes of single nodes.
    pub apps: Vec<NodeOverride>,
}

/// What an environment changes about one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverride {
    /// Which node.
    pub subject: At<Subject>,
    /// Edges to add and to remove.
    pub depends_on: Edges,
    /// Its timeouts here.
    pub timeouts: TimeoutsSpec,
    /// Its retries here.
    pub retry: RetrySpec,
}

/// Edges to add and to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Edges {
    /// Waits for these too.
    pub add: Vec<At<Reference>>,
    /// Does not wait for these here.
    pub remove: Vec<At<Reference>>,
}

pub(super) mod files {
    //! The two files as their schemas describe them; the decoders below read them.
    #![expect(dead_code, reason = "describes the files for the schemas")]

    use super::*;
    use crate::format::{API_VERSION, schema::Metadata};

    #[derive(JsonSchema)]
    #[schemars(rename = "DependencyGraph", rename_all = "camelCase", deny_unknown_fields)]
    pub(in crate::format) struct GraphFile {
        #[schemars(extend("const" = API_VERSION))]
        api_version: String,
        #[schemars(extend("const" = "DependencyGraph"))]
        kind: String,
        metadata: Option<Metadata>,
        spec: GraphSpec,
    }

    /// The graph.
    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct GraphSpec {
        /// What holds for every node that does not say otherwise.
        defaults: Option<DefaultsSpec>,
        /// Deadline of a whole run; 2h if absent.
        timeout: Option<Duration>,
        stacks: Vec<StackSpec>,
    }

    /// What holds for every node that does not say otherwise.
    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct DefaultsSpec {
        timeouts: Option<TimeoutsSpec>,
        retry: Option<RetrySpec>,
    }

    /// A group of applications.
    #[derive(JsonSchema)]
    #[schemars(rename_all = "camelCase", deny_unknown_fields)]
    struct StackSpec {
        name: StackName,
        /// For people and pictures; never decides order.
        #[schemars(range(min = 0, max = 99))]
        layer: Option<u32>,
        /// Every application here waits for all of these: `stack:name`, `repo/project` or `namespace/name`.
        depends_on: Option<Vec<Reference>>,
        apps: Option<Vec<AppSpec>>,
    }

    /// One application: `project` or `application`.
    #[derive(JsonSchema)]
    #[schemars(rename_all = "camelCase", deny_unknown_fields)]
    struct AppSpec {
        /// A project with a release pointer: `repo/project`.
        project: Option<ProjectId>,
        /// Any Argo CD Application: `namespace/name`.
        application: Option<ApplicationId>,
        /// What it waits for.
        depends_on: Option<Vec<Reference>>,
        /// Objects that must exist.
        requires: Option<Vec<ObjectRef>>,
        /// Objects that must hold, added to Argo CD's own health.
        health: Option<Vec<HealthSpec>>,
        timeouts: Option<TimeoutsSpec>,
        retry: Option<RetrySpec>,
    }

    /// An object and a CEL expression over it.
    #[derive(JsonSchema)]
    #[schemars(rename_all = "camelCase", deny_unknown_fields)]
    struct HealthSpec {
        api_version: String,
        kind: String,
        name: String,
        namespace: Option<String>,
        /// CEL, over `object`.
        #[schemars(length(min = 1, max = 4096))]
        expr: String,
    }

    #[derive(JsonSchema)]
    #[schemars(rename = "GraphOverride", rename_all = "camelCase", deny_unknown_fields)]
    pub(in crate::format) struct OverrideFile {
        #[schemars(extend("const" = API_VERSION))]
        api_version: String,
        #[schemars(extend("const" = "GraphOverride"))]
        kind: String,
        metadata: Option<Metadata>,
        spec: OverrideSpec,
    }

    /// What an environment changes about the graph.
    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct OverrideSpec {
        /// Only these stacks and nodes.
        only: Option<Vec<Reference>>,
        /// Not these.
        without: Option<Vec<Reference>>,
        defaults: Option<DefaultsSpec>,
        /// Deadline of a whole run.
        timeout: Option<Duration>,
        apps: Option<Vec<NodeOverrideSpec>>,
    }

    /// What an environment changes about one node: `project` or `application`.
    #[derive(JsonSchema)]
    #[schemars(rename_all = "camelCase", deny_unknown_fields)]
    struct NodeOverrideSpec {
        project: Option<ProjectId>,
        application: Option<ApplicationId>,
        depends_on: Option<EdgesSpec>,
        timeouts: Option<TimeoutsSpec>,
        retry: Option<RetrySpec>,
    }

    /// Edges to add and to remove.
    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct EdgesSpec {
        add: Option<Vec<Reference>>,
        remove: Option<Vec<Reference>>,
    }
}

impl DependencyGraph {
    /// Takes a graph out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut spec = spec(decoder, node, "DependencyGraph")?;
        let mut graph =
            Self { defaults: Defaults::default(), timeout: Duration::from_seconds(7200), stacks: Vec::new() };
        if let Some((timeouts, retry)) = defaults(decoder, spec.take("defaults")) {
            graph.defaults =
                Defaults { timeouts: timeouts.or(graph.defaults.timeouts), retry: retry.or(graph.defaults.retry) };
        }
        if let Some(timeout) = positive(decoder, spec.take("timeout"), "timeout") {
            graph.timeout = timeout;
        }
        let list = decoder.required(&mut spec, "stacks");
        graph.stacks = decoder.list(list, "stacks").iter().filter_map(|item| stack(decoder, item)).collect();
        decoder.finish(&spec);
        Some(graph)
    }
}

impl GraphOverride {
    /// Takes an override out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut spec = spec(decoder, node, "GraphOverride")?;
        let only = references(decoder, spec.take("only"), "only");
        let without = references(decoder, spec.take("without"), "without");
        let (timeouts, retry) = defaults(decoder, spec.take("defaults")).unwrap_or_default();
        let timeout = positive(decoder, spec.take("timeout"), "timeout");
        let apps = spec.take("apps");
        let apps = decoder.list(apps, "apps").iter().filter_map(|item| node_override(decoder, item)).collect();
        decoder.finish(&spec);
        Some(Self { only, without, timeouts, retry, timeout, apps })
    }
}

fn spec<'n, 'a>(decoder: &mut Decoder<'_>, node: &'n Node<'a>, kind: &'static str) -> Option<Fields<'n, 'a>> {
    let mut fields = header::document(decoder, node, super::API_VERSION, kind)?;
    header::optional_name(decoder, &mut fields);
    let spec = decoder.required(&mut fields, "spec");
    decoder.finish(&fields);
    decoder.mapping(spec?, "spec")
}

fn defaults(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> Option<(TimeoutsSpec, RetrySpec)> {
    let mut fields = decoder.mapping(node?, "defaults")?;
    let found = (timeouts(decoder, fields.take("timeouts")), retry(decoder, fields.take("retry")));
    decoder.finish(&fields);
    Some(found)
}

pub(super) fn positive(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>, what: &str) -> Option<Duration> {
    let span: At<Duration> = decoder.parse(node?, what)?;
    if span.value == Duration::ZERO {
        decoder.report(Code::InvalidValue, span.at, format!("{what} must be longer than 0s"));
        return None;
    }
    Some(span.value)
}

fn timeouts(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> TimeoutsSpec {
    let Some(mut fields) = node.and_then(|node| decoder.mapping(node, "timeouts")) else {
        return TimeoutsSpec::default();
    };
    let sync = positive(decoder, fields.take("sync"), "timeouts.sync");
    let health = positive(decoder, fields.take("health"), "timeouts.health");
    decoder.finish(&fields);
    TimeoutsSpec { sync, health }
}

fn retry(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> RetrySpec {
    retries(decoder, node, "retry")
}

/// Retries, under the name that the file has for them.
pub(super) fn retries(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>, what: &'static str) -> RetrySpec {
    let Some(mut fields) = node.and_then(|node| decoder.mapping(node, what)) else {
        return RetrySpec::default();
    };
    let limit = fields.take("limit").and_then(|node| decoder.number(node, &format!("{what}.limit"), RETRY_LIMITS));
    let backoff = positive(decoder, fields.take("backoff"), &format!("{what}.backoff"));
    let factor = fields.take("factor").and_then(|node| decoder.number(node, &format!("{what}.factor"), RETRY_FACTORS));
    let max = positive(decoder, fields.take("max"), &format!("{what}.max"));
    decoder.finish(&fields);
    RetrySpec { limit, backoff, factor, max }
}

fn references(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>, what: &'static str) -> Vec<At<Reference>> {
    let mut found = Vec::new();
    for item in decoder.list(node, what) {
        let Some(text) = decoder.text(item, what) else { continue };
        match text.value.parse() {
            Ok(reference) => found.push(At::new(reference, item.at)),
            Err(_) => {
                let message = format!("{what}: `{}` cannot be the name of a node or a stack", clip(text.value));
                decoder
                    .report(Code::UnknownDependency, item.at, message)
                    .fix("write `repo/project`, `namespace/name` or `stack:name`");
            }
        }
    }
    found
}

fn stack(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Stack> {
    let mut fields = decoder.mapping(node, "a stack")?;
    let name = decoder.required(&mut fields, "name").and_then(|node| decoder.parse(node, "name"));
    let layer = fields.take("layer").and_then(|node| decoder.number(node, "layer", 0..=99));
    let depends_on = references(decoder, fields.take("dependsOn"), "dependsOn");
    let apps = fields.take("apps");
    let apps = decoder.list(apps, "apps").iter().filter_map(|item| app(decoder, item)).collect();
    decoder.finish(&fields);
    Some(Stack { name: name?, layer, depends_on, apps })
}

fn subject(decoder: &mut Decoder<'_>, fields: &mut Fields<'_, '_>) -> Option<At<Subject>> {
    match (fields.take("project"), fields.take("application")) {
        (Some(node), None) => {
            let id: At<ProjectId> = decoder.parse(node, "project")?;
            Some(At::new(Subject::Project(id.value), id.at))
        }
        (None, Some(node)) => {
            let id: At<ApplicationId> = decoder.parse(node, "application")?;
            Some(At::new(Subject::Application(id.value), id.at))
        }
        _ => {
            let message = "an app needs exactly one of `project` and `application`";
            decoder.report(Code::MissingField, fields.at(), message);
            None
        }
    }
}

fn app(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<App> {
    let mut fields = decoder.mapping(node, "an app")?;
    let subject = subject(decoder, &mut fields);
    let depends_on = references(decoder, fields.take("dependsOn"), "dependsOn");
    let requires = fields.take("requires");
    let requires: Vec<_> = decoder
        .list(requires, "requires")
        .iter()
        .filter_map(|item| {
            let mut fields = decoder.mapping(item, "a required object")?;
            let object = object(decoder, &mut fields);
            decoder.finish(&fields);
            object
        })
        .collect();
    let health = fields.take("health");
    let health: Vec<_> = decoder.list(health, "health").iter().filter_map(|item| health_rule(decoder, item)).collect();
    let timeouts = timeouts(decoder, fields.take("timeouts"));
    let retry = retry(decoder, fields.take("retry"));
    decoder.finish(&fields);
    Some(App { subject: subject?, depends_on, requires, health, timeouts, retry })
}

fn health_rule(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Health> {
    let mut fields = decoder.mapping(node, "a health rule")?;
    let object = object(decoder, &mut fields);
    let expr = decoder.required(&mut fields, "expr").and_then(|node| decoder.text(node, "expr"));
    decoder.finish(&fields);
    let expr = expr?;
    if let Err(error) = crate::gate::compile(expr.value) {
        decoder
            .report(Code::InvalidExpression, expr.at, error.to_string())
            .fix("write CEL over `object`, for example `object.status.phase == 'Ready'`");
        return None;
    }
    Some(Health { object: object?, expr: At::new(expr.value.to_owned(), expr.at) })
}

fn object(decoder: &mut Decoder<'_>, fields: &mut Fields<'_, '_>) -> Option<ObjectRef> {
    let mut required = |decoder: &mut Decoder<'_>, name| {
        let node = decoder.required(fields, name)?;
        let text = decoder.text(node, name)?;
        if text.value.is_empty() {
            decoder.report(Code::InvalidValue, node.at, format!("{name} must not be empty"));
            return None;
        }
        Some(text.value.to_owned())
    };
    let api_version = required(decoder, "apiVersion");
    let kind = required(decoder, "kind");
    let name = required(decoder, "name");
    let namespace = fields.take("namespace").and_then(|node| decoder.text(node, "namespace"));
    Some(ObjectRef {
        api_version: api_version?,
        kind: kind?,
        name: name?,
        namespace: namespace.map(|text| text.value.to_owned()),
    })
}

fn node_override(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<NodeOverride> {
    let mut fields = decoder.mapping(node, "an override")?;
    let subject = subject(decoder, &mut fields);
    let mut edges = Edges::default();
    if let Some(mut listed) = fields.take("dependsOn").and_then(|node| decoder.mapping(node, "dependsOn")) {
        edges.add = references(decoder, listed.take("add"), "add");
        edges.remove = references(decoder, listed.take("remove"), "remove");
        decoder.finish(&listed);
    }
    let timeouts = timeouts(decoder, fields.take("timeouts"));
    let retry = retry(decoder, fields.take("retry"));
    decoder.finish(&fields);
    Some(NodeOverride { subject: subject?, depends_on: edges, timeouts, retry })
}
