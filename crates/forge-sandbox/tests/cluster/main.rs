//! Tests that need the real thing: root, and a sandbox. `make test` runs them; `tools/cluster` does so alone.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod argo;
mod chart;
mod conformance;
mod crash;
mod images;
mod isolation;
mod refusals;
mod servers;
mod simulated;
mod trace;
