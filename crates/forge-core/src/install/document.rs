//! What `forge bootstrap` writes for programs: with `--print` all that phase 1 makes, with `--check` where a cluster stands.
//! The Ansible role in `deploy/ansible` works from these two and from nothing else, so that charts, versions, values and
//! objects stand in one place.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::settings::Merge;
use super::{Receipt, Step, Wanted};

/// How many revisions of a release Helm keeps.
pub const HISTORY: u32 = 10;

/// All that phase 1 makes, in the order in which it is made, but for what is secret; and what others should make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "BootstrapPlan")]
pub struct BootstrapPlan {
    /// The field manager of everything that is applied.
    pub field_manager: String,
    /// How many revisions of a release Helm keeps.
    pub history_max: u32,
    /// Namespaces, which come first. Each is made where there is none, and otherwise left as it is.
    pub namespaces: Vec<Value>,
    /// What Helm installs, one after the other.
    pub charts: Vec<PlannedChart>,
    /// Where Argo CD is to manage itself, its own Application as it should stand in the root file, in place of its chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<Value>,
    /// What is Forge's own, one after the other.
    pub objects: Vec<PlannedObjects>,
    /// What the owner of each part of Argo that is there should merge.
    pub merge: Vec<Merge>,
}

/// Objects that are made in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedObjects {
    /// What they are, for people.
    pub title: String,
    /// How they are made.
    pub way: PlannedWay,
    /// Definitions without which there is nothing to be done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub needs: Vec<String>,
    /// The objects.
    pub objects: Vec<Value>,
}

/// How objects are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlannedWay {
    /// Applied on the server's side, whatever is there.
    Apply,
    /// Made where there is none, and otherwise left as it is.
    Create,
    /// Applied where there is none, or where it carries our label and says something else; what somebody else made and says the
    /// same is left as it is.
    Ours,
    /// Removed where it carries our label.
    Remove,
    /// Secret, so the objects are not named here: `forge bootstrap --credentials` makes them.
    Credentials,
}

/// A part of Argo as Helm installs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChart {
    /// What it is, for people.
    pub title: String,
    /// The name of the chart, and of the release.
    pub chart: String,
    /// Its version.
    pub version: String,
    /// Where it is installed.
    pub namespace: String,
    /// The values, all of them.
    pub values: Value,
    /// Where helm finds the chart.
    pub source: PlannedSource,
    /// What Helm's own Secret is labelled with, from its first write on.
    pub labels: BTreeMap<String, String>,
    /// The ConfigMap that says that it was proven; `revision` and `parts` belong into its data.
    pub receipt: Value,
}

/// A chart as helm takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedSource {
    /// A path, an address, or a name in `repository`.
    pub chart: String,
    /// The repository that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The version to ask for; a chart that is at hand has no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl PlannedChart {
    /// What is wanted, and where its chart is.
    pub fn new(wanted: &Wanted, source: PlannedSource) -> Self {
        let mut receipt = Receipt::new(wanted, 0, Vec::new()).object(wanted.component, &wanted.namespace);
        // Known when it is installed, and not before.
        if let Some(data) = receipt.get_mut("data").and_then(Value::as_object_mut) {
            data.retain(|key, _| key != "revision" && key != "parts");
        }
        Self {
            title: wanted.component.title().to_owned(),
            chart: wanted.chart.name.to_owned(),
            version: wanted.version.clone(),
            namespace: wanted.namespace.clone(),
            values: wanted.values.clone(),
            source,
            labels: wanted.labels().into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            receipt,
        }
    }
}

/// Where a cluster stands, compared with what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "BootstrapCheck")]
pub struct BootstrapCheck {
    /// How much is missing or different.
    pub missing: usize,
    /// Who is at work on this cluster right now, as far as that can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_work: Option<String>,
    /// What Forge installs, and what is to be done about it.
    pub charts: Vec<CheckedChart>,
    /// What was found, in the order in which it was looked at.
    pub findings: Vec<CheckFinding>,
    /// Forge's own objects that are not wanted any more, by name: to be removed where they carry our label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub unwanted: Vec<Value>,
}

/// A part of Argo that Forge installs, as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckedChart {
    /// The name of the chart, and of the release.
    pub chart: String,
    /// Where.
    pub namespace: String,
    /// What is to be done next.
    pub step: NextStep,
    /// The revision that is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The revision that was proven last, or else came up last, where one has to go back to it, or would have to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_to: Option<u64>,
    /// What is wrong with the one that is there, or how it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is to be done next about a part of Argo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NextStep {
    /// It is as it should be.
    Nothing,
    /// It is as it should be, and that is not written down yet.
    Record,
    /// Nothing of it is there.
    Install,
    /// Something else of ours is there, and works.
    Upgrade,
    /// Somebody was killed on the way: first back to the revision that was proven, or else came up, last.
    RollBack,
    /// No revision ever came up: first away with it.
    Uninstall,
    /// Somebody else made it.
    Refuse,
    /// Argo CD manages itself: Helm is not run for it.
    Managed,
}

impl CheckedChart {
    /// What is wanted, and what was decided about it.
    pub fn new(wanted: &Wanted, step: &Step) -> Self {
        let (next, revision, back_to, why) = match step {
            Step::Nothing { revision } => (NextStep::Nothing, Some(*revision), None, None),
            Step::Record { revision, back } => (NextStep::Record, Some(*revision), *back, None),
            Step::Install => (NextStep::Install, None, None, None),
            Step::Upgrade { from, why, .. } => (NextStep::Upgrade, Some(*from), None, Some(why.clone())),
            Step::RollBack { from, status, to } => {
                (NextStep::RollBack, Some(*from), Some(*to), Some(status.to_string()))
            }
            Step::Uninstall { revision, status } => {
                (NextStep::Uninstall, Some(*revision), None, Some(status.to_string()))
            }
            Step::Refuse { revision } => (NextStep::Refuse, Some(*revision), None, None),
            Step::Managed { how } => (NextStep::Managed, None, None, Some(how.clone())),
        };
        let (chart, namespace) = (wanted.chart.name.to_owned(), wanted.namespace.clone());
        Self { chart, namespace, step: next, revision, back_to, why }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckFinding {
    /// What it means.
    pub verdict: CheckVerdict,
    /// The chart of the part of Argo that it is about, or `forge` for what is Forge's own.
    pub part: String,
    /// What was seen.
    pub what: String,
    /// What to do, where there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// What a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CheckVerdict {
    /// It is as it should be.
    Ok,
    /// It is missing, or different.
    Missing,
    /// It works, and could be better.
    Advice,
}

impl CheckVerdict {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Advice => "advice",
        }
    }
}

impl BootstrapCheck {
    /// It is as it should be.
    pub fn good(&mut self, part: &str, what: &str) {
        self.push(CheckVerdict::Ok, part, what, None);
    }

    /// It is missing, or different.
    pub fn missing(&mut self, part: &str, what: &str, fix: &str) {
        self.missing += 1;
        self.push(CheckVerdict::Missing, part, what, Some(fix));
    }

    /// It works, and could be better.
    pub fn advice(&mut self, part: &str, what: &str, fix: &str) {
        self.push(CheckVerdict::Advice, part, what, Some(fix));
    }

    fn push(&mut self, verdict: CheckVerdict, part: &str, what: &str, fix: Option<&str>) {
        let (part, what, fix) = (part.to_owned(), what.to_owned(), fix.map(str::to_owned));
        self.findings.push(CheckFinding { verdict, part, what, fix });
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text.push_str(&format!("{:<8} {}\n", finding.verdict.as_str(), finding.what));
            if let Some(fix) = &finding.fix {
                text.push_str(&format!("    fix: {fix}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::health::HealthChecks;
    use crate::install::Status;
    use crate::preflight::Component;

    fn wanted() -> Wanted {
        Wanted::new(Component::Events, "argo-events", &HealthChecks::merge(&BTreeMap::new()), None, None)
    }

    #[test]
    fn a_planned_chart_has_our_labels_and_a_receipt_that_is_still_to_be_completed() {
        let source = PlannedSource { chart: "charts/argo-events".to_owned(), repository: None, version: None };
        let written = serde_json::to_value(PlannedChart::new(&wanted(), source)).unwrap();
        assert_eq!((&written["chart"], &written["version"]), (&json!("argo-events"), &json!(wanted().version)));
        assert_eq!(written["labels"]["app.kubernetes.io/managed-by"], "forge");
        assert_eq!(written["labels"]["forge.projectcatalyst.io/digest"], wanted().label());
        assert_eq!(written["labels"]["forge.projectcatalyst.io/chart-version"], wanted().version);
        let data = json!({
            "chart": "argo-events", "version": wanted().version, "digest": wanted().digest,
        });
        assert_eq!(written["receipt"]["data"], data);
        assert_eq!(written["receipt"]["metadata"]["name"], "forge-install-argo-events");
        assert_eq!(written["source"], json!({"chart": "charts/argo-events"}));
        // Completed, it is what Forge reads.
        let mut receipt = written["receipt"].clone();
        receipt["data"]["revision"] = json!("3");
        receipt["data"]["parts"] = json!("[]");
        assert_eq!(Receipt::read(&receipt), Some(Receipt::new(&wanted(), 3, Vec::new())));
    }

    #[test]
    fn every_step_says_where_it_begins_and_where_it_leads() {
        let status = Status::PendingUpgrade;
        for (step, expected) in [
            (Step::Install, json!({"step": "install"})),
            (Step::Nothing { revision: 2 }, json!({"step": "nothing", "revision": 2})),
            (Step::Record { revision: 2, back: None }, json!({"step": "record", "revision": 2})),
            (Step::Record { revision: 2, back: Some(1) }, json!({"step": "record", "revision": 2, "backTo": 1})),
            (
                Step::Upgrade { from: 2, why: "gone".to_owned(), broken: true },
                json!({"step": "upgrade", "revision": 2, "why": "gone"}),
            ),
            (
                Step::RollBack { from: 2, status, to: 1 },
                json!({"step": "rollBack", "revision": 2, "backTo": 1, "why": "pending-upgrade"}),
            ),
            (
                Step::Uninstall { revision: 1, status },
                json!({"step": "uninstall", "revision": 1, "why": "pending-upgrade"}),
            ),
            (Step::Refuse { revision: 1 }, json!({"step": "refuse", "revision": 1})),
            (Step::Managed { how: "Synced".to_owned() }, json!({"step": "managed", "why": "Synced"})),
        ] {
            let mut written = serde_json::to_value(CheckedChart::new(&wanted(), &step)).unwrap();
            let fields = written.as_object_mut().unwrap();
            fields.retain(|key, _| key != "chart" && key != "namespace");
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn what_was_found_is_told_to_people_and_counted() {
        let mut check = BootstrapCheck::default();
        check.good("argo-cd", "Argo CD");
        check.missing("forge", "Role x is not there", "do it");
        check.advice("argo-workflows", "it is slow", "merge it");
        assert_eq!(check.missing, 1);
        assert_eq!(
            check.text(),
            "ok       Argo CD\nmissing  Role x is not there\n    fix: do it\nadvice   it is slow\n    fix: merge it\n"
        );
        let written = serde_json::to_value(&check).unwrap();
        assert_eq!(written["findings"][1]["part"], "forge");
        assert_eq!(written["findings"][0], json!({"verdict": "ok", "part": "argo-cd", "what": "Argo CD"}));
    }
}
