//! Releases, around `forge_core::release`: sources are rendered (`source`, `program`, `build`), their origin is found out
//! (`origin`), and releases are named (`place`), found and moved (`transfer`), read (`opened`), signed and judged (`sign`),
//! wherever they are kept; `profiles` keeps of them what lint compares with the graph; `import`
//! makes a source of an Argo CD Application. What a release is and what may be in one is decided in the core.

pub(crate) mod build;
pub(crate) mod import;
mod opened;
pub(crate) mod origin;
pub(crate) mod place;
pub(crate) mod profiles;
pub(crate) mod program;
mod sign;
pub(crate) mod source;
pub(crate) mod transfer;

pub(crate) use opened::Release;
pub(crate) use place::{Named, Place, Which};
pub(crate) use sign::{Signed, attestations, judged, sign, signatures, verified};
pub(crate) use transfer::{Listed, Store, copy};
