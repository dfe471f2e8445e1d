//! `forge release sign`

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::release::Limits;
use forge_core::release::key::PrivateKey;
use forge_core::release::signature::attestation::{Predicate, PredicateType};

use super::{RegistryArguments, read_file};
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::{Release, Signed, Store, sign};
use crate::runtime::block_on;

/// Sign a release with a key, or something that is said of it
///
/// The signature is of the digest and lies beside the release, as cosign keeps it: under the tag sha256-….sig, and as a referrer.
/// Signatures of other keys stay; signing twice with one key changes nothing. All of the release is read and checked first.
///
/// With --predicate what is in the file is said of the release, and that is signed instead: an attestation, which lies beside the
/// release under the tag sha256-….att, and as a referrer.
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
    /// A file with an object of JSON, which is said of the release
    #[arg(long, value_name = "FILE", requires = "predicate_type")]
    predicate: Option<PathBuf>,
    /// Of what type the predicate is, as a URI, for example https://slsa.dev/provenance/v1
    #[arg(long = "type", value_name = "TYPE", requires = "predicate")]
    predicate_type: Option<PredicateType>,
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
    let predicate = predicate(arguments, &limits)?;
    block_on(async {
        let client = arguments.registry.client()?;
        let store = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&store, &named, &limits).await?;
        // Nobody signs what nobody read.
        release.check(&store, &limits).await?;
        let (signed, word) = match &predicate {
            None => (Signed::Release, "signed"),
            Some(predicate) => (Signed::Statement(predicate), "attested"),
        };
        let changed = sign(&store, &release, &key, signed, &limits).await?;
        let word = if changed { output.paint(Paint::Good, word) } else { format!("{word} already:") };
        let id = key.public().id();
        output.say(&format!("{word} {}@{} by key {id}", store.place(), release.manifest.digest));
        output.data(&format!("{}\n", release.manifest.digest))?;
        Ok(Exit::Done)
    })?
}

/// What is said of the release, if anything is.
fn predicate(arguments: &Arguments, limits: &Limits) -> Result<Option<Predicate>, Failure> {
    let (Some(path), Some(sort)) = (&arguments.predicate, &arguments.predicate_type) else { return Ok(None) };
    let text = read_file(path, Code::BadArgument)?;
    let read = Predicate::read(sort.clone(), text.as_bytes(), limits).map_err(|error| {
        let message = format!("`{}` cannot be said of a release: {error}", path.display());
        Failure::new(Code::BadArgument, message).hint("give a file with one object of JSON")
    })?;
    Ok(Some(read))
}
