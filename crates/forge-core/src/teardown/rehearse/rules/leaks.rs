//! What a cluster has outside of itself: volumes and load balancers. Nobody removes them when their object is simply gone.

use std::collections::BTreeMap;

use crate::executor::PvPolicy;
use crate::preflight::count;
use crate::teardown::rehearse::{Foretold, Judged, Live, Rule, Service, Severity};
use crate::teardown::whose::Whose;
use crate::teardown::{Volume, restored};

/// What a cloud's controller sets, and clears when the load balancer is gone.
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Whose the claims are, by namespace and name.
fn claims<'l>(live: &'l Live<'_>) -> BTreeMap<(&'l str, &'l str), &'l Whose> {
    let of = live.going().filter(|thing| thing.kind.is(("", "persistentvolumeclaims")));
    of.map(|thing| ((thing.item.namespace.as_str(), thing.item.name.as_str()), thing.whose)).collect()
}

/// Whose the driver of a volume is.
fn whose_driver<'l>(live: &'l Live<'_>, volume: &Volume) -> Option<&'l Whose> {
    let drivers = live.inventory.known(("storage.k8s.io", "csidrivers"))?;
    let found = drivers.items().iter().find(|item| item.name == volume.provisioner)?;
    Some(live.ownership.of(found))
}

/// Volumes of claims that go.
pub(super) fn volumes(live: &Live<'_>) -> Judged {
    let claims = claims(live);
    let (mut bound, mut kept, mut leaked, mut driverless, mut uncopied) = (0, vec![], vec![], vec![], vec![]);
    for volume in &live.facts.volumes {
        let (namespace, driver) = (&volume.namespace, &volume.provisioner);
        let claim = claims.get(&(namespace.as_str(), volume.claim.as_str())).copied();
        let told = format!("{} {} of {}", volume.name, volume.size, volume.claimed());
        let Some(claim) = claim else {
            // Its claim went before, and with it whoever looked after it.
            let own = live.claims.namespaces.contains(namespace) || live.claims.destinations.contains(namespace);
            if own && volume.released {
                leaked.push(format!("{told}: released, and still there"));
            }
            continue;
        };
        bound += 1;
        match live.policy {
            PvPolicy::Retain => kept.push(told),
            PvPolicy::Snapshot if !live.facts.copied.contains(driver) => {
                uncopied.push(format!("{told}: driver `{driver}`"));
            }
            // One that an earlier teardown set so gets its own policy back.
            PvPolicy::Delete | PvPolicy::Snapshot if volume.is_retained() && restored(volume).is_none() => {
                leaked.push(format!("{told}: its reclaim policy is Retain"));
            }
            PvPolicy::Delete | PvPolicy::Snapshot => {
                let own = whose_driver(live, volume);
                if let Some(own) = own.filter(|own| live.order.outlives(claim, own)) {
                    driverless.push(format!("{told} ({claim}): driver `{driver}` ({own})"));
                }
            }
        }
    }
    let told = |severity: Severity, found: Vec<String>, what: &str, means: &str, fix: &str| {
        let what = format!("{} {what}", count(found.len(), "volume"));
        (!found.is_empty()).then(|| Foretold::new(Rule::Volumes, severity, what, means, fix).because(found))
    };
    let findings = [
        told(
            Severity::Wedges,
            driverless,
            "may outlive who removes them",
            "they would wait for their driver for ever, or stay where they are and cost",
            "let the nodes that have the claims depend on the node of the driver, or delete the claims first",
        ),
        told(
            Severity::Wedges,
            uncopied,
            "cannot be copied",
            "a teardown with policy snapshot is refused while a volume cannot be copied",
            "make a VolumeSnapshotClass for the driver, or choose --pv-policy retain",
        ),
        told(
            Severity::Leaves,
            leaked,
            "would be left behind",
            "nobody removes them, and they cost",
            "delete what is not needed (`kubectl delete pv NAME`), or let it go with its claim: `kubectl patch pv NAME -p '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Delete\"}}'`",
        ),
        told(
            Severity::Note,
            kept,
            "would be kept, by policy retain",
            "each is set to Retain, and read back, before anything is deleted; it stays with its data when its claim is gone",
            "nothing, if that is wanted; else --pv-policy delete or snapshot",
        ),
    ];
    Judged::new(Rule::Volumes, format!("{} bound", count(bound, "volume")), findings.into_iter().flatten().collect())
}

/// Load balancers of services that go.
pub(super) fn load_balancers(live: &Live<'_>) -> Judged {
    let (mut balanced, mut leaking, mut waiting) = (0, vec![], vec![]);
    let asking = live.facts.services.iter().filter(|service| service.balanced);
    let asking: BTreeMap<&str, &Service> = asking.map(|service| (service.uid.as_str(), service)).collect();
    for thing in live.going().filter(|thing| thing.kind.is(("", "services"))) {
        let Some(service) = asking.get(thing.item.uid.as_str()) else { continue };
        balanced += 1;
        let addresses = service.addresses.join(", ");
        let cleaned = thing.item.finalizers.iter().any(|finalizer| finalizer.name == CLEANUP);
        match (service.addresses.is_empty(), cleaned, thing.item.finalizers.is_empty()) {
            (false, false, true) if !service.given_inside => {
                leaking.push(format!("{}: {addresses}, and no finalizer", thing.told()));
            }
            (true, true, _) => waiting.push(format!("{}: {CLEANUP}, and no address", thing.told())),
            _ => {}
        }
    }
    let mut findings = Vec::new();
    if !waiting.is_empty() {
        let finding = Foretold::new(
            Rule::LoadBalancers,
            Severity::Wedges,
            format!("{} waiting for a controller that has given no load balancer", count(waiting.len(), "Service")),
            "it has that controller's finalizer, and whoever gives no address clears none: it would wait for ever",
            "see to it that the cloud's controller runs; once it is certain that there is no load balancer, `forge platform teardown --release-finalizer Service/NAMESPACE/NAME` lets it go",
        );
        findings.push(finding.because(waiting));
    }
    if !leaking.is_empty() {
        let finding = Foretold::new(
            Rule::LoadBalancers,
            Severity::Leaves,
            format!("{} with a load balancer that nothing waits for", count(leaking.len(), "Service")),
            "the Service would be gone before its load balancer is, and if whoever removes that goes too, it stays and costs",
            "make it a Service of type ClusterIP first, and wait until the address is gone",
        );
        findings.push(finding.because(leaking));
    }
    Judged::new(Rule::LoadBalancers, format!("{} of type LoadBalancer", count(balanced, "Service")), findings)
}
