//! `forge release pull`

use std::path::PathBuf;

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::release::Limits;

use super::RegistryArguments;
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::{Place, Release, Store, copy};
use crate::runtime::block_on;

/// Pull a release, with its signatures and attestations, into a folder with an OCI layout
///
/// Everything is checked against its digest. The folder is made where it is not there; what a layout holds already stays. `forge
/// release push` brings it into another registry, which need not be reachable from here.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The release
    #[arg(value_name = "REF")]
    reference: String,
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Which release, where REF does not say it: commit, beginning of one, version or digest
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = arguments.registry.named(global, &arguments.reference, arguments.release.as_deref())?;
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let from = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&from, &named, &limits).await?;
        let to = Store::open(&client, &Place::Folder(arguments.folder.clone()), &limits)?;
        let copied = copy(&from, &to, &release).await?;
        let what = output.paint(Paint::Good, copied.word());
        let commit = &release.metadata.source.commit;
        output.say(&format!("{what} {} {commit} into {}{}", release.metadata.project, to.place(), copied.with()));
        output.data(&format!("{}\n", release.manifest.digest))?;
        Ok(Exit::Done)
    })?
}
