//! What is asked at a service that goes: admission webhooks, conversion webhooks, registered APIs.

use crate::preflight::count;
use crate::teardown::inventory::{Complete, Item};
use crate::teardown::rehearse::{Foretold, Judged, Live, Rule, ServiceRef, Severity, Webhook};
use crate::teardown::whose::Whose;

/// Whose a service is, where it is there.
fn owner<'l>(live: &'l Live<'_>, reference: &ServiceRef) -> Option<&'l Whose> {
    live.facts.service(reference).map(|service| live.ownership.of_uid(&service.uid))
}

/// A kind is there and could not be read, so that nothing is known of its objects. That is told by a rule of its own.
fn is_unread(live: &Live<'_>, of: (&str, &str)) -> bool {
    let listed = live.inventory.kind(of).is_none() || live.inventory.known(of).is_some();
    !listed || live.facts.gaps.iter().any(|gap| gap.what == of.1)
}

/// Why nobody answers at a service now.
fn silent(live: &Live<'_>, reference: &ServiceRef) -> Option<&'static str> {
    if is_unread(live, ("", "services")) || is_unread(live, ("discovery.k8s.io", "endpointslices")) {
        return None;
    }
    match live.facts.service(reference) {
        None => Some("is not there"),
        Some(service) if !service.ready => Some("has no endpoint that is ready"),
        Some(_) => None,
    }
}

/// An API that does not answer keeps every namespace from going.
pub(super) fn api_services(live: &Live<'_>) -> Judged {
    let all = &live.facts.api_services;
    let place = |reference: Option<&ServiceRef>| reference.map_or_else(String::new, |found| format!(" at {found}"));
    let mut findings = Vec::new();
    let down: Vec<String> = all
        .iter()
        .filter_map(|api| Some(format!("{}{}: {}", api.name, place(api.service.as_ref()), api.down.as_ref()?)))
        .collect();
    if !down.is_empty() {
        let finding = Foretold::new(
            Rule::ApiServices,
            Severity::Wedges,
            format!(
                "{} not answer",
                if down.len() == 1 {
                    "1 registered API does".to_owned()
                } else {
                    format!("{} registered APIs do", down.len())
                }
            ),
            "Kubernetes removes no namespace to its end while it cannot ask every API what is in it, and what is there of these kinds is not known",
            "let its service answer again, or remove the registration where nobody needs it: `kubectl delete apiservice NAME`",
        );
        findings.push(finding.because(down));
    }
    let left: Vec<String> = all
        .iter()
        .filter(|api| api.down.is_none())
        .filter_map(|api| {
            let service = api.service.as_ref()?;
            let (own, goes) = (live.ownership.of_uid(&api.uid), owner(live, service)?);
            live.order.outlives(own, goes).then(|| format!("{} ({own}) at {service} ({goes})", api.name))
        })
        .collect();
    if !left.is_empty() {
        let finding = Foretold::new(
            Rule::ApiServices,
            Severity::Wedges,
            format!("{} of an API may outlive its service", count(left.len(), "registration")),
            "once the service is gone no namespace is removed to its end any more",
            "let the node that has the service have the registration too, or delete it first: `kubectl delete apiservice NAME`",
        );
        findings.push(finding.because(left));
    }
    Judged::new(Rule::ApiServices, format!("{} registered", count(all.len(), "API")), findings)
}

/// A webhook without its service refuses what it is asked about.
pub(super) fn webhooks(live: &Live<'_>) -> Judged {
    let kinds = live.going_kinds();
    let is_asked = |webhook: &&Webhook| {
        webhook.fails
            && kinds.iter().any(|(group, plural)| webhook.asked.iter().any(|asked| asked.about(group, plural)))
    };
    let asked: Vec<&Webhook> = live.facts.webhooks.iter().filter(is_asked).collect();
    let told = |webhook: &Webhook| {
        let only = if webhook.selects { ", for some labels only" } else { "" };
        format!("{} {}, webhook {}{only}", webhook.plural, webhook.configuration, webhook.name)
    };
    let (mut silent_now, mut later) = (Vec::new(), Vec::new());
    for webhook in &asked {
        let Some(service) = &webhook.service else { continue };
        if let Some(why) = silent(live, service) {
            silent_now.push(format!("{}: {service} {why}", told(webhook)));
            continue;
        }
        let (own, goes) = (live.ownership.of_uid(&webhook.uid), owner(live, service));
        if let Some(goes) = goes.filter(|goes| live.order.outlives(own, goes)) {
            later.push(format!("{} ({own}): {service} ({goes})", told(webhook)));
        }
    }
    let mut findings = Vec::new();
    if !silent_now.is_empty() {
        let finding = Foretold::new(
            Rule::Webhooks,
            Severity::Wedges,
            format!("{} that nobody answers for now", count(silent_now.len(), "webhook")),
            "whatever it is asked about can neither be changed nor deleted, and no finalizer of it cleared",
            "let its service answer again, or remove the configuration where nobody needs it: `kubectl delete KIND NAME`",
        );
        findings.push(finding.because(silent_now));
    }
    if !later.is_empty() {
        let finding = Foretold::new(
            Rule::Webhooks,
            Severity::Wedges,
            format!("{} that may outlive its service", count(later.len(), "webhook")),
            "once the service is gone, whatever it is asked about can neither be changed nor deleted",
            "let the node that has the service have the configuration too, or delete it first: `kubectl delete KIND NAME`",
        );
        findings.push(finding.because(later));
    }
    Judged::new(Rule::Webhooks, format!("{} asked about what goes", count(asked.len(), "webhook")), findings)
}

/// Objects that nobody converts can be neither listed nor deleted.
pub(super) fn conversions(live: &Live<'_>) -> Judged {
    let (mut silent_now, mut theirs, mut later, mut converted) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for definition in &live.facts.definitions {
        let Some(service) = &definition.conversion else { continue };
        converted += 1;
        let (plural, group) = definition.name.split_once('.').unwrap_or((&definition.name, ""));
        let listed = live.inventory.known((group, plural)).map(Complete::items);
        if let Some(why) = silent(live, service) {
            // What has no objects that go, and of which that is known, is in nobody's way.
            let concerns = listed.is_none_or(|all| all.iter().any(|item| live.ownership.of(item).goes()));
            let found = if concerns { &mut silent_now } else { &mut theirs };
            found.push(format!("{}: {service} {why}", definition.name));
            continue;
        }
        let Some(goes) = owner(live, service).filter(|goes| goes.goes()) else { continue };
        let all = listed.unwrap_or_default();
        let outlive = |item: &&Item| live.order.outlives(live.ownership.of(item), goes);
        let outliving: Vec<String> = all.iter().filter(outlive).map(Item::place).collect();
        if !outliving.is_empty() {
            later.push(format!("{}: {service} ({goes}); {}", definition.name, super::named(&outliving)));
        }
    }
    let mut findings = Vec::new();
    if !silent_now.is_empty() {
        let finding = Foretold::new(
            Rule::Conversions,
            Severity::Wedges,
            format!("{} whose objects nobody converts now", count(silent_now.len(), "definition")),
            "they can be neither listed nor deleted, and no namespace with one of them goes",
            "let its service answer again, or take the conversion away where one version is enough: `kubectl patch crd NAME --type=merge -p '{\"spec\":{\"conversion\":{\"strategy\":\"None\",\"webhook\":null}}}'`",
        );
        findings.push(finding.because(silent_now));
    }
    if !theirs.is_empty() {
        let finding = Foretold::new(
            Rule::Conversions,
            Severity::Note,
            format!("{} that nobody converts now, without objects that go", count(theirs.len(), "definition")),
            "it does not stand in the way",
            "tell whoever they belong to",
        );
        findings.push(finding.because(theirs));
    }
    if !later.is_empty() {
        let finding = Foretold::new(
            Rule::Conversions,
            Severity::Wedges,
            format!("{} whose objects may outlive whoever converts them", count(later.len(), "definition")),
            "once that is gone they can be neither listed nor deleted",
            "let the nodes that have the objects depend on the node that converts them, or delete the objects first",
        );
        findings.push(finding.because(later));
    }
    Judged::new(Rule::Conversions, format!("{} with a webhook that converts", count(converted, "definition")), findings)
}
