//! The three answers of the gate, in words for people and in types for callers (SPEC section 6).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::code::{Class, Code};
use crate::digest::{CommitId, Digest};
use crate::gate::expression::ExprError;
use crate::gate::observed::{Health, SyncState, Unwell};
use crate::gate::receipt::Receipt;
use crate::gate::wanted::{ContainerKey, ObjectRef};
use crate::name::{NodeId, clean, clip, cut};
use crate::teardown::{self, Removed};

/// What is to be done about a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Decision {
    /// Everything holds; what depends on it may start.
    Proven(Box<Receipt>),
    /// It was to go, and is gone; what it depended on may go.
    Gone(Box<Removed>),
    /// Not yet.
    Wait(Wait),
    /// Never, in this run.
    Failed(Failure),
}

/// A wait that ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// What for.
    pub on: WaitingFor,
    /// When the answer changes even if nothing else does. Always later than now.
    pub until: Timestamp,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
}

/// A node that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Why.
    pub why: Why,
    /// What sort of failure that is.
    pub class: Class,
}

/// What the caller must do now, once; then store what it did and look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Act {
    /// Ask Argo CD to sync, under the nonce of this attempt, and store `sync_requested`.
    RequestSync {
        /// Counted from 1.
        attempt: u32,
    },
    /// Ask Argo CD to compare again. Asked for repeatedly while content is not there: at most once per re-list.
    RequestRefresh,
    /// Ask Argo CD to render and compare again past everything that it keeps. For [`WaitingFor::Render`] once, and
    /// `rendered_anew_at` is stored when it was answered; for an error of our plugin now and then while it lasts.
    RequestHardRefresh,
    /// Ask Argo CD to end the running operation, and store `terminated_at`.
    TerminateForeign,
    /// Read workloads, containers and objects.
    ReadTree,
    /// Read what the repository says about the revision.
    ReadRepository,
    /// Read the receipt of what was rendered.
    ReadReceipt,
}

/// What a node waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are what the text names")]
pub enum WaitingFor {
    /// A node that is not proven yet.
    Predecessor { node: NodeId },
    /// The Application does not exist yet.
    Application,
    /// Somebody else's operation runs.
    ForeignOperation,
    /// It outlasted its time.
    ForeignTermination { asked: bool },
    /// A comparison that is new enough.
    Refresh { asked: bool },
    /// Our own request, which is due.
    SyncRequest { attempt: u32 },
    /// Argo CD does not show it yet.
    SyncStart {
        attempt: u32,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// Our operation runs.
    Operation { attempt: u32, message: String },
    /// Our operation failed and is tried again.
    Backoff { attempt: u32, message: String },
    /// Argo CD cannot compare.
    Comparison { message: String },
    /// Argo CD compared with an older commit.
    Commit { commit: CommitId },
    /// The repository has not been read for this revision.
    Repository { read: bool },
    /// The tree has not been read.
    Tree,
    /// Argo CD sees a difference although our operation succeeded.
    InSync { sync: SyncState },
    /// The receipt of what was rendered has not been read.
    Receipt,
    /// What Argo CD calls Synced was not rendered of the wanted release: it must render anew.
    Render { release: Digest },
    /// A controller that has not caught up.
    Generation { workload: String },
    /// A container that runs something else.
    Image { container: ContainerKey },
    /// Argo CD's health.
    Health {
        health: Health,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unwell: Option<Unwell>,
    },
    /// It is Healthy, and was not for long: it fell before, or its containers were started again.
    Settling { falls: u32, restarts: u32 },
    /// A required object.
    Object { object: ObjectRef, read: bool },
    /// A rule that does not hold yet.
    Rule { object: ObjectRef, detail: String },
    /// It is to go: see [`crate::teardown`].
    Removal { on: teardown::Waiting },
}

impl WaitingFor {
    /// What the caller must do now; nothing means watch.
    pub fn act(&self) -> Option<Act> {
        match self {
            Self::SyncRequest { attempt } => Some(Act::RequestSync { attempt: *attempt }),
            // Argo CD keeps an error of a plugin, and says it again without asking the plugin.
            Self::Comparison { message } if plugin_says(message).is_some() => Some(Act::RequestHardRefresh),
            Self::Render { .. } => Some(Act::RequestHardRefresh),
            Self::Refresh { asked: false } | Self::Comparison { .. } | Self::Commit { .. } => Some(Act::RequestRefresh),
            Self::ForeignTermination { asked: false } => Some(Act::TerminateForeign),
            Self::Tree | Self::Object { read: false, .. } => Some(Act::ReadTree),
            Self::Repository { .. } => Some(Act::ReadRepository),
            Self::Receipt => Some(Act::ReadReceipt),
            _ => None,
        }
    }

    /// Whether it is the wait that it was before: which resource is behind a health, and what Argo CD says about that, may
    /// change with every pod that starts.
    pub fn is_still(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Health { health, .. }, Self::Health { health: before, .. }) => health == before,
            _ => self == before,
        }
    }
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Predecessor { node } => write!(f, "`{node}` is not proven"),
            Self::Application => f.write_str("the Application does not exist"),
            Self::ForeignOperation => f.write_str("an operation of somebody else runs"),
            Self::ForeignTermination { .. } => f.write_str("an operation of somebody else must end"),
            Self::Refresh { asked: false } => f.write_str("a refresh must be asked for"),
            Self::Refresh { asked: true } => f.write_str("the refresh is not answered"),
            Self::SyncRequest { attempt } => write!(f, "sync {attempt} must be asked for"),
            Self::SyncStart { attempt, message } => with(f, format_args!("sync {attempt} has not started"), message),
            Self::Operation { attempt, message } => with(f, format_args!("sync {attempt} runs"), message),
            Self::Backoff { attempt, message } => with(f, format_args!("sync {attempt} failed, retrying"), message),
            Self::Comparison { message } => with(f, format_args!("Argo CD cannot compare"), message),
            Self::Commit { commit } => write!(f, "Argo CD has not seen commit {commit}"),
            Self::Repository { .. } => f.write_str("the repository is not read for this revision"),
            Self::Tree => f.write_str("the resource tree is not read"),
            Self::InSync { sync } => write!(f, "the Application is {sync} after its sync"),
            Self::Receipt => f.write_str("the receipt of what was rendered is not read"),
            Self::Render { release } => {
                write!(f, "release {} is not what Argo CD rendered; it must render anew", release.short(12))
            }
            Self::Generation { workload } => write!(f, "the controller of {} has not caught up", clip(workload)),
            Self::Image { container } => write!(f, "{container} does not run the wanted image"),
            Self::Health { health, unwell } => behind(f, format_args!("health is {health}"), unwell.as_ref()),
            Self::Settling { falls, restarts } => {
                write!(f, "Healthy, but not for long: it fell {falls} times and restarted {restarts} times")
            }
            Self::Object { object, .. } => write!(f, "{object} does not exist"),
            Self::Rule { object, detail } => write!(f, "the rule for {object} does not hold: {detail}"),
            Self::Removal { on } => fmt::Display::fmt(on, f),
        }
    }
}

/// Why a node failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are what the text names")]
pub enum Why {
    /// A predecessor failed (INV-4).
    Blocked { by: NodeId },
    /// The whole run took too long.
    RunTimeout { predecessor: Option<NodeId> },
    /// The Application never appeared.
    MissingApplication,
    /// Somebody else's operation did not end.
    ForeignOperation,
    /// Other operations kept overtaking ours.
    Superseded { attempt: u32 },
    /// Argo CD never showed our request.
    SyncNotStarted {
        attempt: u32,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// Our operation did not end.
    SyncTimeout { attempt: u32, message: String },
    /// Our operation failed and no attempt is left.
    SyncFailed { attempt: u32, message: String },
    /// The refresh was never answered.
    RefreshUnanswered,
    /// Argo CD could not compare.
    Comparison { message: String },
    /// An Application that manages nothing proves nothing.
    Empty,
    /// Argo CD never saw the commit.
    CommitMissing { commit: CommitId },
    /// The repository could not be read.
    RepositoryUnread {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// The node's folder was changed after the run's commit.
    FolderMoved,
    /// Another revision than the one resolved at the start.
    RevisionMoved { wanted: Vec<String>, found: Vec<String> },
    /// Still different after a successful sync.
    NotInSync { sync: SyncState },
    /// What is live was not rendered of the wanted release, although Argo CD calls it Synced and has rendered anew.
    NotRendered {
        release: Digest,
        #[serde(default)]
        found: Rendered,
    },
    /// A controller never caught up.
    StaleGeneration { workload: String },
    /// A container still runs something else.
    WrongImage { container: ContainerKey, wanted: Digest, running: Option<Digest> },
    /// Argo CD's health outlasted its time.
    Unhealthy {
        health: Health,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unwell: Option<Unwell>,
    },
    /// It was Healthy now and then, and never for long enough.
    Flapping { falls: u32, restarts: u32 },
    /// A required object never appeared.
    MissingObject { object: ObjectRef },
    /// A rule never held.
    RuleUnmet { object: ObjectRef, detail: String },
    /// A rule that cannot be used.
    RuleBroken { object: ObjectRef, error: ExprError },
    /// It was to go, and did not: see [`crate::teardown`].
    Removal { why: teardown::Why },
}

/// What the receipt of what is live says instead of what was wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Rendered {
    /// There is none.
    #[default]
    Nothing,
    /// Another release.
    Release {
        /// Which one.
        digest: Digest,
    },
    /// The wanted release, by another pointer.
    Pointer,
    /// The wanted release, and other resources than it holds.
    Output,
}

impl Why {
    /// What sort of failure it is.
    pub fn class(&self) -> Class {
        match self {
            Self::Blocked { .. } => Class::Blocked,
            Self::RunTimeout { .. }
            | Self::MissingApplication
            | Self::SyncNotStarted { .. }
            | Self::SyncTimeout { .. }
            | Self::RefreshUnanswered
            | Self::CommitMissing { .. }
            | Self::StaleGeneration { .. }
            | Self::Unhealthy { health: Health::Progressing, .. } => Class::Timeout,
            Self::ForeignOperation
            | Self::Superseded { .. }
            | Self::FolderMoved
            | Self::RevisionMoved { .. }
            | Self::NotInSync { .. }
            | Self::NotRendered { .. }
            | Self::WrongImage { .. } => Class::Conflict,
            Self::SyncFailed { .. } | Self::RepositoryUnread { .. } => Class::Transient,
            Self::Comparison { message } => plugin_code(message).map_or(Class::User, Code::class),
            Self::Empty | Self::RuleBroken { .. } => Class::User,
            Self::Unhealthy { .. } | Self::Flapping { .. } | Self::MissingObject { .. } | Self::RuleUnmet { .. } => {
                Class::Unhealthy
            }
            Self::Removal { why } => why.class(),
        }
    }
}

impl From<Why> for Failure {
    fn from(why: Why) -> Self {
        Self { class: why.class(), why }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked { by } => write!(f, "blocked by `{by}`, which failed"),
            Self::RunTimeout { predecessor: Some(node) } => {
                write!(f, "the run timed out while `{node}` was not proven")
            }
            Self::RunTimeout { predecessor: None } => f.write_str("the run timed out"),
            Self::MissingApplication => f.write_str("the Application does not exist"),
            Self::ForeignOperation => f.write_str("an operation of somebody else did not end when asked to"),
            Self::Superseded { attempt } => write!(f, "sync {attempt} was overtaken by an operation of somebody else"),
            Self::SyncNotStarted { attempt, message } => {
                with(f, format_args!("Argo CD did not start sync {attempt}"), message)
            }
            Self::SyncTimeout { attempt, message } => with(f, format_args!("sync {attempt} timed out"), message),
            Self::SyncFailed { attempt, message } => with(f, format_args!("sync {attempt} failed"), message),
            Self::RefreshUnanswered => f.write_str("Argo CD did not answer a refresh"),
            Self::Comparison { message } => with(f, format_args!("Argo CD cannot compare"), message),
            Self::Empty => f.write_str("the Application manages no resources"),
            Self::CommitMissing { commit } => write!(f, "Argo CD did not see commit {commit}"),
            Self::RepositoryUnread { message } => {
                with(f, format_args!("the repository could not be read for this revision"), message)
            }
            Self::FolderMoved => f.write_str("the node's folder was changed after the commit of this run"),
            Self::RevisionMoved { wanted, found } => {
                write!(f, "the revision moved from `{}` to `{}`", clip(&wanted.join(", ")), clip(&found.join(", ")))
            }
            Self::NotInSync { sync } => write!(f, "the Application stayed {sync} after its sync"),
            Self::NotRendered { release, found } => {
                let release = release.short(12);
                match found {
                    Rendered::Nothing => write!(f, "release {release} was not rendered: there is no `forge-receipt`"),
                    Rendered::Release { digest } => {
                        write!(f, "release {} was rendered instead of {release}", digest.short(12))
                    }
                    Rendered::Pointer => write!(f, "release {release} was rendered by another pointer than this one"),
                    Rendered::Output => write!(f, "release {release} was rendered to something else than it holds"),
                }
            }
            Self::StaleGeneration { workload } => write!(f, "the controller of {} did not catch up", clip(workload)),
            Self::WrongImage { container, wanted, running: Some(running) } => {
                write!(f, "{container} runs {} instead of {}", running.short(12), wanted.short(12))
            }
            Self::WrongImage { container, wanted, running: None } => {
                write!(f, "{container} never showed its image; wanted {}", wanted.short(12))
            }
            Self::Unhealthy { health, unwell } => behind(f, format_args!("health stayed {health}"), unwell.as_ref()),
            Self::Flapping { falls, restarts } => {
                write!(f, "it did not stay Healthy: it fell {falls} times and restarted {restarts} times")
            }
            Self::MissingObject { object } => write!(f, "{object} does not exist"),
            Self::RuleUnmet { object, detail } => write!(f, "the rule for {object} never held: {detail}"),
            Self::RuleBroken { object, error } => write!(f, "the rule for {object} cannot be used: {error}"),
            Self::Removal { why } => fmt::Display::fmt(why, f),
        }
    }
}

/// A sentence and, where there is one, Argo CD's message: cleaned, because it may quote anything.
fn with(f: &mut fmt::Formatter<'_>, sentence: fmt::Arguments<'_>, message: &str) -> fmt::Result {
    if message.is_empty() { f.write_fmt(sentence) } else { write!(f, "{sentence}: {}", quoted(message)) }
}

/// A sentence about health and, where Argo CD names it, the resource behind that and what is wrong with it.
fn behind(f: &mut fmt::Formatter<'_>, sentence: fmt::Arguments<'_>, unwell: Option<&Unwell>) -> fmt::Result {
    match unwell {
        Some(Unwell { resource, message }) => with(f, format_args!("{sentence}: {}", clip(resource)), message),
        None => f.write_fmt(sentence),
    }
}

/// What our plugin says, where Argo CD quotes it: its lines as one, without all that Argo CD says before them.
pub fn plugin_says(message: &str) -> Option<String> {
    let (_, said) = message.split_once("catalyst-forge-cmp")?;
    let (_, said) = said.split_once("failed exit status ")?;
    let (_, said) = said.split_once(": ")?;
    plugin_code(message)?;
    let line = |line: &str| match line.strip_prefix("error[").and_then(|line| line.split_once("]: ")) {
        Some((code, what)) => format!("{code} {what}"),
        None => line.to_owned(),
    };
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    Some(lines.map(line).collect::<Vec<_>>().join("; "))
}

/// The code of what our plugin says, where Argo CD quotes it.
pub fn plugin_code(message: &str) -> Option<Code> {
    let (_, said) = message.split_once("catalyst-forge-cmp")?;
    let (_, code) = said.split_once("error[")?;
    code.split_once(']')?.0.parse().ok()
}

/// What Argo CD says, as it is quoted: our plugin's own words where they are what it says; else without the names of its
/// temporary files, and long enough for the cause, which comes after them.
fn quoted(message: &str) -> String {
    const LONGEST: usize = 300;
    let mut text = plugin_says(message).unwrap_or_else(|| message.to_owned());
    for folder in ["\"/dev/shm/", "\"/tmp/"] {
        while let Some(at) = text.find(folder) {
            let (before, from) = text.split_at(at);
            let Some(begin) = before.rfind("error when ") else { break };
            let Some((_, after)) = from.split_once("\": ") else { break };
            text = format!("{}{after}", before.get(..begin).unwrap_or_default());
        }
    }
    cut(&clean(&text), LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_our_plugin_says_is_the_cause_and_has_its_class() {
        let before = "Failed to load target state: failed to generate manifest for source 1 of 1: rpc error: code = Unknown desc = Manifest generation error (cached): error generating manifests in cmp: rpc error: code = Unknown desc = error generating manifests: `/usr/local/bin/catalyst-forge-cmp generate` failed exit status 6: ";
        let message = format!("{before}error[FORGE-N006]: release `r` is not signed\n\nhint: sign it");
        assert_eq!(quoted(&message), "FORGE-N006 release `r` is not signed; hint: sign it");
        let why = Why::Comparison { message: message.clone() };
        assert_eq!(why.to_string(), "Argo CD cannot compare: FORGE-N006 release `r` is not signed; hint: sign it");
        assert_eq!((why.class(), plugin_code(&message)), (Class::Policy, Some(Code::NotSigned)));
        let on = WaitingFor::Comparison { message };
        assert_eq!(on.act(), Some(Act::RequestHardRefresh));
        // What keeps it from a repository comes before it, a line each.
        let findings = format!("{before}dev/release.yaml:5:3: FORGE-P001 x\n    fix: y\nerror[FORGE-C006]: z");
        let said = plugin_says(&findings);
        assert_eq!(said.as_deref(), Some("dev/release.yaml:5:3: FORGE-P001 x; fix: y; FORGE-C006 z"));
        for other in [
            "rpc error: no such repository",
            "`catalyst-forge-cmp generate` failed signal: killed",
            "`other generate` failed exit status 1: error[FORGE-N001]: x",
            "`catalyst-forge-cmp generate` failed exit status 1: error[E0001]: x",
        ] {
            assert_eq!(plugin_says(other), None, "{other}");
            let on = WaitingFor::Comparison { message: other.to_owned() };
            assert_eq!(on.act(), Some(Act::RequestRefresh), "{other}");
        }
    }

    #[test]
    fn health_names_the_resource_behind_it_and_its_words_make_no_other_wait() {
        let unwell = |message: &str| {
            let (resource, message) = ("Deployment/shop/api".to_owned(), message.to_owned());
            Some(Unwell { resource, message })
        };
        let on = |health, unwell| WaitingFor::Health { health, unwell };
        let one = on(Health::Progressing, unwell("1 of 3 updated\u{1b}[2J"));
        assert_eq!(one.to_string(), "health is Progressing: Deployment/shop/api: 1 of 3 updated\u{fffd}[2J");
        let why = Why::Unhealthy { health: Health::Degraded, unwell: unwell("") };
        assert_eq!(why.to_string(), "health stayed Degraded: Deployment/shop/api");
        assert_eq!(why.class(), Class::Unhealthy);
        let long = Why::Unhealthy { health: Health::Progressing, unwell: unwell(&"x".repeat(5000)) };
        assert!(long.to_string().len() < 400 && long.class() == Class::Timeout, "{long}");
        for same in [on(Health::Progressing, unwell("2 of 3 updated")), on(Health::Progressing, None)] {
            assert!(one != same && one.is_still(&same) && same.is_still(&one));
        }
        for other in [on(Health::Degraded, unwell("1 of 3 updated\u{1b}[2J")), WaitingFor::Tree] {
            assert!(!one.is_still(&other) && !other.is_still(&one) && other.is_still(&other));
        }
    }

    #[test]
    fn what_was_stored_before_resources_were_named_is_still_read() {
        let old = r#"{"type": "failed", "class": "unhealthy", "why": {"type": "unhealthy", "health": "Degraded"}}"#;
        let decision: Decision = serde_json::from_str(old).unwrap();
        let why = Why::Unhealthy { health: Health::Degraded, unwell: None };
        assert_eq!(decision, Decision::Failed(Failure::from(why)));
        assert_eq!(serde_json::to_value(&decision).unwrap(), serde_json::from_str::<serde_json::Value>(old).unwrap());
        let old = r#"{"type": "health", "health": "Progressing"}"#;
        let on: WaitingFor = serde_json::from_str(old).unwrap();
        assert_eq!(on, WaitingFor::Health { health: Health::Progressing, unwell: None });
    }

    #[test]
    fn a_message_of_argo_cd_is_quoted_with_its_cause() {
        let message = r#"one or more objects failed to apply, reason: error when patching "/dev/shm/2529": Deployment.apps "vault" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0,error when creating "/dev/shm/77": x (retried 5 times)."#;
        let wanted = r#"one or more objects failed to apply, reason: Deployment.apps "vault" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0,x (retried 5 times)."#;
        assert_eq!(quoted(message), wanted);
        assert_eq!(quoted("a\"/dev/shm/b\u{1b}c"), "a\"/dev/shm/b\u{fffd}c");
        assert_eq!(quoted(r#"error when x "/tmp/y" z"#), r#"error when x "/tmp/y" z"#);
        assert!(quoted(&"é".repeat(5000)).len() <= 300);
    }
}
