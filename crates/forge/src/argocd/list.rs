//! The list of all Applications, read while it arrives: one Application is whole in memory at a time, however many
//! there are and however large their statuses.
//!
//! Argo CD's own way to make it smaller cannot be used: `fields=` of the list knows a fixed set of fields, without
//! `metadata.resourceVersion`, revisions, conditions and the infos of an operation, which the gate lives on.

use std::io;

use futures::{AsyncRead, AsyncReadExt as _};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::Application;
use crate::cluster::ClusterError;

/// Bytes that are handed over at once.
const CHUNK: usize = 64 << 10;

/// Reads a list to its end; one that was cut off is an error, never a short list (INV-10).
pub(super) async fn read(body: impl AsyncRead) -> Result<Vec<Application>, ClusterError> {
    let (sender, chunks) = mpsc::channel(4);
    let (done, listed) = oneshot::channel();
    let arriving = io::BufReader::new(Arriving { chunks, chunk: io::Cursor::default() });
    // A thread of its own: all that tokio has for what blocks may be waiting for a repository.
    let thread = std::thread::Builder::new().name("list".to_owned());
    let begun = thread.spawn(move || done.send(serde_json::from_reader::<_, Listed>(arriving)).is_ok());
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

#[derive(Deserialize)]
struct Listed {
    metadata: Option<IgnoredAny>,
    items: Option<Vec<Item>>,
}

/// One of the list; nothing where the object has no usable name.
struct Item(Option<Application>);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Application::read(&Value::deserialize(deserializer)?)))
    }
}

impl Listed {
    /// An empty list may say `null`, but it says that it is a list.
    fn applications(self) -> Result<Vec<Application>, ClusterError> {
        match (self.items, self.metadata) {
            (Some(items), _) => Ok(items.into_iter().filter_map(|item| item.0).collect()),
            (None, Some(_)) => Ok(Vec::new()),
            (None, None) => Err(ClusterError::Unreadable("a list of Applications has no items".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn listed(text: &str) -> Result<Vec<String>, ClusterError> {
        let found = read(futures::io::Cursor::new(text.as_bytes())).await?;
        Ok(found.into_iter().map(|application| application.id.to_string()).collect())
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
