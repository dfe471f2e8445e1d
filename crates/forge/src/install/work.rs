//! The six steps of one part of Argo: pre-check, apply, test, validate, rollback, result. Whatever is applied and does not hold is
//! taken back to what was there before, and said to be.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::install::{
    self, APPLICATION, Part, Receipt, Step, Wanted, has_tests, parts, same_objects, says, values_path,
};
use forge_core::name::clip;
use forge_core::yaml::{Dialect, Limits, Node, read};
use serde_json::Value;

use super::found::{found, receipt_path, settled};
use super::helm::{Helm, HelmError, Made, Release};
use super::{Halt, Installing, PAUSE, Phase, halted};
use crate::cluster::{ClusterError, path};
use crate::failpoint;
use crate::interrupt::Interrupts;

/// How often what a killed bootstrap left is put right before somebody has to look.
const REPAIRS: usize = 3;
/// Definitions of Argo are deeper than files of a repository.
const OBJECTS: Limits = Limits { depth: 256, ..Limits::FILE };

/// Looks whether a part of Argo that has not to be changed is well.
pub(super) async fn unchanged(
    phase: &Phase<'_>,
    part: &Installing,
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<(), Halt> {
    let wanted = &part.wanted;
    let found = found(phase.cluster, wanted).await?;
    if let Step::Managed { how } = found.next(wanted) {
        // It may be another version by now, and that is Git's to say.
        let what = format!("managed by its own Application `{APPLICATION}` ({how}); Helm is not run for it");
        say(&line(wanted, "pre-check", &what));
        return Ok(());
    }
    let receipt = found.receipt;
    let (revision, parts) = receipt.map_or((0, Vec::new()), |receipt| (receipt.revision, receipt.parts));
    let faults = settled(phase, &parts, interrupts).await?;
    match faults.first() {
        None => {
            let chart = format!("chart {} {}, revision {revision}", wanted.chart.name, wanted.version);
            say(&line(wanted, "result", &format!("{chart}: nothing to do")));
            Ok(())
        }
        Some(why) => Err(unproven(wanted, why).into()),
    }
}

/// It is there, nothing was changed, and it is not well.
fn unproven(wanted: &Wanted, why: &str) -> Failure {
    let (title, namespace) = (wanted.component.title(), &wanted.namespace);
    Failure::new(Code::InstallFailed, format!("{title} is installed and not proven: {why}"))
        .hint(format!("`kubectl -n {namespace} get pods` shows which do not run; then run this again"))
}

fn line(wanted: &Wanted, step: &str, what: &str) -> String {
    format!("{:<14} {step:<9} {what}", wanted.component.title())
}

/// All documents that helm prints, as objects.
fn objects(text: &str) -> Result<Vec<Value>, String> {
    let stream = read(text, Dialect::Kubernetes, OBJECTS);
    match stream.problems.first() {
        Some(problem) => Err(format!("what helm prints cannot be read: {}: {}", problem.at, problem.message)),
        None => Ok(stream.documents.iter().map(Node::to_json).collect()),
    }
}

/// One part of Argo on its way.
pub(super) struct Work<'w> {
    pub(super) phase: &'w Phase<'w>,
    pub(super) helm: &'w Helm,
    pub(super) part: &'w Installing,
    /// The chart, as arguments, once it is at hand.
    pub(super) chart: Vec<OsString>,
    pub(super) values: PathBuf,
}

impl Work<'_> {
    fn release(&self) -> Release<'_> {
        Release { name: self.part.wanted.chart.name, namespace: &self.part.wanted.namespace }
    }

    fn made(&self) -> Made<'_> {
        Made { chart: &self.chart, values: &self.values }
    }

    fn line(&self, step: &str, what: &str) -> String {
        line(&self.part.wanted, step, what)
    }

    /// Helm is about to write.
    fn point(&self, command: &str) {
        failpoint::write(&format!("helm {command} {}", self.part.wanted.chart.name));
    }

    pub(super) async fn step(&self) -> Result<Step, Halt> {
        Ok(found(self.phase.cluster, &self.part.wanted).await?.step(&self.part.wanted)?)
    }

    /// Gets the chart, once, and sees whether it renders; writes nothing to the cluster.
    pub(super) async fn fetch(&mut self, interrupts: &mut Interrupts) -> Result<(), Halt> {
        if !self.chart.is_empty() {
            return Ok(());
        }
        let chart = self.helm.at_hand(&self.part.source, interrupts).await;
        self.chart = chart.map_err(|error| halted(&error, |error| self.chart_failure(error)))?;
        let rendered = self.helm.template(self.release(), self.made(), interrupts).await;
        rendered.map_err(|error| halted(&error, |error| self.chart_failure(error)))?;
        Ok(())
    }

    /// The six steps.
    pub(super) async fn done(mut self, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let part = self.part;
        let wanted = &part.wanted;
        if self.step().await?.is_done() {
            return unchanged(self.phase, self.part, interrupts, say).await;
        }
        // Somebody may have changed what needed nothing a moment ago.
        self.fetch(interrupts).await?;
        let mut step = self.repaired(interrupts, say).await?;
        let mut same = false;
        let there = match &step {
            Step::Install => "nothing of it is there".to_owned(),
            Step::Upgrade { from, why, broken } => {
                // What is gone has to be made again, whatever the chart renders.
                let gone = found(self.phase.cluster, wanted).await?.faults.broken.into_iter().next();
                same = !broken && gone.is_none() && self.renders_the_same(interrupts).await?;
                let but = match gone {
                    Some(gone) if !broken => format!(", and {gone}"),
                    None if same => ", and renders the same".to_owned(),
                    _ => String::new(),
                };
                format!("revision {from} is there: {why}{but}")
            }
            Step::Nothing { revision } | Step::Record { revision, .. } => {
                format!("revision {revision} is what is wanted, and not proven yet")
            }
            Step::RollBack { .. } | Step::Uninstall { .. } | Step::Refuse { .. } | Step::Managed { .. } => {
                "it is not repaired".to_owned()
            }
        };
        if let (true, Step::Upgrade { from, .. }) = (same, &step) {
            // It is what it was: there is nothing to go back to.
            step = Step::Record { revision: *from, back: None };
        }
        let (chart, version) = (wanted.chart.name, &wanted.version);
        say(&self.line("pre-check", &format!("chart {chart} {version} renders; {there}")));
        self.apply(&step, interrupts, say).await?;
        self.test(&step, interrupts, say).await?;
        let parts = self.validate(&step, interrupts, say).await?;
        say(&self.line("rollback", "not needed"));
        self.result(parts, same, say).await
    }

    /// Whether chart and values, which are others than those of the release, give the very objects that are there.
    async fn renders_the_same(&self, interrupts: &mut Interrupts) -> Result<bool, Halt> {
        let fresh = self.helm.rendered(self.release(), self.made(), interrupts).await;
        let there = self.helm.get("manifest", self.release(), interrupts).await;
        match (fresh, there) {
            (Err(HelmError::Interrupted), _) | (_, Err(HelmError::Interrupted)) => Err(Halt::Interrupted),
            (Ok(fresh), Ok(there)) => {
                let (fresh, there) = (objects(&fresh), objects(&there));
                Ok(fresh.is_ok_and(|fresh| there.is_ok_and(|there| same_objects(&fresh, &there))))
            }
            // Why it cannot be told is what the upgrade itself says.
            _ => Ok(false),
        }
    }

    /// What a killed bootstrap left is put right; gives what is to be done then.
    async fn repaired(&self, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<Step, Halt> {
        for _ in 0..REPAIRS {
            let step = self.step().await?;
            let repair = match &step {
                Step::RollBack { from, status, to } => {
                    let what = format!("revision {from} is {status}: back to revision {to}");
                    say(&self.line("repair", &what));
                    self.rolled_back(*to, interrupts, say).await
                }
                Step::Uninstall { revision, status } => {
                    let what = format!("revision {revision} is {status}, and none ever came up: it is removed first");
                    say(&self.line("repair", &what));
                    self.point("uninstall");
                    self.helm.uninstall(self.release(), self.phase.timeout, interrupts).await
                }
                _ => return Ok(step),
            };
            repair.map_err(|error| halted(&error, |error| self.stuck(&error.to_string())))?;
        }
        let step = self.step().await?;
        match &step {
            Step::RollBack { status, .. } | Step::Uninstall { status, .. } => {
                Err(self.stuck(&format!("it is still {status}")).into())
            }
            _ => Ok(step),
        }
    }

    async fn rolled_back(
        &self,
        to: u64,
        interrupts: &mut Interrupts,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), HelmError> {
        self.point("rollback");
        let rollback = self.helm.rollback(self.release(), to, self.phase.timeout, interrupts);
        self.unhindered(rollback, say).await
    }

    /// Lets helm work, and meanwhile takes away the pods that Kubernetes would wait for without an end.
    async fn unhindered<T>(&self, work: impl Future<Output = T>, say: &mut dyn FnMut(&str)) -> T {
        tokio::select! {
            done = work => done,
            never = self.cleared(say) => match never {},
        }
    }

    /// Looks for pods that keep a StatefulSet of the release from becoming what it is told to be. Whoever may not look, or is
    /// not answered, leaves it to helm to say what is wrong.
    async fn cleared(&self, say: &mut dyn FnMut(&str)) -> Infallible {
        loop {
            tokio::time::sleep(PAUSE).await;
            for pod in self.in_the_way().await.unwrap_or_default() {
                failpoint::write(&format!("Pod {pod} goes"));
                let path = path::object(&path::core(&self.part.wanted.namespace, "pods"), &pod);
                if self.phase.cluster.delete(&path).await.is_ok() {
                    let what = format!("pod {} is of another revision and does not start: it is removed", clip(&pod));
                    say(&self.line("repair", &what));
                }
            }
        }
    }

    async fn in_the_way(&self) -> Result<Vec<String>, ClusterError> {
        let (cluster, Release { name, namespace }) = (self.phase.cluster, self.release());
        let mut found = Vec::new();
        for set in cluster.list(&path::named("apps", "v1", namespace, "statefulsets"), "").await? {
            let Some(selector) = install::pods_of(&set, name, namespace) else { continue };
            let pods = cluster.list(&path::core(namespace, "pods"), &selector).await?;
            let pods = pods.iter().filter(|pod| install::is_in_the_way(&set, pod));
            found.extend(pods.filter_map(|pod| pod.pointer("/metadata/name")?.as_str().map(str::to_owned)));
        }
        Ok(found)
    }

    async fn apply(&self, step: &Step, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let what = match step {
            Step::Install => "installed",
            Step::Upgrade { .. } => "upgraded",
            _ => {
                say(&self.line("apply", "nothing to apply"));
                return Ok(());
            }
        };
        let wanted = &self.part.wanted;
        let labels = wanted.labels().map(|(key, value)| format!("{key}={value}")).join(",");
        self.point("upgrade");
        let upgrade = self.helm.upgrade(self.release(), self.made(), &labels, self.phase.timeout, interrupts);
        match self.unhindered(upgrade, say).await {
            Ok(()) => {
                say(&self.line("apply", what));
                Ok(())
            }
            Err(HelmError::Interrupted) => Err(Halt::Interrupted),
            Err(error) => {
                say(&self.line("apply", "failed"));
                Err(self.taken_back(step, &error.to_string(), interrupts, say).await)
            }
        }
    }

    async fn test(&self, step: &Step, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let hooks = self.helm.get("hooks", self.release(), interrupts).await;
        let hooks = hooks.map_err(|error| halted(&error, HelmError::failure))?;
        if !objects(&hooks).is_ok_and(|hooks| has_tests(&hooks)) {
            say(&self.line("test", "the chart has no tests"));
            return Ok(());
        }
        self.point("test");
        match self.helm.test(self.release(), self.phase.timeout, interrupts).await {
            Ok(()) => {
                say(&self.line("test", "the chart's own tests pass"));
                Ok(())
            }
            Err(HelmError::Interrupted) => Err(Halt::Interrupted),
            Err(error) => Err(self.undone(step, &error.to_string(), interrupts, say).await),
        }
    }

    /// What is there is what the chart says, with its images, and available.
    async fn validate(
        &self,
        step: &Step,
        interrupts: &mut Interrupts,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<Part>, Halt> {
        let manifest = self.helm.get("manifest", self.release(), interrupts).await;
        let manifest = manifest.map_err(|error| halted(&error, HelmError::failure))?;
        let parts = match objects(&manifest) {
            Ok(objects) => parts(&objects, &self.part.wanted.namespace),
            Err(why) => return Err(self.undone(step, &why, interrupts, say).await),
        };
        let faults = settled(self.phase, &parts, interrupts).await?;
        if let Some(why) = faults.first() {
            say(&self.line("validate", why));
            return Err(self.undone(step, why, interrupts, say).await);
        }
        let definitions = parts.iter().filter(|part| part.namespace.is_none()).count();
        let workloads = parts.len() - definitions;
        let what = format!("{workloads} workloads available with their images, {definitions} definitions established");
        say(&self.line("validate", &what));
        Ok(parts)
    }

    /// Writes down what was proven; `same` is whether another chart or other values render what is there.
    async fn result(&self, parts: Vec<Part>, same: bool, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let wanted = &self.part.wanted;
        let found = found(self.phase.cluster, wanted).await?;
        let revision = match found.step(wanted)? {
            Step::Nothing { revision } | Step::Record { revision, .. } => revision,
            // What an older receipt names may be gone with the new version.
            Step::Upgrade { from, broken: true, .. } => from,
            Step::Upgrade { from, broken: false, .. } if same => from,
            _ => return Err(self.stuck("somebody else changed it meanwhile").into()),
        };
        let object = Receipt::new(wanted, revision, parts).object(wanted.component, &wanted.namespace);
        if !found.stored.as_ref().is_some_and(|stored| says(stored, &object)) {
            failpoint::write(&format!("ConfigMap {}", install::receipt_name(wanted.component)));
            self.phase.cluster.apply(&receipt_path(wanted), &object).await?;
        }
        let (chart, version) = (wanted.chart.name, &wanted.version);
        say(&self.line("result", &format!("chart {chart} {version}, revision {revision}, proven")));
        Ok(())
    }

    /// What was applied came up and is not what it should be: back to what was there before, and why.
    async fn undone(&self, before: &Step, why: &str, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Halt {
        let undone = match before {
            Step::Upgrade { from, .. } | Step::Record { back: Some(from), .. } => {
                self.rolled_back(*from, interrupts, say).await
            }
            Step::Install => {
                self.point("uninstall");
                self.helm.uninstall(self.release(), self.phase.timeout, interrupts).await
            }
            // Nothing was applied, and nothing was proven before it, so nothing is taken back: a receipt that somebody deleted is no
            // reason to remove an Argo that may have been good for months.
            _ => return unproven(&self.part.wanted, why).into(),
        };
        match undone {
            Ok(()) => self.taken_back(before, why, interrupts, say).await,
            Err(error) => halted(&error, |error| self.stuck(&format!("{why}; {error}"))),
        }
    }

    /// Sees to it that what failed is gone and what was there before is there again, and says so.
    async fn taken_back(
        &self,
        before: &Step,
        why: &str,
        interrupts: &mut Interrupts,
        say: &mut dyn FnMut(&str),
    ) -> Halt {
        let now = match self.repaired(interrupts, say).await {
            Ok(now) => now,
            Err(halt) => return halt,
        };
        let wanted = &self.part.wanted;
        let title = wanted.component.title();
        let values = values_path(wanted.component);
        match (before, now) {
            (Step::Install, Step::Install) => {
                say(&self.line("rollback", "removed: nothing of it is left but its definitions"));
                let message = format!("installing {title} failed, and was taken back: {why}");
                Failure::new(Code::InstallFailed, message)
                    .hint(format!("put right what it names, in {values} or in the cluster, then run this again"))
                    .into()
            }
            (
                Step::Upgrade { .. } | Step::Record { back: Some(_), .. },
                Step::Upgrade { from, .. } | Step::Nothing { revision: from } | Step::Record { revision: from, .. },
            ) => {
                say(&self.line("rollback", &format!("back to what it was, as revision {from}")));
                let message = format!(
                    "the upgrade of {title} to chart {} failed and was taken back (it is what it was, as revision {from}): {why}",
                    wanted.version
                );
                Failure::new(Code::UpgradeFailed, message)
                    .hint(format!("put right what it names, in {values} or in the cluster, then run this again"))
                    .into()
            }
            (_, now) => self.stuck(&format!("{why}; afterwards: {now:?}")).into(),
        }
    }

    fn stuck(&self, why: &str) -> Failure {
        let wanted = &self.part.wanted;
        let (title, release, namespace) = (wanted.component.title(), wanted.chart.name, &wanted.namespace);
        Failure::new(Code::ReturnFailed, format!("{title} is neither what it was nor what it should be: {why}"))
            .hint(format!("`helm history {release} -n {namespace}` shows where it stands; then run this again"))
    }

    fn chart_failure(&self, error: &HelmError) -> Failure {
        let (title, values) = (self.part.wanted.component.title(), values_path(self.part.wanted.component));
        Failure::new(
            Code::ChartUnusable,
            format!("the chart of {title} cannot be used, and nothing of it was changed: {error}"),
        )
        .hint(format!("--charts says where charts are, {values} what they are given"))
    }
}
