//! `env.yaml`: an EnvironmentConfig of Crossplane. Its data is the user's; its version and name are checked.

use schemars::JsonSchema;
use serde::Serialize;

use super::header;
use crate::code::Code;
use crate::yaml::{At, Decoder, Node, Value};

/// The part of an EnvironmentConfig that Forge reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnvironmentConfig {
    /// The name, which follows from the path.
    pub name: At<String>,
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "EnvironmentConfig", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(super) struct File {
    /// The version that Crossplane 2 serves.
    #[schemars(extend("const" = super::ENVIRONMENT_CONFIG_VERSION))]
    api_version: String,
    #[schemars(extend("const" = "EnvironmentConfig"))]
    kind: String,
    metadata: super::schema::Metadata,
    /// Anything that compositions read.
    data: Option<serde_json::Map<String, serde_json::Value>>,
}

impl EnvironmentConfig {
    /// Takes an EnvironmentConfig out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(node, "the document")?;
        if let Some(version) = decoder.required(&mut fields, "apiVersion")
            && let Some(found) = decoder.text(version, "apiVersion")
            && found.value != super::ENVIRONMENT_CONFIG_VERSION
        {
            let wanted = super::ENVIRONMENT_CONFIG_VERSION;
            let old = found.value.starts_with("apiextensions.crossplane.io/");
            let code = if old { Code::OldEnvironmentConfig } else { Code::UnknownKind };
            let message = format!("apiVersion is `{}`, expected `{wanted}`", crate::name::clip(found.value));
            decoder.report(code, version.at, message).fix(format!("write `apiVersion: {wanted}`"));
        }
        if let Some(kind) = decoder.required(&mut fields, "kind")
            && kind.text() != Some("EnvironmentConfig")
        {
            decoder
                .report(Code::UnknownKind, kind.at, "kind must be `EnvironmentConfig`")
                .fix("write `kind: EnvironmentConfig`; no other object is legal in env.yaml");
        }
        let name = header::name(decoder, &mut fields);
        if let Some(data) = fields.take("data")
            && !matches!(data.value, Value::Mapping(_))
        {
            decoder.report(Code::WrongType, data.at, format!("data must be a mapping, not {}", data.kind()));
        }
        decoder.finish(&fields);
        Some(Self { name: name? })
    }
}
