//! Finalizers: whether whoever clears them is still there when they have to be cleared.

use std::collections::BTreeMap;

use crate::name::clip;
use crate::preflight::count;
use crate::teardown::Finalizer;
use crate::teardown::rehearse::{Foretold, Judged, Live, Rule, Severity, Thing, Workload, is_built_in};
use crate::teardown::whose::Whose;

/// Finalizers of what goes that neither Kubernetes nor Argo clears.
fn carried<'l>(live: &'l Live<'_>) -> impl Iterator<Item = (Thing<'l>, &'l Finalizer)> {
    live.going().flat_map(|thing| {
        let own = thing.item.finalizers.iter().filter(|finalizer| !is_built_in(&finalizer.name));
        own.map(move |finalizer| (thing, finalizer))
    })
}

/// Why a workload may be gone when an object has to be let go.
fn goes_first(live: &Live<'_>, thing: Thing<'_>, workload: &Workload) -> Option<&'static str> {
    let own = live.ownership.of_uid(&workload.uid);
    if live.order.outlives(thing.whose, own) {
        return Some(match (thing.whose, own) {
            (Whose::Node(_), Whose::Node(_)) => "nothing in the graph says that it goes first",
            _ => "no node has it, so it goes when all nodes are gone",
        });
    }
    let together = matches!(own, Whose::Node(_)) && thing.whose == own;
    // Of one Application, Argo CD removes the highest wave first, and everything of a wave at once.
    (together && thing.item.wave <= workload.wave).then_some("both go in the same moment")
}

/// What carries a finalizer must go before whoever clears it.
pub(super) fn controllers(live: &Live<'_>) -> Judged {
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut carriers = 0;
    for (thing, finalizer) in carried(live) {
        carriers += 1;
        let clearers = live.clearers(thing, &finalizer.name);
        let ready: Vec<&Workload> = clearers.certain.into_iter().filter(|workload| workload.ready).collect();
        let reasons: Vec<Option<&str>> = ready.iter().map(|workload| goes_first(live, thing, workload)).collect();
        // One who is still there is enough.
        let Some(Some(why)) = reasons.first().filter(|_| reasons.iter().all(Option::is_some)) else { continue };
        let who: Vec<String> =
            ready.iter().map(|workload| format!("{workload} ({})", live.ownership.of_uid(&workload.uid))).collect();
        let key = (thing.kind.name(), who.join(", "));
        found.entry(key).or_default().push(format!("{}: {}; {why}", thing.told(), finalizer.name));
    }
    let findings = found.into_iter().map(|((kind, who), evidence)| {
        let finding = Foretold::new(
            Rule::Controllers,
            Severity::Wedges,
            format!("{} of {kind} may outlive whoever clears their finalizers: {who}", count(evidence.len(), "object")),
            "they would wait for ever, and with them their Application, their namespace and their definition",
            format!(
                "let the node that has them depend on the node that clears them, give them a higher sync wave where it is the same one, or delete them first: `kubectl delete {kind} …`"
            ),
        );
        finding.because(evidence)
    });
    let findings: Vec<Foretold> = findings.collect();
    Judged::new(
        Rule::Controllers,
        format!("{} of what goes, beside Kubernetes' own", count(carriers, "finalizer")),
        findings,
    )
}

/// Every finalizer must have somebody who clears it.
pub(super) fn finalizers(live: &Live<'_>) -> Judged {
    let mut nobody: BTreeMap<(String, String), Vec<(String, String)>> = BTreeMap::new();
    let mut perhaps: Vec<String> = Vec::new();
    let mut carriers = 0;
    for (thing, finalizer) in carried(live) {
        carriers += 1;
        let clearers = live.clearers(thing, &finalizer.name);
        if clearers.certain.iter().any(|workload| workload.ready) {
            continue;
        }
        let set_by = finalizer.owner.as_deref().map_or_else(String::new, |who| format!(", set by {}", clip(who)));
        let down: Vec<String> = clearers.certain.iter().map(|workload| format!("{workload} is not ready")).collect();
        let down = if down.is_empty() { String::new() } else { format!("; {}", down.join(", ")) };
        let line = format!("{}{set_by}{down}", thing.told());
        match clearers.perhaps.iter().find(|workload| workload.ready) {
            Some(workload) => {
                perhaps.push(format!("{}: {line}; perhaps {workload}, which may change everything", finalizer.name));
            }
            None => {
                let release = thing.kind.target(thing.item);
                nobody.entry((finalizer.name.clone(), thing.kind.name())).or_default().push((line, release));
            }
        }
    }
    let mut findings: Vec<Foretold> = Vec::new();
    for ((finalizer, kind), lines) in nobody {
        let release = lines.first().map(|(_, release)| release.clone()).unwrap_or_default();
        let finding = Foretold::new(
            Rule::Finalizers,
            Severity::Wedges,
            format!(
                "{} of {kind} with finalizer `{finalizer}`, which nobody here clears",
                count(lines.len(), "object")
            ),
            "no running workload has an account that may change such objects, so they would wait for ever",
            format!(
                "start again whoever clears it; once nothing is left behind it, `forge platform teardown --release-finalizer {release}` clears one"
            ),
        );
        findings.push(finding.because(lines.into_iter().map(|(line, _)| line)));
    }
    if !perhaps.is_empty() {
        let finding = Foretold::new(
            Rule::Finalizers,
            Severity::Note,
            format!("{} that somebody who may change everything perhaps clears", count(perhaps.len(), "finalizer")),
            "it cannot be told from its rights whether it does",
            "nothing, if it is the controller of these objects",
        );
        findings.push(finding.because(perhaps));
    }
    Judged::new(
        Rule::Finalizers,
        format!("{} of what goes, beside Kubernetes' own", count(carriers, "finalizer")),
        findings,
    )
}
