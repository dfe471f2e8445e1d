//! Sync windows as they must be (SPEC.md section 4): where no run is in progress, Forge's own holds exactly what is not well,
//! and windows of others let the syncs of a run pass.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cause::{Cause, Verdict};
use crate::code::Code;
use crate::name::{EnvironmentName, clip};
use crate::preflight::{self, Looked, Severity};
use crate::render::window_names;

/// What is known of the Applications that a window may name.
pub(super) struct Names<'n> {
    /// How each that was looked at stands, by its name.
    pub(super) stands: BTreeMap<&'n str, Verdict>,
    /// All that the graph has.
    pub(super) known: &'n BTreeSet<String>,
    /// The run that is in progress.
    pub(super) running: Option<&'n str>,
    /// Why it is not known whether one is.
    pub(super) unread: Option<&'n str>,
}

pub(super) fn judged(environment: &EnvironmentName, project: &Looked<Option<Value>>, names: &Names<'_>) -> Vec<Cause> {
    let project = match project {
        Looked::NotPermitted(why) | Looked::Failed(why) => {
            return vec![Cause::NotRead { what: "the windows of its AppProject".to_owned(), why: why.clone() }];
        }
        Looked::Saw(None) => return vec![Cause::NoProject],
        Looked::Saw(Some(project)) => project,
    };
    let mut causes = Vec::new();
    let warned = preflight::windows(&[(environment.clone(), Some(project.clone()))]).findings.into_iter();
    causes.extend(warned.filter(|finding| finding.severity == Severity::Warning).map(|finding| Cause::Rule {
        code: Code::ForeignWindows,
        object: format!("AppProject/{environment}"),
        message: finding.what,
        fix: Some(finding.fix),
    }));
    let windows = project.pointer("/spec/syncWindows").and_then(Value::as_array);
    let Some((run, held)) = windows.and_then(|windows| window_names(windows)) else { return causes };
    if names.running == Some(run.as_str()) {
        return causes;
    }
    let is = |name: &String| names.stands.get(name.as_str()) == Some(&Verdict::Healthy);
    let well: Vec<String> = held.iter().filter(|name| is(name)).cloned().collect();
    let unknown: Vec<String> = held.iter().filter(|name| !names.known.contains(*name)).cloned().collect();
    if well.is_empty() && unknown.is_empty() {
        return causes;
    }
    causes.push(match names.unread {
        // The window of a run that is in progress holds what is well until it is proven.
        Some(why) => {
            let what = format!("whether run {}, whose window is there, is in progress", clip(&run));
            Cause::NotRead { what, why: why.to_owned() }
        }
        None => Cause::Held { run, well, unknown },
    });
    causes
}
