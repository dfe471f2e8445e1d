//! The charts, and their versions: the one place.

use crate::preflight::Component;

/// Where the charts are published, unless somebody names another place.
pub const REPOSITORY: &str = "https://argoproj.github.io/argo-helm";

/// The folder of a repository that may hold charts of its own, one folder each: `--charts` may name it, and Applications may
/// take them from there.
pub const CHARTS_FOLDER: &str = "argo/charts";

/// A chart at its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chart {
    /// Its name, which is also the release's.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The version of Argo that is installed with it, unless values name another image: the one that Forge is tested with. What the
    /// chart brings by itself may be an older one.
    pub app_version: &'static str,
    /// The oldest version of Argo that Forge works with, where it is somebody else's.
    pub oldest: (u64, u64),
}

/// The chart of a part of Argo.
pub const fn chart(component: Component) -> Chart {
    match component {
        Component::Cd => Chart { name: "argo-cd", version: "9.2.0", app_version: "v3.2.11", oldest: (3, 0) },
        Component::Workflows => {
            Chart { name: "argo-workflows", version: "0.46.2", app_version: "v3.7.6", oldest: (3, 5) }
        }
        Component::Events => Chart { name: "argo-events", version: "2.4.19", app_version: "v1.9.10", oldest: (1, 9) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_called_as_its_chart() {
        for component in Component::ALL {
            assert_eq!(chart(component).name, component.release());
        }
    }
}
