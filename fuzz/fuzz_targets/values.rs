//! Names, digests, durations, windows, references, scopes, codes: what parses prints the same again.
#![no_main]
use std::fmt::Display;
use std::str::FromStr;

use forge_core::code::Code;
use forge_core::digest::{CommitId, Digest};
use forge_core::duration::Duration;
use forge_core::format::{Reference, Window};
use forge_core::gate::Nonce;
use forge_core::graph::Scope;
use forge_core::name::{ApplicationId, EnvironmentName, NodeId, ProjectId};
use libfuzzer_sys::fuzz_target;

fn round_trip<T: FromStr + Display>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        let again = printed.parse::<T>().map(|value| value.to_string());
        assert_eq!(again.ok().as_deref(), Some(printed.as_str()));
    }
}

fuzz_target!(|text: &str| {
    round_trip::<EnvironmentName>(text);
    round_trip::<ProjectId>(text);
    round_trip::<ApplicationId>(text);
    round_trip::<NodeId>(text);
    round_trip::<Digest>(text);
    round_trip::<CommitId>(text);
    round_trip::<Duration>(text);
    round_trip::<Reference>(text);
    round_trip::<Window>(text);
    round_trip::<Scope>(text);
    round_trip::<Code>(text);
    round_trip::<Nonce>(text);
});
