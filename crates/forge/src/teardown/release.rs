//! Finalizers that a person gives up by name (`--release-finalizer`): of one object each, that is already being deleted and that
//! belongs to the environment. Never done silently: what was taken away, whose it was and since when is in the record.

use std::cell::RefCell;
use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::run::RunPlan;
use forge_core::teardown::inventory::Kind;
use forge_core::teardown::{Kept, Member, ReleasedFinalizer, Remnant, RemovalRecord, Target, brings};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Environment, Teardown, at_version, name_of};
use crate::cluster::{path, unknown};
use crate::failpoint;

/// What the garbage collector leaves alone what an object owns by.
const ORPHAN: &str = "orphan";

fn unreleasable(target: &Target, why: &str) -> Failure {
    Failure::new(Code::NotReleasable, format!("the finalizers of {target} cannot be given up: {why}"))
        .hint("write the object as the message about it names it, with its group where the kind is ambiguous")
}

impl Teardown<'_> {
    /// Gives up the finalizers of the objects that were named, as far as they are being deleted by now. Without a plan, where no
    /// node is left, they are those of the environment's own namespaces.
    pub(super) async fn release(
        &self,
        plan: Option<&RunPlan>,
        record: &RefCell<RemovalRecord>,
        moment: Moment,
    ) -> Result<(), Failure> {
        if self.options.targets.is_empty() {
            return Ok(());
        }
        let mut namespaces = BTreeSet::new();
        if self.environment.whole {
            namespaces.extend(self.own_namespaces().await?.iter().map(|found| name_of(found).to_owned()));
        }
        let own = Own { plan, namespaces, environment: self.environment, sets: self.sets };
        for target in &self.options.targets {
            let done = record.borrow().released.iter().any(|released| released.object == target.to_string());
            if !done && let Some(released) = self.released(target, &own, moment).await? {
                record.borrow_mut().released.push(released);
            }
        }
        Ok(())
    }

    async fn released(
        &self,
        target: &Target,
        own: &Own<'_>,
        moment: Moment,
    ) -> Result<Option<ReleasedFinalizer>, Failure> {
        if target.kind == "Namespace" {
            return Err(unreleasable(target, "a namespace goes when what is in it is gone: name that"));
        }
        let (kinds, gap) = self.kinds.meant(target).await?;
        let kind: &Kind = match (kinds.as_slice(), &gap) {
            ([kind], _) => kind,
            // Its group may be back before it is its turn; what is left of it is said at the end.
            ([], Some(_)) => return Ok(None),
            // Definitions go with their nodes, and what is served is not known for a moment while a server of its own goes.
            _ if moment == Moment::Meanwhile => return Ok(None),
            ([], None) => return Err(unreleasable(target, "the cluster serves no such kind in such a place")),
            (several, _) => {
                let groups: Vec<&str> = several.iter().map(|kind| kind.group.as_str()).collect();
                return Err(unreleasable(target, &format!("several groups have this kind: {}", groups.join(", "))));
            }
        };
        let object = path::object(&kind.within(&target.namespace), &target.name);
        // It may go by itself, and it may not be its turn yet.
        let Some(live) = self.cluster.get(&object).await? else { return Ok(None) };
        let remnant = Remnant::read(&target.to_string(), &live);
        if remnant.deleting.is_none() || remnant.finalizers.is_empty() {
            return Ok(None);
        }
        // It is not known what it may be among. The core has no name that a person could write.
        if let Some(gap) = gap.filter(|_| target.group.is_none() && !kind.group.is_empty()) {
            if moment == Moment::Meanwhile {
                return Ok(None);
            }
            let why = format!("{}, and it may have this kind too: write `{}.{}`", unknown(&gap), kind.kind, kind.group);
            return Err(unreleasable(target, &why));
        }
        if !own.has(target, kind, &live) {
            return Err(unreleasable(target, "it belongs to no node of this teardown"));
        }
        let Some(kept) = kept_of(&live) else { return Ok(None) };
        let patch = at_version(json!({"metadata": {"finalizers": kept}}), &live);
        failpoint::write(&format!("{target} loses its finalizers"));
        match self.cluster.merge(&object, &patch).await {
            // Somebody wrote it meanwhile: looked at again in a moment.
            Err(error) if error.is_conflict() || error.is_missing() => return Ok(None),
            other => other?,
        };
        Ok(Some(ReleasedFinalizer {
            object: target.to_string(),
            finalizers: remnant.finalizers.iter().filter(|f| f.name != ORPHAN).map(ToString::to_string).collect(),
            deleting: remnant.deleting,
            at: Timestamp::now(),
        }))
    }

    /// What was to be given up and is still there at the end.
    pub(super) async fn unreleased(&self, record: &RefCell<RemovalRecord>) -> Result<Vec<Kept>, Failure> {
        let mut left = Vec::new();
        for target in &self.options.targets {
            if record.borrow().released.iter().any(|released| released.object == target.to_string()) {
                continue;
            }
            let (kinds, gap) = self.kinds.meant(target).await?;
            if let (true, Some(gap)) = (kinds.is_empty(), &gap) {
                left.push(Kept { object: target.to_string(), why: unknown(gap) });
            }
            for kind in kinds {
                let object = path::object(&kind.within(&target.namespace), &target.name);
                if let Some(live) = self.cluster.get(&object).await? {
                    let why = match &gap {
                        Some(gap) if Remnant::read(&target.to_string(), &live).deleting.is_some() => {
                            format!(
                                "{}, and it may have this kind too: write `{}.{}`",
                                unknown(gap),
                                kind.kind,
                                kind.group
                            )
                        }
                        _ => "it was named with --release-finalizer, and nobody asked it to go".to_owned(),
                    };
                    left.push(Kept { object: target.to_string(), why });
                }
            }
        }
        Ok(left)
    }
}

/// When it is asked what is given up by name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Nothing was removed yet: what cannot be told apart is refused.
    Before,
    /// What can be told apart later is left for later, and what never could is said at the end: a removal does not stop half-way.
    Meanwhile,
}

/// What is the environment's, so that a person may give up what keeps it.
struct Own<'o> {
    /// Absent where no node is left.
    plan: Option<&'o RunPlan>,
    /// Namespaces that go with the environment.
    namespaces: BTreeSet<String>,
    environment: &'o Environment,
    sets: &'o BTreeSet<String>,
}

impl Own<'_> {
    /// It was made by a node of this teardown, is the Application of one, is in a namespace that one deploys to or that goes, or is
    /// what would make the nodes again.
    fn has(&self, target: &Target, kind: &Kind, live: &Value) -> bool {
        self.namespaces.contains(&target.namespace)
            || self.plan.is_some_and(|plan| belongs(target, kind, plan))
            || self.makes(target, kind, live)
    }

    fn makes(&self, target: &Target, kind: &Kind, live: &Value) -> bool {
        let Environment { argocd, bootstrap, whole, .. } = self.environment;
        let here = *whole && kind.group == "argoproj.io" && target.namespace == *argocd;
        here && match kind.kind.as_str() {
            "ApplicationSet" => self.sets.contains(&target.name),
            "Application" => target.name == *bootstrap && brings(live, self.environment.source()),
            _ => false,
        }
    }
}

/// What of its finalizers an object keeps; nothing where there is none to give up. The one that keeps what it owns from going
/// with it is never given up: Kubernetes clears it by itself.
fn kept_of(live: &Value) -> Option<Vec<&str>> {
    let all = live.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    let (kept, given_up): (Vec<&str>, Vec<&str>) = all.filter_map(Value::as_str).partition(|name| *name == ORPHAN);
    (!given_up.is_empty()).then_some(kept)
}

/// It was made by a node of this teardown, is the Application of one, or is in a namespace that one deploys to.
fn belongs(target: &Target, kind: &Kind, plan: &RunPlan) -> bool {
    let same = |member: &Member| {
        member.kind == target.kind
            && member.group == kind.group
            && member.namespace == target.namespace
            && member.name == target.name
    };
    let removals = || plan.nodes().filter_map(|node| node.removal.as_ref());
    let application = kind.group == "argoproj.io"
        && kind.kind == "Application"
        && plan.nodes().any(|node| {
            node.application.namespace.as_str() == target.namespace && node.application.name() == target.name
        });
    application
        || removals().flat_map(|removal| &removal.members).any(same)
        || (!target.namespace.is_empty() && removals().any(|removal| removal.destination == target.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sample;

    fn plan() -> RunPlan {
        let removal = json!({
            "uid": "1", "project": "dev", "here": true, "destination": "shop", "namespaces": ["monitoring", "shop"],
            "members": [{"group": "g.example.com", "version": "v1", "kind": "Widget", "name": "main"}],
        });
        sample::teardown("db", serde_json::from_value(removal).unwrap())
    }

    #[test]
    fn only_what_belongs_to_the_environment_can_be_given_up() {
        let of = |text: &str, group: &str| {
            let target: Target = text.parse().unwrap();
            let kind = Kind {
                group: group.to_owned(),
                resource: "x".to_owned(),
                version: "v1".to_owned(),
                kind: target.kind.clone(),
                namespaced: !target.namespace.is_empty(),
                counts: true,
            };
            belongs(&target, &kind, &plan())
        };
        assert!(of("Widget/main", "g.example.com") && of("PersistentVolumeClaim/shop/data", ""));
        assert!(of("Application/argocd/db", "argoproj.io"));
        for (other, group) in [
            ("Widget/main", "other.example.com"),
            ("Widget/other", "g.example.com"),
            ("ConfigMap/kube-system/x", ""),
            // Something of the node is there, and so is somebody else.
            ("PersistentVolumeClaim/monitoring/theirs", ""),
            ("Application/argocd/somebodys", "argoproj.io"),
        ] {
            assert!(!of(other, group), "{other}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_told_apart_is_refused_before_the_first_node_goes_and_stops_no_removal_after_that() {
        use forge_core::executor::PvPolicy;

        use crate::cluster::fake::Fake;
        use crate::teardown::sample::World;

        let group = |name: &str| json!({"name": name, "versions": [{"version": "v1"}]});
        let verbs = ["get", "list", "delete"];
        let widgets =
            json!({"resources": [{"name": "widgets", "kind": "Widget", "namespaced": false, "verbs": verbs}]});
        let going = json!({
            "metadata": {"name": "main", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/stuck"]},
        });
        for (target, refused, left) in [("Widget/main", true, 1), ("Widget.g.example.com/main", false, 0)] {
            let mut fake = Fake::default();
            for (path, answer) in [
                ("/api/v1", json!({"resources": []})),
                ("/apis", json!({"groups": [group("g.example.com"), group("down.example.com")]})),
                ("/apis/g.example.com/v1", widgets.clone()),
                ("/apis/g.example.com/v1/widgets/main", going.clone()),
            ] {
                fake.objects.insert(path.to_owned(), answer);
            }
            fake.refused.insert("/apis/down.example.com/v1".to_owned(), 503);
            let world = World::new(fake, PvPolicy::Retain).await.giving_up(target);
            let (teardown, record) = (world.teardown(10), RefCell::default());
            let before = teardown.release(Some(&plan()), &record, Moment::Before).await;
            assert_eq!(before.err().map(|failure| failure.code), refused.then_some(Code::NotReleasable), "{target}");
            teardown.release(Some(&plan()), &record, Moment::Meanwhile).await.unwrap();
            assert_eq!((record.borrow().released.len(), world.writes().len()), (1 - left, 1 - left), "{target}");
            let kept = teardown.unreleased(&record).await.unwrap();
            assert_eq!(kept.len(), left, "{target}");
            assert!(kept.iter().all(|kept| kept.why.ends_with("write `Widget.g.example.com`")), "{target}: {kept:?}");
        }
    }

    #[test]
    fn what_keeps_owned_objects_from_going_along_is_never_given_up() {
        let of = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        assert_eq!(kept_of(&of(json!(["a", "orphan", "b"]))), Some(vec!["orphan"]));
        assert_eq!(kept_of(&of(json!(["a"]))), Some(Vec::new()));
        assert_eq!((kept_of(&of(json!(["orphan"]))), kept_of(&json!({}))), (None, None));
    }
}
