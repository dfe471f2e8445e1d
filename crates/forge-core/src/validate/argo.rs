//! `app.yaml` against the layout: every field that the scaffold writes must be there with its value; more may be.
//!
//! There is one description of the layout, the scaffold, so lint and `init` cannot disagree. What people tune (retries,
//! sources and destinations of AppProjects, descriptions) is theirs.

use super::{Context, Facts, Inspected, secrets};
use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::format::{ArgoInstall, Installation, Sync};
use crate::install::{self, Own};
use crate::name::clip;
use crate::repository::Role;
use crate::scaffold::{self, With};
use crate::yaml::{Dialect, Limits, Node, Position, Stream, Value, read};

/// Fields that belong to the people. Without labels of its own a namespace stays when its environment goes, and that is for
/// them to choose too.
const FREE: &[&str] = &[
    "retry",
    "sourceRepos",
    "destinations",
    "clusterResourceWhitelist",
    "namespaceResourceWhitelist",
    "description",
    "managedNamespaceMetadata",
];

/// Fields whose absence lets a vanished file destroy something.
const PROTECTIONS: &[&str] =
    &["applicationsSync", "preserveResourcesOnDeletion", "finalizers", "argocd.argoproj.io/sync-options"];

/// Checks an `app.yaml`.
pub(super) fn check(context: &Context, role: &Role<'_>, stream: &Stream<'_>, out: &mut Inspected) {
    if let Role::RootApp = role {
        let crossplane = stream.documents.iter().any(|d| identity(d) == ("Application", "crossplane"));
        let objects = stream.documents.iter().filter(|document| !document.is_null()).map(Node::to_json).collect();
        out.facts = Facts::RootApp { crossplane, objects: Some(objects) };
    }
    let Some(installation) = &context.installation else { return };
    let (expected, environment) = match role {
        Role::RootApp => (scaffold::root_app(installation, With::default()), None),
        Role::EnvironmentApp(index) => {
            let Some(environment) = installation.environments.get(*index) else { return };
            (scaffold::environment_app(installation, environment), Some(environment))
        }
        _ => return,
    };
    if let (Role::RootApp, ArgoInstall::Install) = (role, installation.argo.cd) {
        own_application(installation, stream, out);
    }
    let expected = read(&expected, Dialect::Kubernetes, Limits::FILE);
    let mut comparison = Comparison { path: out.path.clone(), findings: Vec::new(), object: String::new() };
    for wanted in &expected.documents {
        let (kind, name) = identity(wanted);
        match stream.documents.iter().find(|document| identity(document) == (kind, name)) {
            Some(found) => {
                comparison.object = format!("{kind} `{name}`");
                comparison.node(wanted, found, &mut Vec::new());
            }
            None => {
                let place = Place::new(&out.path, Position::START);
                let fix = "`forge init` or `forge env add` in an empty folder shows what belongs here";
                comparison.findings.push(
                    Finding::new(Code::MissingObject, place, format!("no {kind} `{name}` in this file")).with_fix(fix),
                );
            }
        }
    }
    if let Some(environment) = environment
        && environment.sync.value != Sync::Auto
    {
        let name = format!("{}-apps", environment.name.value);
        let set = stream.documents.iter().find(|document| identity(document) == ("ApplicationSet", &name));
        let automated = set.and_then(|set| set.entry(&["spec", "template", "spec", "syncPolicy", "automated"]));
        let off = |node: &Node<'_>| node.is_null() || node.text_at(&["enabled"]) == Some("false");
        if let Some((key, _)) = automated.filter(|(_, node)| !off(node)) {
            let message = format!(
                "automated sync, but forge.yaml says environment `{}` is not `sync: auto`",
                environment.name.value
            );
            let code = if environment.protected { Code::AutoSyncOnProtected } else { Code::LayoutMismatch };
            comparison.findings.push(
                Finding::new(code, Place::new(&out.path, key.at), message)
                    .with_fix("remove `automated`, or change forge.yaml"),
            );
        }
    }
    out.findings.extend(comparison.findings);
}

/// Argo CD's own Application must be one that can take over what Helm installed.
fn own_application(installation: &Installation, stream: &Stream<'_>, out: &mut Inspected) {
    let is_own = |document: &&Node<'_>| identity(document) == ("Application", install::APPLICATION);
    let Some(document) = stream.documents.iter().find(is_own) else { return };
    for problem in Own::read(&document.to_json(), installation).err().unwrap_or_default() {
        let place = Place::new(&out.path, document.at);
        let message = format!("Application `{}`: {problem}", install::APPLICATION);
        let fix = "`forge bootstrap --print --with self-managed-argocd` prints it as it should be";
        out.findings.push(Finding::new(Code::LayoutMismatch, place, message).with_fix(fix));
    }
}

fn identity<'n>(document: &'n Node<'_>) -> (&'n str, &'n str) {
    let text = |keys: &[&str]| document.text_at(keys).unwrap_or_default();
    (text(&["kind"]), text(&["metadata", "name"]))
}

struct Comparison {
    path: String,
    findings: Vec<Finding>,
    object: String,
}

impl Comparison {
    fn report(&mut self, at: Position, keys: &[&str], wanted: &Node<'_>, message: &str, fix: &str) {
        let protection = keys.iter().any(|key| PROTECTIONS.contains(key)) || holds_protection(wanted);
        let code = if protection { Code::Unprotected } else { Code::LayoutMismatch };
        let message = format!("{}: `{}` {message}", self.object, keys.join("."));
        // What forge.yaml says is shown in another file, so what it says too much is taken out here.
        let fix = secrets::scrubbed(fix);
        self.findings.push(Finding::new(code, Place::new(&self.path, at), message).with_fix(fix));
    }

    fn node<'w>(&mut self, wanted: &'w Node<'_>, found: &Node<'_>, keys: &mut Vec<&'w str>) {
        match (&wanted.value, &found.value) {
            (Value::Mapping(entries), Value::Mapping(_)) => {
                for (key, wanted) in entries {
                    if FREE.contains(&&*key.text) {
                        continue;
                    }
                    keys.push(&key.text);
                    match found.get(&key.text) {
                        Some(found) => self.node(wanted, found, keys),
                        None => {
                            let fix = format!("add `{}: {}`", key.text, shown(wanted));
                            self.report(found.at, keys, wanted, "is missing", &fix);
                        }
                    }
                    keys.pop();
                }
            }
            (Value::Sequence(items), Value::Sequence(present)) => {
                if let ([item], [candidate]) = (items.as_slice(), present.as_slice())
                    && item.entries().is_some()
                {
                    self.node(item, candidate, keys);
                    return;
                }
                for item in items {
                    if !present.iter().any(|candidate| holds(item, candidate)) {
                        self.report(found.at, keys, item, "lacks an entry", &format!("add `{}`", shown(item)));
                    }
                }
            }
            (Value::Scalar(expected), Value::Scalar(scalar)) => {
                if !same(keys.last().copied().unwrap_or_default(), &expected.text, &scalar.text) {
                    let message = format!("is `{}`", clip(&scalar.text));
                    self.report(found.at, keys, wanted, &message, &format!("expected `{}`", expected.text));
                }
            }
            _ => {
                let fix = format!("expected `{}`", shown(wanted));
                self.report(found.at, keys, wanted, &format!("is {}", found.kind()), &fix);
            }
        }
    }
}

/// True if a protection is among what is wanted here.
fn holds_protection(wanted: &Node<'_>) -> bool {
    wanted.entries().is_some_and(|entries| {
        entries.iter().any(|(key, value)| PROTECTIONS.contains(&&*key.text) || holds_protection(value))
    })
}

/// Two texts that mean the same in this field.
fn same(field: &str, wanted: &str, found: &str) -> bool {
    if field == "argocd.argoproj.io/sync-options" {
        return wanted.split(',').all(|option| found.split(',').any(|have| have.trim() == option));
    }
    // Templates may be spaced as people like.
    let squeezed = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    wanted == found || (wanted.contains("{{") && squeezed(wanted) == squeezed(found))
}

/// True if everything in `wanted` is in `found`.
fn holds(wanted: &Node<'_>, found: &Node<'_>) -> bool {
    match (&wanted.value, &found.value) {
        (Value::Scalar(a), Value::Scalar(b)) => same("", &a.text, &b.text),
        (Value::Sequence(items), Value::Sequence(present)) => {
            items.iter().all(|item| present.iter().any(|candidate| holds(item, candidate)))
        }
        (Value::Mapping(entries), Value::Mapping(_)) => {
            entries.iter().all(|(key, wanted)| found.get(&key.text).is_some_and(|found| holds(wanted, found)))
        }
        _ => false,
    }
}

fn shown(node: &Node<'_>) -> String {
    match &node.value {
        Value::Scalar(scalar) => scalar.text.to_string(),
        _ => node.to_json().to_string(),
    }
}
