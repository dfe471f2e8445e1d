//! `forge release verify`

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::release::Limits;
use forge_core::release::key::{KeyName, PublicKey, TrustedKey};
use forge_core::release::policy::SignaturePolicy;
use forge_core::release::signature::attestation::PredicateType;
use jiff::Timestamp;
use serde_json::json;

use super::{Format, RegistryArguments, read_file};
use crate::cli::Global;
use crate::output::{Output, Paint};
use crate::release::{Release, Store, judged};
use crate::runtime::block_on;

/// Verify a release: all of its bytes, its signatures, and what is attested of it
///
/// A tag is looked up once; from then on only the digest counts, which is what is printed. Without --key and --policy no signature
/// is asked for, and that is said. With several --key one of them is enough; a policy says how many must have signed. Of each type of
/// attestation that --attestation or the policy names there must be one by one of the keys.
///
/// Exit codes: 0 it is what it says and signed as asked for, 3 it is damaged or no release, 6 it is not signed as asked for.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The release
    #[arg(value_name = "REF")]
    reference: String,
    /// Which release, where REF does not say it: commit, beginning of one, version or digest
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// A public key on the curve P-256, as PEM
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// A file of kind SignaturePolicy
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    policy: Option<PathBuf>,
    /// A type of attestation that there must be too, as a URI; needs --key or --policy
    #[arg(long, value_name = "TYPE")]
    attestation: Vec<PredicateType>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = arguments.registry.named(global, &arguments.reference, arguments.release.as_deref())?;
    // Whoever cannot be asked is asked nothing: keys and policies are read before anything is fetched.
    let policy = policy(arguments)?;
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let store = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&store, &named, &limits).await?;
        let judged = match &policy {
            Some(policy) => Some(judged(&store, &release.manifest, policy, Timestamp::now(), &limits).await?),
            None => None,
        };
        release.check(&store, &limits).await?;
        let digest = &release.manifest.digest;
        let signed: Vec<String> =
            judged.iter().flat_map(|judged| &judged.keys).map(|name| name.as_str().to_owned()).collect();
        let metadata = &release.metadata;
        let good = output.paint(Paint::Good, "verified");
        output.say(&match (&policy, signed.as_slice()) {
            (None, _) => format!("{good} every byte of {}; no signature was asked for", metadata.project),
            (Some(_), []) => format!("{good} {}; it is not signed, and the policy lets that pass", metadata.project),
            (Some(_), names) => format!("{good} {}, signed by {}", metadata.project, names.join(", ")),
        });
        let attested: Vec<(&PredicateType, Vec<&str>)> = judged
            .iter()
            .flat_map(|judged| &judged.attestations)
            .map(|(sort, keys)| (sort, keys.iter().map(KeyName::as_str).collect()))
            .collect();
        for (sort, names) in &attested {
            output.say(&format!("attested {sort} by {}", names.join(", ")));
        }
        match arguments.output {
            Format::Text => output.data(&format!("{digest}\n"))?,
            Format::Json => {
                let attested: Vec<_> =
                    attested.iter().map(|(sort, names)| json!({"type": sort.as_str(), "by": names})).collect();
                let document = json!({
                    "digest": digest, "project": metadata.project, "commit": metadata.source.commit,
                    "version": metadata.version, "signedBy": signed, "attestations": attested,
                    "until": judged.as_ref().and_then(|judged| judged.until),
                });
                output.data(&format!("{document:#}\n"))?;
            }
        }
        Ok(Exit::Done)
    })?
}

/// What is asked of signatures and attestations, if anything is.
fn policy(arguments: &Arguments) -> Result<Option<SignaturePolicy>, Failure> {
    let policy = of_keys(arguments)?;
    let wanted = arguments.attestation.iter().cloned();
    match policy {
        None if !arguments.attestation.is_empty() => {
            let message = "an attestation is asked for, and nobody says whose counts";
            Err(Failure::new(Code::BadArgument, message).hint("add --key or --policy"))
        }
        policy => Ok(policy.map(|mut policy| {
            policy.attestations.extend(wanted);
            policy
        })),
    }
}

/// Whose signatures count, if any are asked for.
fn of_keys(arguments: &Arguments) -> Result<Option<SignaturePolicy>, Failure> {
    if let Some(path) = &arguments.policy {
        let shown = clip(&path.display().to_string());
        let text = read_file(path, Code::BadSignaturePolicy)?;
        return SignaturePolicy::read(&shown, text.as_bytes()).map(Some);
    }
    let mut keys: Vec<TrustedKey> = Vec::new();
    for path in &arguments.key {
        let text = read_file(path, Code::BadSigningKey)?;
        let key = PublicKey::read(&text).map_err(|error| {
            let failure = Failure::from(error);
            let message = format!("`{}`: {}", path.display(), failure.message);
            Failure { message, ..failure }
        })?;
        // One key under two names would count twice.
        if keys.iter().any(|other| other.key == key) {
            continue;
        }
        let name: Option<KeyName> = path.file_stem().and_then(|name| name.to_str()?.to_lowercase().parse().ok());
        let free = name.filter(|name| keys.iter().all(|other| other.name != *name));
        let name = match free {
            Some(name) => name,
            None => {
                format!("key-{}", keys.len() + 1).parse().map_err(|error| Failure::new(Code::BadSigningKey, error))?
            }
        };
        keys.push(TrustedKey { name, key, until: None });
    }
    Ok((!keys.is_empty()).then(|| SignaturePolicy::of(keys)))
}
