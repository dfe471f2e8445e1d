//! What every file of ours begins with: apiVersion, kind, and for most a name.

use crate::code::Code;
use crate::yaml::{At, Decoder, Fields, Node};

/// The group and version of our own kinds.
pub const API_VERSION: &str = "forge.projectcatalyst.io/v1alpha1";
/// The only version of EnvironmentConfig that Crossplane 2 serves.
pub const ENVIRONMENT_CONFIG_VERSION: &str = "apiextensions.crossplane.io/v1beta1";

/// Checks apiVersion and kind and gives the fields of the document.
pub(crate) fn document<'n, 'a>(
    decoder: &mut Decoder<'_>,
    node: &'n Node<'a>,
    api_version: &'static str,
    kind: &'static str,
) -> Option<Fields<'n, 'a>> {
    let mut fields = decoder.mapping(node, "the document")?;
    for (name, wanted) in [("apiVersion", api_version), ("kind", kind)] {
        if let Some(node) = decoder.required(&mut fields, name)
            && let Some(found) = decoder.text(node, name)
            && found.value != wanted
        {
            let message = format!("{name} is `{}`, expected `{wanted}`", crate::name::clip(found.value));
            decoder.report(Code::UnknownKind, node.at, message).fix(format!("write `{name}: {wanted}`"));
        }
    }
    Some(fields)
}

/// `metadata` of a file whose name says nothing: it may be missing, but not be wrong.
pub(crate) fn optional_name(decoder: &mut Decoder<'_>, fields: &mut Fields<'_, '_>) {
    if fields.take("metadata").is_some() {
        name(decoder, fields);
    }
}

/// `metadata` with `name` and, optionally, labels and annotations that we do not read.
pub(crate) fn name<'n>(decoder: &mut Decoder<'_>, fields: &mut Fields<'n, '_>) -> Option<At<String>> {
    let node = decoder.required(fields, "metadata")?;
    let mut metadata = decoder.mapping(node, "metadata")?;
    metadata.take("labels");
    metadata.take("annotations");
    let name = decoder.required(&mut metadata, "name");
    decoder.finish(&metadata);
    let name = decoder.text(name?, "metadata.name")?;
    Some(At::new(name.value.to_owned(), name.at))
}
