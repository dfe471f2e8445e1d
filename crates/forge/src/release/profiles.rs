//! What the releases that pointers name bring and need, for lint: each is read once, a few at a time, and only its profile is
//! kept. What is wrong with one of them is a finding at its pointer; a registry that does not answer is none.

use std::collections::BTreeMap;

use forge_core::code::{Class, Code};
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::finding::{Finding, Place};
use forge_core::name::{EnvironmentName, ProjectId};
use forge_core::release::Limits;
use forge_core::release::edges::{Profile, Profiles};
use forge_core::repository::EnvironmentFiles;
use forge_core::yaml::Position;
use futures::{StreamExt as _, TryStreamExt as _};

use super::opened::Release;
use super::place::{Named, Place as Kept, Which, repository};
use super::transfer::Store;
use crate::registry::Registry;

/// How many releases are read at a time.
const AT_ONCE: usize = 8;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// By environment; those whose release cannot be used are not there.
    pub(crate) profiles: BTreeMap<EnvironmentName, Profiles>,
    /// What is wrong with releases.
    pub(crate) findings: Vec<Finding>,
    /// How many releases were read.
    pub(crate) releases: usize,
}

/// A pointer of an environment.
struct Pointed<'f> {
    files: &'f EnvironmentFiles,
    /// Of the release, which the pointer says.
    commit: &'f str,
    commit_at: Position,
    digest_at: Position,
}

/// What became of a pointer.
type Seen<'f> = (&'f EnvironmentFiles, Result<Profile, Finding>);

/// Reads the releases of these environments, below where the installation keeps them.
///
/// # Errors
/// When a registry does not answer, or refuses: then nothing is known.
pub(crate) async fn profiles(
    environments: &[&EnvironmentFiles],
    prefix: &str,
    registry: &Registry,
    limits: &Limits,
) -> Result<Read, Failure> {
    let mut wanted: BTreeMap<(&ProjectId, &Digest), Vec<Pointed<'_>>> = BTreeMap::new();
    for &files in environments {
        for (id, pointer) in &files.projects {
            // A placeholder is told as what it is.
            if !pointer.digest.as_str().trim_start_matches("sha256:").bytes().all(|b| b == b'0') {
                wanted.entry((id, &pointer.digest.value)).or_default().push(Pointed {
                    files,
                    commit: pointer.release.as_str(),
                    commit_at: pointer.release.at,
                    digest_at: pointer.digest.at,
                });
            }
        }
    }
    let mut read = Read { releases: wanted.len(), ..Read::default() };
    for files in environments {
        read.profiles.insert(files.environment.name.value.clone(), Profiles::new());
    }
    let seen = futures::stream::iter(wanted).map(|((id, digest), pointed)| async move {
        let seen = release(id, digest, &pointed, prefix, registry, limits).await?;
        Ok::<_, Failure>((id, seen))
    });
    let seen: Vec<(&ProjectId, Vec<Seen<'_>>)> = seen.buffered(AT_ONCE).try_collect().await?;
    for (id, all) in seen {
        for (files, seen) in all {
            match seen {
                Ok(profile) => {
                    let name = &files.environment.name.value;
                    read.profiles.entry(name.clone()).or_default().insert(id.clone(), profile);
                }
                Err(finding) => read.findings.push(finding),
            }
        }
    }
    Ok(read)
}

/// One release, for all environments that point to it.
async fn release<'f>(
    id: &ProjectId,
    digest: &Digest,
    pointed: &[Pointed<'f>],
    prefix: &str,
    registry: &Registry,
    limits: &Limits,
) -> Result<Vec<Seen<'f>>, Failure> {
    let place = Kept::Registry(repository(prefix, id)?);
    let store = Store::open(registry, &place, limits)?;
    let named = Named { place, which: Which::Digest(digest.clone()), project: Some(id.clone()) };
    let release = match Release::open(&store, &named, limits).await {
        Ok(release) => release,
        Err(failure) if is_finding(&failure) => {
            let told = |pointer: &Pointed<'f>| (pointer.files, Err(finding(id, pointer, pointer.digest_at, &failure)));
            return Ok(pointed.iter().map(told).collect());
        }
        Err(failure) => return Err(failure),
    };
    let mut seen = Vec::new();
    for pointer in pointed {
        let environment = &pointer.files.environment;
        let commit = release.metadata.source.commit.as_str();
        if commit != pointer.commit {
            let failure = Failure::new(Code::PointerMismatch, format!("{digest} is of commit {commit}"));
            seen.push((pointer.files, Err(finding(id, pointer, pointer.commit_at, &failure))));
            continue;
        }
        match release.documents(&store, environment.name.as_str(), limits).await {
            Ok(documents) => {
                let namespace = format!("{}{}", environment.namespace_prefix, id.joined());
                seen.push((pointer.files, Ok(Profile::of(&documents, &namespace))));
            }
            Err(failure) if is_finding(&failure) => {
                seen.push((pointer.files, Err(finding(id, pointer, pointer.digest_at, &failure))));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(seen)
}

/// Whether a failure says something about the release, and not about who keeps it or how it is asked for.
fn is_finding(failure: &Failure) -> bool {
    let about_releases = failure.code.id().starts_with("FORGE-N") && failure.code != Code::RegistryRefused;
    about_releases && matches!(failure.code.class(), Class::User | Class::Policy)
}

fn finding(id: &ProjectId, pointer: &Pointed<'_>, at: Position, failure: &Failure) -> Finding {
    let path = format!("{}/apps/{id}/release.yaml", pointer.files.environment.path);
    let finding = Finding::new(failure.code, Place::new(&path, at), &failure.message);
    match &failure.hint {
        Some(hint) => finding.with_fix(hint),
        None => finding,
    }
}
