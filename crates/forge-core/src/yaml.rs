//! YAML and JSON read into a tree that knows where everything stands.
//!
//! Why a tree of our own and not serde straight into types: lint must report everything that is wrong with a file at
//! once, with line and column, keep the text of a scalar as it was written (a commit of 40 digits is not a number), and
//! see comments (docs/adr/0002). The parser underneath is serde-saphyr's.
//!
//! Every read is bounded: bytes, depth, nodes and what aliases may expand to. Nothing here recurses on input depth
//! beyond [`Limits::depth`].

mod decode;
mod node;
mod read;
mod scalar;
mod write;

pub(crate) use decode::nearest;
pub use decode::{Decoder, Fields};
pub use node::{At, Comment, Key, Node, Position, Scalar, Value};
pub use read::{Dialect, Limits, Problem, ProblemKind, Stream, decode_text, read};
pub use scalar::Resolved;
pub use write::{write, write_blocks};
