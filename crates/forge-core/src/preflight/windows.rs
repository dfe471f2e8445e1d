//! Sync windows that are there: whether they could stop a run, and whether one of ours was left.

use serde_json::Value;

use super::{Check, Finding, Judged, Severity, count, items, text};
use crate::name::{EnvironmentName, clip};
use crate::render::{WINDOW_PREFIX, window_names};

/// Judges the AppProjects of environments; nothing for one that is not there yet.
pub fn windows(projects: &[(EnvironmentName, Option<Value>)]) -> Judged {
    let there = projects.iter().filter(|(_, project)| project.is_some()).count();
    let mut judged = Judged::new(Check::Windows, format!("{} of environments are there", count(there, "AppProject")));
    for (environment, project) in projects {
        let Some(project) = project else { continue };
        let ours = |window: &Value| text(window, "/description").is_some_and(|words| words.starts_with(WINDOW_PREFIX));
        let all: Vec<Value> = items(project, "/spec/syncWindows").cloned().collect();
        // Syncs of a run are manual ones for Argo CD, so a window that lets those pass is no matter.
        let strict: Vec<String> = all.iter().filter(|window| !ours(window) && !passes(window)).map(shown_as).collect();
        if !strict.is_empty() {
            let finding = Finding::new(
                Check::Windows,
                Severity::Warning,
                format!("AppProject `{environment}` has {} of somebody else", count(strict.len(), "sync window")),
                "Argo CD refuses the syncs of a run as well: while a deny window is open, and while no allow window is",
                format!(
                    "let manual syncs pass (`argocd proj windows enable-manual-sync {environment} ID`) or remove it; when changes may happen is said by `windows` in forge.yaml"
                ),
            );
            judged = judged.with(finding.because(strict));
        }
        if let Some((run, names)) = window_names(&all) {
            let finding = Finding::new(
                Check::Windows,
                Severity::Note,
                format!(
                    "a window of run `{}` holds {} of `{environment}`",
                    clip(&run),
                    count(names.len(), "Application")
                ),
                "they do not sync by themselves before a run has proven them",
                format!(
                    "`forge platform deploy --environment {environment}` goes on; `forge status` shows who is in charge"
                ),
            );
            judged = judged.with(finding.because(names));
        }
    }
    judged
}

fn passes(window: &Value) -> bool {
    window.get("manualSync").and_then(Value::as_bool) == Some(true)
}

fn shown_as(window: &Value) -> String {
    let field = |name: &str| clip(text(window, name).unwrap_or("?"));
    format!("{} {} for {}, manual syncs refused", field("/kind"), field("/schedule"), field("/duration"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judge(list: &Value) -> Judged {
        let environment: EnvironmentName = "dev".parse().unwrap();
        windows(&[(environment, Some(json!({"spec": {"syncWindows": list}})))])
    }

    #[test]
    fn only_a_window_that_refuses_manual_syncs_could_stop_a_run() {
        let window = |kind: &str, manual: bool| json!({"kind": kind, "schedule": "0 9 * * 1-5", "duration": "8h", "manualSync": manual});
        let judged = judge(&json!([window("allow", false), window("deny", true)]));
        assert_eq!(judged.worst(), Some(Severity::Warning));
        assert_eq!(judged.findings[0].evidence, ["allow 0 9 * * 1-5 for 8h, manual syncs refused"]);
        assert_eq!(judge(&json!([window("deny", true)])).worst(), None);
        // Absent means no.
        assert_eq!(
            judge(&json!([{"kind": "deny", "schedule": "* * * * *", "duration": "1h"}])).worst(),
            Some(Severity::Warning)
        );
    }

    #[test]
    fn a_window_of_ours_is_told_and_stops_nothing() {
        let ours = json!({"kind": "deny", "manualSync": true, "applications": ["dev-a", "dev-b"], "description": "forge-orchestration r-1"});
        let judged = judge(&json!([ours]));
        assert_eq!(judged.worst(), Some(Severity::Note));
        assert!(judged.findings[0].what.contains("run `r-1` holds 2 Applications"), "{judged:?}");
        assert!(windows(&[]).findings.is_empty());
        let environment: EnvironmentName = "dev".parse().unwrap();
        assert!(windows(&[(environment, None)]).findings.is_empty());
    }

    #[test]
    fn hostile_windows_are_shown_clean() {
        for hostile in
            [json!(null), json!("all"), json!([null, 7, []]), json!([{"kind": "\u{1b}[2J", "description": 3}])]
        {
            let judged = judge(&hostile);
            assert!(!format!("{judged:?}").contains("\\u{1b}"), "{judged:?}");
        }
    }
}
