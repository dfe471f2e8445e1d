//! What would create again is stopped first (SPEC.md section 2): events that start runs, the root set's hold on the
//! environment, what brings the environment, and its sets. Doing it again changes nothing; while nodes go it is looked at again,
//! because a controller may have been at work when it was stopped.

use std::cell::RefCell;
use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, is_ours};
use forge_core::root::identity;
use forge_core::run::RunPlan;
use forge_core::scaffold::ROOT_SET;
use forge_core::teardown::{Creator, RemovalRecord, brings, creator, exclusion, protected, strip_owner, unauthorized};
use serde_json::{Value, json};

use super::{SHOWN, Teardown, at_version, name_of, stuck, surely, uid_of};
use crate::bootstrap::triggers::starting;
use crate::cluster::{Owned, path};
use crate::failpoint;

/// How often a write is tried against somebody who writes too.
const TRIES: usize = 5;
/// What makes Argo CD take along what an Application has made.
const CASCADE: &str = "resources-finalizer.argocd.argoproj.io";

impl Teardown<'_> {
    /// Stops everything that would make again what goes. `before` is whether no node goes yet, so that none may.
    pub(super) async fn stop(&self, record: &RefCell<RemovalRecord>, before: bool) -> Result<(), Failure> {
        if !self.environment.whole {
            return Ok(());
        }
        self.stop_triggers(record).await?;
        self.exclude(record).await?;
        self.unbring(record).await?;
        for set in self.sets {
            self.unmake(set, before, record).await?;
        }
        Ok(())
    }

    /// Events and clocks start runs of this environment, and so do Jobs that wait for their turn.
    async fn stop_triggers(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let (workflows, name) = (&self.places.workflows, &self.environment.name);
        for placed in starting(self.places, name) {
            let object = path::object(&placed.collection, name_of(&placed.object));
            let Some(found) = self.cluster.get(&object).await?.filter(is_ours) else { continue };
            failpoint::write(&format!("{} goes", identity(&placed.object)));
            self.cluster.remove(&object, uid_of(&found), Owned::Follow).await?;
            record.borrow_mut().removed(identity(&placed.object));
        }
        let jobs = path::named("batch", "v1", workflows, "jobs");
        let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={name}");
        for job in self.cluster.list(&jobs, &selector).await?.iter().filter(|job| is_event(job) && !has_ended(job)) {
            let object = name_of(job);
            failpoint::write(&format!("Job {object} goes"));
            self.cluster.remove(&path::object(&jobs, object), uid_of(job), Owned::Follow).await?;
            record.borrow_mut().removed(format!("Job {object}"));
        }
        Ok(())
    }

    /// The root set leaves the environment out from now on.
    async fn exclude(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let object = path::object(&path::argo(&self.environment.argocd, "applicationsets"), ROOT_SET);
        for _ in 0..TRIES {
            let Some(root) = self.cluster.get(&object).await? else { return Ok(()) };
            let Some(patch) = exclusion(&root, &self.environment.file).filter(|_| is_ours(&root)) else {
                return Ok(());
            };
            failpoint::write("the root set leaves an environment out");
            match self.cluster.merge(&object, &at_version(patch, &root)).await {
                Ok(_) => {
                    let what = format!("ApplicationSet {ROOT_SET} leaves {} out", self.environment.file);
                    record.borrow_mut().removed(what);
                    return Ok(());
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(contested(&format!("ApplicationSet {ROOT_SET}")))
    }

    /// What brings the environment goes, and nothing that it brought.
    async fn unbring(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let name = self.environment.bootstrap.as_str();
        let object = path::object(&path::argo(&self.environment.argocd, "applications"), name);
        let Some(found) = self.cluster.get(&object).await? else { return Ok(()) };
        if !brings(&found, self.environment.source()) {
            let why = "it has the name of what brings the environment, and is somebody else's";
            record.borrow_mut().kept(format!("Application/{}/{name}", self.environment.argocd), why);
            return Ok(());
        }
        if self.without_cascade(name).await? {
            record.borrow_mut().removed(format!("Application {name}, without what it brought"));
        }
        Ok(())
    }

    /// Removes an Application of Argo CD's namespace, and nothing that it made: what would take that along is taken from it first.
    /// False where it is not there.
    ///
    /// # Errors
    /// When it does not go.
    pub(super) async fn without_cascade(&self, name: &str) -> Result<bool, Failure> {
        let collection = path::argo(&self.environment.argocd, "applications");
        let object = path::object(&collection, name);
        let Some(first) = self.cluster.get(&object).await? else { return Ok(false) };
        let uid = uid_of(&first).to_owned();
        let mut live = Some(first);
        for _ in 0..TRIES {
            let Some(found) = live.filter(|found| uid_of(found) == uid) else { return Ok(true) };
            let finalizers = found.pointer("/metadata/finalizers").and_then(Value::as_array);
            let all: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
            let kept: Vec<&str> = all.iter().copied().filter(|finalizer| !finalizer.starts_with(CASCADE)).collect();
            if kept.len() < all.len() {
                let patch = at_version(json!({"metadata": {"finalizers": kept}}), &found);
                failpoint::write(&format!("Application {name} loses its cascade"));
                match self.cluster.merge(&object, &patch).await {
                    Err(error) if !error.is_conflict() && !error.is_missing() => return Err(error.into()),
                    _ => {}
                }
                live = self.cluster.get(&object).await?;
                continue;
            }
            failpoint::write(&format!("Application {name} goes"));
            match self.cluster.remove(&object, &uid, Owned::Stay).await {
                Err(error) if !error.is_conflict() => return Err(error.into()),
                _ => {}
            }
            let shown = format!("Application/{}/{name}", self.environment.argocd);
            return match self.gone((collection.as_str(), name), &shown, &uid, SHOWN).await? {
                None => Ok(true),
                Some(remnant) => Err(stuck(&remnant)),
            };
        }
        Err(contested(&format!("Application {name}")))
    }

    /// A set of the environment goes. Its Applications are taken from it first, and again by Kubernetes when it goes: none goes
    /// with it.
    async fn unmake(&self, set: &str, before: bool, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let sets = path::argo(&self.environment.argocd, "applicationsets");
        let object = path::object(&sets, set);
        let Some(found) = self.cluster.get(&object).await? else { return Ok(()) };
        let uid = uid_of(&found).to_owned();
        let applications = path::argo(&self.environment.argocd, "applications");
        let there = surely(self.cluster, &applications, "").await?;
        let mut own = BTreeSet::new();
        for application in &there {
            let Some(patch) = strip_owner(application, set) else { continue };
            if !is_going(application) {
                own.insert(uid_of(application).to_owned());
            }
            let name = name_of(application);
            failpoint::write(&format!("Application {name} is taken from its set"));
            let patch = at_version(patch, application);
            match self.cluster.merge(&path::object(&applications, name), &patch).await {
                // Somebody wrote it meanwhile: Kubernetes takes it from the set when that goes.
                Err(error) if !error.is_conflict() && !error.is_missing() => return Err(error.into()),
                _ => {}
            }
        }
        failpoint::write(&format!("ApplicationSet {set} goes"));
        self.cluster.remove(&object, &uid, Owned::Stay).await?;
        let shown = format!("ApplicationSet/{}/{set}", self.environment.argocd);
        if let Some(remnant) = self.gone((sets.as_str(), set), &shown, &uid, SHOWN).await? {
            return Err(stuck(&remnant));
        }
        record.borrow_mut().removed(format!("ApplicationSet {set}, without its Applications"));
        // While nodes go those of a set that came back go too, each in its turn.
        if !before {
            return Ok(());
        }
        match taken_along(&own, &surely(self.cluster, &applications, "").await?) {
            None => Ok(()),
            Some(application) => {
                let name = name_of(application);
                let message = format!("Application {name} went with ApplicationSet {set}; nothing else is removed");
                Err(Failure::new(Code::RemovalStuck, message).hint("see who else deletes it, then tear down again"))
            }
        }
    }

    /// Applications that are to go lose what lets Kargo promote into them, and are kept from an app of apps that goes before
    /// them: each goes in its turn and not with another one.
    pub(super) async fn mark_nodes(&self, plan: &RunPlan) -> Result<(), Failure> {
        let names: BTreeSet<&str> = plan.nodes().map(|node| node.application.name()).collect();
        for node in plan.nodes() {
            let id = &node.application;
            let object = path::object(&path::argo(id.namespace.as_str(), "applications"), id.name());
            let Some(live) = self.cluster.get(&object).await? else { continue };
            let planned = node.removal.as_ref().and_then(|removal| removal.uid.as_deref());
            if planned != Some(uid_of(&live)) {
                continue;
            }
            let child = matches!(creator(&live), Some(Creator::Application(parent)) if names.contains(parent.as_str()));
            let patches = [unauthorized(&live), if child { protected(&live) } else { None }];
            for patch in patches.into_iter().flatten() {
                failpoint::write(&format!("Application {} is marked", id.name()));
                match self.cluster.merge(&object, &patch).await {
                    Err(error) if !error.is_missing() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn is_going(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// An Application that went with its set: one of these, which were not going before it went.
fn taken_along<'a>(own: &BTreeSet<String>, applications: &'a [Value]) -> Option<&'a Value> {
    applications.iter().find(|application| own.contains(uid_of(application)) && is_going(application))
}

fn contested(what: &str) -> Failure {
    Failure::new(Code::RemovalStuck, format!("{what} is written by somebody else all the time"))
        .hint("find who writes it, then tear down again")
}

/// A Job that an event made: it deploys when its turn comes.
fn is_event(job: &Value) -> bool {
    let args = job.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    let mut words = args.into_iter().flatten().filter_map(Value::as_str);
    (words.next(), words.next()) == (Some("serve"), Some("event"))
}

fn has_ended(job: &Value) -> bool {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let mut over = conditions.filter(|condition| condition.get("status").and_then(Value::as_str) == Some("True"));
    over.any(|condition| {
        matches!(condition.get("type").and_then(Value::as_str), Some("Complete" | "Failed" | "SuccessCriteriaMet"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_going_before_went_with_its_set() {
        let there = json!({"metadata": {"uid": "1"}});
        let going = |uid: &str| json!({"metadata": {"uid": uid, "deletionTimestamp": "2026-11-16T10:00:00Z"}});
        // Of two that the set had, somebody had deleted the second before.
        let own = BTreeSet::from(["1".to_owned()]);
        assert_eq!(taken_along(&own, &[there, going("2")]), None);
        let taken = [going("1")];
        assert_eq!(taken_along(&own, &taken), Some(&taken[0]));
    }

    #[test]
    fn only_a_job_of_an_event_that_has_not_ended_is_in_the_way() {
        let job = |args: Value, conditions: Value| {
            let containers = json!([{"args": args}]);
            json!({"spec": {"template": {"spec": {"containers": containers}}}, "status": {"conditions": conditions}})
        };
        let event = job(json!(["serve", "event", "--environment", "dev"]), json!([]));
        assert!(is_event(&event) && !has_ended(&event));
        let run = job(json!(["serve", "run"]), json!([{"type": "Failed", "status": "False"}]));
        assert!(!is_event(&run) && !has_ended(&run) && !is_event(&json!({})));
        for kind in ["Complete", "Failed"] {
            assert!(has_ended(&job(json!([]), json!([{"type": kind, "status": "True"}]))));
        }
    }
}
