//! Objects under the names of Forge's own: whether they are Forge's (INV-11).

use serde_json::Value;

use super::{Check, Finding, Judged, Severity, count, text};
use crate::name::clip;
use crate::render::{handing, is_ours};

/// Judges what is there under the names of what `bootstrap` makes.
pub fn own(found: &[Value]) -> Judged {
    let judged = Judged::new(Check::Own, format!("{} of what bootstrap makes", count(found.len(), "object")));
    let foreign: Vec<&Value> = found.iter().filter(|object| !is_ours(object)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{self, MANAGED_BY, Places};
    use serde_json::json;

    #[test]
    fn what_has_the_name_of_one_of_ours_and_is_not_ours_stops_bootstrap() {
        let environments = ["dev".parse().unwrap()];
        let mut objects: Vec<Value> =
            render::bootstrap(&Places::default(), &environments).into_iter().map(|placed| placed.object).collect();
        assert_eq!(own(&objects).worst(), None);
        assert_eq!(own(&[]).worst(), None);
        for object in &mut objects[..2] {
            object["metadata"]["labels"] = json!({MANAGED_BY: "Helm"});
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
