//! What `status`, `why` and `history` need: the environment that is meant, a checkout if one is at hand, and what the
//! cluster holds. Only gets and lists; what may not be read is said and does without, where it can.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::format::Sync;
use forge_core::graph::Graph;
use forge_core::name::{ApplicationId, EnvironmentName, NodeId, clip};
use forge_core::repository::application_name;
use forge_core::run::Stored;
use forge_core::view::{ApplicationFacts, Holder, Seen};
use futures::StreamExt as _;
use serde_json::Value;

use super::selection;
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments, ClusterError, path};
use crate::{load, records};

/// How many Applications are asked for at once where they may not be listed.
const AT_ONCE: usize = 16;

/// Which environment, in which cluster.
#[derive(Debug, Args)]
pub(super) struct LookArguments {
    /// The environment
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: Option<String>,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    /// The namespace of Argo CD; what forge.yaml says if absent, or argocd
    #[arg(long, value_name = "NAMESPACE", env = "FORGE_ARGOCD_NAMESPACE")]
    argocd_namespace: Option<String>,
}

impl LookArguments {
    /// An environment, with everything else as it is by default.
    pub(super) fn of(environment: &str, cluster: ClusterArguments) -> Self {
        Self { environment: Some(environment.to_owned()), cluster, argocd_namespace: None }
    }
}

/// A repository that is at hand.
pub(super) struct Checkout {
    pub(super) graph: Graph,
    pub(super) applications: BTreeMap<NodeId, ApplicationId>,
    pub(super) sync: Sync,
    argocd: String,
}

/// What is looked at.
pub(super) struct Look {
    pub(super) environment: EnvironmentName,
    pub(super) checkout: Option<Checkout>,
    /// The namespace of Argo CD.
    pub(super) argocd: String,
    /// The records of runs could be read, so what is not among them was never recorded or is no longer kept.
    pub(super) runs_read: bool,
    /// What could not be read, in words.
    pub(super) notes: Vec<String>,
}

impl Look {
    pub(super) fn new(global: &Global, arguments: &LookArguments) -> Result<Self, Failure> {
        let mut notes = Vec::new();
        let given = global.repo.as_deref().is_some_and(|folder| !folder.as_os_str().is_empty());
        let repository = match load::root(global.repo.as_deref()).and_then(|_| selection::repository(global)) {
            Ok(usable) => Some(usable.repository),
            Err(failure) if given => return Err(failure),
            // No checkout is needed where the cluster has a record.
            Err(failure) if failure.code == Code::NotARepository => None,
            Err(failure) => {
                notes.push(format!("the repository here is not used: {}", failure.message));
                None
            }
        };
        let Some(name) = arguments.environment.as_deref().filter(|name| !name.is_empty()) else {
            let hint = match &repository {
                Some(repository) => format!("--environment takes one of: {}", selection::names(repository)),
                None => "name it with --environment".to_owned(),
            };
            return Err(Failure::new(Code::BadArgument, "which environment?").hint(hint));
        };
        let environment: EnvironmentName = name
            .parse()
            .map_err(|error| Failure::new(Code::BadArgument, error).hint("names are those of forge.yaml"))?;
        let checkout = match &repository {
            Some(repository) => match selection::environment(repository, name).and_then(|files| {
                let graph = selection::graph(repository, Some(files))?;
                let argocd = repository.installation.argo.namespace.to_string();
                let applications = graph.nodes().iter().filter_map(|node| {
                    Some((node.id.clone(), application_name(&environment, &argocd, &node.subject).id()?))
                });
                Ok(Checkout { applications: applications.collect(), sync: files.environment.sync.value, argocd, graph })
            }) {
                Ok(checkout) => Some(checkout),
                Err(failure) if given => return Err(failure),
                Err(failure) => {
                    notes.push(format!("the repository here is not used: {}", failure.message));
                    None
                }
            },
            None => None,
        };
        let argocd = arguments.argocd_namespace.clone().filter(|namespace| !namespace.is_empty());
        let argocd = argocd.or_else(|| checkout.as_ref().map(|checkout| checkout.argocd.clone()));
        let argocd = argocd.unwrap_or_else(|| "argocd".to_owned());
        Ok(Self { environment, checkout, argocd, runs_read: true, notes })
    }

    /// The runs that are recorded. Who may not read them sees what Argo CD shows, if there is a checkout to go by.
    pub(super) async fn runs(&mut self, cluster: &Cluster, namespace: &str) -> Result<Stored, Failure> {
        match records::all(cluster, namespace, &self.environment).await {
            Ok(stored) => {
                for broken in &stored.broken {
                    self.notes.push(format!("the record of run `{}` cannot be used: {}", broken.run, broken.why));
                }
                for run in &stored.not_begun {
                    self.notes.push(format!("run `{run}` is submitted and has not begun"));
                }
                Ok(stored)
            }
            Err(error) if forbidden(&error) && self.checkout.is_some() => {
                self.runs_read = false;
                self.notes.push(format!("the records of runs may not be read: {}", clip(&error.to_string())));
                Ok(Stored::default())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// An object that is nice to have: who may not read it is told so.
    pub(super) async fn optional(&mut self, cluster: &Cluster, path: &str, what: &str) -> Result<Seen<Value>, Failure> {
        match cluster.get(path).await {
            Err(error) if forbidden(&error) => {
                self.notes.push(format!("{what} may not be read: {}", clip(&error.to_string())));
                Ok(Seen::Unknown)
            }
            other => Ok(other?.map_or(Seen::Absent, Seen::Found)),
        }
    }

    /// Who holds the Lease of the environment.
    pub(super) async fn holder(&mut self, cluster: &Cluster, workflows: &str) -> Result<Seen<Holder>, Failure> {
        let leases = path::named("coordination.k8s.io", "v1", workflows, "leases");
        let lease = path::object(&leases, &format!("forge-{}", self.environment));
        let lease = self.optional(cluster, &lease, "the Lease of the environment").await?;
        Ok(lease.and_then(|lease| Holder::read(&lease)))
    }

    /// No run, and no repository to go by.
    pub(super) fn nothing_known(&self) -> Failure {
        Failure::new(Code::NoRun, format!("no run of environment `{}` is recorded", self.environment))
            .hint("in a checkout of the repository, or with --repo DIR, the state of its graph is shown without one")
    }
}

pub(super) fn forbidden(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Refused { code: 401 | 403, .. })
}

/// Live Applications, as far as they may be read.
#[derive(Default)]
pub(super) struct Applications {
    pub(super) found: BTreeMap<ApplicationId, ApplicationFacts>,
    /// They could be listed, so what is not among them does not exist, and others than the wanted ones are there too.
    pub(super) complete: bool,
}

/// Reads the Applications of the namespaces of these, or where that is not allowed just these.
pub(super) async fn applications(
    cluster: &Cluster,
    argocd: &str,
    wanted: &BTreeSet<ApplicationId>,
) -> Result<Applications, Failure> {
    let mut namespaces: BTreeSet<&str> = wanted.iter().map(|id| id.namespace.as_str()).collect();
    namespaces.insert(argocd);
    let mut seen = Applications { complete: true, ..Applications::default() };
    for namespace in namespaces {
        let collection = path::argo(namespace, "applications");
        match cluster.list(&collection, "").await {
            Ok(items) => {
                seen.found
                    .extend(items.iter().filter_map(|item| Some((identity(item)?, ApplicationFacts::read(item)))));
            }
            // Argo CD is not installed.
            Err(error) if error.is_missing() => {}
            Err(error) if forbidden(&error) => {
                seen.complete = false;
                let mine = wanted.iter().filter(|id| id.namespace.as_str() == namespace);
                let mut answers = futures::stream::iter(mine.map(|id| {
                    let path = path::object(&collection, id.name());
                    async move { (id, cluster.get(&path).await) }
                }))
                .buffer_unordered(AT_ONCE);
                while let Some((id, answer)) = answers.next().await {
                    if let Some(application) = answer? {
                        seen.found.insert(id.clone(), ApplicationFacts::read(&application));
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(seen)
}

fn identity(application: &Value) -> Option<ApplicationId> {
    let field = |name: &str| application.pointer(name).and_then(Value::as_str);
    format!("{}/{}", field("/metadata/namespace")?, field("/metadata/name")?).parse().ok()
}
