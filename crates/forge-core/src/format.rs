//! The files that users write (SPEC.md sections 2, 3 and 5): types that can only hold what is valid, decoders that report
//! everything wrong with a file, and the JSON Schemas that editors use.

mod cluster;
mod environment_config;
mod executor_environment;
mod graph;
pub(crate) mod header;
mod installation;
mod pointer;
mod schedule;
mod schema;
mod window;

pub use cluster::{Cluster, ClusterFile, NodeGroup, PlatformCluster, Provider};
pub use environment_config::EnvironmentConfig;
pub use executor_environment::{ExecutorEnvironment, ExecutorTimeouts};
pub use graph::{
    App, Defaults, DependencyGraph, Edges, GraphOverride, Health, NodeOverride, RETRY_FACTORS, RETRY_LIMITS, Reference,
    RetrySpec, Stack, Subject, TimeoutsSpec,
};
pub use header::{API_VERSION, ENVIRONMENT_CONFIG_VERSION};
pub use installation::{Adoption, Argo, ArgoEvents, ArgoInstall, Environment, Installation, Repository, Sync};
pub use pointer::ReleasePointer;
pub use schedule::{Schedule, ScheduleError};
pub use schema::{INPUTS, KINDS, OUTPUTS, schema};
pub use window::{Window, WindowRule};
