//! What a rehearsal came to: findings, a line for each rule, and how a teardown would end. One type for text, JSON and
//! JUnit; the JSON Schema is made of it.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Live;
use crate::code::Code;
use crate::exit::Exit;
use crate::name::clean;
use crate::preflight::count;
use crate::render::{TestCase, TestOutcome, TestTrouble, suite};
use crate::view::{between, shown};

/// How many lines of evidence a finding has.
const MOST: usize = 20;

macro_rules! rules {
    ($($variant:ident $id:literal $code:ident $title:literal;)*) => {
        /// A rule. Its name is stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Rule {
            $(#[doc = $title] $variant,)*
        }

        impl Rule {
            /// All rules, in the order in which they are reported.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// The code whose page explains what it finds.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }

            /// What is true when it finds nothing.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

rules! {
    Inventory     "inventory"      InventoryUnknown         "everything could be listed";
    ApiServices   "api-services"   ApiServiceDown           "every registered API answers, and goes with its service";
    Stuck         "stuck"          AlreadyStuck             "nothing is stuck in its deletion";
    Controllers   "controllers"    ControllerGoesFirst      "whoever clears a finalizer goes after what carries it";
    Finalizers    "finalizers"     FinalizerWithoutOwner    "every finalizer has somebody who clears it";
    Foreign       "foreign"        ForeignInstances         "nothing of somebody else goes along";
    Webhooks      "webhooks"       WebhookWithoutService    "no webhook outlives its service";
    Conversions   "conversions"    ConversionWithoutService "no object outlives who converts it";
    Volumes       "volumes"        VolumeLeaks              "no volume leaks";
    LoadBalancers "load-balancers" LoadBalancerLeaks        "no load balancer leaks";
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.id())
    }
}

/// What a finding means for a teardown. The worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It would stop there.
    Wedges,
    /// It could not be looked at, so nothing is known.
    NotKnown,
    /// It would come to its end, and something would be left.
    Leaves,
    /// Good to know.
    Note,
}

impl Severity {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wedges => "wedges",
            Self::NotKnown => "not known",
            Self::Leaves => "leaves",
            Self::Note => "note",
        }
    }
}

/// One thing that is foretold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Foretold {
    /// The rule, by its stable name.
    #[schemars(with = "String")]
    pub rule: Rule,
    /// The code whose page explains it.
    pub code: String,
    /// wedges, notKnown, leaves or note.
    #[schemars(with = "String")]
    pub severity: Severity,
    /// What was seen.
    pub what: String,
    /// What would come of it.
    pub means: String,
    /// The objects that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What to do before the teardown.
    pub fix: String,
}

impl Foretold {
    /// A finding without evidence.
    pub fn new(
        rule: Rule,
        severity: Severity,
        what: impl AsRef<str>,
        means: impl AsRef<str>,
        fix: impl AsRef<str>,
    ) -> Self {
        let text = |text: &str| clean(text).into_owned();
        Self {
            rule,
            code: rule.code().id().to_owned(),
            severity,
            what: text(what.as_ref()),
            means: text(means.as_ref()),
            evidence: Vec::new(),
            fix: text(fix.as_ref()),
        }
    }

    /// With what it rests on; there is not too much of it.
    #[must_use]
    pub fn because<T: AsRef<str>>(mut self, evidence: impl IntoIterator<Item = T>) -> Self {
        let all: Vec<String> = evidence.into_iter().map(|line| shown(line.as_ref())).collect();
        let more = all.len().saturating_sub(MOST);
        self.evidence.extend(all.into_iter().take(MOST));
        if more > 0 {
            self.evidence.push(format!("… and {more} more"));
        }
        self
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {} ({})\n", self.severity.as_str(), self.rule, self.code);
        let _ = writeln!(text, "  what   {}", self.what);
        let _ = writeln!(text, "  means  {}", self.means);
        for (i, line) in self.evidence.iter().enumerate() {
            let _ = writeln!(text, "  {:<5}  {line}", if i == 0 { "seen" } else { "" });
        }
        let _ = writeln!(text, "  fix    {}", self.fix);
        text
    }
}

/// What a rule came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The rule.
    pub rule: Rule,
    /// What was looked at, in a few words.
    pub seen: String,
    /// What was found.
    pub findings: Vec<Foretold>,
}

impl Judged {
    /// A rule with what it found.
    pub fn new(rule: Rule, seen: impl AsRef<str>, findings: Vec<Foretold>) -> Self {
        Self { rule, seen: shown(seen.as_ref()), findings }
    }

    /// The worst of what was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }
}

/// How much of a cluster was listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Kinds.
    pub kinds: usize,
    /// Objects of these.
    pub objects: usize,
    /// Objects that would go.
    pub goes: usize,
    /// Kinds and versions of groups of which nothing is known.
    pub not_known: usize,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ruled {
    /// Its stable name.
    #[schemars(with = "String")]
    pub rule: Rule,
    /// What is true when it finds nothing.
    pub title: String,
    /// passed, or the worst severity of what it found.
    pub result: String,
    /// What was looked at.
    pub seen: String,
}

/// What a rehearsal came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "RehearsalReport")]
pub struct RehearsalReport {
    /// The cluster, by the context of the kubeconfig.
    pub context: String,
    /// The environment.
    pub environment: String,
    /// What would be torn down: platform, stack:<name> or app:<name>.
    pub scope: String,
    /// would end clean, would leave something, would stop, or not known.
    pub verdict: String,
    /// In a sentence.
    pub summary: String,
    /// What `forge platform teardown --rehearse` exits with, which is what the teardown would.
    pub exit: u8,
    /// When it began.
    #[schemars(with = "String")]
    pub started: Timestamp,
    /// When it ended.
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// When the snapshot was taken that the end would be compared with; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub snapshot: Option<Timestamp>,
    /// How much was listed.
    pub listed: Listed,
    /// All rules in their order.
    pub rules: Vec<Ruled>,
    /// What is foretold, the worst first.
    pub findings: Vec<Foretold>,
}

impl RehearsalReport {
    /// The report of what was read.
    pub fn new(
        (context, environment, scope): (&str, &str, &str),
        live: &Live<'_>,
        snapshot: Option<Timestamp>,
        (started, ended): (Timestamp, Timestamp),
    ) -> Self {
        let judged = live.judged();
        let rule = |judged: &Judged| Ruled {
            rule: judged.rule,
            title: judged.rule.title().to_owned(),
            result: match judged.worst() {
                None | Some(Severity::Note) => "passed".to_owned(),
                Some(worst) => worst.as_str().to_owned(),
            },
            seen: judged.seen.clone(),
        };
        let rules: Vec<Ruled> = judged.iter().map(rule).collect();
        let mut findings: Vec<Foretold> = judged.into_iter().flat_map(|judged| judged.findings).collect();
        // Stable: within a severity by rule, and within a rule as it was judged.
        findings.sort_by_key(|finding| finding.severity);
        let exit = exit(&findings);
        let worst = findings.first().map(|finding| finding.severity);
        let verdict = match worst {
            None | Some(Severity::Note) => "would end clean",
            Some(Severity::Leaves) => "would leave something",
            Some(Severity::NotKnown) => "not known",
            Some(Severity::Wedges) => "would stop",
        };
        let mut report = Self {
            context: shown(context),
            environment: shown(environment),
            scope: shown(scope),
            verdict: verdict.to_owned(),
            summary: String::new(),
            exit: exit as u8,
            started,
            ended,
            snapshot,
            listed: Listed {
                kinds: live.inventory.kinds().count(),
                objects: live.inventory.objects().count(),
                goes: live.goes(),
                not_known: live.inventory.gaps().len(),
            },
            rules,
            findings,
        };
        report.summary = report.summed_up();
        report
    }

    /// How a command ends with it: as the teardown would, 1 where it would stop or nothing is known, 2 where something would
    /// be left.
    pub fn exit(&self) -> Exit {
        exit(&self.findings)
    }

    fn summed_up(&self) -> String {
        let Listed { kinds, objects, goes, .. } = &self.listed;
        let mut text = format!("{goes} of {objects} objects of {} would go", count(*kinds, "kind"));
        for (severity, what) in [
            (Severity::Wedges, "thing would stop it"),
            (Severity::NotKnown, "part is not known"),
            (Severity::Leaves, "thing would be left"),
        ] {
            let found = self.findings.iter().filter(|finding| finding.severity == severity).count();
            let what = match (found, severity) {
                (0, _) => continue,
                (1, _) => what.to_owned(),
                (_, Severity::NotKnown) => "parts are not known".to_owned(),
                _ => what.replacen("thing", "things", 1),
            };
            let _ = write!(text, ", {found} {what}");
        }
        let _ = write!(text, "; looked for {}", between(self.started, self.ended));
        text
    }

    /// For people, at most 100 columns wide where the words allow it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "teardown of {}, scope {}, on {}: {}",
            self.environment, self.scope, self.context, self.verdict
        );
        let _ = writeln!(text, "{}", self.summary);
        match self.snapshot {
            Some(taken) => {
                let _ = writeln!(text, "the end would be compared with the snapshot of {}\n", taken.strftime("%FT%TZ"));
            }
            None => {
                let _ = writeln!(text, "there is no snapshot of phase 0 that the end could be compared with\n");
            }
        }
        for ruled in &self.rules {
            let _ = writeln!(text, "  {:<9}  {:<14}  {}", ruled.result, ruled.rule, ruled.seen);
        }
        for finding in &self.findings {
            let _ = write!(text, "\n{}", finding.text());
        }
        text
    }

    /// As JUnit: one test case per rule. What would stop a teardown or be left is a failure, what is not known an error.
    pub fn junit(&self) -> String {
        let case = |ruled: &Ruled| {
            let found: Vec<&Foretold> = self.findings.iter().filter(|found| found.rule == ruled.rule).collect();
            let body = found.iter().map(|finding| finding.text()).collect::<Vec<_>>().join("\n");
            let message = found.first().map_or(&ruled.seen, |finding| &finding.what).clone();
            let kind = ruled.rule.code().to_string();
            let outcome = match found.first().map(|finding| finding.severity) {
                Some(Severity::Wedges | Severity::Leaves) => TestOutcome::Failed(TestTrouble { kind, message, body }),
                Some(Severity::NotKnown) => TestOutcome::Broken(TestTrouble { kind, message, body }),
                Some(Severity::Note) => TestOutcome::Said(body),
                None => TestOutcome::Passed,
            };
            TestCase { class: "rehearsal", name: ruled.rule.to_string(), outcome }
        };
        let cases: Vec<TestCase> = self.rules.iter().map(case).collect();
        let seconds = between(self.started, self.ended).seconds();
        suite(&format!("forge teardown --rehearse {}", self.environment), self.started, seconds, &cases)
    }
}

fn exit(findings: &[Foretold]) -> Exit {
    match findings.iter().map(|finding| finding.severity).min() {
        Some(Severity::Wedges | Severity::NotKnown) => Exit::Findings,
        Some(Severity::Leaves) => Exit::Partial,
        Some(Severity::Note) | None => Exit::Done,
    }
}
