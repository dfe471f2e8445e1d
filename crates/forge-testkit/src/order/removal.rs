//! Whether a teardown kept the order (INV-6), judged from the audit log alone: no node was asked to go before everything that
//! depends on it was gone.
//!
//! A node begins to go with the first deletion of its Application, or of anything that Argo CD deletes in its namespace. It is gone
//! with the last deletion of anything in its namespace, by whomever, and with the last write of Argo CD's controller to its
//! Application, which takes the finalizer away. What the namespace controller deletes does not count: a namespace goes after
//! everything. Something is too early only if its whole interval ends before the other one begins, so rounding never makes a
//! violation.

use std::collections::{BTreeMap, BTreeSet};

use super::{Line, Moment};

const CONTROLLER: &str = "argocd-application-controller";
const NAMESPACES: &str = "namespace-controller";

fn is_by(line: &Line, account: &str) -> bool {
    line.user.rsplit(':').next() == Some(account)
}

/// When a node was first asked to go.
fn began(node: &str, lines: &[Line]) -> Option<Moment> {
    let asked = |line: &&Line| {
        let application = line.resource == "applications" && line.name == node && line.verb == "delete";
        let inside = line.namespace == node && line.verb.starts_with("delete") && is_by(line, CONTROLLER);
        application || inside
    };
    lines.iter().filter(asked).map(|line| line.at).min_by_key(|at| at.earliest)
}

/// The last that was heard of a node.
fn ended(node: &str, lines: &[Line]) -> Option<(String, Moment)> {
    let heard = |line: &&Line| {
        let application = line.resource == "applications" && line.name == node && is_by(line, CONTROLLER);
        let inside = line.namespace == node && line.verb == "delete" && !is_by(line, NAMESPACES);
        // A namespace is in itself for the API server, and goes after all nodes.
        (application && line.verb != "delete")
            || (inside && !["events", "namespaces"].contains(&line.resource.as_str()))
    };
    let last = lines.iter().filter(heard).max_by_key(|line| line.at.earliest)?;
    Some((format!("{}/{}", last.resource, last.name), last.at))
}

/// Every edge that was certainly broken, in a sentence each. `predecessors` is what each Application waits for when it is
/// deployed; its namespace has the same name.
pub fn removed_too_early(predecessors: &BTreeMap<String, BTreeSet<String>>, lines: &[Line]) -> Vec<String> {
    let mut found = Vec::new();
    for (dependent, before) in predecessors {
        let Some((what, last)) = ended(dependent, lines) else { continue };
        for node in before {
            if let Some(first) = began(node, lines).filter(|first| first.is_certainly_before(&last)) {
                let (asked, until) = (first.latest, last.earliest);
                found.push(format!(
                    "{node} was asked to go at {asked}, before {what} of {dependent} was gone at {until}"
                ));
            }
        }
    }
    found
}

/// How many edges the log says something about: both ends were removed. A check that looked at nothing proves nothing.
pub fn removals_judged(predecessors: &BTreeMap<String, BTreeSet<String>>, lines: &[Line]) -> usize {
    let gone = |node: &str| began(node, lines).is_some() && ended(node, lines).is_some();
    let pairs = predecessors.iter().filter(|(dependent, _)| gone(dependent));
    pairs.map(|(_, before)| before.iter().filter(|node| gone(node)).count()).sum()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn line(second: i64, verb: &str, user: &str, resource: &str, (namespace, name): (&str, &str)) -> Line {
        let at = Timestamp::from_second(second).unwrap();
        let text = |text: &str| text.to_owned();
        Line {
            verb: text(verb),
            user: format!("system:serviceaccount:x:{user}"),
            resource: text(resource),
            namespace: text(namespace),
            name: text(name),
            subresource: String::new(),
            code: 200,
            at: Moment::between(at, at),
        }
    }

    fn graph() -> BTreeMap<String, BTreeSet<String>> {
        BTreeMap::from([("top".to_owned(), BTreeSet::from(["base".to_owned()])), ("base".to_owned(), BTreeSet::new())])
    }

    fn removal(base: i64) -> Vec<Line> {
        vec![
            line(1, "delete", "argocd-server", "applications", ("argocd", "top")),
            line(2, "delete", CONTROLLER, "deployments", ("top", "top")),
            line(3, "delete", "kubelet", "pods", ("top", "top-1")),
            line(4, "patch", CONTROLLER, "applications", ("argocd", "top")),
            line(9, "delete", NAMESPACES, "configmaps", ("top", "kube-root-ca.crt")),
            line(9, "delete", "forge", "namespaces", ("top", "top")),
            line(base, "delete", "argocd-server", "applications", ("argocd", "base")),
            line(base + 1, "delete", CONTROLLER, "configmaps", ("base", "base")),
        ]
    }

    #[test]
    fn what_goes_after_everything_that_depends_on_it_is_in_order() {
        assert_eq!(removed_too_early(&graph(), &removal(5)), Vec::<String>::new());
        assert_eq!(removals_judged(&graph(), &removal(5)), 1);
    }

    #[test]
    fn what_goes_while_a_pod_or_the_application_of_a_dependent_is_there_is_too_early() {
        for base in [2, 3] {
            let found = removed_too_early(&graph(), &removal(base));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("before applications/top of top was gone"), "{found:?}");
        }
        // Nothing is said about what was never removed.
        assert_eq!(removals_judged(&graph(), &removal(5)[..2]), 0);
        assert_eq!(removed_too_early(&graph(), &[]), Vec::<String>::new());
    }
}
