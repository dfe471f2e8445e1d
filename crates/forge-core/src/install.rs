//! Phase 1, Helm installs (SPEC.md section 4): which charts of Argo are installed, with which values, what is to be done
//! about a Helm release that is there, when an installation is proven, when Argo CD may take its own release over, what
//! an Argo that is somebody else's must be told, and the plugin that makes Applications of releases.
//!
//! Pure: what was read of a cluster in, one step out. The truth about a release is Helm's own Secret of it, which carries
//! our labels from its first write on, so that whoever is killed between any two writes leaves something that the next one
//! can read. What Forge did not make is never touched (INV-11).

mod administrator;
mod chart;
mod document;
mod index;
mod own;
mod plugin;
mod proof;
mod receipt;
mod release;
mod settings;
mod values;

pub use administrator::{ADMINISTRATOR_SECRET, INITIAL_SECRET, PASSWORD_KEY, is_spent};
pub use chart::{CHARTS_FOLDER, Chart, REPOSITORY, chart};
pub use document::{
    BootstrapCheck, BootstrapPlan, CheckFinding, CheckVerdict, CheckedChart, HISTORY, NextStep, PlannedChart,
    PlannedObjects, PlannedSource, PlannedWay,
};
pub use index::Listed;
pub use own::{APPLICATION, ChartPlace, HANDOVER, Managed, Own, WORKLOADS, adoption, inert, is_pending, managed};
pub use plugin::{
    CMP, POLICY_ANNOTATION, POLICY_MAP, POLICY_SEEN, has_sidecar, is_served, outdated_pods, policy_is_seen,
    policy_seen, renewal, serves_elsewhere, uses_plugin,
};
pub use proof::{APPLIED, Fault, Part, fault, has_tests, is_in_the_way, parts, pods_of, same_objects, says, stamped};
pub use receipt::{Receipt, receipt_is_ours, receipt_name};
pub use release::{CHART_LABEL, DIGEST_LABEL, Revision, Status, Step, decide};
pub use settings::{Difference, Fragment, Merge, Observed, Weight, differences, fragments, handed, merges};
pub use values::{VALUES_FOLDER, Wanted, merged, tuned, values_file, values_path};
