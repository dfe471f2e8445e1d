//! How tests put things into a registry that speaks plain HTTP, and look at what is there: what `forge` would not push, and what
//! it pushed. Nothing is tried again, nobody is asked for a password, and nothing is compared that the caller does not compare.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use forge_core::digest::Digest;
use forge_core::oci::media_type;

/// Longer than anything takes that is asked for here.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a registry answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub status: u16,
    /// By name, in lower case.
    pub headers: BTreeMap<String, String>,
    /// What came with it.
    pub body: Vec<u8>,
}

/// A registry, by its host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryClient {
    host: String,
}

impl RegistryClient {
    /// The one that listens there.
    pub fn new(host: &str) -> Self {
        Self { host: host.to_owned() }
    }

    /// Its host and port, as names of repositories begin.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Asks for something, and gives the answer, whatever it is.
    ///
    /// # Errors
    /// When nobody answers, or nothing that HTTP is.
    pub fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Answer> {
        let mut stream = TcpStream::connect(&self.host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // The old version: an answer ends where the connection does.
        let mut head =
            format!("{method} {target} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n", self.host, body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        read(&answer).ok_or_else(|| bad(format!("{} answers something that is not HTTP", self.host)))
    }

    /// The same, where only one of these answers will do.
    fn expect(&self, method: &str, target: &str, of: &str, body: &[u8], good: &[u16]) -> io::Result<Answer> {
        let name = if method == "GET" { "Accept" } else { "Content-Type" };
        let answer = self.ask(method, target, &[(name, of)], body)?;
        if good.contains(&answer.status) {
            return Ok(answer);
        }
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        Err(bad(format!("{method} {}{target}: {} {said}", self.host, answer.status)))
    }

    /// The bytes of a manifest, by tag or digest.
    ///
    /// # Errors
    /// When it is not there.
    pub fn manifest(&self, repository: &str, reference: &str) -> io::Result<Vec<u8>> {
        let target = format!("/v2/{repository}/manifests/{reference}");
        Ok(self.expect("GET", &target, media_type::MANIFEST, b"", &[200])?.body)
    }

    /// The bytes of a blob.
    ///
    /// # Errors
    /// When it is not there.
    pub fn blob(&self, repository: &str, digest: &Digest) -> io::Result<Vec<u8>> {
        Ok(self.expect("GET", &format!("/v2/{repository}/blobs/{digest}"), "*/*", b"", &[200])?.body)
    }

    /// Stores a blob.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub fn put_blob(&self, repository: &str, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(bytes);
        let begun = self.expect("POST", &format!("/v2/{repository}/blobs/uploads/"), BYTES, b"", &[202])?;
        let place = begun.headers.get("location").ok_or_else(|| bad("an upload goes nowhere".to_owned()))?;
        let own = format!("http://{}", self.host);
        let place = place.strip_prefix(&own).unwrap_or(place);
        let joint = if place.contains('?') { '&' } else { '?' };
        self.expect("PUT", &format!("{place}{joint}digest={digest}"), BYTES, bytes, &[201])?;
        Ok(digest)
    }

    /// Stores a manifest, under a tag if there is one.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub fn put_manifest(&self, repository: &str, of: &str, bytes: &[u8], tag: Option<&str>) -> io::Result<Digest> {
        let digest = Digest::of(bytes);
        let reference = tag.unwrap_or(digest.as_str());
        self.expect("PUT", &format!("/v2/{repository}/manifests/{reference}"), of, bytes, &[201])?;
        Ok(digest)
    }
}

const BYTES: &str = "application/octet-stream";

fn bad(message: String) -> io::Error {
    io::Error::other(message)
}

fn read(answer: &[u8]) -> Option<Answer> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|window| window == END)?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers = lines.filter_map(header).collect();
    Some(Answer { status, headers, body: answer.get(end + END.len()..)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn what_was_put_into_a_registry_is_there() {
        let client = RegistryClient::new(&Registry::start().unwrap().host());
        let blob = client.put_blob("a/b", b"blob").unwrap();
        assert_eq!((client.blob("a/b", &blob).unwrap(), &blob), (b"blob".to_vec(), &Digest::of(b"blob")));
        let manifest = client.put_manifest("a/b", media_type::MANIFEST, b"{}", Some("one")).unwrap();
        for reference in ["one", manifest.as_str()] {
            assert_eq!(client.manifest("a/b", reference).unwrap(), b"{}");
        }
        let missing = client.manifest("a/b", "two").unwrap_err().to_string();
        assert!(missing.contains("/v2/a/b/manifests/two: 404"), "{missing}");
    }

    #[test]
    fn an_answer_is_a_status_headers_and_all_that_follows() {
        let answer = read(b"HTTP/1.1 202 Accepted\r\nLocation: /a?b\r\nX: y: z\r\n\r\nbody\r\n\r\nmore").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (202, b"body\r\n\r\nmore".as_slice()));
        assert_eq!((answer.headers["location"].as_str(), answer.headers["x"].as_str()), ("/a?b", "y: z"));
        for odd in [b"".as_slice(), b"nothing", b"HTTP/1.1\r\n\r\n"] {
            assert_eq!(read(odd), None);
        }
    }
}
