//! What `sync: ordered` promises (SPEC.md section 4): a push starts a run, Argo CD syncs nothing by itself, and what
//! differs from Git is told and not healed. What is not so, or is left for somebody to do, is said.

use super::{Seen, StatusNode};
use crate::name::EnvironmentName;
use crate::render::sensor_name;

/// How many nodes are named.
const MOST: usize = 5;

/// What there is to say of an environment that is `sync: ordered`, by whether its Sensor is there, whether a run goes on,
/// and how its nodes are.
pub fn ordered(environment: &EnvironmentName, sensor: Seen<()>, running: bool, nodes: &[StatusNode]) -> Vec<String> {
    let mut notes = Vec::new();
    if sensor == Seen::Absent {
        notes.push(format!(
            "no push starts a run: there is no Sensor `{}`; `forge bootstrap` makes it where Argo Events is installed",
            sensor_name(environment)
        ));
    }
    let automated = named(nodes, |node| node.live.as_ref().is_some_and(|live| live.automated));
    if let Some(names) = automated {
        notes.push(format!("Argo CD syncs {names} by itself and in no order: remove `automated` from the syncPolicy"));
    }
    let differs = named(nodes, |node| node.live.as_ref().is_some_and(|live| live.sync.as_deref() == Some("OutOfSync")));
    if let (Some(names), false) = (differs, running) {
        notes.push(format!(
            "{names} differ from Git, which nothing heals by itself: a push or `forge platform deploy` starts a run"
        ));
    }
    notes
}

/// The nodes of which something holds, in words; nothing where there is none.
fn named(nodes: &[StatusNode], holds: impl Fn(&StatusNode) -> bool) -> Option<String> {
    let names: Vec<&str> = nodes.iter().filter(|node| holds(node)).map(|node| node.node.as_str()).collect();
    let more = names.len().saturating_sub(MOST);
    let shown = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match (names.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(shown),
        (false, more) => Some(format!("{shown} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ApplicationFacts;

    fn node(name: &str, sync: &str, automated: bool) -> StatusNode {
        let live = ApplicationFacts { sync: Some(sync.to_owned()), automated, ..ApplicationFacts::default() };
        let (node, application) = (name.parse().unwrap(), "argocd/x".parse().unwrap());
        StatusNode { live: Some(live), ..StatusNode::unknown(&node, &application) }
    }

    #[test]
    fn what_is_as_promised_is_not_spoken_of() {
        let nodes = [node("a/one", "Synced", false)];
        let dev = "dev".parse().unwrap();
        assert_eq!(ordered(&dev, Seen::Found(()), false, &nodes), Vec::<String>::new());
        // Who may not look does not know, and is told elsewhere.
        assert_eq!(ordered(&dev, Seen::Unknown, false, &nodes), Vec::<String>::new());
    }

    #[test]
    fn a_missing_sensor_automated_sync_and_drift_are_told_and_drift_not_while_a_run_goes_on() {
        let dev = "dev".parse().unwrap();
        let nodes: Vec<StatusNode> =
            (0..7).map(|n| node(&format!("a/n{n}"), if n > 0 { "OutOfSync" } else { "Synced" }, n == 0)).collect();
        let notes = ordered(&dev, Seen::Absent, false, &nodes);
        assert!(notes[0].contains("no Sensor `forge-dev`"), "{notes:?}");
        assert!(notes[1].starts_with("Argo CD syncs a/n0 by itself"), "{notes:?}");
        assert!(notes[2].starts_with("a/n1, a/n2, a/n3, a/n4, a/n5 and 1 more differ from Git"), "{notes:?}");
        assert_eq!(ordered(&dev, Seen::Absent, true, &nodes), notes[..2]);
    }
}
