//! What tests, benchmarks and the example share. Never published.

pub mod bench;
pub mod campaign;
pub mod chart;
pub mod crd;
pub mod example;
pub mod foreign;
pub mod generate;
pub mod health;
pub mod http;
pub mod image;
pub mod images;
pub mod modules;
pub mod order;
pub mod platform;
pub mod random_graph;
pub mod reference;
pub mod registry;
pub mod registry_client;
pub mod releases;
pub mod sandbox;
pub mod twin;

/// The folder of the checkout that is tested. Asked for when the program runs and never built in: checkouts share what is built
/// (tools/stamps). Cargo tells tests where their package is; other programs are called there.
pub fn checkout() -> std::path::PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(std::path::PathBuf::from);
    package.map_or_else(|| ".".into(), |package| package.join("../.."))
}

/// How many cases a property gets: a short slice in `make test`, `FORGE_SOAK` of them in `make soak`.
pub fn cases(slice: u32) -> u32 {
    u32::try_from(campaign::number("FORGE_SOAK", slice.into())).unwrap_or(u32::MAX)
}
