//! Who provides a custom resource definition and who uses it, in the same cluster.
//!
//! A definition is known by its name, `<plural>.<group>`. Which kind it defines only the definition itself says; where those
//! may not be listed, the kind is guessed from the plural, and where that does not fit, the group alone decides.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::hazard::{Hazard, Kind};
use super::read::{Application, annotation, text};
use crate::lookup::Lookup;

/// More Applications than this that provide one group, with nothing to tell them apart, are no dependency but a riddle.
const MOST_PROVIDERS: usize = 8;

/// Somebody uses what somebody else defines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) user: usize,
    pub(super) provider: usize,
    /// One of the definitions, for people.
    pub(super) definition: String,
}

struct Provided<'j> {
    plural: &'j str,
    name: &'j str,
    provider: usize,
}

/// Every use of a definition by a selected Application, whoever provides it, once per pair, sorted.
pub(super) fn uses(
    applications: &[Application<'_>],
    listed: Option<&[Value]>,
    argocd: &str,
    hazards: &mut Vec<Hazard>,
) -> Vec<Use> {
    let known: Lookup<&str, &Value> =
        listed.unwrap_or_default().iter().filter_map(|json| Some((text(json, "/metadata/name")?, json))).collect();
    let provided = provided(applications, &known, argocd);
    let mut found: BTreeMap<(usize, usize), &str> = BTreeMap::new();
    for (user, application) in applications.iter().enumerate().filter(|(_, application)| application.selected) {
        let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
        for resource in &application.resources {
            let Some(of_group) = provided.get(&(application.cluster, resource.group)) else { continue };
            if !seen.insert((resource.group, resource.kind)) {
                continue;
            }
            let defines =
                |given: &&Provided<'_>| match known.get(given.name).and_then(|json| text(json, "/spec/names/kind")) {
                    Some(kind) => kind == resource.kind,
                    None => is_plural_of(given.plural, resource.kind),
                };
            let mut fitting: Vec<&Provided<'_>> = of_group.iter().filter(defines).collect();
            let all_known = || of_group.iter().all(|given| known.contains_key(given.name));
            if fitting.is_empty() && !all_known() {
                fitting = of_group.iter().filter(|given| !known.contains_key(given.name)).collect();
                let providers: BTreeSet<usize> = fitting.iter().map(|given| given.provider).collect();
                if providers.len() > MOST_PROVIDERS && !providers.contains(&user) {
                    let detail = format!(
                        "uses {} of `{}`, which {} Applications provide definitions of",
                        resource.kind,
                        resource.group,
                        providers.len()
                    );
                    hazards.push(Hazard::new(Kind::CrdUnclear, &application.about(), detail));
                    continue;
                }
            }
            if fitting.iter().any(|given| given.provider == user) {
                continue;
            }
            for given in fitting {
                let name = found.entry((user, given.provider)).or_insert(given.name);
                *name = given.name.min(*name);
            }
        }
    }
    found.into_iter().map(|((user, provider), name)| Use { user, provider, definition: name.to_owned() }).collect()
}

/// Definitions by cluster and group.
type ByGroup<'j> = BTreeMap<(&'j str, &'j str), Vec<Provided<'j>>>;

/// The definitions, each with one provider: the one that the definition says manages it, else the first.
fn provided<'j>(applications: &[Application<'j>], known: &Lookup<&str, &Value>, argocd: &str) -> ByGroup<'j> {
    let mut providers: BTreeMap<(&'j str, &'j str), Vec<usize>> = BTreeMap::new();
    for (index, application) in applications.iter().enumerate() {
        for resource in &application.resources {
            if resource.group == "apiextensions.k8s.io"
                && resource.kind == "CustomResourceDefinition"
                && is_subdomain(resource.name)
            {
                providers.entry((application.cluster, resource.name)).or_default().push(index);
            }
        }
    }
    let mut by_group = ByGroup::new();
    for ((cluster, name), candidates) in providers {
        let Some((plural, group)) = name.split_once('.') else { continue };
        let owner = known.get(name).and_then(|json| annotation(json, "argocd.argoproj.io/tracking-id"));
        let owner = owner.and_then(|id| id.split(':').next());
        let is_owner = |index: &&usize| {
            applications.get(**index).is_some_and(|application| {
                let id = &application.id;
                let name = if id.namespace.as_str() == argocd {
                    id.name().to_owned()
                } else {
                    format!("{}_{}", id.namespace, id.name())
                };
                owner == Some(name.as_str())
            })
        };
        let chosen = candidates.iter().find(is_owner).or_else(|| candidates.first());
        if let Some(provider) = chosen {
            by_group.entry((cluster, group)).or_default().push(Provided { plural, name, provider: *provider });
        }
    }
    by_group
}

/// What may stand in a comment of a file: a name that Kubernetes accepts.
fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
}

/// The plural that generators make of a kind.
pub(crate) fn is_plural_of(plural: &str, kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    if plural == kind {
        return true;
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| kind.ends_with(ending));
    if ends(&["s", "x", "z", "ch", "sh"]) {
        return plural.strip_suffix("es") == Some(kind.as_str());
    }
    if let Some(stem) = kind.strip_suffix('y')
        && !stem.ends_with(['a', 'e', 'i', 'o', 'u'])
    {
        return plural.strip_suffix("ies") == Some(stem);
    }
    plural.strip_suffix('s') == Some(kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_recognised_in_the_plural_of_its_definition() {
        for (plural, kind) in [
            ("certificates", "Certificate"),
            ("postgresqls", "Postgresql"),
            ("ingresses", "Ingress"),
            ("networkpolicies", "NetworkPolicy"),
            ("gateways", "Gateway"),
            ("kafka", "Kafka"),
        ] {
            assert!(is_plural_of(plural, kind), "{plural} {kind}");
        }
        assert!(!is_plural_of("certificaterequests", "Certificate"));
    }
}
