//! Objects under the names of Forge's own: whether they are Forge's (INV-11).

use serde_json::Value;

use super::{Check, Finding, Judged, Severity, count, text};
use crate::install::says;
use crate::name::clip;
use crate::render::{handing, is_ours, unlabelled};

/// True for what somebody else made and that says something else than is wanted. What says the same is left as it is, whosever it is:
/// Helm puts its own name into the label of what Forge's chart makes.
pub fn is_foreign(live: &Value, wanted: &Value) -> bool {
    let mut plain = wanted.clone();
    unlabelled(&mut plain);
    !is_ours(live) && !says(live, &plain)
}

/// Judges what is there under the names of what `bootstrap` makes: as it is, and as it should be.
pub fn own(found: &[(Value, Value)]) -> Judged {
    let judged = Judged::new(Check::Own, format!("{} of what bootstrap makes", count(found.len(), "object")));
    let foreign = found.iter().filter(|(live, wanted)| is_foreign(live, wanted));
    let foreign: Vec<&Value> = foreign.map(|(_, wanted)| wanted).collect();
    let Some(first) = foreign.first() else { return judged };
    let finding = Finding::new(
        Check::Own,
        Severity::Blocking,
        format!("{} with a name of Forge's own is not Forge's", count(foreign.len(), "object")),
        "bootstrap would have to change what somebody else made",
        format!("rename or remove it; if it may be changed, hand each over: {}", handing(first)),
    );
    let named = |object: &&Value| {
        let [kind, name, namespace] = ["/kind", "/metadata/name", "/metadata/namespace"]
            .map(|field| clip(text(object, field).unwrap_or_default()));
        let place = if namespace.is_empty() { String::new() } else { format!(" in `{namespace}`") };
        format!("{kind} {name}{place}")
    };
    judged.with(finding.because(foreign.iter().map(named)))
}

/// Judges what the owner of Argo CD has to make in its namespace: what of it is not there, in a line each.
pub fn merged(argocd: &str, lacking: &[String]) -> Judged {
    let judged = Judged::new(Check::Merged, "Argo CD is its owner's, and Forge writes nothing into its namespace");
    if lacking.is_empty() {
        return judged;
    }
    let finding = Finding::new(
        Check::Merged,
        Severity::Blocking,
        format!("{} in `{argocd}` is not as a run needs it", count(lacking.len(), "object")),
        "without them a run can neither look at Applications nor hold those that wait for their turn",
        "`forge bootstrap --print` has them, each with why: let the owner of Argo CD make them, then run this again",
    );
    judged.with(finding.because(lacking))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{self, MANAGED_BY, Places};
    use serde_json::json;

    #[test]
    fn what_the_owner_of_argo_cd_has_not_made_is_named_with_where_it_is_printed() {
        assert_eq!(merged("argocd", &[]).worst(), None);
        let judged = merged("argocd", &["Role forge-executor is not there".to_owned()]);
        assert_eq!(judged.worst(), Some(Severity::Blocking));
        assert_eq!(judged.findings[0].evidence, ["Role forge-executor is not there"]);
        assert!(judged.findings[0].fix.contains("forge bootstrap --print"));
    }

    #[test]
    fn what_has_the_name_of_one_of_ours_and_is_not_ours_stops_bootstrap() {
        let environments = ["dev".parse().unwrap()];
        let both = |placed: render::Placed| (placed.object.clone(), placed.object);
        let mut objects: Vec<(Value, Value)> =
            render::bootstrap(&Places::default(), &environments).into_iter().map(both).collect();
        assert_eq!(own(&objects).worst(), None);
        assert_eq!(own(&[]).worst(), None);
        // As Helm writes what Forge's chart makes.
        for (live, _) in &mut objects {
            live["metadata"]["labels"][MANAGED_BY] = json!("Helm");
            live["metadata"]["uid"] = json!("u");
        }
        assert_eq!(own(&objects).worst(), None);
        for (live, _) in &mut objects[..2] {
            live["automountServiceAccountToken"] = json!("another");
        }
        let judged = own(&objects);
        assert_eq!(judged.worst(), Some(Severity::Blocking));
        let finding = &judged.findings[0];
        assert_eq!(
            finding.evidence,
            ["ServiceAccount forge-executor in `argo`", "ServiceAccount forge-executor-plugin in `argo`"]
        );
        assert!(finding.fix.contains("kubectl -n argo label serviceaccount forge-executor"), "{}", finding.fix);
    }
}
