//! `forge release copy`

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::release::Limits;

use super::RegistryArguments;
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::{Release, Store, Which, copy};
use crate::runtime::block_on;

/// Copy a release, with its signatures and attestations, to another registry, or from and to a folder with an OCI layout
///
/// Byte by byte, so it keeps its digest and its signatures hold. A tag is never moved: another release of the same commit at the
/// place it is copied to is refused.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The release
    #[arg(value_name = "REF")]
    reference: String,
    /// Where to: registry.example.com/path without a tag, or a folder
    #[arg(value_name = "TO")]
    to: String,
    /// Which release, where REF does not say it: commit, beginning of one, version or digest
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = arguments.registry.named(global, &arguments.reference, arguments.release.as_deref())?;
    let target = arguments.registry.named(global, &arguments.to, None)?;
    if target.which != Which::Only {
        let message = format!("`{}` says which release is meant, and that is what is copied", clip(&arguments.to));
        return Err(Failure::new(Code::BadArgument, message)
            .hint("leave the tag away: it is the commit of the release, there as here"));
    }
    if target.place == named.place {
        let message = format!("a release of {} is copied to where it is", target.place);
        return Err(Failure::new(Code::BadArgument, message));
    }
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let from = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&from, &named, &limits).await?;
        let to = Store::open(&client, &target.place, &limits)?;
        let copied = copy(&from, &to, &release).await?;
        let what = output.paint(Paint::Good, copied.word());
        output.say(&format!("{what} {}:{}{}", to.place(), release.metadata.source.commit, copied.with()));
        output.data(&format!("{}@{}\n", to.place(), release.manifest.digest))?;
        Ok(Exit::Done)
    })?
}
