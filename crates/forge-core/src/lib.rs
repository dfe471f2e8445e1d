//! The domain of Forge, pure: no async, files, environment, clock, process or network (`clippy.toml` enforces it).
//!
//! One pipeline, one module per step, and the type changes at each step: the product crate loads bytes,
//! [`validate`] turns them into a [`repository::Repository`] or into findings, [`plan`] orders the work (it cannot
//! fail), [`render`] writes what would be submitted. The gate is not a step but one pure function,
//! [`gate::decide`], which everything that judges a node calls.

pub mod adopt;
pub mod code;
pub mod digest;
pub mod duration;
pub mod executor;
pub mod exit;
pub mod failure;
pub mod finding;
pub mod format;
pub mod gate;
pub mod graph;
pub mod health;
pub mod install;
mod lookup;
pub mod name;
pub mod oci;
pub mod plan;
pub mod preflight;
pub mod release;
pub mod render;
pub mod repository;
pub mod rights;
pub mod root;
pub mod run;
pub mod scaffold;
pub mod simulate;
pub mod teardown;
pub mod token;
pub mod trace;
pub mod truth;
pub mod url;
pub mod validate;
pub mod view;
pub mod yaml;
