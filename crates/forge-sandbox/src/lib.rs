//! The sandbox (SPEC.md section 10): a real Kubernetes with a real node on a bare Linux machine, without Docker.
//!
//! It needs root and is a binary of its own, so that such code never ships beside the plugin.
