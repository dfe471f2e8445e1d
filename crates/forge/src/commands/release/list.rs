//! `forge release list`

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::release::Limits;
use serde_json::json;

use super::{Format, RegistryArguments};
use crate::cli::Global;
use crate::output::Output;
use crate::release::{Listed, Store, Which};
use crate::runtime::block_on;

/// List the releases of a project: commit, version, digest
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The project, as repo/project, registry.example.com/path, or a folder with an OCI layout
    #[arg(value_name = "PROJECT")]
    project: String,
    /// Only those whose commit begins so, or of this version
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// How many are looked at, at most
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    limit: usize,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = arguments.registry.named(global, &arguments.project, arguments.release.as_deref())?;
    let wanted = match &named.which {
        Which::Only => None,
        Which::Digest(digest) => Some(digest.as_str()),
        Which::Named(name) | Which::Tagged(name) => Some(name.as_str()),
    };
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let store = Store::open(&client, &named.place, &limits)?;
        let Listed { releases, left } = store.list(wanted, arguments.limit).await?;
        match arguments.output {
            Format::Json => {
                let rows: Vec<_> = releases
                    .iter()
                    .map(|one| json!({"commit": one.commit, "version": one.version, "digest": one.digest}))
                    .collect();
                let document = json!({"place": store.place().to_string(), "releases": rows, "left": left});
                output.data(&format!("{document:#}\n"))?;
            }
            Format::Text => {
                for one in &releases {
                    let version = one.version.as_deref().unwrap_or("-");
                    output.data(&format!("{}  {version:<16}  {}\n", one.commit, one.digest))?;
                }
            }
        }
        if releases.is_empty() {
            output.say(&format!("{} has no releases", store.place()));
        }
        if left > 0 {
            output.say(&format!("{left} more were not looked at; --limit and --release say which are"));
        }
        Ok(Exit::Done)
    })?
}
