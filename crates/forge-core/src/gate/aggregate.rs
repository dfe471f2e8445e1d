//! The health of many nodes as one word (SPEC section 6, last paragraph).

use serde::{Deserialize, Serialize};

use crate::gate::observed::Health;

/// The health of a node: Argo CD's, or that the node itself failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Argo CD's words in Argo CD's meaning")]
pub enum NodeHealth {
    Healthy,
    Suspended,
    Unknown,
    Progressing,
    Missing,
    Degraded,
    /// The gate gave up on it, or on one that it depends on.
    Failed,
}

impl From<Health> for NodeHealth {
    fn from(health: Health) -> Self {
        match health {
            Health::Healthy => Self::Healthy,
            Health::Progressing => Self::Progressing,
            Health::Degraded => Self::Degraded,
            Health::Suspended => Self::Suspended,
            Health::Missing => Self::Missing,
            Health::Unknown => Self::Unknown,
        }
    }
}

/// All Healthy is Healthy; any Failed is Failed; else any Degraded or Missing is Degraded; else any Progressing is
/// Progressing.
///
/// The contract is silent about the rest, so the rule is that doubt is never Healthy: else any Unknown is Unknown, else
/// what remains is Suspended; and of nothing at all nothing is known.
pub fn aggregate(nodes: impl IntoIterator<Item = NodeHealth>) -> NodeHealth {
    // The variants are declared in the order of precedence.
    match nodes.into_iter().max() {
        None => NodeHealth::Unknown,
        Some(NodeHealth::Missing) => NodeHealth::Degraded,
        Some(worst) => worst,
    }
}

#[cfg(test)]
mod tests {
    use super::NodeHealth::*;
    use super::*;

    #[test]
    fn the_worst_node_decides_and_doubt_is_never_healthy() {
        for (nodes, expected) in [
            (vec![], Unknown),
            (vec![Healthy], Healthy),
            (vec![Healthy, Healthy], Healthy),
            (vec![Healthy, Progressing], Progressing),
            (vec![Progressing, Degraded, Healthy], Degraded),
            (vec![Progressing, Missing], Degraded),
            (vec![Missing], Degraded),
            (vec![Degraded, Failed, Healthy], Failed),
            (vec![Healthy, Suspended], Suspended),
            (vec![Suspended, Unknown], Unknown),
            (vec![Unknown, Progressing], Progressing),
            (vec![Unknown, Failed], Failed),
        ] {
            assert_eq!(aggregate(nodes.clone()), expected, "{nodes:?}");
        }
    }
}
