//! What Helm knows of a release, by the labels of the Secrets that it keeps, and the one step that follows.

use serde_json::Value;

use super::{Receipt, Wanted};
use crate::name::clip;
use crate::preflight::release_is_ours;

/// The label of a release that says which chart and values it was made from.
pub const DIGEST_LABEL: &str = "forge.projectcatalyst.io/digest";
/// The label of a release that says which version of its chart it was made from.
pub const CHART_LABEL: &str = "forge.projectcatalyst.io/chart-version";

/// A digest of chart and values as that label, which has 63 characters at most.
pub(super) fn digest_label(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(40).collect()
}

/// Where a revision of a release stands, in Helm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is what is there.
    Deployed,
    /// It was, and another one is now.
    Superseded,
    /// It was tried, and did not come up.
    Failed,
    /// It is, or was, being made.
    PendingInstall,
    /// It is, or was, on its way to the next revision.
    PendingUpgrade,
    /// It is, or was, on its way back.
    PendingRollback,
    /// It is, or was, being removed.
    Uninstalling,
    /// It was removed, and its history kept.
    Uninstalled,
    /// Helm does not know.
    Unknown,
}

const STATUSES: [(&str, Status); 9] = [
    ("deployed", Status::Deployed),
    ("superseded", Status::Superseded),
    ("failed", Status::Failed),
    ("pending-install", Status::PendingInstall),
    ("pending-upgrade", Status::PendingUpgrade),
    ("pending-rollback", Status::PendingRollback),
    ("uninstalling", Status::Uninstalling),
    ("uninstalled", Status::Uninstalled),
    ("unknown", Status::Unknown),
];

impl Status {
    fn read(text: &str) -> Self {
        STATUSES.iter().find(|(word, _)| *word == text).map_or(Self::Unknown, |(_, status)| *status)
    }

    /// It came up once.
    fn is_good(self) -> bool {
        matches!(self, Self::Deployed | Self::Superseded)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = STATUSES.iter().find(|(_, status)| status == self).map_or("unknown", |(word, _)| *word);
        f.write_str(word)
    }
}

/// A revision of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number, from 1.
    pub number: u64,
    /// Where it stands.
    pub status: Status,
    /// Forge made it.
    pub ours: bool,
    /// Which chart and values it was made from, as far as it says.
    pub digest: Option<String>,
    /// Which version of its chart, as far as it says.
    pub chart: Option<String>,
}

impl Revision {
    /// Reads a Secret, of which the metadata are enough; nothing where it is not of this release.
    pub fn read(secret: &Value, release: &str) -> Option<Self> {
        let label = |key: &str| secret.pointer("/metadata/labels")?.get(key)?.as_str();
        if label("owner") != Some("helm") || label("name") != Some(release) {
            return None;
        }
        Some(Self {
            number: label("version")?.parse().ok()?,
            status: label("status").map_or(Status::Unknown, Status::read),
            ours: release_is_ours(secret),
            digest: label(DIGEST_LABEL).map(clip),
            chart: label(CHART_LABEL).map(clip),
        })
    }
}

/// What is to be done next about a part of Argo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It is as it should be.
    Nothing {
        /// As this revision.
        revision: u64,
    },
    /// It is as it should be, and that is not written down yet.
    Record {
        /// As this revision.
        revision: u64,
        /// The revision that was proven before it, where that is still there: whoever was killed on the way left it unproven, and
        /// where it turns out to be wrong, this is what to go back to.
        back: Option<u64>,
    },
    /// Nothing of it is there.
    Install,
    /// Something else of ours is there, and works.
    Upgrade {
        /// What is there.
        from: u64,
        /// What is different.
        why: String,
        /// It is what was wanted, and something of it is not there any more. Else chart or values are others, and may render
        /// the same all the same.
        broken: bool,
    },
    /// Somebody was killed on the way to another revision: first back to the last one that was proven, or else that came up.
    RollBack {
        /// The one that did not.
        from: u64,
        /// Where it stands.
        status: Status,
        /// The one that did.
        to: u64,
    },
    /// No revision ever came up, or it is half removed: first away with it.
    Uninstall {
        /// The last one.
        revision: u64,
        /// Where it stands.
        status: Status,
    },
    /// Somebody else made it (INV-11).
    Refuse {
        /// The last revision.
        revision: u64,
    },
    /// Argo CD manages itself by an Application of its own: Helm is not run for it any more.
    Managed {
        /// How that Application stands.
        how: String,
    },
}

impl Step {
    /// Helm has nothing to do.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Nothing { .. } | Self::Managed { .. })
    }
}

/// What is to be done next. `revisions` are all that Helm has of the release, in any order; `broken` is what of a proven
/// installation is not there any more, or is something else.
pub fn decide(wanted: &Wanted, revisions: &[Revision], receipt: Option<&Receipt>, broken: &[String]) -> Step {
    let Some(last) = revisions.iter().max_by_key(|revision| revision.number) else { return Step::Install };
    if !last.ours {
        return Step::Refuse { revision: last.number };
    }
    let good = || revisions.iter().filter(|revision| revision.status.is_good());
    let newest = good().map(|revision| revision.number).max();
    // Helm calls good what came up, also what was found wrong afterwards and was to be taken back. What was proven has the number that
    // the receipt names, or was gone back to since, which brings its label along.
    let proven = receipt.and_then(|receipt| {
        let label = Some(digest_label(&receipt.digest));
        let is_it = |revision: &&Revision| revision.number == receipt.revision || revision.digest == label;
        good().filter(is_it).map(|revision| revision.number).max()
    });
    match (last.status, proven.or(newest)) {
        (Status::Deployed, _) => deployed(wanted, last, receipt, proven, broken),
        // Helm does not say what of a release that is being removed is still there.
        (Status::Uninstalling | Status::Uninstalled, _) | (_, None) => {
            Step::Uninstall { revision: last.number, status: last.status }
        }
        (status, Some(to)) => Step::RollBack { from: last.number, status, to },
    }
}

fn deployed(
    wanted: &Wanted,
    last: &Revision,
    receipt: Option<&Receipt>,
    proven: Option<u64>,
    broken: &[String],
) -> Step {
    let from = last.number;
    let receipt = receipt.filter(|receipt| receipt.digest == wanted.digest.as_str());
    // What was made from another chart or other values and renders the same has a receipt that names this very revision.
    let same = receipt.is_some_and(|receipt| receipt.revision == from);
    if last.digest.as_deref() != Some(wanted.label().as_str()) && !same {
        let why = match &last.chart {
            Some(version) if *version != wanted.version => format!("chart {version}, wanted is {}", wanted.version),
            _ => "other values, or another content of the chart".to_owned(),
        };
        return Step::Upgrade { from, why, broken: false };
    }
    // What never was proven may also be broken.
    match (receipt, broken.first()) {
        (Some(_), Some(first)) => Step::Upgrade { from, why: first.clone(), broken: true },
        (Some(_), None) => Step::Nothing { revision: from },
        (None, _) => Step::Record { revision: from, back: proven.filter(|proven| *proven < from) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthChecks;
    use crate::preflight::Component;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn wanted() -> Wanted {
        Wanted::new(Component::Cd, "argocd", &HealthChecks::merge(&BTreeMap::new()), None, None)
    }

    fn revision(number: u64, status: Status) -> Revision {
        let chart = Some(wanted().version);
        Revision { number, status, ours: true, digest: Some(wanted().label()), chart }
    }

    fn receipt() -> Receipt {
        Receipt::new(&wanted(), 1, Vec::new())
    }

    fn step(revisions: &[Revision]) -> Step {
        decide(&wanted(), revisions, Some(&receipt()), &[])
    }

    #[test]
    fn where_nothing_is_it_is_installed_and_where_all_is_as_wanted_nothing_is_done() {
        assert_eq!(decide(&wanted(), &[], None, &[]), Step::Install);
        // A receipt alone is no installation.
        assert_eq!(step(&[]), Step::Install);
        let superseded = revision(1, Status::Superseded);
        assert_eq!(step(&[revision(2, Status::Deployed), superseded]), Step::Nothing { revision: 2 });
    }

    #[test]
    fn what_is_not_written_down_is_written_down_and_helm_is_left_alone() {
        let there = [revision(1, Status::Deployed)];
        assert_eq!(decide(&wanted(), &there, None, &[]), Step::Record { revision: 1, back: None });
        let other = Receipt { digest: "sha256:00".to_owned(), ..receipt() };
        assert_eq!(decide(&wanted(), &there, Some(&other), &[]), Step::Record { revision: 1, back: None });
    }

    #[test]
    fn what_came_up_and_was_never_proven_goes_back_to_what_was() {
        use Status::*;
        let older = Receipt { digest: "sha256:00".to_owned(), ..receipt() };
        let decide = |revisions: &[Revision], receipt: &Receipt| decide(&wanted(), revisions, Some(receipt), &[]);
        // Killed after helm, before it was looked at.
        let there = [revision(1, Superseded), revision(2, Deployed)];
        assert_eq!(decide(&there, &older), Step::Record { revision: 2, back: Some(1) });
        // Killed on the way back from what was found wrong: Helm still calls that one deployed.
        for status in [PendingRollback, Failed] {
            let there = [revision(1, Superseded), revision(2, Deployed), revision(3, status)];
            assert_eq!(decide(&there, &older), Step::RollBack { from: 3, status, to: 1 });
        }
        // What was proven is gone, or was never good: the last one that came up has to do.
        let gone = Receipt { revision: 7, ..older.clone() };
        let there = [revision(1, Failed), revision(2, Deployed), revision(3, Failed)];
        for receipt in [&gone, &older] {
            assert_eq!(decide(&there, receipt), Step::RollBack { from: 3, status: Failed, to: 2 });
        }
        assert_eq!(decide(&there[..2], &gone), Step::Record { revision: 2, back: None });
        // Helm keeps only so many; one that was gone back to carries the label of what was proven.
        let same = Revision { digest: Some("00".to_owned()), ..revision(8, Superseded) };
        let there = [revision(7, Superseded), same, revision(9, Deployed)];
        let pruned = Receipt { revision: 1, ..older };
        assert_eq!(decide(&there, &pruned), Step::Record { revision: 9, back: Some(8) });
    }

    #[test]
    fn another_chart_other_values_and_what_is_broken_are_upgrades_that_say_why() {
        let upgrade = |revision: Revision, broken: &[String]| {
            let step = decide(&wanted(), &[revision], Some(&receipt()), broken);
            match step {
                Step::Upgrade { from: 3, why, broken } => (why, broken),
                other => panic!("{other:?}"),
            }
        };
        let there = || revision(3, Status::Deployed);
        let older = Revision { digest: Some("0".repeat(40)), chart: Some("9.1.0".to_owned()), ..there() };
        assert_eq!(upgrade(older, &[]), ("chart 9.1.0, wanted is 9.2.0".to_owned(), false));
        let other = Revision { digest: None, ..there() };
        assert_eq!(upgrade(other, &[]), ("other values, or another content of the chart".to_owned(), false));
        let gone = "Deployment x is gone".to_owned();
        assert_eq!(upgrade(there(), std::slice::from_ref(&gone)), (gone, true));
    }

    #[test]
    fn what_was_made_from_something_else_and_renders_the_same_is_as_wanted_by_its_receipt() {
        let other = Revision { digest: Some("0".repeat(40)), ..revision(1, Status::Deployed) };
        let there = std::slice::from_ref(&other);
        assert_eq!(decide(&wanted(), there, Some(&receipt()), &[]), Step::Nothing { revision: 1 });
        // Of another revision it says nothing: that one may be anything.
        let older = Receipt { revision: 7, ..receipt() };
        assert!(matches!(decide(&wanted(), there, Some(&older), &[]), Step::Upgrade { broken: false, .. }));
        let gone = ["Deployment x is gone".to_owned()];
        assert!(matches!(decide(&wanted(), there, Some(&receipt()), &gone), Step::Upgrade { broken: true, .. }));
    }

    #[test]
    fn every_state_that_a_killed_helm_leaves_has_its_repair() {
        use Status::*;
        let good = revision(1, Deployed);
        for status in [Failed, PendingInstall, PendingUpgrade, PendingRollback, Unknown] {
            assert_eq!(step(&[good.clone(), revision(2, status)]), Step::RollBack { from: 2, status, to: 1 });
            assert_eq!(step(&[revision(1, status)]), Step::Uninstall { revision: 1, status });
        }
        // Killed between the two writes that end an upgrade: nothing is called deployed any more.
        let between = [revision(1, Superseded), revision(2, PendingUpgrade)];
        assert_eq!(step(&between), Step::RollBack { from: 2, status: PendingUpgrade, to: 1 });
        assert_eq!(step(&[revision(1, Superseded)]), Step::RollBack { from: 1, status: Superseded, to: 1 });
        // Failed ones are not gone back to.
        let mut failed = vec![revision(1, Superseded), revision(2, Deployed), revision(3, Failed)];
        failed.push(revision(4, PendingRollback));
        assert_eq!(step(&failed), Step::RollBack { from: 4, status: PendingRollback, to: 2 });
        for status in [Uninstalling, Uninstalled] {
            assert_eq!(step(&[good.clone(), revision(2, status)]), Step::Uninstall { revision: 2, status });
        }
    }

    #[test]
    fn what_somebody_else_made_is_refused_whatever_its_state() {
        for (_, status) in STATUSES {
            let foreign = Revision { ours: false, ..revision(2, status) };
            assert_eq!(step(&[revision(1, Status::Superseded), foreign]), Step::Refuse { revision: 2 });
        }
    }

    #[test]
    fn a_revision_is_read_from_the_labels_of_its_secret() {
        let secret = |labels: Value| json!({"metadata": {"name": "sh.helm.release.v1.argo-cd.v2", "labels": labels}});
        let labels = json!({
            "owner": "helm", "name": "argo-cd", "status": "pending-upgrade", "version": "2",
            "app.kubernetes.io/managed-by": "forge", DIGEST_LABEL: "ab", CHART_LABEL: "9.2.0",
        });
        let read = Revision::read(&secret(labels.clone()), "argo-cd").unwrap();
        assert_eq!((read.number, read.status, read.ours), (2, Status::PendingUpgrade, true));
        assert_eq!((read.digest.as_deref(), read.chart.as_deref()), (Some("ab"), Some("9.2.0")));
        assert_eq!(Revision::read(&secret(labels), "argo-workflows"), None);
        let foreign = json!({"owner": "helm", "name": "argo-cd", "status": "deployed", "version": "1"});
        assert!(!Revision::read(&secret(foreign), "argo-cd").unwrap().ours);
        for hostile in [
            json!(null),
            json!({}),
            json!({"owner": "helm", "name": "argo-cd"}),
            json!({"owner": "helm", "name": "argo-cd", "version": "-1"}),
            json!({"owner": "helm", "name": ["argo-cd"], "version": "1"}),
        ] {
            assert_eq!(Revision::read(&secret(hostile), "argo-cd"), None);
        }
        let odd = json!({"owner": "helm", "name": "argo-cd", "version": "1", "status": "\u{1b}[2J"});
        assert_eq!(Revision::read(&secret(odd), "argo-cd").unwrap().status, Status::Unknown);
    }
}
