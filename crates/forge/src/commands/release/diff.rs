//! `forge release diff`

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::release::{ChangeKind, Limits, diff};
use serde_json::json;

use super::{Format, RegistryArguments};
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::build::Layers;
use crate::release::{Release, Store};
use crate::runtime::block_on;

/// Show what differs between two releases, object by object and environment by environment
///
/// Exit code 0 means that nothing differs, 1 that something does.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The release before
    #[arg(value_name = "A")]
    before: String,
    /// The release after
    #[arg(value_name = "B")]
    after: String,
    /// Only what differs for this environment
    #[arg(long, short)]
    environment: Option<EnvironmentName>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let before = arguments.registry.named(global, &arguments.before, None)?;
    let after = arguments.registry.named(global, &arguments.after, None)?;
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let (first, second) =
            (Store::open(&client, &before.place, &limits)?, Store::open(&client, &after.place, &limits)?);
        let one = Release::open(&first, &before, &limits).await?;
        let other = Release::open(&second, &after, &limits).await?;
        let (old, new) = match &arguments.environment {
            None => (one.layers(&first, &limits).await?, other.layers(&second, &limits).await?),
            Some(environment) => {
                let name = environment.as_str();
                let old = one.documents(&first, name, &limits).await?;
                let new = other.documents(&second, name, &limits).await?;
                (Layers::from([(name.to_owned(), old)]), Layers::from([(name.to_owned(), new)]))
            }
        };
        let changes = diff(&old, &new);
        match arguments.output {
            Format::Json => {
                let document = json!({
                    "before": one.manifest.digest, "after": other.manifest.digest, "changes": changes,
                });
                output.data(&format!("{document:#}\n"))?;
            }
            Format::Text => {
                for change in &changes {
                    let (paint, word) = match change.what {
                        ChangeKind::Added => (Paint::Good, "added"),
                        ChangeKind::Removed => (Paint::Bad, "removed"),
                        ChangeKind::Changed => (Paint::Busy, "changed"),
                    };
                    let word = output.paint(paint, word);
                    let place = output.paint(Paint::Strong, &format!("{}: {}", change.layer, change.document));
                    output.data(&format!("{place} {word}\n{}\n", change.text.trim_end()))?;
                }
            }
        }
        let count = |n: usize| if n == 1 { "1 object differs".to_owned() } else { format!("{n} objects differ") };
        if changes.is_empty() {
            output.say("nothing differs");
            return Ok(Exit::Done);
        }
        output.say(&count(changes.len()));
        Ok(Exit::Findings)
    })?
}
