//! Phase 4 on a cluster (SPEC.md section 4): what is there, what would stand in the way, and what is left. Everything here but
//! the storing of a snapshot only reads; what follows from it is decided in `forge_core::teardown`.

pub(crate) mod inventory;
pub(crate) mod rehearse;
