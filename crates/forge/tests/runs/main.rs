//! Runs on the real Argo, on a sandbox that all tests share, each in an environment of its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod again;
mod ansible;
mod credentials;
mod demo;
mod deploy;
mod events;
mod executor;
mod executor_job;
mod existing;
mod install;
mod kill;
mod never;
mod order;
mod preflight;
mod readers;
mod rehearse;
mod releases;
mod self_managed;
mod stage;
mod teardown;
mod teardown_last;
mod validate;
mod window;
