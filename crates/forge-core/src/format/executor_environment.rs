//! `/config/environment.yaml`: what the executor is told about the environment (SPEC.md section 5). A mounted file of ours
//! without apiVersion and kind: it is an input, not an object.

use schemars::JsonSchema;
use serde::Serialize;

use super::graph::{self, RetrySpec};
use crate::code::Code;
use crate::duration::Duration;
use crate::executor::{Domain, GitUrl, Revision};
use crate::name::{EnvironmentName, Namespace};
use crate::yaml::{At, Decoder, Node};

/// What the executor is told about the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorEnvironment {
    /// Whose file it is.
    pub name: At<EnvironmentName>,
    /// Its DNS name.
    pub domain: At<Domain>,
    /// The GitOps repository, as the executor reads it.
    pub git_repository: At<GitUrl>,
    /// What of it is deployed.
    pub git_revision: At<Revision>,
    /// The cluster as Argo CD knows it; compared with `forge.yaml`.
    pub cluster_name: Option<At<String>>,
    /// Argo CD's namespace; compared with `forge.yaml`.
    pub argocd_namespace: Option<At<Namespace>>,
    /// The namespace of Argo Workflows.
    pub workflows_namespace: Option<At<Namespace>>,
    /// Limits for every node that has none of its own.
    pub timeouts: ExecutorTimeouts,
    /// Retries for every node that has none of its own.
    pub retries: RetrySpec,
}

/// Limits for every node that has none of its own, and for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExecutorTimeouts {
    /// How long a sync may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<Duration>,
    /// How long health may take after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Duration>,
    /// How long the whole run may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Duration>,
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "ExecutorEnvironment", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(super) struct File {
    /// The environment, as in `forge.yaml`; must be the one that the executor is started for.
    name: EnvironmentName,
    /// The DNS name of the environment; where `data.domain` of its env.yaml says one too, it must be the same.
    domain: Domain,
    /// The GitOps repository, without credentials.
    git_repository: GitUrl,
    /// A branch, a tag, or a commit of 40 digits.
    git_revision: Revision,
    /// The cluster, as `forge.yaml` names it for this environment.
    #[schemars(length(min = 1))]
    cluster_name: Option<String>,
    /// Argo CD's namespace, as `forge.yaml` names it.
    argocd_namespace: Option<Namespace>,
    /// The namespace of Argo Workflows; `argo` if absent.
    workflows_namespace: Option<Namespace>,
    timeouts: Option<ExecutorTimeouts>,
    /// Retries for every node that has none of its own.
    retries: Option<RetrySpec>,
}

impl ExecutorEnvironment {
    /// Takes the file out of its document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(node, "the document")?;
        let name = decoder.required(&mut fields, "name").and_then(|node| decoder.parse(node, "name"));
        let domain = decoder.required(&mut fields, "domain").and_then(|node| decoder.parse(node, "domain"));
        let git_repository =
            decoder.required(&mut fields, "gitRepository").and_then(|node| decoder.parse(node, "gitRepository"));
        let git_revision =
            decoder.required(&mut fields, "gitRevision").and_then(|node| decoder.parse(node, "gitRevision"));
        let cluster_name = fields.take("clusterName").and_then(|node| text(decoder, node, "clusterName"));
        let argocd_namespace = fields.take("argocdNamespace").and_then(|node| decoder.parse(node, "argocdNamespace"));
        let workflows_namespace =
            fields.take("workflowsNamespace").and_then(|node| decoder.parse(node, "workflowsNamespace"));
        let timeouts = timeouts(decoder, fields.take("timeouts"));
        let retries = graph::retries(decoder, fields.take("retries"), "retries");
        decoder.finish(&fields);
        Some(Self {
            name: name?,
            domain: domain?,
            git_repository: git_repository?,
            git_revision: git_revision?,
            cluster_name,
            argocd_namespace,
            workflows_namespace,
            timeouts,
            retries,
        })
    }
}

fn text(decoder: &mut Decoder<'_>, node: &Node<'_>, what: &str) -> Option<At<String>> {
    let text = decoder.text(node, what)?;
    if text.value.is_empty() {
        decoder.report(Code::InvalidValue, node.at, format!("{what} must not be empty"));
        return None;
    }
    Some(At::new(text.value.to_owned(), text.at))
}

fn timeouts(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> ExecutorTimeouts {
    let Some(mut fields) = node.and_then(|node| decoder.mapping(node, "timeouts")) else {
        return ExecutorTimeouts::default();
    };
    let sync = graph::positive(decoder, fields.take("sync"), "timeouts.sync");
    let health = graph::positive(decoder, fields.take("health"), "timeouts.health");
    let run = graph::positive(decoder, fields.take("run"), "timeouts.run");
    decoder.finish(&fields);
    ExecutorTimeouts { sync, health, run }
}
