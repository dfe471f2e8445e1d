//! What of Argo is to be installed, from which chart and with which values, and what of the repository goes with it: decided
//! from files alone, before the cluster is asked for anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{self, APPLICATION, Own, PlannedChart, PlannedSource, Wanted, says, values_path};
use forge_core::preflight::{Component, Intent, Intents, Purpose};
use forge_core::render::MANAGED_BY;
use forge_core::repository::{ROOT_APP_FILE, Repository};
use forge_core::root::{self, Root};
use serde_json::{Value, json};

use super::charts::{Charts, Source};

/// A part of Argo that is to be installed, and its chart.
pub(crate) struct Installing {
    pub(crate) wanted: Wanted,
    pub(super) source: Source,
}

/// The parts of Argo that are to be installed, in their order. Argo CD is installed as its own Application says where it is to
/// be handed over to that, with a chart that may be in the repository itself.
///
/// # Errors
/// When a chart is not there.
pub(crate) fn installing(
    purpose: &Purpose,
    health: &HealthChecks,
    values: &BTreeMap<Component, Value>,
    charts: &Charts,
    own: Option<(&Own, &Path)>,
) -> Result<Vec<Installing>, Failure> {
    let wanted = Component::ALL.into_iter().filter(|component| purpose.intent(*component) == Intent::Install);
    wanted
        .map(|component| {
            if let (Component::Cd, Some((own, repository))) = (component, own) {
                let (source, version) = charts.own(&own.chart, repository)?;
                let namespace = purpose.place(component);
                let wanted = Wanted::of_application(namespace, own, &version, source.content.as_ref());
                return Ok(Installing { wanted, source });
            }
            let chart = install::chart(component);
            let source = charts.source(chart.name, chart.version)?;
            let wanted = Wanted::of(purpose, component, health, values.get(&component), source.content.as_ref());
            Ok(Installing { wanted, source })
        })
        .collect()
}

/// The same for a program that installs them by other means.
pub(crate) fn planned(installing: &[Installing]) -> Vec<PlannedChart> {
    let of = |part: &Installing| {
        let Source { reference, repository, version, .. } = &part.source;
        let (chart, repository, version) =
            (reference.to_string_lossy().into_owned(), repository.clone(), version.clone());
        PlannedChart::new(&part.wanted, PlannedSource { chart, repository, version })
    };
    installing.iter().map(of).collect()
}

/// The namespaces that they need, with our label: they go with what was installed in them. None where nothing is installed.
pub(crate) fn namespaces(installing: &[Installing], workflows: &str) -> Vec<Value> {
    let mut names: BTreeSet<&str> = installing.iter().map(|part| part.wanted.namespace.as_str()).collect();
    if !names.is_empty() {
        names.insert(workflows);
    }
    let of = |name: &str| {
        let metadata = json!({"name": name, "labels": {MANAGED_BY: "forge"}});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    };
    names.into_iter().map(of).collect()
}

/// What of the root file of a repository is applied; nothing where there is none, or where Argo CD is somebody else's.
///
/// # Errors
/// When it cannot be applied.
pub(crate) fn root(repository: &Repository) -> Result<Option<Root>, Failure> {
    if !repository.applies_root() {
        return Ok(None);
    }
    Root::of(repository).map_err(|problems| {
        Failure::new(Code::RootUnusable, format!("{ROOT_APP_FILE} cannot be applied: {}", problems.join("; ")))
            .hint("`forge init` in an empty folder shows what belongs into it")
    })
}

/// What Argo CD's own Application says, where it is to be handed over to that.
///
/// # Errors
/// When there is none, Argo CD is somebody else's, or Helm cannot be given the same.
pub(crate) fn own(repository: &Repository) -> Result<Own, Failure> {
    let print = "`forge bootstrap --print --with self-managed-argocd` prints it as it should be";
    if Intents::of(&repository.installation.argo).cd != Intent::Install {
        let message = "self-managed-argocd: Argo CD is `existing`, and whoever owns it manages it";
        return Err(Failure::new(Code::BadArgument, message).hint("leave it out, or set `argo: {cd: install}`"));
    }
    let own = root(repository)?.and_then(|root| root.own).ok_or_else(|| {
        let message =
            format!("{ROOT_APP_FILE} has no Application `{APPLICATION}` that Argo CD could be handed over to");
        Failure::new(Code::RootUnusable, message).hint(format!("add it; {print}"))
    })?;
    Own::read(&own.object, &repository.installation).map_err(|problems| {
        let problems = problems.join("; ");
        let what = root::identity(&own.object);
        Failure::new(Code::OwnUnusable, format!("{what} in {ROOT_APP_FILE} cannot take Argo CD over: {problems}"))
            .hint(print)
    })
}

/// What there is to say about Argo CD's own Application: its values are Git's, and not those that this version of Forge and this
/// repository would install with. Nothing where they are.
pub(crate) fn outdated(
    own: &Own,
    purpose: &Purpose,
    health: &HealthChecks,
    values: &BTreeMap<Component, Value>,
) -> Option<String> {
    let ours = Wanted::of(purpose, Component::Cd, health, values.get(&Component::Cd), None);
    (!says(&own.values, &ours.values)).then(|| {
        format!(
            "Application `{APPLICATION}` in {ROOT_APP_FILE} lacks values that Forge or this repository has (health checks, the plugin for releases, {}): `forge bootstrap --print --with self-managed-argocd` prints it with them",
            values_path(Component::Cd)
        )
    })
}

#[cfg(test)]
mod tests {
    use forge_core::scaffold::{Source as Origin, With, root_app};
    use forge_core::validate::{Content, tree};

    use super::*;

    /// A repository with this `argo` in forge.yaml, and the root file that is made of it.
    fn repository(argo: &str, root: impl Fn(&Repository) -> Option<String>) -> Repository {
        let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
        let installation = format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {argo}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
        );
        let graph = format!("{header}kind: DependencyGraph\nspec:\n  stacks: []\n");
        let mut files = BTreeMap::from([("forge.yaml".to_owned(), installation), ("graph.yaml".to_owned(), graph)]);
        let of = |files: &BTreeMap<String, String>| {
            let bytes = |(path, text): (&String, &String)| (path.clone(), Content::Bytes(text.clone().into_bytes()));
            tree(&files.iter().map(bytes).collect()).repository.unwrap()
        };
        if let Some(text) = root(&of(&files)) {
            files.insert(ROOT_APP_FILE.to_owned(), text);
        }
        of(&files)
    }

    fn scaffolded(repository: &Repository, argocd: Origin) -> String {
        root_app(&repository.installation, With { argocd, ..With::default() })
    }

    #[test]
    fn argo_cd_is_handed_over_only_where_git_has_an_application_that_can_take_it() {
        let install = "{cd: install, workflows: install, events: none}";
        let failure = |repository: &Repository| own(repository).unwrap_err().code;
        let whole = repository(install, |it| Some(scaffolded(it, Origin::Published)));
        assert_eq!(own(&whole).unwrap().chart, install::ChartPlace::Version("9.2.0".to_owned()));
        assert!(root(&whole).unwrap().is_some());
        assert_eq!(failure(&repository(install, |_| None)), Code::RootUnusable);
        assert_eq!(failure(&repository(install, |it| Some(scaffolded(it, Origin::Without)))), Code::RootUnusable);
        let renamed =
            |it: &Repository| Some(scaffolded(it, Origin::Published).replace("releaseName: argo-cd", "releaseName: x"));
        assert_eq!(failure(&repository(install, renamed)), Code::OwnUnusable);
        // Of an Argo CD that is somebody else's nothing is applied, and nothing is handed over.
        let existing = "{cd: existing, workflows: install, events: none}";
        let existing = repository(existing, |it| Some(scaffolded(it, Origin::Published)));
        assert_eq!(failure(&existing), Code::BadArgument);
        assert!(root(&existing).unwrap().is_none());
    }

    #[test]
    fn values_that_forge_has_and_the_application_has_not_are_told() {
        let install = "{cd: install, workflows: install, events: none}";
        let own = own(&repository(install, |it| Some(scaffolded(it, Origin::Published)))).unwrap();
        let (purpose, health) = (Purpose::default(), HealthChecks::merge(&BTreeMap::new()));
        assert_eq!(outdated(&own, &purpose, &health, &BTreeMap::new()), None);
        let more = BTreeMap::from([(Component::Cd, json!({"server": {"replicas": 2}}))]);
        let note = outdated(&own, &purpose, &health, &more).unwrap();
        assert!(note.contains("argo/values/argo-cd.yaml") && note.contains("--print"), "{note}");
        // What `init` wrote knows no image, so it has no plugin.
        let with = Purpose { releases: true, ..purpose };
        assert!(outdated(&own, &with, &health, &BTreeMap::new()).is_some());
    }
}
