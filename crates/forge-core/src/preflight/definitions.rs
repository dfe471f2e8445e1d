//! The CustomResourceDefinitions of Argo: whose they are, and whether they are served as Forge reads them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::argo::Owner;
use super::{Check, Component, Finding, Intent, Judged, Purpose, Severity, count, items, text};
use crate::name::clip;

/// The group of everything of Argo.
const GROUP: &str = "argoproj.io";
/// The version that is read and written.
const VERSION: &str = "v1alpha1";

/// The kinds of a part, by their plurals; without the first of them nothing can be done.
const fn kinds(component: Component) -> (&'static [&'static str], &'static [&'static str]) {
    match component {
        Component::Cd => (&["applications", "appprojects"], &["applicationsets"]),
        Component::Workflows => (
            &["workflows", "clusterworkflowtemplates", "workflowtasksets", "workflowtaskresults"],
            &["cronworkflows", "workflowartifactgctasks", "workfloweventbindings", "workflowtemplates"],
        ),
        Component::Events => (&["eventbus", "eventsources", "sensors"], &[]),
    }
}

/// The kinds of a part, by their plurals, without which nothing can be done.
pub const fn needed(component: Component) -> &'static [&'static str] {
    kinds(component).0
}

/// What is known of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionFacts {
    /// Its kind, by its plural.
    pub plural: String,
    /// Whose it is, by its marks.
    pub owner: Owner,
    /// It is being deleted.
    pub going: bool,
}

impl DefinitionFacts {
    /// Reads a definition, of which the metadata are enough; nothing where it is not Argo's.
    pub fn read(definition: &Value) -> Option<Self> {
        let plural = text(definition, "/metadata/name")?.strip_suffix(GROUP)?.strip_suffix('.')?;
        Some(Self {
            plural: clip(plural),
            owner: Owner::read(definition),
            going: text(definition, "/metadata/deletionTimestamp").is_some(),
        })
    }
}

/// What is known of all definitions of Argo.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Definitions {
    /// Those that are there.
    pub found: Vec<DefinitionFacts>,
    /// Plurals that are served in the version that Forge reads.
    pub served: BTreeSet<String>,
    /// Sync windows can carry a description; nothing where there are no AppProjects, or they may not be looked at.
    pub describes_windows: Option<bool>,
}

/// Whether the definition of AppProjects has a description for sync windows: a window has no name, so ours is recognised
/// by that, and an API server drops what a definition does not know.
pub fn describes_windows(definition: &Value) -> Option<bool> {
    let version = items(definition, "/spec/versions").find(|version| text(version, "/name") == Some(VERSION))?;
    let schema = version.pointer("/schema/openAPIV3Schema")?;
    let kept =
        |schema: &Value| schema.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(true);
    let window = schema.pointer("/properties/spec/properties/syncWindows/items");
    Some(
        kept(schema)
            || window.is_some_and(|window| kept(window) || window.pointer("/properties/description").is_some()),
    )
}

/// Judges the definitions of Argo.
pub fn definitions(purpose: &Purpose, known: &Definitions) -> Judged {
    let seen = format!("{} of {GROUP}", count(known.found.len(), "definition"));
    let mut judged = Judged::new(Check::Definitions, seen);
    for component in Component::ALL {
        let (needed, others) = kinds(component);
        let mine: Vec<&DefinitionFacts> = known
            .found
            .iter()
            .filter(|found| needed.iter().chain(others).any(|plural| *plural == found.plural))
            .collect();
        let findings = match purpose.intent(component) {
            Intent::Install => install(component, purpose, &mine),
            Intent::Existing => existing(component, known, needed),
            Intent::Without => Vec::new(),
        };
        judged.findings.extend(findings);
        let going: Vec<String> = mine.iter().filter(|found| found.going).map(|found| name(&found.plural)).collect();
        if !going.is_empty() && purpose.intent(component) != Intent::Without {
            let means = "all objects of these kinds go with them, and new ones cannot be made";
            let fix = format!(
                "wait until they are gone, then let them be made again; if they stay, objects with finalizers hold them: `kubectl get {} -A`",
                going.first().map_or("", String::as_str)
            );
            let what = format!("definitions of {} are being deleted", component.title());
            let finding = Finding::new(Check::Definitions, Severity::Blocking, what, means, fix);
            judged = judged.with(finding.because(going));
        }
    }
    judged
}

fn name(plural: &str) -> String {
    format!("{plural}.{GROUP}")
}

/// Helm takes over nothing that is not its own release's already.
fn install(component: Component, purpose: &Purpose, mine: &[&DefinitionFacts]) -> Vec<Finding> {
    let (release, namespace) = (component.release(), purpose.place(component));
    let own = Owner::Helm(format!("{namespace}/{release}"));
    let foreign: Vec<&&DefinitionFacts> =
        mine.iter().filter(|found| found.owner != own && found.owner != Owner::Forge).collect();
    let Some(first) = foreign.first() else { return Vec::new() };
    let (title, field, first) = (component.title(), component.field(), name(&first.plural));
    let evidence: Vec<String> =
        foreign.iter().map(|found| format!("{}: made by {}", name(&found.plural), found.owner)).collect();
    vec![
        Finding::new(
            Check::Definitions,
            Severity::Blocking,
            format!("{} of {title} are there and not of Helm release `{release}` in `{namespace}`", count(foreign.len(), "definition")),
            "Helm refuses to install over what is not its own, and to delete them deletes every object of these kinds",
            format!(
                "set `argo: {{{field}: existing}}` in forge.yaml if they are in use; else hand each over: `kubectl label crd {first} app.kubernetes.io/managed-by=Helm --overwrite` and `kubectl annotate crd {first} meta.helm.sh/release-name={release} meta.helm.sh/release-namespace={namespace} --overwrite`"
            ),
        )
        .because(evidence),
    ]
}

/// What is used as it is must be served as Forge reads it.
fn existing(component: Component, known: &Definitions, needed: &[&str]) -> Vec<Finding> {
    let title = component.title();
    let mut findings = Vec::new();
    let missing: Vec<String> = needed
        .iter()
        .filter(|plural| !known.served.contains(**plural))
        .map(|plural| {
            let there = known.found.iter().any(|found| found.plural == **plural);
            format!("{}: {}", name(plural), if there { "there, in another version" } else { "not there" })
        })
        .collect();
    if !missing.is_empty() {
        findings.push(
            Finding::new(
                Check::Definitions,
                Severity::Blocking,
                format!("{} of {title} are not served as {GROUP}/{VERSION}", count(missing.len(), "definition")),
                "Forge reads and writes this version and no other",
                format!(
                    "install the definitions that belong to the {title} that is there: `kubectl get crd -o name` lists those that there are"
                ),
            )
            .because(missing),
        );
    }
    if component == Component::Cd && known.describes_windows == Some(false) {
        findings.push(Finding::new(
            Check::Definitions,
            Severity::Blocking,
            "sync windows of this Argo CD have no description",
            "Forge recognises its own window by it; without one it would take each for somebody else's",
            "upgrade Argo CD to 3.0 or newer, with its definitions",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Intents;
    use serde_json::json;

    fn definition(plural: &str, release: Option<&str>) -> DefinitionFacts {
        let mut object = json!({"metadata": {"name": format!("{plural}.argoproj.io")}});
        if let Some(release) = release {
            let (namespace, name) = release.split_once('/').unwrap();
            object["metadata"]["annotations"] =
                json!({"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace});
        }
        DefinitionFacts::read(&object).unwrap()
    }

    fn events(events: Intent) -> Purpose {
        Purpose { intents: Intents { cd: Intent::Without, workflows: Intent::Without, events }, ..Purpose::default() }
    }

    fn known(found: Vec<DefinitionFacts>) -> Definitions {
        let served = found.iter().map(|found| found.plural.clone()).collect();
        Definitions { found, served, describes_windows: None }
    }

    #[test]
    fn definitions_that_helm_could_not_take_over_block_an_installation() {
        let own = || definition("sensors", Some("argo-events/argo-events"));
        assert_eq!(definitions(&events(Intent::Install), &known(vec![own()])).worst(), None);
        assert_eq!(definitions(&events(Intent::Install), &known(vec![])).worst(), None);
        for foreign in [definition("eventsources", None), definition("eventbus", Some("elsewhere/argo-events"))] {
            let judged = definitions(&events(Intent::Install), &known(vec![own(), foreign.clone()]));
            assert_eq!(judged.worst(), Some(Severity::Blocking));
            assert_eq!(judged.findings[0].evidence.len(), 1);
            assert!(judged.findings[0].fix.contains(&format!("crd {}.argoproj.io", foreign.plural)), "{judged:?}");
            assert_eq!(definitions(&events(Intent::Without), &known(vec![foreign])).worst(), None);
        }
    }

    #[test]
    fn what_is_used_as_it_is_must_be_served_in_the_version_that_is_read() {
        let all = || ["eventbus", "eventsources", "sensors"].map(|plural| definition(plural, None)).to_vec();
        assert_eq!(definitions(&events(Intent::Existing), &known(all())).worst(), None);
        let mut other = known(all());
        other.served.remove("sensors");
        let judged = definitions(&events(Intent::Existing), &other);
        assert_eq!(judged.findings[0].evidence, ["sensors.argoproj.io: there, in another version"]);
        let judged = definitions(&events(Intent::Existing), &Definitions::default());
        assert_eq!(judged.findings[0].evidence.len(), 3);
    }

    #[test]
    fn definitions_that_are_being_deleted_block() {
        let mut going = definition("sensors", Some("argo-events/argo-events"));
        going.going = true;
        assert_eq!(definitions(&events(Intent::Install), &known(vec![going])).worst(), Some(Severity::Blocking));
    }

    #[test]
    fn a_window_that_cannot_be_described_is_found_in_the_definition() {
        let with = |window: Value| {
            let spec = json!({"properties": {"syncWindows": {"items": window}}});
            json!({"spec": {"versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}}]}})
        };
        assert_eq!(describes_windows(&with(json!({"properties": {"description": {"type": "string"}}}))), Some(true));
        assert_eq!(describes_windows(&with(json!({"properties": {"kind": {}}}))), Some(false));
        assert_eq!(describes_windows(&with(json!({"x-kubernetes-preserve-unknown-fields": true}))), Some(true));
        assert_eq!(describes_windows(&json!({"spec": {"versions": [{"name": "v1"}]}})), None);
        assert_eq!(describes_windows(&json!(null)), None);
        let purpose =
            Purpose { intents: Intents { workflows: Intent::Without, ..Intents::existing() }, ..Purpose::default() };
        let found = ["applications", "appprojects"].map(|plural| definition(plural, None)).to_vec();
        let old = Definitions { describes_windows: Some(false), ..known(found.clone()) };
        assert_eq!(definitions(&purpose, &old).worst(), Some(Severity::Blocking));
        let new = Definitions { describes_windows: Some(true), ..known(found) };
        assert_eq!(definitions(&purpose, &new).worst(), None);
    }

    #[test]
    fn hostile_definitions_are_not_argos() {
        for hostile in [
            json!(null),
            json!({"metadata": {"name": "applications.example.com"}}),
            json!({"metadata": {"name": "argoproj.io"}}),
            json!({"metadata": {"name": "xargoproj.io"}}),
            json!({"metadata": {"name": ["applications.argoproj.io"]}}),
        ] {
            assert_eq!(DefinitionFacts::read(&hostile), None, "{hostile}");
        }
        let odd = json!({"metadata": {"name": format!("{}.argoproj.io", "\u{1b}".repeat(500))}});
        assert!(DefinitionFacts::read(&odd).unwrap().plural.chars().all(|c| !c.is_control()));
    }
}
