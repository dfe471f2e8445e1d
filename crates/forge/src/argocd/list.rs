//! The list of all Applications, read while it arrives: one Application is whole in memory at a time, however many
//! there are and however large their statuses.
//!
//! Whoever lists again says what is known: of an Application that has not changed since only its metadata is built, so that a
//! list every few seconds costs what has changed and hardly what there is.
//!
//! Argo CD's own way to make it smaller cannot be used: `fields=` of the list knows a fixed set of fields, without
//! `metadata.resourceVersion`, revisions, conditions and the infos of an operation, which the gate lives on.

use std::collections::BTreeMap;
use std::{fmt, io};

use forge_core::name::ApplicationId;
use futures::{AsyncRead, AsyncReadExt as _};
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::Application;
use crate::cluster::ClusterError;

/// Bytes that are handed over at once.
const CHUNK: usize = 64 << 10;

/// Applications that were read before, with the newest version of each.
pub(super) type Versions = BTreeMap<ApplicationId, u64>;

/// An Application of a list.
#[derive(Debug)]
pub(super) enum Found {
    /// As it was when it was read before, or older.
    Known(ApplicationId),
    /// Never read, or changed since.
    New(Box<Application>),
}

/// Reads a list to its end; one that was cut off is an error, never a short list (INV-10).
pub(super) async fn read(body: impl AsyncRead, known: Versions) -> Result<Vec<Found>, ClusterError> {
    let (sender, chunks) = mpsc::channel(4);
    let (done, listed) = oneshot::channel();
    let arriving = io::BufReader::new(Arriving { chunks, chunk: io::Cursor::default() });
    // A thread of its own: all that tokio has for what blocks may be waiting for a repository.
    let thread = std::thread::Builder::new().name("list".to_owned());
    let begun = thread.spawn(move || done.send(parse(arriving, &known)).is_ok());
    begun.map_err(|error| ClusterError::Unreachable(format!("failed to start a thread: {error}")))?;
    let mut body = std::pin::pin!(body);
    loop {
        let mut chunk = vec![0; CHUNK];
        let length = body.read(&mut chunk).await;
        let last = !matches!(length, Ok(1..));
        let chunk = length.map(|length| {
            chunk.truncate(length);
            chunk
        });
        // Who reads has given up: its answer says why.
        if sender.send(chunk).await.is_err() || last {
            break;
        }
    }
    drop(sender);
    match listed.await {
        Ok(Ok(listed)) => listed.applications(),
        Ok(Err(error)) if error.is_io() || error.is_eof() => Err(ClusterError::Unreachable(error.to_string())),
        Ok(Err(error)) => Err(ClusterError::Unreadable(error.to_string())),
        Err(error) => Err(ClusterError::Unreachable(error.to_string())),
    }
}

/// What has arrived, for a reader that blocks.
struct Arriving {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
}

impl io::Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let length = io::Read::read(&mut self.chunk, buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            match self.chunks.blocking_recv() {
                Some(chunk) => self.chunk = io::Cursor::new(chunk?),
                None => return Ok(0),
            }
        }
    }
}

fn parse(text: impl io::Read, known: &Versions) -> serde_json::Result<Listed> {
    let mut deserializer = serde_json::Deserializer::from_reader(text);
    let listed = List(known).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(listed)
}

/// What a list says.
#[derive(Default)]
struct Listed {
    has_metadata: bool,
    items: Option<Vec<Found>>,
}

impl Listed {
    /// An empty list may say `null`, but it says that it is a list.
    fn applications(self) -> Result<Vec<Found>, ClusterError> {
        match self.items {
            Some(items) => Ok(items),
            None if self.has_metadata => Ok(Vec::new()),
            None => Err(ClusterError::Unreadable("a list of Applications has no items".to_owned())),
        }
    }
}

/// A list, read with what is known.
struct List<'k>(&'k Versions);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Listed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Listed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Listed;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of Applications")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
        let mut listed = Listed::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => listed.has_metadata = map.next_value::<Option<IgnoredAny>>()?.is_some(),
                "items" => listed.items = map.next_value_seed(Items(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(listed)
    }
}

/// The items of a list; nothing where it says `null`.
struct Items<'k>(&'k Versions);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Option<Vec<Found>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Option<Vec<Found>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Applications")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element_seed(Item(self.0))? {
            found.extend(item);
        }
        Ok(Some(found))
    }
}

/// One of the list; nothing where the object has no usable name.
struct Item<'k>(&'k Versions);

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = Option<Found>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = Option<Found>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an Application")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        let mut same = None;
        // Metadata comes before everything that is large; where it does not, nothing but time is lost.
        while let Some(key) = map.next_key::<String>()? {
            if same.is_some() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: Value = map.next_value()?;
            if key == "metadata" {
                same = self.known(&value);
            }
            object.insert(key, value);
        }
        Ok(match same {
            Some(id) => Some(Found::Known(id)),
            None => Application::read(&Value::Object(object)).map(|application| Found::New(Box::new(application))),
        })
    }
}

impl Item<'_> {
    /// The Application that has this metadata, if nothing newer than what is known is said of it.
    fn known(&self, metadata: &Value) -> Option<ApplicationId> {
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
        let id: ApplicationId = format!("{}/{}", text("namespace"), text("name")).parse().ok()?;
        let version: u64 = text("resourceVersion").parse().ok()?;
        (*self.0.get(&id)? >= version).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn listed(text: &str) -> Result<Vec<String>, ClusterError> {
        listed_again(text, Versions::new()).await
    }

    async fn listed_again(text: &str, known: Versions) -> Result<Vec<String>, ClusterError> {
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
        let known = ["a", "b", "c", "e", "f"].map(|name| (format!("argocd/{name}").parse().unwrap(), 7));
        let said = listed_again(&list, Versions::from(known)).await.unwrap();
        let wanted = ["a as before", "b", "c as before", "d", "e", "f as before"].map(|name| format!("argocd/{name}"));
        assert_eq!(said, wanted);
        // What is not read is still checked to be there to its end.
        let cut = listed_again(&list[..list.len() - 4], Versions::new()).await.unwrap_err();
        assert!(matches!(cut, ClusterError::Unreachable(_)), "{cut}");
    }

    #[tokio::test]
    async fn a_list_that_is_cut_off_or_is_none_is_an_error_and_never_short() {
        let list = json!({"metadata": {}, "items": [application("a"), application("b")]}).to_string();
        for end in [0, 10, CHUNK, list.len() - 1] {
            let error = listed(&list[..end]).await.unwrap_err();
            assert!(matches!(error, ClusterError::Unreachable(_)), "{end}: {error}");
        }
        for text in ["{}", "[]", r#"{"items": {}}"#, "<html>"] {
            assert!(matches!(listed(text).await, Err(ClusterError::Unreadable(_))), "{text}");
        }
    }
}
