//! The snapshot of phase 0: taken before the first write of bootstrap, kept in ConfigMaps as soon as there is a namespace for
//! them, and read again at the end. Bootstrap does not depend on it: where it cannot be taken, that is said.

use std::cell::Cell;

use base64::Engine as _;
use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::render::{MANAGED_BY, is_ours};
use forge_core::teardown::inventory::{
    DIGEST_ANNOTATION, PIECES_ANNOTATION, Packed, SNAPSHOT, SNAPSHOT_KEY, SNAPSHOT_LABEL, Snapshot,
};
use serde_json::{Value, json};

use super::take;
use crate::cluster::{Cluster, path};
use crate::failpoint;
use crate::run::prepare;

/// More pieces than a snapshot of any cluster has.
const MOST: usize = 1_000;

/// What was there before the first write, on its way to where it is kept.
pub(crate) struct Before {
    workflows: String,
    /// Nothing where it is kept already, or could not be taken.
    packed: Option<Packed>,
    kept: Cell<bool>,
}

impl Before {
    /// Nothing that would have to be kept.
    pub(crate) fn nothing() -> Self {
        Self { workflows: String::new(), packed: None, kept: Cell::new(true) }
    }

    /// Keeps it, once. The namespace must be there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn keep(&self, cluster: &Cluster, say: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        let Some(packed) = self.packed.as_ref().filter(|_| !self.kept.get()) else { return Ok(()) };
        let collection = path::config_maps(&self.workflows);
        for (number, object) in self.pieces() {
            let point = if number == 0 { SNAPSHOT.to_owned() } else { format!("{SNAPSHOT} {number}") };
            failpoint::write(&format!("ConfigMap {point}"));
            match cluster.create(&collection, &object).await {
                // Whoever prepares the same cluster at the same time has noted the same.
                Err(error) if !error.is_conflict() => return Err(error.into()),
                _ => {}
            }
        }
        self.kept.set(true);
        say(&format!("ConfigMap {SNAPSHOT}: the {} objects that were there before, by name", packed.objects));
        Ok(())
    }

    /// The same for a program that keeps it by other means: a list of objects, to be made one after the other once their namespace
    /// is there. Empty where nothing has to be kept.
    pub(crate) fn list(&self) -> Value {
        let items: Vec<Value> = self.pieces().map(|(_, object)| object).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    }

    /// What it is kept in, by number. The first piece last: it says that all of them are there.
    fn pieces(&self) -> impl Iterator<Item = (usize, Value)> {
        let packed = self.packed.iter();
        packed.flat_map(move |packed| {
            let pieces = packed.pieces.iter().enumerate().rev();
            pieces.map(move |(number, piece)| (number, config_map(&self.workflows, packed, number, piece)))
        })
    }
}

fn config_map(namespace: &str, packed: &Packed, number: usize, piece: &[u8]) -> Value {
    let annotations = json!({PIECES_ANNOTATION: packed.pieces.len().to_string(), DIGEST_ANNOTATION: packed.digest});
    let data = base64::engine::general_purpose::STANDARD.encode(piece);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": packed.name(number), "namespace": namespace, "annotations": annotations,
            "labels": {MANAGED_BY: "forge", SNAPSHOT_LABEL: "phase-0"},
        },
        // Nobody has a reason to change what was.
        "immutable": true,
        "binaryData": {SNAPSHOT_KEY: data},
    })
}

/// Looks at what is there, where nothing was prepared yet and no snapshot is kept. Reads only.
///
/// # Errors
/// When something cannot be read: whoever may not look cannot know.
pub(crate) async fn snapshot(cluster: &Cluster, workflows: &str, argocd: &str) -> Result<Before, Failure> {
    let looked = async {
        let kept = cluster.get(&path::object(&path::config_maps(workflows), SNAPSHOT)).await?;
        // A platform that is there already is not what was there before it.
        if kept.is_some() || prepare::prepared(cluster, workflows, argocd).await?.is_some() {
            return Ok(Before::nothing());
        }
        let packed = Snapshot::of(&take(cluster, None).await?).packed();
        let packed = packed.map_err(|error| Failure::new(Code::SnapshotUnusable, error.to_string()))?;
        Ok(Before { workflows: workflows.to_owned(), packed: Some(packed), kept: Cell::new(false) })
    };
    looked.await.map_err(|mut failure: Failure| {
        failure.message = format!(
            "what is in the cluster is not noted, so a teardown has nothing to compare its end with: {}",
            failure.message
        );
        failure
    })
}

/// The same, and nothing where it cannot be read: `say` hears why. Who bootstraps goes on without it.
pub(crate) async fn snapshot_or_note(
    cluster: &Cluster,
    (workflows, argocd): (&str, &str),
    say: &mut dyn FnMut(&str),
) -> Before {
    snapshot(cluster, workflows, argocd).await.unwrap_or_else(|failure| {
        say(&failure.message);
        Before::nothing()
    })
}

/// The snapshot that is kept; nothing where there is none.
///
/// # Errors
/// When it is not what was stored, or may not be read.
pub(crate) async fn stored(cluster: &Cluster, workflows: &str) -> Result<Option<Snapshot>, Failure> {
    let collection = path::config_maps(workflows);
    let Some(first) = cluster.get(&path::object(&collection, SNAPSHOT)).await? else { return Ok(None) };
    let unusable = |why: &str| {
        Failure::new(Code::SnapshotUnusable, format!("ConfigMap `{SNAPSHOT}` in namespace `{workflows}`: {why}"))
            .hint("without it a teardown tells of everything that carries Forge's marks, and compares with nothing")
    };
    if !is_ours(&first) {
        return Err(unusable("it is somebody else's"));
    }
    let noted = |annotation: &str| first.pointer("/metadata/annotations")?.get(annotation)?.as_str();
    let digest = noted(DIGEST_ANNOTATION).and_then(|text| text.parse::<Digest>().ok());
    let pieces = noted(PIECES_ANNOTATION).and_then(|text| text.parse::<usize>().ok());
    let Some((digest, pieces)) = digest.zip(pieces.filter(|pieces| (1..=MOST).contains(pieces))) else {
        return Err(unusable("it does not say of how many pieces it is the first"));
    };
    let mut bytes = content(&first).ok_or_else(|| unusable("it holds no data"))?;
    for name in Snapshot::names(&digest, pieces).into_iter().skip(1) {
        let piece = cluster.get(&path::object(&collection, &name)).await?;
        let piece = piece.as_ref().and_then(content);
        bytes.extend(piece.ok_or_else(|| unusable(&format!("its piece `{name}` is missing")))?);
    }
    Snapshot::unpacked(&bytes, &digest).map(Some).map_err(|why| unusable(&why))
}

/// What a piece holds.
fn content(config_map: &Value) -> Option<Vec<u8>> {
    let data = config_map.pointer("/binaryData")?.get(SNAPSHOT_KEY)?.as_str()?;
    base64::engine::general_purpose::STANDARD.decode(data).ok()
}
