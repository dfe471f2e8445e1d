//! Phase 4, teardown (SPEC.md section 4): what is in a cluster and whose it is, what would stand in the way, and what is left
//! at the end.
//!
//! Pure: what was read of a cluster in, findings and reports out. Nothing here deletes, and nothing is taken to be absent
//! because it was not seen: that takes a list that was read to its end (INV-10).

pub mod inventory;
pub mod rehearse;
pub mod whose;
