//! Hazards of single objects, and those that show when objects are seen side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::hazard::{Hazard, Kind};
use super::read::{Application, Set, Source, annotation, list, text, truth};
use crate::lookup::Lookup;
use crate::name::MAX_NAME;
use crate::url::without_credentials;

/// The AppProject that everybody's Applications are in unless they say otherwise.
pub(super) const DEFAULT_PROJECT: &str = "default";

/// What is said about one Application.
pub(super) fn application(
    app: &Application<'_>,
    own_repository: Option<&str>,
    argocd: &str,
    hazards: &mut Vec<Hazard>,
) {
    let about = app.about();
    let mut tell = |kind: Kind, detail: &str| hazards.push(Hazard::new(kind, &about, detail));
    if text(app.json, "/metadata/deletionTimestamp").is_some() {
        tell(Kind::BeingDeleted, "has a deletion timestamp");
    }
    if annotation(app.json, "argocd.argoproj.io/skip-reconcile") == Some("true") {
        tell(Kind::SkipsReconcile, "annotation argocd.argoproj.io/skip-reconcile");
    }
    if app.id.namespace.as_str() != argocd {
        tell(Kind::OtherNamespace, &format!("namespace {}, Argo CD is in {argocd}", app.id.namespace));
    }
    if app.id.name().len() > MAX_NAME {
        tell(Kind::LongName, &format!("{} characters", app.id.name().len()));
    }
    policy(app, &mut tell);
    sources(app, own_repository, &mut tell);
    if app.json.get("status").is_some_and(Value::is_object) {
        state(app, &mut tell);
    } else {
        tell(Kind::NotReconciled, "no status");
    }
}

fn policy(app: &Application<'_>, tell: &mut impl FnMut(Kind, &str)) {
    let policy = "/spec/syncPolicy/automated";
    if app.automated() {
        let mut with = Vec::new();
        for (field, word) in [("selfHeal", "selfHeal"), ("prune", "prune")] {
            if truth(app.json, &format!("{policy}/{field}")) {
                with.push(word);
            }
        }
        let detail = if with.is_empty() { "on".to_owned() } else { format!("with {}", with.join(" and ")) };
        tell(Kind::AutomatedSync, &detail);
        if truth(app.json, &format!("{policy}/allowEmpty")) {
            tell(Kind::AllowEmpty, "syncPolicy.automated.allowEmpty");
        }
    }
    if let Some(retry) = app.json.pointer("/spec/syncPolicy/retry").filter(|retry| retry.is_object()) {
        let limit = retry.get("limit").and_then(Value::as_i64).unwrap_or(5);
        tell(Kind::Retry, &if limit < 0 { "without a limit".to_owned() } else { format!("{limit} times") });
    }
    if !app.has_finalizer() {
        tell(Kind::NoFinalizer, "no resources finalizer");
    }
}

fn sources(app: &Application<'_>, own_repository: Option<&str>, tell: &mut impl FnMut(Kind, &str)) {
    if app.json.pointer("/spec/sourceHydrator").is_some_and(Value::is_object) {
        tell(Kind::Hydrated, "spec.sourceHydrator");
    }
    if app.sources.len() > 1 {
        tell(Kind::MultiSource, &format!("{} sources", app.sources.len()));
    }
    for source in &app.sources {
        if source.chart {
            let what = if source.repository.starts_with("oci://") { "OCI" } else { "Helm" };
            tell(Kind::ChartSource, &format!("{what}, version {}", source.revision));
        }
        let own = own_repository.is_some_and(|own| without_credentials(source.repository) == own);
        if !own && moves(source) {
            let what = if source.chart { "version" } else { "revision" };
            tell(
                Kind::MovingRevision,
                &format!("{what} {} of {}", source.revision, without_credentials(source.repository)),
            );
        }
    }
}

/// A revision that may mean something else tomorrow.
fn moves(source: &Source<'_>) -> bool {
    let revision = source.revision;
    let digits = revision.strip_prefix('v').unwrap_or(revision);
    let version =
        digits.split(['.', '-', '+']).next().is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let range = revision.contains(['*', '^', '~', '<', '>', '=', '|', ' ', ','])
        || digits.split('.').any(|part| part == "x" || part == "X");
    let parts = digits.split(['-', '+']).next().map_or(0, |core| core.split('.').count());
    if source.chart {
        return !(revision.starts_with("sha256:") || version && parts == 3 && !range);
    }
    let commit = (7..=64).contains(&revision.len()) && revision.bytes().all(|b| b.is_ascii_hexdigit());
    !(commit || revision.starts_with("refs/tags/") || version && parts > 1 && !range)
}

fn state(app: &Application<'_>, tell: &mut impl FnMut(Kind, &str)) {
    hooks(app, tell);
    let pruned: Vec<_> = app.resources.iter().filter(|resource| resource.prune && !resource.hook).collect();
    if let Some(first) = pruned.iter().map(|resource| (resource.kind, resource.name)).min() {
        let more = if pruned.len() > 1 { format!(" and {} more", pruned.len() - 1) } else { String::new() };
        tell(Kind::WouldPrune, &format!("{} {}{more}", first.0, first.1));
    }
    if app.resources.is_empty() {
        tell(Kind::EmptyApplication, "no resources");
    } else if app.resources.iter().all(|resource| resource.hook) {
        tell(Kind::OnlyHooks, "only hooks");
    }
    match text(app.json, "/status/health/status") {
        Some("Healthy") => {}
        Some(other) => tell(Kind::Unhealthy, other),
        None => tell(Kind::Unhealthy, "no health"),
    }
    let mut errors = BTreeSet::new();
    for condition in list(app.json, "/status/conditions") {
        let message = text(condition, "/message").unwrap_or_default();
        // Messages are not repeated: they may hold what must not be in Git.
        match text(condition, "/type").unwrap_or_default() {
            "InvalidSpecError" if message.contains("cluster") || message.contains("destination") => {
                errors.insert("");
                tell(Kind::BadDestination, "Argo CD reports InvalidSpecError");
            }
            "SharedResourceWarning" => tell(Kind::SharedResource, "Argo CD reports SharedResourceWarning"),
            "OrphanedResourceWarning" => tell(Kind::Orphans, "Argo CD reports OrphanedResourceWarning"),
            other if other.ends_with("Error") => {
                errors.insert(other);
            }
            _ => {}
        }
    }
    for error in errors.iter().filter(|error| !error.is_empty()) {
        tell(Kind::Condition, error);
    }
    match text(app.json, "/status/sync/status") {
        Some("OutOfSync") => tell(Kind::OutOfSync, "OutOfSync"),
        Some("Unknown") if errors.is_empty() => tell(Kind::Condition, "sync status is Unknown"),
        _ => {}
    }
    if app.cluster.is_empty() {
        tell(Kind::BadDestination, "neither a cluster's name nor its address");
    }
    operation(app, tell);
}

fn hooks(app: &Application<'_>, tell: &mut impl FnMut(Kind, &str)) {
    let mut hooks: BTreeSet<String> = BTreeSet::new();
    for result in list(app.json, "/status/operationState/syncResult/resources") {
        if let (Some(kind), Some(name)) = (text(result, "/hookType"), text(result, "/name")) {
            hooks.insert(format!("{kind} {} {name}", text(result, "/kind").unwrap_or("hook")));
        }
    }
    if hooks.is_empty() {
        let listed = app.resources.iter().filter(|resource| resource.hook);
        hooks.extend(listed.map(|resource| format!("{} {}", resource.kind, resource.name)));
    }
    if let Some(first) = hooks.first() {
        let more = if hooks.len() > 1 { format!(" and {} more", hooks.len() - 1) } else { String::new() };
        tell(Kind::SyncHook, &format!("{first}{more}"));
    }
}

fn operation(app: &Application<'_>, tell: &mut impl FnMut(Kind, &str)) {
    let requested = app.json.get("operation").is_some_and(Value::is_object);
    let phase =
        text(app.json, "/status/operationState/phase").filter(|phase| matches!(*phase, "Running" | "Terminating"));
    if !requested && phase.is_none() {
        return;
    }
    let mut detail = phase.unwrap_or("requested").to_owned();
    if truth(app.json, "/status/operationState/operation/initiatedBy/automated") {
        detail.push_str(", automated");
    }
    if let Some(count) =
        app.json.pointer("/status/operationState/retryCount").and_then(Value::as_i64).filter(|n| *n > 0)
    {
        detail.push_str(&format!(", retried {count} times"));
    }
    tell(Kind::OperationRunning, &detail);
}

/// What is said about one ApplicationSet.
pub(super) fn set(set: &Set<'_>, hazards: &mut Vec<Hazard>) {
    if !set.json.is_object() {
        return;
    }
    let policy = text(set.json, "/spec/syncPolicy/applicationsSync").unwrap_or("sync");
    if !matches!(policy, "create-update" | "create-only") {
        let kept = truth(set.json, "/spec/syncPolicy/preserveResourcesOnDeletion");
        let what = if kept { "their resources are preserved" } else { "their resources go with them" };
        hazards.push(Hazard::new(Kind::SetDeletes, &set.about(), format!("applicationsSync is {policy}; {what}")));
    }
}

/// What is said about AppProjects that are used: `by_project` counts the Applications of each.
pub(super) fn projects(listed: Option<&[Value]>, by_project: &BTreeMap<&str, usize>, hazards: &mut Vec<Hazard>) {
    let listed: Option<BTreeMap<&str, &Value>> =
        listed.map(|all| all.iter().filter_map(|json| Some((text(json, "/metadata/name")?, json))).collect());
    for (name, count) in by_project {
        let about = format!("AppProject {name}");
        let many = if *count == 1 { "1 Application".to_owned() } else { format!("{count} Applications") };
        if *name == DEFAULT_PROJECT {
            hazards.push(Hazard::new(Kind::DefaultProject, &about, &many));
        }
        let Some(listed) = &listed else { continue };
        match listed.get(name) {
            None => hazards.push(Hazard::new(Kind::NoProject, &about, format!("does not exist; {many}"))),
            Some(json) => {
                let windows = list(json, "/spec/syncWindows");
                let ours = crate::render::WINDOW_PREFIX;
                let is_ours = |w: &Value| text(w, "/description").is_some_and(|text| text.starts_with(ours));
                // One that lets manual syncs pass lets ours pass.
                let foreign = windows.iter().filter(|window| !is_ours(window) && !truth(window, "/manualSync"));
                let kinds: Vec<&str> = foreign.map(|window| text(window, "/kind").unwrap_or("unknown")).collect();
                if !kinds.is_empty() {
                    let shown: BTreeSet<&str> = kinds.iter().copied().collect();
                    let shown: Vec<&str> = shown.into_iter().collect();
                    let windows =
                        if kinds.len() == 1 { "1 window".to_owned() } else { format!("{} windows", kinds.len()) };
                    let detail = format!("{windows} without manualSync ({}); {many}", shown.join(", "));
                    hazards.push(Hazard::new(Kind::SyncWindow, &about, detail));
                }
            }
        }
    }
    if by_project.len() > 1 {
        let names: Vec<&str> = by_project.keys().copied().take(10).collect();
        let detail = format!("{} AppProjects: {}", by_project.len(), names.join(", "));
        hazards.push(Hazard::new(Kind::SeveralProjects, "Applications", detail));
    }
}

/// Resources that more than one Application manages, at least one of them selected.
pub(super) fn shared(applications: &[Application<'_>], hazards: &mut Vec<Hazard>) {
    let mut first: Lookup<(&str, &str, &str, &str, &str), usize> = Lookup::new();
    // By pair of Applications: how many resources, and one of them.
    let mut pairs: BTreeMap<_, (usize, (&str, &str))> = BTreeMap::new();
    for (index, app) in applications.iter().enumerate() {
        for resource in app.resources.iter().filter(|resource| !resource.hook) {
            let key = (app.cluster, resource.group, resource.kind, resource.namespace, resource.name);
            let other = *first.entry(key).or_insert(index);
            if other != index {
                let example = (resource.kind, resource.name);
                let (count, smallest) = pairs.entry((other, index)).or_insert((0, example));
                *count += 1;
                *smallest = example.min(*smallest);
            }
        }
    }
    for ((one, other), (count, (kind, name))) in pairs {
        let (Some(one), Some(other)) = (applications.get(one), applications.get(other)) else { continue };
        let (about, also) = if one.selected { (one, other) } else { (other, one) };
        if about.selected {
            let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let detail = format!("{kind} {name}{more}, also in {}", also.id);
            hazards.push(Hazard::new(Kind::SharedResource, &about.about(), detail));
        }
    }
}

/// Whether Argo CD assesses the health of Applications: its settings say so, or it has done it.
pub(super) fn assesses_applications(settings: Option<&Value>, applications: &[Application<'_>]) -> bool {
    let data = settings.and_then(|settings| settings.get("data"));
    let by_key = data.and_then(|data| data.get("resource.customizations.health.argoproj.io_Application"));
    let by_table = data
        .and_then(|data| data.get("resource.customizations"))
        .and_then(Value::as_str)
        .is_some_and(|table| table.contains("argoproj.io/Application:"));
    let done = |app: &Application<'_>| {
        app.resources.iter().any(|r| r.group == "argoproj.io" && r.kind == "Application" && r.assessed)
    };
    by_key.is_some() || by_table || applications.iter().any(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_and_ranges_move_commits_tags_and_versions_do_not() {
        let source = |revision, chart| Source { repository: "https://x.example.com/r", revision, chart };
        for fixed in ["v1.2.3", "1.2", "refs/tags/x", "0123456789abcdef0123456789abcdef01234567", "2024.01.1"] {
            assert!(!moves(&source(fixed, false)), "{fixed}");
        }
        for moving in ["HEAD", "main", "release-1.2", "v1", "1.x"] {
            assert!(moves(&source(moving, false)), "{moving}");
        }
        for fixed in ["1.2.3", "v1.2.3-rc.1", "1.2.3+build"] {
            assert!(!moves(&source(fixed, true)), "{fixed}");
        }
        for moving in ["*", "1.2", "1.2.x", "^1.2.3", ">=1.0.0", "HEAD", "latest"] {
            assert!(moves(&source(moving, true)), "{moving}");
        }
    }
}
