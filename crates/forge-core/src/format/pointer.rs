//! `release.yaml`: which release of a project an environment runs.

use schemars::JsonSchema;
use serde::Serialize;

use super::header;
use crate::code::Code;
use crate::digest::{CommitId, Digest};
use crate::yaml::{At, Decoder, Node, Position};

/// A pointer to one release (SPEC.md section 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReleasePointer {
    /// The name, which must be the project folder's.
    pub name: At<String>,
    /// Source commit of the release.
    pub release: At<CommitId>,
    /// Manifest digest of the release image.
    pub digest: At<Digest>,
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "ReleasePointer", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(super) struct File {
    /// The group and version.
    #[schemars(extend("const" = super::API_VERSION))]
    api_version: String,
    #[schemars(extend("const" = "ReleasePointer"))]
    kind: String,
    metadata: super::schema::Metadata,
    spec: Spec,
}

/// Which release.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct Spec {
    /// Source commit of the release: 40 hexadecimal digits.
    release: CommitId,
    /// Manifest digest of the release image.
    digest: Digest,
}

impl ReleasePointer {
    /// Takes a pointer out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut fields = header::document(decoder, node, super::API_VERSION, "ReleasePointer")?;
        let name = header::name(decoder, &mut fields);
        let spec = decoder.required(&mut fields, "spec");
        decoder.finish(&fields);
        let mut spec = decoder.mapping(spec?, "spec")?;
        let release = required_scalar(decoder, spec.take("release"), spec.at(), Code::BadRelease, "release");
        let digest = required_scalar(decoder, spec.take("digest"), spec.at(), Code::BadDigest, "digest");
        decoder.finish(&spec);
        Some(Self { name: name?, release: release?, digest: digest? })
    }
}

/// Like [`Decoder::parse_as`], but a commit of digits only, which YAML takes for a number, is read as it was written.
fn required_scalar<T>(
    decoder: &mut Decoder<'_>,
    node: Option<&Node<'_>>,
    at: Position,
    code: Code,
    what: &'static str,
) -> Option<At<T>>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let Some(node) = node else {
        decoder.report(code, at, format!("spec needs `{what}`"));
        return None;
    };
    let Some(text) = node.text() else {
        decoder.report(code, node.at, format!("{what} must be a text, not {}", node.kind()));
        return None;
    };
    match text.parse() {
        Ok(value) => Some(At::new(value, node.at)),
        Err(error) => {
            decoder.report(code, node.at, format!("{what}: {error}"));
            None
        }
    }
}
