//! Tests that need the real thing: root, and a sandbox. `make test` runs them; `tools/cluster` does so alone.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

#[path = "cluster/argo.rs"]
mod argo;
#[path = "cluster/crash.rs"]
mod crash;
#[path = "cluster/images.rs"]
mod images;
#[path = "cluster/isolation.rs"]
mod isolation;
#[path = "cluster/refusals.rs"]
mod refusals;
#[path = "cluster/servers.rs"]
mod servers;
#[path = "cluster/simulated.rs"]
mod simulated;
#[path = "cluster/trace.rs"]
mod trace;
