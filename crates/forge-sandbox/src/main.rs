//! The `forge-sandbox` binary.
fn main() {}
