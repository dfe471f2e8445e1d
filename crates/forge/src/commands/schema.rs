//! `forge schema`

use clap::Args;
use forge_core::code::Code;
use forge_core::format::{INPUTS, KINDS, OUTPUTS, schema};

use crate::output::Output;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Print the JSON Schema of a kind of file, or of a report
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kind, for example ReleasePointer; all kinds are listed if absent
    kind: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let kinds = [&KINDS[..], &INPUTS[..], &OUTPUTS[..]].concat();
    let Some(kind) = &arguments.kind else {
        output.data(&format!("{}\n", kinds.join("\n")))?;
        return Ok(Exit::Done);
    };
    let schema = schema(kind).ok_or_else(|| {
        let kind = forge_core::name::clip(kind);
        Failure::new(Code::UnknownName, format!("no schema for `{kind}`")).hint(format!("kinds: {}", kinds.join(", ")))
    })?;
    output.data(&format!("{:#}\n", schema.as_value()))?;
    Ok(Exit::Done)
}
