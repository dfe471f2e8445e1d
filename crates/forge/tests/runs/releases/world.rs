//! The registries of the world, as whoever builds behind a proxy reaches them: every host of theirs answers, by TLS, with a
//! manifest for whatever is asked for. Charts and kustomizations of others name images by tags there, and nothing of the world is
//! reached from here.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use forge_core::digest::Digest;
use forge_core::oci::media_type::{EMPTY, MANIFEST};
use forge_core::release::ImageReference;
use forge_testkit::http::Request;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

/// Hosts that images of public charts and kustomizations are kept on.
const HOSTS: [&str; 6] =
    ["ecr-public.aws.com", "ghcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io", "xpkg.crossplane.io"];
/// What an image without a tag means.
const LATEST: &str = "latest";

/// All of them, until the process ends.
pub(super) struct World {
    /// Where the proxy listens, as variables name it.
    pub(super) proxy: String,
    folder: TempDir,
}

impl World {
    pub(super) fn start() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = HOSTS.map(str::to_owned);
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = config.clone();
                // Who hung up needs no answer.
                thread::spawn(move || answer(stream, config));
            }
        });
        let world = Self { proxy, folder: tempfile::tempdir().unwrap() };
        std::fs::write(world.certificates(), certificate.pem()).unwrap();
        world
    }

    /// The file with the certificate that they have.
    pub(super) fn certificates(&self) -> PathBuf {
        self.folder.path().join("world.pem")
    }
}

/// What a tag of an image stands for, on all hosts.
pub(super) fn fixed(image: &ImageReference) -> Digest {
    Digest::of(manifest(&image.name(), image.tag().unwrap_or(LATEST)).as_bytes())
}

/// A manifest that is another one for every name and tag.
fn manifest(name: &str, tag: &str) -> String {
    let empty = json!({"mediaType": EMPTY, "digest": Digest::of(b"{}"), "size": 2});
    let annotations = json!({"org.opencontainers.image.ref.name": format!("{name}:{tag}")});
    json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": empty, "layers": [empty], "annotations": annotations,
    })
    .to_string()
}

/// One connection through the proxy: to whom, and there one request for a manifest.
fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    let asked = Request::read(&stream)?;
    let (host, _) = asked.uri.rsplit_once(':').filter(|_| asked.method == "CONNECT")?;
    (&stream).write_all(b"HTTP/1.1 200 x\r\n\r\n").ok()?;
    let mut stream = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&piece[..length]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1)?;
    let (status, body) = match target.strip_prefix("/v2/").and_then(|rest| rest.rsplit_once("/manifests/")) {
        Some((repository, tag)) => (200, manifest(&format!("{host}/{repository}"), tag)),
        None => (404, String::new()),
    };
    let text = format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-type: {MANIFEST}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}
