//! `forge release sign`

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::release::Limits;
use forge_core::release::key::PrivateKey;

use super::{RegistryArguments, read_file};
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::{Release, Store, sign};
use crate::runtime::block_on;

/// Sign a release with a key
///
/// The signature is of the digest and lies beside the release, as cosign keeps it: under the tag sha256-….sig, and as a referrer.
/// Signatures of other keys stay; signing twice with one key changes nothing. All of the release is read and checked first.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The release
    #[arg(value_name = "REF")]
    reference: String,
    /// Which release, where REF does not say it: commit, beginning of one, version or digest
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// A private key on the curve P-256, as PEM that is not encrypted
    #[arg(long, value_name = "FILE", env = "FORGE_SIGNING_KEY")]
    key: PathBuf,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = arguments.registry.named(global, &arguments.reference, arguments.release.as_deref())?;
    let key = PrivateKey::read(&read_file(&arguments.key, Code::BadSigningKey)?).map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("`{}`: {}", arguments.key.display(), failure.message);
        Failure { message, ..failure }
    })?;
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let store = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&store, &named, &limits).await?;
        // Nobody signs what nobody read.
        release.check(&store, &limits).await?;
        let changed = sign(&store, &release, &key, &limits).await?;
        let word = if changed { output.paint(Paint::Good, "signed") } else { "signed already:".to_owned() };
        let id = key.public().id();
        output.say(&format!("{word} {}@{} by key {id}", store.place(), release.manifest.digest));
        output.data(&format!("{}\n", release.manifest.digest))?;
        Ok(Exit::Done)
    })?
}
