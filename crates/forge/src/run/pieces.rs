//! The entries of a run as its ConfigMaps hold them, kept up to date. A piece is read when it has changed and not otherwise:
//! at a thousand nodes all of them are a megabyte of text, and something changes several times a second.

use std::collections::{BTreeMap, BTreeSet};

use forge_core::name::NodeId;
use forge_core::run::Entry;
use serde_json::Value;

use crate::cluster::Store;
use crate::recorder::read_entries;

/// Which pieces were read, by `namespace/name`.
#[derive(Default)]
pub(super) struct Pieces {
    read: BTreeMap<String, Piece>,
}

struct Piece {
    version: String,
    /// Whose entries it held.
    nodes: Vec<NodeId>,
}

impl Pieces {
    /// Brings entries, which must be those of the last time, up to date with the ConfigMaps.
    pub(super) fn update(&mut self, store: &Store, known: &BTreeSet<NodeId>, entries: &mut BTreeMap<NodeId, Entry>) {
        let (there, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.read).into_iter().partition(|(key, _)| store.contains_key(key));
        self.read = there.into_iter().collect();
        for node in gone.iter().flat_map(|(_, piece)| &piece.nodes) {
            entries.remove(node);
        }
        for (key, config_map) in store {
            let version = config_map.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
            let before = self.read.get(key);
            if before.is_some_and(|piece| !version.is_empty() && piece.version == version) {
                continue;
            }
            for node in before.into_iter().flat_map(|piece| &piece.nodes) {
                entries.remove(node);
            }
            let found = read_entries(config_map, known);
            let nodes = found.iter().map(|(node, _)| node.clone()).collect();
            entries.extend(found);
            self.read.insert(key.clone(), Piece { version: version.to_owned(), nodes });
        }
    }

    /// A piece holds something else than was read of it.
    pub(super) fn forget(&mut self, key: &str) {
        if let Some(piece) = self.read.get_mut(key) {
            piece.version.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(node: &str) -> NodeId {
        format!("argocd/{node}").parse().unwrap()
    }

    fn entry(node: &str, second: u32) -> String {
        json!({
            "node": format!("argocd/{node}"), "since": format!("2026-11-16T12:00:{second:02}Z"),
            "decision": {"type": "wait", "on": {"type": "application"}, "until": "2026-11-16T12:09:00Z"},
        })
        .to_string()
    }

    fn piece(number: usize, version: &str, entries: &[(&str, u32)]) -> (String, Value) {
        let name = format!("forge-run-r-{number}");
        let data: BTreeMap<String, String> =
            entries.iter().map(|(node, second)| (format!("argocd_{node}.json"), entry(node, *second))).collect();
        (format!("argo/{name}"), json!({"metadata": {"name": name, "resourceVersion": version}, "data": data}))
    }

    #[test]
    fn entries_follow_their_pieces_and_what_has_not_changed_is_not_read_again() {
        let known: BTreeSet<NodeId> = BTreeSet::from(["a", "b", "c"].map(id));
        let (mut pieces, mut entries) = (Pieces::default(), BTreeMap::new());
        let mut told = |store: &Store, forget: Option<&str>| -> Vec<String> {
            forget.into_iter().for_each(|key| pieces.forget(key));
            pieces.update(store, &known, &mut entries);
            let of = |(node, entry): (&NodeId, &Entry)| format!("{node} {}", entry.since.strftime("%S"));
            entries.iter().map(of).collect()
        };
        let mut store = Store::from([piece(1, "1", &[("a", 1), ("b", 1)]), piece(2, "2", &[("c", 1)])]);
        assert_eq!(told(&store, None), ["argocd/a 01", "argocd/b 01", "argocd/c 01"]);
        // Another text under the same version is nothing that an API server does; it shows that nobody looked.
        store.extend([piece(1, "1", &[("a", 9)]), piece(2, "3", &[("c", 2)])]);
        assert_eq!(told(&store, None), ["argocd/a 01", "argocd/b 01", "argocd/c 02"]);
        // What a piece does not hold any more is gone, and so is what cannot be read.
        assert_eq!(told(&store, Some("argo/forge-run-r-1")), ["argocd/a 09", "argocd/c 02"]);
        store.remove("argo/forge-run-r-2");
        assert_eq!(told(&store, None), ["argocd/a 09"]);
    }
}
