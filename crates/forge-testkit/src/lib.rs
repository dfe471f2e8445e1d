//! What tests, benchmarks and the example share. Never published.

pub mod crd;
pub mod example;
pub mod generate;
