//! What tests, benchmarks and the example share. Never published.

pub mod crd;
