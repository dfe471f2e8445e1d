//! The sandbox (SPEC.md section 10): a real Kubernetes with a real node on a bare Linux machine, without Docker.
//!
//! It needs root and is a binary of its own, so that such code never ships beside the plugin. [`build`] makes programs and
//! images into the user's cache; [`up`] turns them into a cluster and [`down`] leaves nothing of it.

pub mod build;
pub mod cache;
pub mod cgroup;
pub mod cli;
pub mod cluster;
mod commands;
pub mod component;
pub mod down;
pub mod error;
pub mod folder;
pub mod health;
pub mod host;
pub mod init;
pub mod namespace;
pub mod network;
pub mod pki;
pub mod process;
pub mod program;
pub mod range;
pub mod recipe;
pub mod up;
pub mod with;
