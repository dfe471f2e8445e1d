//! `forge release inspect`

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::{EnvironmentName, clean};
use forge_core::release::signature::attestation::said_type;
use forge_core::release::{DEFAULT_LAYER, Limits};
use serde_json::json;

use super::{Format, RegistryArguments, objects};
use crate::cli::Global;
use crate::output::Output;
use crate::release::{Release, Store, attestations, signatures};
use crate::runtime::block_on;

/// Say what is in a release: what it was built from and by whom, its layers, objects and images
///
/// Everything that is shown was compared with its digest; signatures are only counted, and attestations listed by the types that they say,
/// `forge release verify` verifies them.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The release
    #[arg(value_name = "REF")]
    reference: String,
    /// Which release, where REF does not say it: commit, beginning of one, version or digest
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// The environment whose resources are shown; those for all if absent
    #[arg(long, short, requires = "show")]
    environment: Option<EnvironmentName>,
    /// Show a part of it instead
    #[arg(long, value_enum, value_name = "PART")]
    show: Option<Part>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// The type of an attestation that does not say it, or cannot be read.
const UNKNOWN: &str = "unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The objects, as YAML or as a list of JSON
    Resources,
    /// The metadata, as JSON
    Metadata,
    /// The manifest, byte by byte
    Manifest,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let named = arguments.registry.named(global, &arguments.reference, arguments.release.as_deref())?;
    let limits = Limits::default();
    block_on(async {
        let client = arguments.registry.client()?;
        let store = Store::open(&client, &named.place, &limits)?;
        let release = Release::open(&store, &named, &limits).await?;
        let text = match (arguments.show, arguments.output) {
            (Some(Part::Manifest), _) => String::from_utf8_lossy(&release.bytes).into_owned(),
            (Some(Part::Metadata), _) => format!("{:#}\n", json!(release.metadata)),
            (Some(Part::Resources), format) => {
                let environment = arguments.environment.as_ref().map_or(DEFAULT_LAYER, EnvironmentName::as_str);
                let found = release.documents(&store, environment, &limits).await?;
                match format {
                    Format::Text => found.iter().map(|document| format!("---\n{}", document.text())).collect(),
                    Format::Json => {
                        let values: Vec<_> = found.iter().map(|document| &document.value).collect();
                        format!("{:#}\n", json!(values))
                    }
                }
            }
            (None, format) => {
                let found = signatures(&store, &release.manifest, &limits).await?;
                let count = found.found.len() + usize::from(found.wrong.is_some());
                let attested = attestations(&store, &release.manifest, &limits).await?;
                let known = attested.found.iter().map(|envelope| said_type(envelope).unwrap_or(UNKNOWN));
                let types: Vec<&str> = known.chain(attested.wrong.as_ref().map(|_| UNKNOWN)).collect();
                match format {
                    Format::Text => summary(&release, count, &types),
                    Format::Json => {
                        let document = json!({
                            "digest": release.manifest.digest, "size": release.size(), "signatures": count,
                            "attestations": types, "metadata": release.metadata,
                        });
                        format!("{document:#}\n")
                    }
                }
            }
        };
        output.data(&text)?;
        Ok(Exit::Done)
    })?
}

/// What is in a release, for people. What others wrote is shown without what could drive a terminal.
fn summary(release: &Release, signatures: usize, attestations: &[&str]) -> String {
    let metadata = &release.metadata;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<11} {}", clean(value));
    };
    line("project", &metadata.project.to_string());
    line("commit", metadata.source.commit.as_str());
    if let Some(version) = &metadata.version {
        line("version", version);
    }
    line("digest", release.manifest.digest.as_str());
    if let Some(repository) = &metadata.source.repository {
        line("repository", repository);
    }
    if let Some(path) = &metadata.source.path {
        line("path", path);
    }
    line("built by", &format!("{} {}", metadata.builder.name, metadata.builder.version));
    line("signatures", &if signatures == 0 { "none".to_owned() } else { format!("{signatures}, not verified here") });
    for sort in attestations {
        line("attested", &format!("{sort}, not verified here"));
    }
    line("size", &format!("{} bytes", release.size()));
    for artifact in &metadata.artifacts {
        line("artifact", &format!("{}@{}", artifact.reference, artifact.digest));
    }
    for (name, layer) in &metadata.resources {
        let _ = writeln!(text, "\n{}: {}, {}", clean(name), objects(layer.documents), layer.digest);
        for (kind, count) in &layer.kinds {
            let _ = writeln!(text, "  {count:>4}  {}", clean(kind));
        }
        for definition in &layer.definitions {
            let _ = writeln!(text, "  defines {}", clean(definition));
        }
        for image in &layer.images {
            let _ = writeln!(text, "  image {}", clean(image));
        }
    }
    text
}
