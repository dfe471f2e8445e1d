//! Phase 0 on a cluster (SPEC.md section 4): reads what there is to be known, starts a pod, and gives everything to the
//! judgements of the core. Bounded in time; what is made for a moment is removed however it ends, and nothing else is
//! written.

mod gather;
mod leftovers;
mod probe;

use std::time::Duration;

use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::format::{ArgoEvents, ArgoInstall, Environment, Installation};
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Check, Intents, Judged, PreflightReport, Purpose, Severity};
use forge_core::render::Trigger;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::interrupt::Interrupts;
use crate::output::{Output, Paint};
use crate::run::prepare;
use gather::Gathered;

pub(crate) use gather::answers;

/// How long all of it may take unless somebody says otherwise: images are pulled meanwhile.
pub(crate) const TIMEOUT: forge_core::duration::Duration = forge_core::duration::Duration::from_seconds(120);
/// How long it may take at most: what a check made expires a little later.
pub(crate) const LONGEST: forge_core::duration::Duration = forge_core::duration::Duration::from_seconds(900);

/// How often what failed is read again, and after how long.
const AGAIN: u32 = 2;
const PAUSE: Duration = Duration::from_secs(1);

/// What is to be checked.
pub(crate) struct Wanted {
    /// What the cluster is to be prepared for.
    pub(crate) purpose: Purpose,
    /// How long the looking and the pod may take; removing has a time of its own.
    pub(crate) timeout: Duration,
    /// Why no pod has to be started, where none has.
    pub(crate) started_before: Option<String>,
}

impl Wanted {
    /// With everything else as it is by default.
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self { purpose, timeout: Duration::from_secs(TIMEOUT.seconds()), started_before: None }
    }

    /// Without a pod where this very image was started here before: preparing a cluster again writes nothing (INV-2).
    pub(crate) async fn unless_prepared(mut self, cluster: &Cluster) -> Self {
        let Purpose { workflows, argocd, image, .. } = &self.purpose;
        // Who may not look, or is not answered, is told so by the checks.
        let prepared = prepare::prepared(cluster, workflows, argocd).await.ok().flatten();
        if prepared.is_some_and(|there| there.image == *image && image.contains("@sha256:")) {
            self.started_before = Some("the cluster is prepared with this very image".to_owned());
        }
        self
    }
}

/// What a cluster is to be prepared for, by what `forge.yaml` says of Argo.
pub(crate) fn purpose(
    installation: Option<&Installation>,
    workflows: &str,
    image: &str,
    environments: Vec<EnvironmentName>,
) -> Purpose {
    let mut purpose =
        Purpose { workflows: workflows.to_owned(), image: image.to_owned(), environments, ..Purpose::default() };
    if let Some(installation) = installation {
        let started = |environment: &Environment| {
            purpose.environments.contains(&environment.name.value) && Trigger::of(environment).is_some()
        };
        let triggers = installation.environments.iter().any(started);
        purpose.triggers = triggers && installation.argo.events != ArgoEvents::None;
        purpose.argocd = installation.argo.namespace.to_string();
        purpose.intents = Intents::of(&installation.argo);
        purpose.handed = installation.argo.cd == ArgoInstall::Existing;
        purpose.releases = installation.registry.is_some();
    }
    purpose
}

/// Checks a cluster. `say` hears what is waited for. Whoever is told to stop makes nothing any more, and removes what he made.
pub(crate) async fn preflight(
    cluster: &Cluster,
    wanted: &Wanted,
    interrupts: &mut Interrupts,
    mut say: impl FnMut(&str),
) -> PreflightReport {
    let started = Timestamp::now();
    let deadline = Instant::now() + wanted.timeout;
    // Reading can be dropped: nothing is made meanwhile.
    let read = tokio::select! {
        read = tokio::time::timeout_at(deadline, gathered(cluster, &wanted.purpose)) => Some(read),
        () = interrupts.heard() => None,
    };
    let (kubernetes, judged) = match read {
        None => (None, vec![Judged::failed(Check::Api, "interrupted before everything was read")]),
        Some(Err(_)) => {
            let why = format!("not everything was answered within {} s", wanted.timeout.as_secs());
            (None, vec![Judged::failed(Check::Api, why)])
        }
        Some(Ok(Err(unreachable))) => (None, vec![unreachable]),
        Some(Ok(Ok(gathered))) => {
            let Gathered { kubernetes, mut judged, ground } = gathered;
            judged.extend(probe::probe(cluster, wanted, &ground, deadline, interrupts, &mut say).await);
            (kubernetes, judged)
        }
    };
    PreflightReport::new(
        &cluster.context,
        kubernetes.as_deref(),
        &wanted.purpose.image,
        judged,
        (started, Timestamp::now()),
    )
}

/// Reads everything, and once more where something failed: an API server that has just started answers soon.
async fn gathered(cluster: &Cluster, purpose: &Purpose) -> Result<Gathered, Judged> {
    let failed = |judged: &Judged| judged.worst() == Some(Severity::Failed);
    for _ in 0..AGAIN {
        let found = gather::gather(cluster, purpose).await;
        let again = match &found {
            Ok(gathered) => gathered.judged.iter().any(failed),
            Err(judged) => failed(judged),
        };
        if !again {
            return found;
        }
        tokio::time::sleep(PAUSE).await;
    }
    gather::gather(cluster, purpose).await
}

/// Checks a cluster before anything is written to it.
///
/// # Errors
/// When something must be put right first, or could not be checked.
pub(crate) async fn required(cluster: &Cluster, wanted: &Wanted, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut interrupts = Interrupts::listen();
    let report = preflight(cluster, wanted, &mut interrupts, |line| output.say(line)).await;
    let Some(failure) = refusal(&report) else {
        if interrupts.told().await {
            // While something was put away, for instance: nothing was found, and nobody wants to go on.
            let message = format!("told to stop while {} was checked; nothing was changed", report.context);
            return Err(Failure::new(Code::ClusterUnchecked, message).hint("run this again"));
        }
        for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Warning) {
            output.raw(&format!("{}\n", finding.text()));
        }
        output.say(&format!("{} preflight: {}", output.paint(Paint::Good, "ok"), report.summary));
        return Ok(());
    };
    output.raw(&format!("{}\n", report.text()));
    Err(failure)
}

/// Why nothing may be written after these checks; nothing where it may.
pub(crate) fn refusal(report: &PreflightReport) -> Option<Failure> {
    let context = &report.context;
    match report.exit() {
        Exit::Done => None,
        Exit::Invalid => Some(
            Failure::new(Code::ClusterUnready, format!("{context} is not ready; nothing was changed"))
                .hint("do what `fix` says at each blocking finding, then run this again"),
        ),
        _ => Some(
            Failure::new(
                Code::ClusterUnchecked,
                format!("whether {context} is ready is not known; nothing was changed"),
            )
            .hint("run this again; `seen` at each failed check says what was answered"),
        ),
    }
}
