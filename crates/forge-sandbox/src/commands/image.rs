//! `forge sandbox image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::build::image::{self, Reference};
use crate::cli::{self, Global};
use crate::commands::status::running;
use crate::component::port;
use crate::error::IntoFailure;

/// Images in the registry of a sandbox
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Push an image, from an OCI layout or an archive, and print its reference with digest
    Load {
        /// A folder with an OCI layout, or a tar of one, or what `docker save` writes
        path: PathBuf,
        /// What to call it
        #[arg(long = "as", value_name = "REPOSITORY:TAG")]
        reference: Reference,
    },
    /// List the images that every sandbox begins with
    List,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> Result<Exit, Failure> {
    match &arguments.command {
        Command::Load { path, reference } => {
            let (_, range) = running(&global.folder()?)?;
            let registry = format!("{}:{}", range.node(), port::REGISTRY);
            let digest = image::push(&registry, path, reference).map_err(IntoFailure::into_failure)?;
            cli::data(&format!("{registry}/{}@{digest}\n", reference.repository()))?;
        }
        Command::List => {
            let built = cli::built()?;
            for image in &built.images {
                cli::data(&format!("{}:{}@{}\n", image.repository, image.tag, image.digest))?;
            }
        }
    }
    Ok(Exit::Done)
}
