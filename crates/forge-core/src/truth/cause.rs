//! What can be wrong with an environment: of which sort it is, how much it weighs, and in words. What to do about it is in
//! `view::advice`, where all advice is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::digest::{CommitId, Digest};
use crate::duration::Duration;
use crate::exit::Exit;
use crate::gate::{ContainerKey, Health, WaitingFor, Why, plugin_says};
use crate::name::clip;
use crate::view::{list, shown};

/// How something stands. The worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything that must hold was seen to hold.
    Healthy,
    /// Something could not be read, so nobody can say.
    NotKnown,
    /// It works, and not everything is as it should be, or it is on its way.
    Degraded,
    /// It does not work as wanted, and had its time.
    Unhealthy,
}

impl Verdict {
    /// As people say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::NotKnown => "not known",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }

    /// The exit code of `validate` (SPEC.md section 5). What is not known is never fine.
    pub const fn exit(self) -> Exit {
        match self {
            Self::Healthy => Exit::Done,
            Self::NotKnown | Self::Degraded => Exit::Partial,
            Self::Unhealthy => Exit::Findings,
        }
    }
}

macro_rules! kinds {
    ($($variant:ident $id:literal $code:ident;)*) => {
        /// The sort of what is wrong. Its name is stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "the page of its code explains each")]
        pub enum Kind {
            $($variant,)*
            /// A rule of lint that a live object breaks; the code is the rule's.
            Policy,
        }

        impl Kind {
            /// All sorts.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)* Self::Policy];

            /// The stable name.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$variant => $id,)*
                    Self::Policy => "policy",
                }
            }

            /// The code whose page explains it; that of a rule is the rule's own.
            const fn code(self) -> Option<Code> {
                match self {
                    $(Self::$variant => Some(Code::$code),)*
                    Self::Policy => None,
                }
            }
        }
    };
}

kinds! {
    Missing     "missing"      NodeMissing;
    Unhealthy   "unhealthy"    NodeUnhealthy;
    Progressing "progressing"  NodeOnItsWay;
    Drift       "drift"        Drifted;
    Stale       "stale"        ComparisonOld;
    WrongDigest "wrong-digest" WrongDigest;
    Extra       "extra"        ExtraApplication;
    NotKnown    "not-known"    NotRead;
    Controller  "controller"   ControllerUnwell;
    Window      "window"       WindowWrong;
    Tracking    "tracking"     ObjectClaimed;
    Config      "config"       ConfigDiffers;
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// The gate gave up on the node: what it waited for has had its time.
    Failed(Why),
    /// The gate waits for something that still has time.
    Waits(WaitingFor),
    /// A sync runs.
    Syncing {
        /// Who asked for it, in words.
        by: String,
    },
    /// A sync runs, and has had its time.
    SyncHangs {
        /// Who asked for it, in words.
        by: String,
        /// For how long.
        age: Duration,
    },
    /// The Application is being deleted.
    Going {
        /// For how long.
        age: Duration,
        /// It has had its time, and something keeps it.
        settled: bool,
    },
    /// The last sync failed.
    SyncFailed {
        /// What Argo CD says about it.
        message: String,
        /// Argo CD sees no difference all the same.
        in_sync: bool,
    },
    /// Argo CD sees a difference to Git.
    Drift {
        /// What differs, as far as Argo CD names it.
        resources: Vec<String>,
    },
    /// Argo CD has not compared for a while.
    NotCompared {
        /// For how long; nothing where it never did.
        age: Option<Duration>,
        /// How old it may be.
        limit: Duration,
    },
    /// Argo CD compared with an older commit than Git holds.
    OldCommit {
        /// What Git holds.
        commit: CommitId,
    },
    /// Argo CD compared with a later commit, which changed the folder of the node.
    LaterCommit,
    /// The branch that Argo CD reads holds another commit than the one that is validated.
    OldCheckout {
        /// The branch.
        branch: String,
        /// What it holds.
        tip: String,
    },
    /// A container runs another image than its workload says.
    WrongDigest {
        /// Which one.
        container: ContainerKey,
        /// What its workload says.
        wanted: Digest,
        /// What runs.
        running: Digest,
        /// Nothing is being rolled out that could explain it.
        settled: bool,
    },
    /// An Application of the environment that no node stands for.
    Extra {
        /// What is odd about it.
        why: String,
    },
    /// Something could not be read.
    NotRead {
        /// What.
        what: String,
        /// Why, in the words of whoever refused.
        why: String,
    },
    /// A live object breaks a rule.
    Rule {
        /// The rule.
        code: Code,
        /// The object.
        object: String,
        /// What is wrong.
        message: String,
        /// What to do, where the rule says so.
        fix: Option<String>,
    },
    /// A live object carries the mark of another Application.
    Claimed {
        /// The object.
        object: String,
        /// Whose mark it carries.
        by: String,
    },
    /// A controller is not there, or has too few pods.
    Controller {
        /// In words.
        what: String,
        /// None of it works.
        down: bool,
    },
    /// Kinds that the API server does not serve.
    NotServed {
        /// Which.
        kinds: Vec<String>,
    },
    /// The AppProject of the environment is not there.
    NoProject,
    /// Forge's window holds what it should not, and no run is in progress.
    Held {
        /// The run that made it.
        run: String,
        /// Applications that are well.
        well: Vec<String>,
        /// Names that no node has.
        unknown: Vec<String>,
    },
    /// An EnvironmentConfig is not in the cluster.
    ConfigMissing,
    /// An EnvironmentConfig says something else than Git.
    ConfigDiffers {
        /// The keys that differ; never their values.
        keys: Vec<String>,
    },
}

impl Cause {
    /// Of which sort it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Failed(Why::MissingApplication | Why::MissingObject { .. })
            | Self::Waits(WaitingFor::Application | WaitingFor::Object { .. })
            | Self::Going { .. } => Kind::Missing,
            Self::Failed(Why::WrongImage { .. } | Why::NotRendered { .. })
            | Self::Waits(WaitingFor::Image { .. } | WaitingFor::Render { .. })
            | Self::WrongDigest { .. } => Kind::WrongDigest,
            Self::Waits(WaitingFor::Health { health: Health::Progressing, .. }) => Kind::Progressing,
            Self::Failed(_)
            | Self::Waits(WaitingFor::Health { .. } | WaitingFor::Rule { .. } | WaitingFor::Comparison { .. })
            | Self::SyncFailed { .. }
            | Self::SyncHangs { .. } => Kind::Unhealthy,
            Self::Waits(_) | Self::Syncing { .. } => Kind::Progressing,
            Self::Drift { .. } => Kind::Drift,
            Self::NotCompared { .. } | Self::OldCommit { .. } | Self::LaterCommit | Self::OldCheckout { .. } => {
                Kind::Stale
            }
            Self::Extra { .. } => Kind::Extra,
            Self::NotRead { .. } => Kind::NotKnown,
            Self::Rule { .. } => Kind::Policy,
            Self::Claimed { .. } => Kind::Tracking,
            Self::Controller { .. } | Self::NotServed { .. } => Kind::Controller,
            Self::NoProject | Self::Held { .. } => Kind::Window,
            Self::ConfigMissing | Self::ConfigDiffers { .. } => Kind::Config,
        }
    }

    /// How much it weighs.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::NotRead { .. } => Verdict::NotKnown,
            Self::Failed(_)
            | Self::SyncFailed { in_sync: false, .. }
            | Self::SyncHangs { .. }
            | Self::Going { settled: true, .. }
            | Self::WrongDigest { settled: true, .. }
            | Self::Controller { down: true, .. }
            | Self::NotServed { .. }
            | Self::NoProject
            | Self::ConfigMissing => Verdict::Unhealthy,
            Self::Waits(_)
            | Self::Syncing { .. }
            | Self::SyncFailed { in_sync: true, .. }
            | Self::Going { settled: false, .. }
            | Self::Drift { .. }
            | Self::NotCompared { .. }
            | Self::OldCommit { .. }
            | Self::LaterCommit
            | Self::OldCheckout { .. }
            | Self::WrongDigest { settled: false, .. }
            | Self::Extra { .. }
            | Self::Rule { .. }
            | Self::Claimed { .. }
            | Self::Controller { down: false, .. }
            | Self::Held { .. }
            | Self::ConfigDiffers { .. } => Verdict::Degraded,
        }
    }

    /// The code whose page explains it.
    pub fn code(&self) -> Code {
        match self {
            Self::Rule { code, .. } => *code,
            other => other.kind().code().unwrap_or(Code::NodeUnhealthy),
        }
    }

    /// The resource that it is about, where there is one.
    pub fn resource(&self) -> Option<String> {
        match self {
            Self::Failed(why) => match why {
                Why::StaleGeneration { workload } => Some(shown(workload)),
                Why::Unhealthy { unwell: Some(unwell), .. } => Some(shown(&unwell.resource)),
                Why::WrongImage { container, .. } => Some(container.to_string()),
                Why::MissingObject { object } | Why::RuleUnmet { object, .. } | Why::RuleBroken { object, .. } => {
                    Some(object.to_string())
                }
                _ => None,
            },
            Self::Waits(on) => match on {
                WaitingFor::Generation { workload } => Some(shown(workload)),
                WaitingFor::Health { unwell: Some(unwell), .. } => Some(shown(&unwell.resource)),
                WaitingFor::Image { container } => Some(container.to_string()),
                WaitingFor::Object { object, .. } | WaitingFor::Rule { object, .. } => Some(object.to_string()),
                _ => None,
            },
            Self::WrongDigest { container, .. } => Some(container.to_string()),
            Self::Rule { object, .. } | Self::Claimed { object, .. } => Some(shown(object)),
            Self::Drift { resources } => resources.first().cloned(),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => write!(f, "{why}"),
            Self::Waits(on) => write!(f, "{on}"),
            Self::Syncing { by } => write!(f, "a sync runs, {by}"),
            Self::SyncHangs { by, age } => write!(f, "a sync runs for {age} and does not end, {by}"),
            Self::Going { age, .. } => write!(f, "the Application is being deleted, for {age}"),
            Self::SyncFailed { message, .. } if message.is_empty() => f.write_str("the last sync failed"),
            Self::SyncFailed { message, .. } => {
                let said = plugin_says(message);
                write!(f, "the last sync failed: {}", shown(said.as_deref().unwrap_or(message)))
            }
            Self::Drift { resources } if resources.is_empty() => f.write_str("Argo CD sees a difference to Git"),
            Self::Drift { resources } => write!(f, "Argo CD sees a difference to Git: {}", list(resources, 200)),
            Self::NotCompared { age: None, .. } => f.write_str("Argo CD has never compared it"),
            Self::NotCompared { age: Some(age), limit } => {
                write!(f, "Argo CD has not compared it for {age}, and {limit} is the limit")
            }
            Self::OldCommit { commit } => {
                write!(f, "Argo CD compared it with an older commit; Git holds {commit} now")
            }
            Self::LaterCommit => f.write_str(
                "Argo CD compared it with a later commit, which changed its folder: what is validated is old",
            ),
            Self::OldCheckout { branch, tip } => write!(
                f,
                "branch `{}` holds {} now: what was pushed since this commit was not looked at",
                clip(branch),
                clip(tip)
            ),
            Self::WrongDigest { container, wanted, running, .. } => {
                write!(f, "{container} runs {} instead of {}", running.short(12), wanted.short(12))
            }
            Self::Extra { why } => write!(f, "no node stands for it: {}", shown(why)),
            Self::NotRead { what, why } if why.is_empty() => write!(f, "{} is not known", shown(what)),
            Self::NotRead { what, why } => write!(f, "{} is not known: {}", shown(what), shown(why)),
            Self::Rule { object, message, .. } => write!(f, "{}: {}", shown(object), shown(message)),
            Self::Claimed { object, by } => {
                write!(f, "{} carries the tracking id of Application `{}`", shown(object), clip(by))
            }
            Self::Controller { what, .. } => f.write_str(&shown(what)),
            Self::NotServed { kinds } => write!(f, "the API server does not serve {}", list(kinds, 200)),
            Self::NoProject => f.write_str("the AppProject of the environment does not exist"),
            Self::Held { run, well, unknown } => {
                write!(f, "the window of run {}", clip(run))?;
                if !well.is_empty() {
                    write!(f, " still holds {}, which are well", list(well, 120))?;
                }
                if !unknown.is_empty() {
                    let and = if well.is_empty() { "" } else { ", and" };
                    write!(f, "{and} holds {}, which no node has", list(unknown, 120))?;
                }
                Ok(())
            }
            Self::ConfigMissing => f.write_str("the EnvironmentConfig does not exist"),
            Self::ConfigDiffers { keys } => write!(f, "the EnvironmentConfig differs from Git in {}", list(keys, 120)),
        }
    }
}
