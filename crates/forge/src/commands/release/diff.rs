//! `forge release diff`

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::release::{ChangeKind, DEFAULT_LAYER, Limits, diff};
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
        let asked = arguments.environment.as_ref();
        let names: Vec<String> = match asked {
            Some(environment) => vec![environment.as_str().to_owned()],
            None => layers_of(&one, &other),
        };
        let (mut old, mut new) = (Layers::new(), Layers::new());
        for name in names {
            // Where one of them has no layer of that name, what it would deploy there is compared, if anything.
            if asked.is_some() || one.has(&name) {
                old.insert(name.clone(), one.documents(&first, &name, &limits).await?);
            }
            if asked.is_some() || other.has(&name) {
                new.insert(name.clone(), other.documents(&second, &name, &limits).await?);
            }
        }
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

/// Every layer that one of them has, the one for all last: it is what the others are told from.
fn layers_of(one: &Release, other: &Release) -> Vec<String> {
    let mut names: Vec<String> =
        one.metadata.resources.keys().chain(other.metadata.resources.keys()).cloned().collect();
    names.sort_by_key(|name| (name == DEFAULT_LAYER, name.clone()));
    names.dedup();
    names
}
