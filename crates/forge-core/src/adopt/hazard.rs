//! What would go wrong, or differently than people expect, when Forge runs Applications that it did not make.
//!
//! A kind is stable and never renamed: people and programs filter by it. Why it matters and what to do belong to the kind;
//! what was seen belongs to the hazard.

use serde::{Serialize, Serializer};

use super::shown;

/// How much a hazard matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Solve it before the first run: the run would not end, or it would destroy something.
    Blocking,
    /// The run works, but not as people may expect.
    Caution,
    /// Good to know.
    Note,
}

impl Severity {
    /// As one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Caution => "caution",
            Self::Note => "note",
        }
    }
}

macro_rules! kinds {
    ($($variant:ident $id:literal $severity:ident $title:literal $why:literal $advice:literal;)*) => {
        /// What kind of hazard. The order is the order of the report.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $title] $variant,)*
        }

        impl Kind {
            /// All kinds, in the order of the report.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// How much it matters.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// What it is, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Why it matters.
            pub const fn why(self) -> &'static str {
                match self { $(Self::$variant => $why,)* }
            }

            /// What to do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$variant => $advice,)* }
            }
        }
    };
}

kinds! {
    InvalidName "invalid-name" Blocking "an object whose name cannot be used"
        "It is not a node of the graph, so nothing waits for it and no run syncs it."
        "Rename it, or leave it to Argo CD alone.";
    BeingDeleted "being-deleted" Blocking "an Application that is being deleted"
        "It will vanish, and a run that waits for it cannot succeed."
        "Wait until it is gone and adopt again, or remove its node from graph.yaml.";
    SkipsReconcile "skips-reconcile" Blocking "an Application that Argo CD does not reconcile"
        "Forge proves a node by a refresh that Argo CD answers; this one is never answered, so the node runs into its timeout."
        "Remove the annotation argocd.argoproj.io/skip-reconcile, or the node.";
    BadDestination "bad-destination" Blocking "an Application whose destination cannot be used"
        "Argo CD cannot compare or sync it, so its node would fail and block all that waits for it."
        "Name a cluster that is registered with Argo CD, or remove the node.";
    NoProject "no-project" Blocking "an Application of an AppProject that does not exist"
        "Argo CD refuses to sync it, and its deletion never finishes."
        "Create the AppProject, or move the Application to another one.";
    SyncWindow "sync-window" Blocking "an AppProject with sync windows of its own"
        "A deny window, or an allow window outside its hours, also stops the syncs that Forge asks for: the run waits until its deadline."
        "Remove the windows, give them manualSync: true, or let Forge's promotion windows in forge.yaml say the same.";
    WouldPrune "would-prune" Blocking "resources that the first run would delete"
        "They are in the cluster and no longer in Git. Forge syncs with prune, so the first run deletes them."
        "Put them back into Git, or delete them yourself, before the first run.";
    AllowEmpty "allow-empty" Blocking "an Application that may be emptied"
        "With allowEmpty a folder that vanishes from Git deletes everything that the Application manages."
        "Remove allowEmpty from its automated sync policy.";
    Circle "managed-in-a-circle" Blocking "Applications that manage each other"
        "Each would have to be first. None of them waits for another in graph.yaml."
        "Decide which one is the parent and write the dependency by hand.";
    EmptyApplication "empty-application" Blocking "an Application without resources"
        "Forge proves no Application that manages nothing, because nothing would show that it is there: its node fails at once and blocks all that waits for it. Its path or its selectors may be wrong."
        "Check its source, or remove the node.";
    OrderConflict "order-conflict" Caution "dependencies that contradict each other"
        "Written together they would be a cycle. Sync waves, steps and an app-of-apps whose health includes its children were kept; the dependencies on CRDs that are listed here were left out."
        "Decide which order is right: change the wave, split the Application that both provides and uses CRDs, or move CRDs out of the app-of-apps of those who use them.";
    ParentHealth "parent-health" Caution "an app-of-apps whose health includes its children"
        "Argo CD assesses the health of Applications here, so the parent is Healthy only after its children: they cannot wait for it, and the edges between them were not written."
        "Keep it so, or take the parent out of the graph and let Argo CD sync it.";
    AppOfApps "app-of-apps" Caution "an app-of-apps whose children wait for it"
        "If Argo CD is told to assess the health of Applications (resource.customizations.health.argoproj.io_Application), the parent becomes Healthy only after its children, which wait for it: the run would stop until its deadline."
        "Before that customization is added, remove the parent from the dependsOn of its children's stack.";
    WaveBetweenApplications "wave-between-applications" Caution "sync waves between Applications"
        "Without a health customization Argo CD does not wait for Applications, so these waves never ordered anything but their creation. graph.yaml has them as dependencies that are proven (FORGE-W002)."
        "Check that the order is the one that is wanted; afterwards the annotations can go.";
    WaveWithoutParent "wave-without-parent" Note "a sync wave without a parent"
        "A wave orders resources of one Application. No Application or ApplicationSet manages this one, so its wave orders nothing and became no dependency."
        "Write the dependency in graph.yaml if one was meant, and remove the annotation.";
    RollingSync "rolling-sync" Caution "an ApplicationSet with progressive syncs"
        "Its controller syncs the Applications by itself, step after step, and would compete with a run. graph.yaml has its steps as dependencies; maxUpdate has no counterpart."
        "Before the first run set the strategy to AllAtOnce, or leave these Applications out of the graph.";
    RollingSyncUnclear "rolling-sync-unclear" Caution "progressive syncs whose order is not clear"
        "Argo CD skips a step it cannot evaluate and never syncs Applications that no step selects, so no order could be taken from it."
        "Correct the steps, or write the dependencies by hand.";
    CrdUnclear "crd-unclear" Caution "custom resources whose definition cannot be attributed"
        "Several Applications provide definitions of this API group and it is not known which one this needs, so no dependency was written."
        "Grant list on customresourcedefinitions and adopt again, or write the dependency by hand.";
    OutsideSelection "outside-selection" Caution "a dependency on an Application that was not selected"
        "It uses a CRD of an Application that --project or --selector left out; a run will not wait for it."
        "Select it too, or make sure that it is there before every run.";
    SyncHook "sync-hook" Caution "sync hooks"
        "Hooks run inside one sync, are not part of the proof, and often carry checks of what is deployed elsewhere; INV-8 forbids that, and a hook that waits for another Application can wait for ever."
        "Replace checks of other Applications by dependencies in graph.yaml; keep hooks that only work on their own Application.";
    AutomatedSync "automated-sync" Caution "automated sync"
        "Argo CD syncs by itself as soon as Git changes, in no order. During a run Forge holds these back by a deny window in the AppProject, which has to be handed over by name."
        "Hand the AppProject over, or turn automated sync off and let runs do it.";
    Retry "sync-retry" Note "a retry policy in the Application"
        "Forge asks for syncs without Argo CD's retries and retries by its own rules in graph.yaml; automated syncs keep theirs."
        "Move the limits to `retry` in graph.yaml where they matter.";
    DefaultProject "default-project" Caution "Applications in AppProject default"
        "Everybody's Applications are there, so it is not handed over: there is no window, and automated sync is not held back during a run."
        "Move them to an AppProject of their own.";
    SeveralProjects "several-projects" Caution "Applications of several AppProjects"
        "An environment of Forge has one AppProject that carries the window. The others have to be handed over too, or their automated syncs are not held back."
        "Adopt one AppProject at a time with --project, or hand all of them over.";
    SeveralClusters "several-clusters" Caution "Applications of several clusters"
        "forge.yaml names one cluster per environment. The graph holds all of these Applications as one environment, and they are ordered together."
        "Adopt them as several environments with --project or --selector if they are promoted separately.";
    OtherNamespace "other-namespace" Caution "an Application outside Argo CD's namespace"
        "Argo CD serves it only where application.namespaces allows that, and the token of a run needs rights for <project>/<namespace>/<name>."
        "Check application.namespaces and the policy of Forge's account.";
    SetDeletes "set-deletes" Caution "an ApplicationSet that deletes Applications"
        "When its generator returns less, for example because a file vanished, it deletes Applications and, with the finalizer, all that they manage. It also undoes changes made to them."
        "Set syncPolicy.applicationsSync: create-update and preserveResourcesOnDeletion: true.";
    NoFinalizer "no-finalizer" Note "an Application without the resources finalizer"
        "Deleting it leaves everything that it deployed behind; teardown lists that as orphans."
        "Add resources-finalizer.argocd.argoproj.io if its resources should go with it.";
    SharedResource "shared-resource" Caution "a resource that several Applications manage"
        "Each sync takes it from the other, so they are never all Synced, and at least one node is not proven."
        "Leave it in one Application.";
    Unhealthy "unhealthy" Caution "an Application that is not Healthy now"
        "Nothing that waits for it can start until it is Healthy; if it does not become so it fails after its health timeout."
        "Repair it first; `dependsOn` shows what would be blocked.";
    OutOfSync "out-of-sync" Caution "an Application that differs from Git now"
        "The first run syncs it, so the first run changes the cluster."
        "Look at its diff in Argo CD before the first run.";
    Condition "condition" Caution "an error that Argo CD reports"
        "Argo CD cannot compare, sync or delete the Application as it is, so it cannot be proven."
        "Repair what the message names.";
    OperationRunning "operation-running" Caution "an operation in flight"
        "A run waits for a foreign operation and then terminates it; one that is retried automatically may last for hours."
        "Let it end, or terminate it, before the first run.";
    OnlyHooks "only-hooks" Caution "an Application of hooks only"
        "Hooks are no part of the proof and never OutOfSync: it is proven as it is, often without a sync that would run them, and what waits for it waits for nothing."
        "Make what the hooks do resources of an Application, or remove the node.";
    NotReconciled "not-reconciled" Caution "an Application without a status"
        "Argo CD has not looked at it, so its resources, hooks and CRDs are not known and dependencies may be missing."
        "Check that an Argo CD is responsible for it, then adopt again.";
    MovingRevision "moving-revision" Caution "a source that moves by itself"
        "It follows a branch of another repository, HEAD or a range of versions: what is deployed may change in the middle of a run, and a node whose content moved is not proven."
        "Pin a commit, a tag or an exact version.";
    MultiSource "multi-source" Note "an Application with several sources"
        "It is proven by exactly the revisions that all its sources had at the start of the run."
        "Nothing, unless one of them moves by itself.";
    ChartSource "chart-source" Note "a Helm or OCI chart as source"
        "There is no commit of this repository to prove, so it is proven by the chart's version: `proof: revision`."
        "Nothing; pin an exact version.";
    Hydrated "hydrated-source" Note "a hydrated source"
        "What is synced is a commit that Argo CD itself pushes; the run sees that one, not the dry source."
        "Nothing, or wait for the hydrator before a run.";
    Orphans "orphaned-resources" Note "resources that no Application manages"
        "They are in namespaces of the AppProject but in no Application; runs and teardown do not touch them."
        "Remove them, or bring them into Git.";
    LongName "long-name" Caution "a name over 63 characters"
        "It cannot be a label value, so Argo CD cannot track resources by label, and names derived from it are cut."
        "Use annotation tracking, or shorten the name.";
    NoRepository "no-repository" Caution "no Git repository could be found"
        "forge.yaml needs the repository that holds it; none of the Applications reads one."
        "Replace the placeholder in forge.yaml.";
    Unread "unread" Note "something that could not be read"
        "What depends on it is missing here: dependencies, or hazards."
        "Grant get and list for it and adopt again, or check by hand.";
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// One hazard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hazard {
    /// Which kind.
    pub kind: Kind,
    /// What it is about: the kind and the name of an object.
    pub about: String,
    /// What was seen.
    pub detail: String,
}

impl Hazard {
    /// A hazard; texts from the cluster are cleaned here and nowhere else.
    pub(super) fn new(kind: Kind, about: &str, detail: impl AsRef<str>) -> Self {
        Self { kind, about: shown(about), detail: shown(detail.as_ref()) }
    }
}

impl Serialize for Hazard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = serializer.serialize_struct("Hazard", 6)?;
        fields.serialize_field("kind", &self.kind)?;
        fields.serialize_field("severity", &self.kind.severity())?;
        fields.serialize_field("about", &self.about)?;
        fields.serialize_field("detail", &self.detail)?;
        fields.serialize_field("why", self.kind.why())?;
        fields.serialize_field("do", self.kind.advice())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_their_own() {
        let mut ids: Vec<_> = Kind::ALL.iter().map(|kind| kind.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), Kind::ALL.len());
    }
}
