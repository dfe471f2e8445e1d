//! Reads everything that the checks judge, at once. Only reads: reviews of rights are answered and not stored. What may not be
//! read is told apart from what could not be, and a list is complete or an error (INV-10).

use std::collections::{BTreeMap, BTreeSet};

use forge_core::install;
use forge_core::preflight::{
    self, Check, ClassFacts, Component, DefinitionFacts, Definitions, Finding, Intent, Judged, LimitFacts, Looked,
    NamespaceFacts, NodeFacts, Owner, Purpose, QuotaFacts, Sample, Severity, WorkloadFacts,
};
use forge_core::render::{self, EXECUTOR_ACCOUNT, Places, WORKFLOW_ACCOUNT, is_ours};
use forge_core::rights::{self, Answer, Ask};
use forge_core::view::shown;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bootstrap;
use crate::cluster::{Cluster, ClusterError, looked, path};
use crate::run::prepare;

/// How many rights, or objects, are asked for at once.
const AT_ONCE: usize = 16;
/// How often the server is asked for the time: the first answer takes longer than the others.
const SAMPLES: usize = 3;

/// What was read.
pub(super) struct Gathered {
    /// The version, as the API server names it.
    pub(super) kubernetes: Option<String>,
    /// What follows from it.
    pub(super) judged: Vec<Judged>,
    /// What a pod needs to know.
    pub(super) ground: Ground,
}

/// What a pod that is to be started needs to know.
pub(super) struct Ground {
    /// Rights, as they were answered.
    pub(super) answers: BTreeMap<Ask, Answer>,
    /// The server's clock and ours.
    pub(super) samples: Vec<Sample>,
    /// The namespace of Argo Workflows can be used.
    pub(super) workflows: bool,
    /// What pods that namespace lets in.
    pub(super) levels: BTreeMap<String, String>,
    /// A node can take a pod, as far as is known.
    pub(super) nodes: bool,
    /// The default StorageClass.
    pub(super) class: Option<ClassFacts>,
    /// The account of a run's Job, where accounts of a run have credentials for a registry: only pods there have them.
    pub(super) account: Option<&'static str>,
}

impl Ground {
    /// The time by the server's clock.
    pub(super) fn now(&self) -> Timestamp {
        preflight::at_server(&self.samples, Timestamp::now())
    }
}

/// Reads, and judges what it read.
///
/// # Errors
/// When the API server cannot be asked at all.
pub(super) async fn gather(cluster: &Cluster, purpose: &Purpose) -> Result<Gathered, Judged> {
    let Spoken { version, samples, judged: api } = speak(cluster).await?;
    let nodes = cluster.list("/api/v1/nodes", "");
    let classes = path::global("storage.k8s.io", "v1", "storageclasses");
    let classes = cluster.list(&classes, "");
    let policies = cluster.get("/apis/admissionregistration.k8s.io/v1");
    let (answers, who, nodes, classes, policies, namespaces, room, argo, definitions, projects, account, own, lacking) = tokio::join!(
        answers(cluster, rights::asked(purpose)),
        who(cluster),
        nodes,
        classes,
        policies,
        namespaces(cluster, purpose),
        room(cluster, &purpose.workflows),
        argo(cluster, purpose),
        definitions(cluster, purpose),
        projects(cluster, purpose),
        account(cluster, &purpose.workflows),
        own(cluster, purpose),
        lacking(cluster, purpose),
    );
    let nodes = looked(nodes).map(|nodes| nodes.iter().map(NodeFacts::read).collect::<Vec<_>>());
    let classes = looked(classes).map(|classes| classes.iter().map(ClassFacts::read).collect::<Vec<_>>());
    let namespaces = looked(namespaces);
    let facts = |objects: &Namespaces| -> Vec<NamespaceFacts> {
        objects.iter().map(|(name, object)| NamespaceFacts::read(name, object.as_ref())).collect()
    };
    let of_runs = |objects: &Namespaces| objects.get(&purpose.workflows).cloned().flatten();
    let workflows = namespaces.saw().and_then(of_runs);
    let on_nodes = nodes.judged(Check::Nodes, |nodes| preflight::nodes(nodes));
    let ground = Ground {
        samples: samples.clone(),
        workflows: workflows.as_ref().is_some_and(|found| NamespaceFacts::read("", Some(found)).going.is_none()),
        levels: workflows.as_ref().map(preflight::pod_security_labels).unwrap_or_default(),
        nodes: on_nodes.worst() != Some(Severity::Blocking),
        class: classes.saw().and_then(|classes| preflight::default_class(classes)).cloned(),
        account,
        answers,
    };
    let mut judged = vec![
        api,
        version.judged(Check::Version, preflight::version),
        preflight::clock(&samples),
        preflight::rights(&rights::needs(purpose), &ground.answers, who.as_deref()),
        looked(policies).judged(Check::Policies, |served| preflight::policies(served.as_ref())),
        on_nodes,
        classes.judged(Check::Storage, |classes| preflight::storage(classes, purpose.storage)),
        namespaces.judged(Check::Namespaces, |objects| preflight::namespaces(&facts(objects))),
        namespaces.judged(Check::PodSecurity, |objects| {
            preflight::pod_security(&NamespaceFacts::read(&purpose.workflows, of_runs(objects).as_ref()))
        }),
        looked(room).judged(Check::Limits, |(quotas, ranges)| preflight::limits(&purpose.workflows, quotas, ranges)),
        looked(definitions).judged(Check::Definitions, |known| preflight::definitions(purpose, known)),
        looked(own).judged(Check::Own, |found| preflight::own(found)),
        looked(projects).judged(Check::Windows, |projects| preflight::windows(projects)),
    ];
    if purpose.handed {
        judged.push(looked(lacking).judged(Check::Merged, |lacking| preflight::merged(&purpose.argocd, lacking)));
    }
    let argo = looked(argo);
    judged.extend(Component::ALL.map(|component| {
        argo.judged(component.check(), |(workloads, ours)| preflight::argo(component, purpose, workloads, ours))
    }));
    let kubernetes = version.saw().and_then(|said| said.get("gitVersion")?.as_str().map(shown));
    Ok(Gathered { kubernetes, judged, ground })
}

/// The first words with an API server.
struct Spoken {
    version: Looked<Value>,
    samples: Vec<Sample>,
    judged: Judged,
}

/// Asks for the version, several times, because the answers also tell the time.
async fn speak(cluster: &Cluster) -> Result<Spoken, Judged> {
    let mut samples = Vec::new();
    let mut version = Looked::Failed("it was not asked for".to_owned());
    for _ in 0..SAMPLES {
        let sent = Timestamp::now();
        let answer = cluster.dated("/version").await;
        let received = Timestamp::now();
        match answer {
            Ok((said, date)) => {
                samples.extend(date.and_then(|date| Sample::read(sent, received, &date)));
                version = Looked::Saw(said);
            }
            Err(ClusterError::Refused { code: 401, message }) => return Err(stranger(&message)),
            // It answers; who may not ask for the version may be allowed everything else.
            Err(ClusterError::Refused { code: 403, message }) => version = Looked::NotPermitted(message),
            Err(error) => return Err(Judged::failed(Check::Api, error.to_string())),
        }
    }
    let quickest = samples.iter().map(|sample| sample.received.duration_since(sample.sent).as_millis()).min();
    let seen = quickest.map_or("it answers".to_owned(), |milliseconds| format!("it answers within {milliseconds} ms"));
    Ok(Spoken { version, samples, judged: Judged::new(Check::Api, seen) })
}

/// The API server does not know the account.
fn stranger(message: &str) -> Judged {
    let finding = Finding::new(
        Check::Api,
        Severity::Blocking,
        "the API server does not accept the credentials of the kubeconfig",
        "nothing can be asked, and nothing can be made",
        "log in again, or name another --context; `kubectl auth whoami` with the same context must say who you are",
    );
    Judged::new(Check::Api, "it answers, and refuses").with(finding.because([message]))
}

/// Asks for every right, right by right.
pub(crate) async fn answers(cluster: &Cluster, asks: BTreeSet<Ask>) -> BTreeMap<Ask, Answer> {
    let collection = path::global("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    let collection = collection.as_str();
    let asked = futures::stream::iter(asks).map(|ask| async move {
        let mut answer = cluster.create(collection, &ask.review()).await;
        if answer.as_ref().is_err_and(ClusterError::is_transient) {
            answer = cluster.create(collection, &ask.review()).await;
        }
        let answer = answer.map_or_else(|error| Answer::Unknown(error.to_string()), |review| Answer::read(&review));
        (ask, answer)
    });
    asked.buffer_unordered(AT_ONCE).collect().await
}

/// Who we are, where the API server says it.
async fn who(cluster: &Cluster) -> Option<String> {
    let collection = path::global("authentication.k8s.io", "v1", "selfsubjectreviews");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let said = cluster.create(&collection, &review).await.ok()?;
    said.pointer("/status/userInfo/username").and_then(Value::as_str).map(str::to_owned)
}

/// The account of a run's Job, where both it and that of the agent have credentials for a registry. Who may not look is told
/// by what becomes of the pod.
async fn account(cluster: &Cluster, namespace: &str) -> Option<&'static str> {
    for account in [WORKFLOW_ACCOUNT, EXECUTOR_ACCOUNT] {
        let account = path::object(&path::core(namespace, "serviceaccounts"), account);
        cluster.get(&account).await.ok().flatten().filter(preflight::has_pull_secrets)?;
    }
    Some(EXECUTOR_ACCOUNT)
}

/// Namespaces by name; nothing for one that is not there.
type Namespaces = BTreeMap<String, Option<Value>>;

async fn namespaces(cluster: &Cluster, purpose: &Purpose) -> Result<Namespaces, ClusterError> {
    let mut found = BTreeMap::new();
    let used = Component::ALL.into_iter().filter(|component| purpose.intent(*component) != Intent::Without);
    let names: BTreeSet<&str> = used.map(|component| purpose.place(component)).collect();
    for name in names {
        found.insert(name.to_owned(), cluster.get(&path::object("/api/v1/namespaces", name)).await?);
    }
    Ok(found)
}

/// Quotas and limits of the namespace of runs; there are none where it is not there.
async fn room(cluster: &Cluster, namespace: &str) -> Result<(Vec<QuotaFacts>, Vec<LimitFacts>), ClusterError> {
    let quotas = cluster.list(&path::core(namespace, "resourcequotas"), "").await?;
    let ranges = cluster.list(&path::core(namespace, "limitranges"), "").await?;
    Ok((quotas.iter().map(QuotaFacts::read).collect(), ranges.iter().map(LimitFacts::read).collect()))
}

/// Workloads of Argo in the whole cluster, and what of their owners is ours: Helm releases, and Argo CD's own Application.
async fn argo(cluster: &Cluster, purpose: &Purpose) -> Result<(Vec<WorkloadFacts>, BTreeSet<Owner>), ClusterError> {
    let mut workloads = Vec::new();
    for plural in ["deployments", "statefulsets"] {
        let found = cluster.list(&path::global("apps", "v1", plural), "").await?;
        workloads.extend(found.iter().filter_map(WorkloadFacts::read));
    }
    let mut ours = BTreeSet::new();
    let installed = Component::ALL.into_iter().filter(|component| purpose.intent(*component) == Intent::Install);
    let places: BTreeSet<&str> = installed.map(|component| purpose.place(component)).collect();
    for place in places {
        // Of a Secret with a whole release in it only the labels matter.
        let releases = cluster.list_metadata(&path::core(place, "secrets"), "owner=helm").await?;
        let names = releases.iter().filter(|release| preflight::release_is_ours(release));
        let names = names.filter_map(|release| release.pointer("/metadata/labels/name")?.as_str());
        ours.extend(names.map(|name| Owner::Helm(format!("{place}/{name}"))));
    }
    if purpose.intent(Component::Cd) == Intent::Install {
        let own = path::object(&path::argo(&purpose.argocd, "applications"), install::APPLICATION);
        let own = match cluster.get(&own).await {
            // Who may not look has nothing of it.
            Err(ClusterError::Refused { code: 401 | 403, .. }) => None,
            other => other?,
        };
        let own = own.filter(|own| is_ours(own) && install::managed(own, &purpose.argocd).is_some());
        ours.extend(own.map(|_| Owner::Application(install::APPLICATION.to_owned())));
    }
    Ok((workloads, ours))
}

/// The definitions of Argo. Their schemas are megabytes, of which one is read.
async fn definitions(cluster: &Cluster, purpose: &Purpose) -> Result<Definitions, ClusterError> {
    let collection = path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let all = cluster.list_metadata(&collection, "").await?;
    let served = cluster.get("/apis/argoproj.io/v1alpha1").await?;
    let resources = served.as_ref().and_then(|list| list.get("resources")).and_then(Value::as_array);
    let names = resources.into_iter().flatten().filter_map(|resource| resource.get("name")?.as_str());
    let served: BTreeSet<String> = names.map(str::to_owned).collect();
    let described = if purpose.intent(Component::Cd) == Intent::Existing {
        let projects = cluster.get(&path::object(&collection, "appprojects.argoproj.io")).await?;
        projects.as_ref().and_then(preflight::describes_windows)
    } else {
        None
    };
    let found = all.iter().filter_map(DefinitionFacts::read).collect();
    Ok(Definitions { found, served, describes_windows: described })
}

/// What is there under the names of what bootstrap makes, as far as the account may look, and what it should be: with what the cluster
/// was prepared with, where it was.
async fn own(cluster: &Cluster, purpose: &Purpose) -> Result<Vec<(Value, Value)>, ClusterError> {
    let noted = prepare::prepared(cluster, &purpose.workflows, &purpose.argocd).await.ok().flatten();
    let places = noted.unwrap_or_else(|| {
        let (workflows, argocd, image) = (purpose.workflows.clone(), purpose.argocd.clone(), purpose.image.clone());
        Places { workflows, argocd, image, ..Places::default() }
    });
    let mut objects = bootstrap::applied(&places, &purpose.environments, purpose.handed);
    objects.extend(render::receipts(&places, &purpose.environments));
    let asked = futures::stream::iter(objects).map(|placed| async move {
        let name = placed.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        match cluster.get(&path::object(&placed.collection, name)).await {
            Err(ClusterError::Refused { code: 401 | 403, .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(live) => Ok(live.map(|live| (live, placed.object))),
        }
    });
    let found: Vec<Result<Option<(Value, Value)>, ClusterError>> = asked.buffered(AT_ONCE).collect().await;
    let found = found.into_iter().collect::<Result<Vec<Option<(Value, Value)>>, ClusterError>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// What its owner has not made in Argo CD's namespace, where it is somebody else's.
async fn lacking(cluster: &Cluster, purpose: &Purpose) -> Result<Vec<String>, ClusterError> {
    if !purpose.handed {
        return Ok(Vec::new());
    }
    let places = (purpose.workflows.as_str(), purpose.argocd.as_str());
    bootstrap::lacking(cluster, places, &purpose.environments).await
}

/// The AppProjects of environments; nothing for one that is not there.
async fn projects(
    cluster: &Cluster,
    purpose: &Purpose,
) -> Result<Vec<(forge_core::name::EnvironmentName, Option<Value>)>, ClusterError> {
    let collection = path::argo(&purpose.argocd, "appprojects");
    let mut found = Vec::new();
    for environment in &purpose.environments {
        let project = cluster.get(&path::object(&collection, environment.as_str())).await?;
        found.push((environment.clone(), project));
    }
    Ok(found)
}
