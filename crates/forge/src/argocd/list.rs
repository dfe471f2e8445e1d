//! The list of all Applications, read while it arrives: one Application is whole in memory at a time, however many
//! there are and however large their statuses.
//!
//! Whoever lists again says what is known: of an Application that has not changed since only its metadata is read, and the rest
//! is searched for its end, string by string, so that a list every few seconds costs what has changed and hardly what there is.
//!
//! Argo CD's own way to make it smaller cannot be used: `fields=` of the list knows a fixed set of fields, without
//! `metadata.resourceVersion`, revisions, conditions and the infos of an operation, which the gate lives on.

use std::borrow::Cow;
use std::fmt;

use forge_core::name::ApplicationId;
use futures::{AsyncRead, AsyncReadExt as _};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};

use super::{Application, Pruned};
use crate::cluster::ClusterError;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// In how much an item is: the list, and its array.
const AROUND: usize = 2;

/// The newest version of an Application that was read before; nothing for one that never was.
pub(super) type Versions<'v> = &'v (dyn Fn(&ApplicationId) -> Option<u64> + Sync);

/// An Application of a list.
#[derive(Debug)]
pub(super) enum Found {
    /// As it was when it was read before, or older.
    Known(ApplicationId),
    /// Never read, or changed since.
    New(Box<Application>),
}

/// Reads a list to its end; one that was cut off is an error, never a short list (INV-10).
pub(super) async fn read(body: impl AsyncRead, known: Versions<'_>) -> Result<Vec<Found>, ClusterError> {
    let mut body = std::pin::pin!(body);
    let mut chunk = vec![0; CHUNK];
    let mut frames = Frames::default();
    // By number of its frame; nothing where the object has no usable name.
    let mut found = Vec::new();
    loop {
        let length = body.read(&mut chunk).await.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        let Some(arrived) = chunk.get(..length).filter(|arrived| !arrived.is_empty()) else { break };
        frames.push(arrived, |item| {
            found.push(application(item, known)?);
            Ok(())
        })?;
    }
    let items = frames.end()?;
    Ok(items.into_iter().filter_map(|item| found.get_mut(item.frame)?.take()).collect())
}

fn application(item: &[u8], known: Versions<'_>) -> Result<Option<Found>, ClusterError> {
    if let Some(id) = metadata(item).and_then(|metadata| metadata.known(known)) {
        return Ok(Some(Found::Known(id)));
    }
    let Pruned(found) = serde_json::from_slice(item).map_err(|error| ClusterError::Unreadable(error.to_string()))?;
    Ok(found.map(|application| Found::New(Box::new(application))))
}

/// As much of an Application as tells whether it has changed, and no further: Argo CD writes it first, and what is long behind it.
fn metadata(item: &[u8]) -> Option<Metadata<'_>> {
    let mut found = None;
    // To whoever wants all of an object it is an error that not all of it was read.
    let _ = serde_json::Deserializer::from_slice(item).deserialize_map(UpToMetadata(&mut found));
    found
}

struct UpToMetadata<'f, 't>(&'f mut Option<Metadata<'t>>);

impl<'t> Visitor<'t> for UpToMetadata<'_, 't> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an Application")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "metadata" {
                *self.0 = Some(map.next_value()?);
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'t> {
    #[serde(borrow)]
    namespace: Cow<'t, str>,
    #[serde(borrow)]
    name: Cow<'t, str>,
    #[serde(borrow)]
    resource_version: Cow<'t, str>,
}

impl Metadata<'_> {
    /// The Application that has this metadata, if nothing newer than what is known is said of it.
    fn known(&self, known: Versions<'_>) -> Option<ApplicationId> {
        let id: ApplicationId = format!("{}/{}", self.namespace, self.name).parse().ok()?;
        let version: u64 = self.resource_version.parse().ok()?;
        (known(&id)? >= version).then_some(id)
    }
}

/// Takes the text of a list apart while it arrives. Every object as deep as an item is given away when it is whole; its number
/// stands for it in what is left, which is read at the end and tells what the items are.
#[derive(Default)]
struct Frames {
    /// What is left.
    rest: Vec<u8>,
    /// The object that is arriving.
    item: Vec<u8>,
    inside: bool,
    /// How many were given away.
    count: usize,
    /// How many objects and arrays are open.
    depth: usize,
    string: bool,
    escaped: bool,
}

impl Frames {
    fn push(
        &mut self,
        text: &[u8],
        mut give: impl FnMut(&[u8]) -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        let (mut from, mut next) = (0, 0);
        while let Some(byte) = text.get(next) {
            let at = next;
            next += 1;
            if self.string {
                // Most of a list is text, of which only its end is looked for.
                if !std::mem::take(&mut self.escaped) {
                    let left = text.get(at..).unwrap_or_default();
                    let Some(found) = memchr::memchr2(b'"', b'\\', left) else { break };
                    next += found;
                    self.escaped = left.get(found) == Some(&b'\\');
                    self.string = self.escaped;
                }
                continue;
            }
            match byte {
                b'"' => self.string = true,
                b'{' | b'[' => {
                    if self.depth == AROUND && *byte == b'{' {
                        self.rest.extend_from_slice(text.get(from..at).unwrap_or_default());
                        from = at;
                        self.inside = true;
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == AROUND && self.inside {
                        self.item.extend_from_slice(text.get(from..=at).unwrap_or_default());
                        from = at + 1;
                        give(&self.item)?;
                        self.item.clear();
                        self.inside = false;
                        self.rest.extend_from_slice(format!(r#"{{"frame":{}}}"#, self.count).as_bytes());
                        self.count += 1;
                    }
                }
                _ => {}
            }
        }
        let left = text.get(from..).unwrap_or_default();
        if self.inside { &mut self.item } else { &mut self.rest }.extend_from_slice(left);
        Ok(())
    }

    /// The items, when all has arrived. An empty list may say `null`, but it says that it is a list.
    fn end(self) -> Result<Vec<Item>, ClusterError> {
        if self.depth > 0 || self.string {
            return Err(ClusterError::Unreachable("a list of Applications was cut off".to_owned()));
        }
        let list: List = serde_json::from_slice(&self.rest).map_err(|error| {
            let class = if error.is_eof() { ClusterError::Unreachable } else { ClusterError::Unreadable };
            class(error.to_string())
        })?;
        match list.items {
            Some(items) => Ok(items),
            None if list.metadata.is_some() => Ok(Vec::new()),
            None => Err(ClusterError::Unreadable("a list of Applications has no items".to_owned())),
        }
    }
}

#[derive(Deserialize)]
struct List {
    metadata: Option<IgnoredAny>,
    items: Option<Vec<Item>>,
}

/// Where an item was.
#[derive(Deserialize)]
struct Item {
    frame: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    async fn listed(text: &str) -> Result<Vec<String>, ClusterError> {
        listed_again(text, &|_| None).await
    }

    async fn listed_again(text: &str, known: Versions<'_>) -> Result<Vec<String>, ClusterError> {
        let found = read(futures::io::Cursor::new(text.as_bytes()), known).await?;
        let said = |found: &Found| match found {
            Found::Known(id) => format!("{id} as before"),
            Found::New(application) => application.id.to_string(),
        };
        Ok(found.iter().map(said).collect())
    }

    fn application(name: &str) -> Value {
        // Larger than a chunk, so that it arrives in several.
        let noise = "x".repeat(CHUNK);
        json!({"metadata": {"namespace": "argocd", "name": name, "annotations": {"noise": noise}}})
    }

    #[tokio::test]
    async fn every_application_of_a_list_is_read_and_one_without_a_name_left_out() {
        let list = json!({"metadata": {}, "items": [application("a"), application("../b"), application("c")]});
        assert_eq!(listed(&list.to_string()).await.unwrap(), ["argocd/a", "argocd/c"]);
        assert!(listed(r#"{"metadata": {}, "items": null}"#).await.unwrap().is_empty());
        assert!(listed(r#"{"metadata": {}}"#).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_list_is_the_same_however_it_is_cut_into_pieces() {
        let odd = json!({"metadata": {"namespace": "argocd", "name": "a", "annotations": {"x": "}]\"\\{["}}, "l": [[{}], []]});
        let list =
            json!({"other": [{"a": 1}], "metadata": {"b": {"c": {}}}, "items": [odd, application("b")]}).to_string();
        for size in [1, 2, 3, 7, list.len()] {
            let mut frames = Frames::default();
            let mut given = Vec::new();
            for piece in list.as_bytes().chunks(size) {
                frames
                    .push(piece, |item| {
                        given.push(serde_json::from_slice::<Value>(item).unwrap());
                        Ok(())
                    })
                    .unwrap();
            }
            let items: Vec<&Value> = frames.end().unwrap().iter().map(|item| &given[item.frame]).collect();
            assert_eq!(items, [&odd, &application("b")], "{size}");
        }
    }

    #[tokio::test]
    async fn of_what_is_known_only_that_is_read_which_is_newer() {
        let at = |name: &str, version: &str| {
            let metadata = json!({"namespace": "argocd", "name": name, "resourceVersion": version});
            json!({"metadata": metadata, "spec": {"project": "p"}, "status": {"health": {"status": "Healthy"}}})
        };
        // The order of keys is nobody's promise, and a version that is no number says nothing.
        let last =
            r#"{"spec": {"project": "p"}, "metadata": {"namespace": "argocd", "name": "f", "resourceVersion": "7"}}"#;
        let items: Vec<String> = [at("a", "7"), at("b", "8"), at("c", "6"), at("d", "7"), at("e", "x")]
            .iter()
            .map(Value::to_string)
            .chain([last.to_owned()])
            .collect();
        let list = format!(r#"{{"metadata": {{}}, "items": [{}]}}"#, items.join(","));
        let known = |id: &ApplicationId| (id.name() != "d").then_some(7);
        let said = listed_again(&list, &known).await.unwrap();
        let wanted = ["a as before", "b", "c as before", "d", "e", "f as before"].map(|name| format!("argocd/{name}"));
        assert_eq!(said, wanted);
        // What is not read is still checked to be there to its end.
        let cut = listed(&list[..list.len() - 4]).await.unwrap_err();
        assert!(matches!(cut, ClusterError::Unreachable(_)), "{cut}");
    }

    #[tokio::test]
    async fn a_list_that_is_cut_off_or_is_none_is_an_error_and_never_short() {
        let list = json!({"metadata": {}, "items": [application("a"), application("b")]}).to_string();
        for end in [0, 10, CHUNK, list.len() - 1] {
            let error = listed(&list[..end]).await.unwrap_err();
            assert!(matches!(error, ClusterError::Unreachable(_)), "{end}: {error}");
        }
        for text in ["{}", "[]", r#"{"items": {}}"#, r#"{"items": [1]}"#, r#"{"items": [{"a"}]}"#, "{}}", "<html>"] {
            assert!(matches!(listed(text).await, Err(ClusterError::Unreadable(_))), "{text}");
        }
    }
}
