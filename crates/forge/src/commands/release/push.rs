//! `forge release push`

use std::path::PathBuf;

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::release::Limits;

use super::RegistryArguments;
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::{Named, Place, Release, Store, copy};
use crate::runtime::block_on;

/// Push a release, with its signatures and attestations, from a folder with an OCI layout to where its project's releases are kept
///
/// A release that is there already is not pushed again. A tag is never moved: another release of the same commit is refused.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The folder that `forge release build --output-layout` or `forge release pull` wrote
    layout: PathBuf,
    /// Which release of the folder: commit, beginning of one, version or digest; needed where it holds several
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = Named::folder(&arguments.layout, arguments.release.as_deref())?;
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let from = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&from, &named, &limits).await?;
        let repository = arguments.registry.repository(global, &release.metadata.project)?;
        let to = Store::open(&client, &Place::Registry(repository.clone()), &limits)?;
        let copied = copy(&from, &to, &release).await?;
        let what = output.paint(Paint::Good, copied.word());
        output.say(&format!("{what} {repository}:{}{}", release.metadata.source.commit, copied.with()));
        output.data(&format!("{repository}@{}\n", release.manifest.digest))?;
        Ok(Exit::Done)
    })?
}
