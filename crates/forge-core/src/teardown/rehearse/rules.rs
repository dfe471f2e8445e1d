//! The rules: each is given everything that was read, and says what would stand in the way of a teardown.

mod finalizers;
mod leaks;
mod services;

use jiff::Timestamp;

use super::{Foretold, Judged, Live, Rule, Severity, Thing};
use crate::preflight::count;
use crate::teardown::inventory::{Complete, Item};
use crate::teardown::whose::Whose;
use crate::view::between;

/// A rule.
type Judge = fn(&Live<'_>) -> Judged;

/// All rules, in the order in which they are reported.
pub(super) const ALL: [Judge; 10] = [
    inventory,
    services::api_services,
    stuck,
    finalizers::controllers,
    finalizers::finalizers,
    foreign,
    services::webhooks,
    services::conversions,
    leaks::volumes,
    leaks::load_balancers,
];

/// What is being deleted for so long is stuck.
const PATIENCE: crate::duration::Duration = crate::duration::Duration::from_seconds(60);
/// Finalizers that clear by themselves as soon as nothing uses what carries them, and a teardown takes its users.
const USED: [&str; 2] = ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"];
/// What a namespace says of itself while what is in it goes.
const REMAINING: &str = "NamespaceContentRemaining:";
/// How many names a line of evidence holds.
const NAMED: usize = 3;

/// What is not known may be anything.
fn inventory(live: &Live<'_>) -> Judged {
    let (objects, kinds) = (live.inventory.objects().count(), live.inventory.kinds().count());
    let mut gaps: Vec<String> =
        live.inventory.gaps().iter().chain(&live.facts.gaps).map(|gap| format!("{}: {}", gap.what, gap.why)).collect();
    gaps.sort();
    gaps.dedup();
    let mut findings = Vec::new();
    if !gaps.is_empty() {
        let finding = Foretold::new(
            Rule::Inventory,
            Severity::NotKnown,
            format!("{} could not be listed", count(gaps.len(), "part")),
            "what is not known is never taken for absent: a teardown would not end clean, and what is foretold here may not be all",
            "let the account list everything (`kubectl auth can-i list '*' --all-namespaces` must say yes) and see to it that every API answers (`kubectl get apiservices`), then run this again",
        );
        findings.push(finding.because(gaps));
    }
    if !live.claims.elsewhere.is_empty() {
        let nodes = live.claims.elsewhere.iter().map(|(node, cluster)| format!("{node}: cluster {cluster}"));
        let finding = Foretold::new(
            Rule::Inventory,
            Severity::Note,
            format!("{} deployed to other clusters", count(live.claims.elsewhere.len(), "node")),
            "Argo CD removes what they deployed; what would stand in the way there was not looked at",
            "look at those clusters with their own kubeconfig",
        );
        findings.push(finding.because(nodes));
    }
    Judged::new(Rule::Inventory, format!("{objects} objects of {}", count(kinds, "kind")), findings)
}

/// What is being deleted already, and does not go.
fn stuck(live: &Live<'_>) -> Judged {
    let going: Vec<Thing<'_>> = live.going().filter(|thing| thing.item.going).collect();
    let mut findings = Vec::new();
    let held =
        |thing: &&Thing<'_>| thing.item.finalizers.iter().any(|finalizer| !USED.contains(&finalizer.name.as_str()));
    let is_old = |thing: &&Thing<'_>| thing.item.since.is_none_or(|since| between(since, live.now) >= PATIENCE);
    let old: Vec<&Thing<'_>> = going.iter().filter(held).filter(is_old).collect();
    if let Some(first) = old.first() {
        let evidence = old.iter().map(|thing| {
            let names: Vec<&str> = thing.item.finalizers.iter().map(|finalizer| finalizer.name.as_str()).collect();
            let since =
                thing.item.since.map_or_else(String::new, |since| format!(", since {}", since.strftime("%FT%TZ")));
            format!("{}{since}: {}", thing.told(), names.join(", "))
        });
        let finding = Foretold::new(
            Rule::Stuck,
            Severity::Wedges,
            format!("{} being deleted and not gone", count(old.len(), "object")),
            "whoever should clear their finalizers does not, and a teardown would wait for the same",
            format!(
                "`kubectl describe {}` says what it waits for; once nothing is left behind it, `forge platform teardown --release-finalizer {}` clears one",
                first.address(),
                first.kind.target(first.item)
            ),
        );
        findings.push(finding.because(evidence));
    }
    let own = |name: &String| live.claims.namespaces.contains(name) || live.claims.destinations.contains(name);
    let namespaces = live.facts.namespaces.iter().filter(|namespace| namespace.going.is_some() && own(&namespace.name));
    let mut terminating = 0;
    for namespace in namespaces {
        terminating += 1;
        let since = namespace.going.as_deref().unwrap_or_default();
        let is_old = since.parse::<Timestamp>().ok().is_none_or(|since| between(since, live.now) >= PATIENCE);
        let holds = |line: &String| is_old || !line.starts_with(REMAINING);
        let severity = if namespace.held_by.iter().any(holds) { Severity::Wedges } else { Severity::Note };
        let finding = Foretold::new(
            Rule::Stuck,
            severity,
            format!("namespace `{}` is being deleted (since {since})", namespace.name),
            "what holds it holds a teardown too",
            format!(
                "remove what its conditions name, or what an API that does not answer would have to remove: `kubectl get namespace {} -o jsonpath='{{.status.conditions}}'`",
                namespace.name
            ),
        );
        findings.push(finding.because(&namespace.held_by));
    }
    let seen = format!("{} and {} being deleted", count(going.len(), "object"), count(terminating, "namespace"));
    Judged::new(Rule::Stuck, seen, findings)
}

/// Objects of others: of kinds that the platform defines, and in namespaces that go.
fn foreign(live: &Live<'_>) -> Judged {
    let (mut open, mut kept, mut defined) = (Vec::new(), Vec::new(), 0);
    for definition in &live.facts.definitions {
        let Some(item) = live.defined(definition).filter(|item| live.ownership.of(item).goes()) else { continue };
        defined += 1;
        let (plural, group) = definition.name.split_once('.').unwrap_or((&definition.name, ""));
        let all = live.inventory.known((group, plural)).map(Complete::items).unwrap_or_default();
        let others: Vec<String> = all.iter().filter(|item| !live.ownership.of(item).goes()).map(Item::place).collect();
        if others.is_empty() {
            continue;
        }
        let line = format!("{}: {}", definition.name, named(&others));
        (if item.kept { &mut kept } else { &mut open }).push(line);
    }
    let mut findings = Vec::new();
    if !open.is_empty() {
        let finding = Foretold::new(
            Rule::Foreign,
            Severity::Leaves,
            format!("{} of the platform with objects of somebody else", count(open.len(), "definition")),
            "a definition takes all its objects along, so it would stay, without whoever looks after them",
            "let whoever owns them remove them first, or leave the definition to them: `kubectl annotate crd NAME helm.sh/resource-policy=keep`",
        );
        findings.push(finding.because(open));
    }
    if !kept.is_empty() {
        let finding = Foretold::new(
            Rule::Foreign,
            Severity::Note,
            format!("{} that stay have objects of somebody else", count(kept.len(), "definition")),
            "nobody looks after them any more: what has finalizers cannot be deleted, what is changed has no effect",
            "tell whoever owns them",
        );
        findings.push(finding.because(kept));
    }
    let is_marked = |thing: &Thing<'_>| {
        matches!(thing.whose, Whose::Inside(_)) && thing.item.parents.is_empty() && thing.item.made_by().is_some()
    };
    let inside: Vec<String> = live
        .going()
        .filter(is_marked)
        .map(|thing| format!("{}, made by {}", thing.told(), thing.item.made_by().unwrap_or_default()))
        .collect();
    if !inside.is_empty() {
        let finding = Foretold::new(
            Rule::Foreign,
            Severity::Leaves,
            format!("{} of somebody else in namespaces of the platform", count(inside.len(), "object")),
            "a namespace takes everything in it along, so it would stay",
            "let whoever owns them move them to a namespace of his own first",
        );
        findings.push(finding.because(inside));
    }
    Judged::new(Rule::Foreign, format!("{} of the platform", count(defined, "definition")), findings)
}

/// A few names, and how many more there are.
fn named(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    if more > 0 { format!("{} and {more} more", first.join(", ")) } else { first.join(", ") }
}

#[cfg(test)]
mod tests;
