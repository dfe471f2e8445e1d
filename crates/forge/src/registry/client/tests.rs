use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use forge_core::oci::{Artifact, Tree};
use forge_testkit::registry::{Access as Required, Fault, Registry as Served, TOKEN};
use serde_json::json;

use super::super::credentials::Credentials;
use super::*;

/// `me:s3cret`, as it is sent.
const BASIC: &str = "Basic bWU6czNjcmV0";
const REPOSITORY: &str = "releases/shop/api";

/// Waits so little that a test is over soon, and so long that a busy machine does not end it.
fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(1),
        request: Duration::from_secs(5),
        whole: Duration::from_secs(10),
        retries: 4,
        pause: Duration::from_millis(5),
        retry_after: Duration::from_secs(2),
    }
}

fn client(credentials: Credentials) -> Registry {
    Registry::new(Options { credentials, patience: patience(), ..Options::default() }).unwrap()
}

fn anonymous() -> Registry {
    client(Credentials::None)
}

fn repository(served: &Served) -> RepositoryName {
    format!("{}/{REPOSITORY}", served.host()).parse().unwrap()
}

/// Credentials `me:s3cret` for these hosts, in a file that goes with the folder.
fn credentials(hosts: &[&str]) -> (tempfile::TempDir, Credentials) {
    let folder = tempfile::tempdir().unwrap();
    let entries: serde_json::Map<String, Value> =
        hosts.iter().map(|host| ((*host).to_owned(), json!({"username": "me", "password": "s3cret"}))).collect();
    let file = folder.path().join("config.json");
    std::fs::write(&file, json!({"auths": entries}).to_string()).unwrap();
    (folder, Credentials::Named(file))
}

fn blob(bytes: &[u8]) -> Descriptor {
    Layout::default().blob("application/octet-stream", bytes.to_vec())
}

/// Bytes that differ from each other, so that what is put together wrongly shows.
fn large() -> Vec<u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
}

async fn read(registry: &Registry, of: &RepositoryName, what: &Descriptor) -> Result<Vec<u8>, RegistryError> {
    let mut sink: Vec<u8> = Vec::new();
    registry.blob(of, what, 10 << 20, &mut sink).await?;
    Ok(sink)
}

/// A manifest with one layer, whose blobs the layout holds.
fn artifact(kind: &str, subject: Option<&Descriptor>) -> (Tree, Descriptor) {
    let mut layout = Layout::default();
    let layers = [layout.blob("text/plain", kind.as_bytes().to_vec())];
    let annotations: Annotations = [("a".to_owned(), "1".to_owned())].into();
    let made = layout.artifact(&Artifact { subject, ..Artifact::new(kind, &layers, &annotations) });
    layout.offer(made.clone(), None);
    (layout.tree(), made)
}

async fn push_all(
    registry: &Registry,
    to: &RepositoryName,
    kind: &str,
    subject: Option<&Descriptor>,
    tag: Option<&str>,
) -> Descriptor {
    let (tree, made) = artifact(kind, subject);
    let limits = forge_core::release::Limits::default();
    crate::registry::push(registry, to, &tree, &made, tag, &limits).await.unwrap();
    made
}

#[tokio::test]
async fn what_is_pushed_is_found_by_tag_and_by_digest() {
    let served = Served::start().unwrap();
    let (registry, of) = (anonymous(), repository(&served));
    let made = push_all(&registry, &of, "application/x", None, Some("v1")).await;
    assert_eq!(served.tag(REPOSITORY, "v1"), Some(made.digest.clone()));
    for reference in [Reference::Tag("v1".to_owned()), Reference::Digest(made.digest.clone())] {
        let (found, bytes) = registry.manifest(&of, &reference, 4 << 20).await.unwrap();
        assert_eq!((&found.digest, found.size), (&made.digest, bytes.len() as u64));
        assert_eq!(found.media_type, media_type::MANIFEST);
        assert_eq!(found.artifact_type.as_deref(), Some("application/x"));
    }
    let layer = blob(b"application/x");
    assert_eq!(read(&registry, &of, &layer).await.unwrap(), b"application/x");
    assert_eq!(read(&registry, &of, &blob(b"")).await.unwrap(), b"");
    // What is there is not sent again.
    served.forget();
    push_all(&registry, &of, "application/x", None, Some("v1")).await;
    assert!(served.requests().iter().all(|request| request.method != "POST"), "{:?}", served.requests());
    // And whole, into another repository.
    let other: RepositoryName = format!("{}/copies", served.host()).parse().unwrap();
    let mut layout = Layout::default();
    let limits = forge_core::release::Limits::default();
    let reference = Reference::Tag("v1".to_owned());
    let fetched = crate::registry::fetch(&registry, &of, &reference, &limits, &mut layout).await.unwrap();
    crate::registry::push(&registry, &other, &layout.tree(), &fetched, Some("v2"), &limits).await.unwrap();
    assert_eq!(served.tag("copies", "v2"), Some(made.digest));
}

#[tokio::test]
async fn what_is_missing_or_too_large_is_said_to_be() {
    let served = Served::start().unwrap();
    let (registry, of) = (anonymous(), repository(&served));
    let reference = Reference::Tag("v1".to_owned());
    let missing = registry.manifest(&of, &reference, 100).await.unwrap_err();
    assert!(missing.is_missing() && missing.to_string().contains(":v1"), "{missing}");
    assert_eq!(missing.code(), Code::ReleaseMissing);
    assert!(read(&registry, &of, &blob(b"x")).await.unwrap_err().is_missing());
    assert!(registry.tags(&of).await.unwrap_err().is_missing());
    assert_eq!(served.requests().len(), 3, "nothing of this is asked again");
    served.put_manifest(REPOSITORY, media_type::MANIFEST, &[b' '; 101], Some("v1"));
    let error = registry.manifest(&of, &reference, 100).await.unwrap_err();
    assert_eq!(error.code(), Code::ReleaseTooLarge);
    served.put_blob(REPOSITORY, &large());
    served.forget();
    let error = registry.blob(&of, &blob(&large()), 1000, &mut Vec::<u8>::new()).await.unwrap_err();
    assert_eq!(error.code(), Code::ReleaseTooLarge);
    assert!(served.requests().is_empty(), "what is too large is not asked for");
    served.fail("GET", "/manifests/", 1, Fault::Flood);
    assert_eq!(registry.manifest(&of, &reference, 100_000).await.unwrap_err().code(), Code::ReleaseTooLarge);
}

#[tokio::test]
async fn a_blob_that_is_cut_off_is_taken_up_where_it_ended() {
    let served = Served::start().unwrap();
    let (registry, of, bytes) = (anonymous(), repository(&served), large());
    served.put_blob(REPOSITORY, &bytes);
    for ranges in [true, false] {
        served.ranges(ranges);
        for faults in [
            vec![Fault::Truncate(100_000)],
            vec![Fault::Stall(300_000)],
            vec![Fault::Truncate(1), Fault::Cut, Fault::Status(503), Fault::Status(429)],
        ] {
            served.heal();
            served.forget();
            for fault in &faults {
                served.fail("GET", "/blobs/", 1, fault.clone());
            }
            assert_eq!(read(&registry, &of, &blob(&bytes)).await.unwrap(), bytes, "{faults:?}");
            let requests = served.requests();
            assert_eq!(requests.len(), faults.len() + 1, "{faults:?}");
            assert!(requests.last().unwrap().range.is_some(), "{faults:?}");
        }
    }
}

#[tokio::test]
async fn other_bytes_than_were_asked_for_are_never_believed() {
    let served = Served::start().unwrap();
    let (registry, of, bytes) = (anonymous(), repository(&served), large());
    served.put_blob(REPOSITORY, &bytes);
    let mut other = bytes.clone();
    other[1000] ^= 1;
    let size = bytes.len() as u64;
    for fault in [
        Fault::Bytes(other),
        Fault::Bytes(bytes[1..].to_vec()),
        Fault::Bytes([&bytes[..], b"x"].concat()),
        Fault::Length(size - 1),
        Fault::Length(size + 1),
    ] {
        served.heal();
        served.fail("GET", "/blobs/", 100, fault.clone());
        let error = read(&registry, &of, &blob(&bytes)).await.unwrap_err();
        assert_eq!(error.code(), Code::RegistryLied, "{fault:?}: {error}");
    }
    served.heal();
    let digest = served.put_manifest(REPOSITORY, media_type::MANIFEST, br#"{"mediaType":"application/y"}"#, Some("v1"));
    let tag = Reference::Tag("v1".to_owned());
    let error = registry.manifest(&of, &tag, 1000).await.unwrap_err();
    assert!(error.code() == Code::RegistryLied && error.to_string().contains("application/y"), "{error}");
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    let by_digest = Reference::Digest(Digest::of(b"{}"));
    for (reference, fault) in [
        (&by_digest, Fault::Bytes(b"[]".to_vec())),
        (&tag, Fault::Digest(digest.to_string())),
        (&by_digest, Fault::Digest(digest.to_string())),
    ] {
        served.heal();
        served.fail("GET", "/manifests/", 100, fault.clone());
        let error = registry.manifest(&of, reference, 1000).await.unwrap_err();
        assert_eq!(error.code(), Code::RegistryLied, "{fault:?}: {error}");
    }
    // A moment later it is well again, without anything being started again.
    served.heal();
    served.fail("GET", "/manifests/", 1, Fault::Bytes(b"[]".to_vec()));
    assert_eq!(registry.manifest(&of, &by_digest, 1000).await.unwrap().1, b"{}");
}

#[tokio::test]
async fn every_trouble_has_its_class_and_its_end() {
    let served = Served::start().unwrap();
    let (registry, of) = (anonymous(), repository(&served));
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    let tag = Reference::Tag("v1".to_owned());
    let patience = Patience { idle: Duration::from_millis(200), ..patience() };
    let hasty = Registry::new(Options { patience, ..Options::default() }).unwrap();
    for (fault, code, tries) in [
        (Fault::Status(400), Code::RegistryRefused, 1),
        (Fault::Status(403), Code::RegistryRefused, 1),
        (Fault::Status(404), Code::ReleaseMissing, 1),
        (Fault::Status(429), Code::RegistryUnavailable, 5),
        (Fault::Status(500), Code::RegistryUnavailable, 5),
        (Fault::Status(503), Code::RegistryUnavailable, 5),
        (Fault::RetryAfter(429, "0".to_owned()), Code::RegistryUnavailable, 5),
        // Longer than anybody waits.
        (Fault::RetryAfter(429, "3600".to_owned()), Code::RegistryUnavailable, 1),
        (Fault::Cut, Code::RegistryUnavailable, 5),
        (Fault::Truncate(1), Code::RegistryUnavailable, 5),
        (Fault::Stall(1), Code::RegistryTimeout, 5),
        (Fault::Stall(0), Code::RegistryTimeout, 5),
    ] {
        let registry = if code == Code::RegistryTimeout { &hasty } else { &registry };
        served.heal();
        served.forget();
        served.fail("GET", "/manifests/", 100, fault.clone());
        let began = Instant::now();
        let error = registry.manifest(&of, &tag, 1000).await.unwrap_err();
        assert_eq!(error.code(), code, "{fault:?}: {error}");
        assert_eq!(served.requests().len(), tries, "{fault:?}");
        assert!(began.elapsed() < Duration::from_secs(9), "{fault:?}");
    }
    served.heal();
    assert!(registry.manifest(&of, &tag, 1000).await.is_ok());
    // Nobody is there at all.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody: RepositoryName = format!("{free}/a").parse().unwrap();
    assert_eq!(registry.manifest(&nobody, &tag, 1000).await.unwrap_err().code(), Code::RegistryUnavailable);
}

#[tokio::test]
async fn a_registry_that_says_when_to_come_again_is_waited_for() {
    let served = Served::start().unwrap();
    let (registry, of) = (anonymous(), repository(&served));
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    served.fail("GET", "/manifests/", 1, Fault::RetryAfter(429, "1".to_owned()));
    let began = Instant::now();
    registry.manifest(&of, &Reference::Tag("v1".to_owned()), 1000).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_that_drips_is_not_waited_for_beyond_the_whole_time() {
    let served = Served::start().unwrap();
    let of = repository(&served);
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    served.fail("GET", "/manifests/", 100, Fault::Stall(1));
    let patience = Patience { idle: Duration::from_secs(60), whole: Duration::from_millis(300), ..patience() };
    let registry = Registry::new(Options { patience, ..Options::default() }).unwrap();
    let began = Instant::now();
    let error = registry.manifest(&of, &Reference::Tag("v1".to_owned()), 1000).await.unwrap_err();
    assert_eq!(error.code(), Code::RegistryTimeout);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn credentials_are_said_when_they_are_asked_for_and_to_whom_they_are_for() {
    let served = Served::start().unwrap();
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    let (of, tag) = (repository(&served), Reference::Tag("v1".to_owned()));
    let (_kept, mine) = credentials(&[&served.host()]);
    served.require(Required::Basic { username: "me".to_owned(), password: "s3cret".to_owned() });
    let registry = client(mine.clone());
    registry.manifest(&of, &tag, 1000).await.unwrap();
    registry.manifest(&of, &tag, 1000).await.unwrap();
    let said: Vec<_> = served.requests().into_iter().map(|request| request.authorization).collect();
    let basic = Some(BASIC.to_owned());
    assert_eq!(said, [None, basic.clone(), basic], "they are said when asked for, and then remembered");
    // Others are of no use here, and none are a reason to say so.
    let (_kept, others) = credentials(&["registry.example.com"]);
    for credentials in [others, Credentials::None] {
        let error = client(credentials).manifest(&of, &tag, 1000).await.unwrap_err();
        assert_eq!(error.code(), Code::RegistryRefused);
        assert!(error.to_string().contains("there are none"), "{error}");
    }
    served.require(Required::Basic { username: "me".to_owned(), password: "changed".to_owned() });
    for registry in [&registry, &client(mine)] {
        let failure = Failure::from(registry.manifest(&of, &tag, 1000).await.unwrap_err());
        assert_eq!(failure.code, Code::RegistryRefused);
        let text = format!("{} {:?}", failure.message, failure.hint);
        assert!(text.contains("log in") && !text.contains("s3cret") && !text.contains("bWU6"), "{text}");
    }
}

#[tokio::test]
async fn the_registrys_own_token_service_gets_credentials_and_its_token_is_used() {
    let served = Served::start().unwrap();
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    let (of, tag) = (repository(&served), Reference::Tag("v1".to_owned()));
    let password = Some(("me".to_owned(), "s3cret".to_owned()));
    served.require(Required::Token { realm: None, password, refresh: Some("r1".to_owned()) });
    let (_kept, mine) = credentials(&[&served.host()]);
    client(mine).manifest(&of, &tag, 1000).await.unwrap();
    let requests = served.requests();
    let said: Vec<_> = requests.iter().map(|request| request.authorization.as_deref()).collect();
    let token = format!("Bearer {TOKEN}");
    assert_eq!(said, [None, Some(BASIC), Some(token.as_str())]);
    // Only what is needed is asked for, whatever the registry would have us ask for.
    let asked = &requests[1].target;
    assert!(asked.contains("scope=repository%3Areleases%2Fshop%2Fapi%3Apull") && !asked.contains("delete"), "{asked}");
    // A token to get tokens with is sent in the body, and to nobody but the service.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, json!({"auths": {served.host(): {"identitytoken": "r1"}}}).to_string()).unwrap();
    served.forget();
    client(Credentials::Named(file.clone())).manifest(&of, &tag, 1000).await.unwrap();
    let methods: Vec<_> = served.requests().into_iter().map(|request| request.method).collect();
    assert_eq!(methods, ["GET", "POST", "GET"]);
    // One that the registry takes as it is goes past the service.
    std::fs::write(&file, json!({"auths": {served.host(): {"registrytoken": TOKEN}}}).to_string()).unwrap();
    served.forget();
    client(Credentials::Named(file)).manifest(&of, &tag, 1000).await.unwrap();
    assert!(served.requests().iter().all(|request| !request.target.starts_with("/token")));
}

#[tokio::test]
async fn what_a_registry_repeats_of_credentials_is_not_passed_on() {
    let served = Served::start().unwrap();
    let (of, tag) = (repository(&served), Reference::Tag("v1".to_owned()));
    let (_kept, mine) = credentials(&[&served.host()]);
    let told = async |message: &str| {
        let body = json!({"errors": [{"code": "DENIED", "message": message}]}).to_string();
        served.heal();
        served.fail("GET", "/manifests/", usize::MAX, Fault::Bytes(body.into_bytes()));
        let failure = Failure::from(client(mine.clone()).manifest(&of, &tag, 1000).await.unwrap_err());
        format!("{} {:?}", failure.message, failure.hint)
    };
    let (me, secret) = ("me".to_owned(), "s3cret".to_owned());
    let basic = Required::Basic { username: me.clone(), password: "changed".to_owned() };
    let token = Required::Token { realm: None, password: Some((me, secret)), refresh: None };
    for (required, said) in [(basic, "bWU6czNjcmV0"), (token, TOKEN)] {
        served.require(required);
        for message in [format!("who is {said}?"), "me with s3cret is nobody".to_owned()] {
            let text = told(&message).await;
            assert!(!text.contains(said) && !text.contains("s3cret") && !text.contains("DENIED"), "{text}");
        }
        let text = told("nobody").await;
        assert!(text.contains("DENIED: nobody"), "{text}");
    }
}

#[tokio::test]
async fn a_token_service_elsewhere_gets_no_credentials() {
    let (served, elsewhere) = (Served::start().unwrap(), Served::start().unwrap());
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    let (of, tag) = (repository(&served), Reference::Tag("v1".to_owned()));
    let realm = Some(format!("http://{}/token", elsewhere.host()));
    served.require(Required::Token { realm, password: None, refresh: None });
    // Not even those that are for it: what it gives for them would go to the registry.
    let (_kept, mine) = credentials(&[&served.host(), &elsewhere.host()]);
    client(mine.clone()).manifest(&of, &tag, 1000).await.unwrap();
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].authorization, None);
    // One that gives nothing to strangers leaves us with nothing.
    let password = Some(("me".to_owned(), "s3cret".to_owned()));
    elsewhere.require(Required::Token { realm: None, password, refresh: None });
    let failure = Failure::from(client(mine).manifest(&of, &tag, 1000).await.unwrap_err());
    assert_eq!(failure.code, Code::RegistryRefused);
    assert!(failure.hint.unwrap().contains("on another host"));
    assert!(elsewhere.requests().iter().all(|request| request.authorization.is_none()));
}

#[tokio::test]
async fn a_redirect_is_followed_without_credentials_and_never_to_where_one_must_not_go() {
    let (served, elsewhere) = (Served::start().unwrap(), Served::start().unwrap());
    let (bytes, of) = (large(), repository(&served));
    served.put_blob(REPOSITORY, &bytes);
    elsewhere.put_blob("cdn", &bytes);
    let (_kept, mine) = credentials(&[&served.host(), &elsewhere.host()]);
    served.require(Required::Basic { username: "me".to_owned(), password: "s3cret".to_owned() });
    let registry = client(mine);
    let what = blob(&bytes);
    // Known by now.
    assert_eq!(read(&registry, &of, &what).await.unwrap(), bytes);
    let place = format!("http://{}/v2/cdn/blobs/{}", elsewhere.host(), what.digest);
    served.fail("GET", "/blobs/", 1, Fault::Redirect(place));
    assert_eq!(read(&registry, &of, &what).await.unwrap(), bytes);
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].authorization, None);
    // On the same host they go on.
    let same = format!("/v2/{REPOSITORY}/blobs/{}?again", what.digest);
    served.fail("GET", "/blobs/", 1, Fault::Redirect(same));
    assert_eq!(read(&registry, &of, &what).await.unwrap(), bytes);
    // One that asks for credentials hears none.
    elsewhere.require(Required::Basic { username: "me".to_owned(), password: "s3cret".to_owned() });
    let place = format!("http://{}/v2/cdn/blobs/{}", elsewhere.host(), what.digest);
    served.fail("GET", "/blobs/", 1, Fault::Redirect(place));
    assert_eq!(read(&registry, &of, &what).await.unwrap_err().code(), Code::RegistryRefused);
    assert!(elsewhere.requests().iter().all(|request| request.authorization.is_none()));
    for place in [
        "http://registry.example.com/v2/a",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "ftp://registry.example.com/a",
        "http://me:s3cret@127.0.0.1/a",
    ] {
        served.fail("GET", "/blobs/", 1, Fault::Redirect(place.to_owned()));
        let error = read(&registry, &of, &what).await.unwrap_err();
        assert_eq!(error.code(), Code::RegistryRefused, "{place}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
    // In circles.
    served.heal();
    served.forget();
    served.fail("GET", "/blobs/", 100, Fault::Redirect(format!("/v2/{REPOSITORY}/blobs/x")));
    assert_eq!(read(&registry, &of, &what).await.unwrap_err().code(), Code::RegistryLied);
    assert!(served.requests().len() <= 30);
}

#[tokio::test]
async fn an_upload_location_elsewhere_gets_no_credentials() {
    let (served, elsewhere) = (Served::start().unwrap(), Served::start().unwrap());
    let of = repository(&served);
    served.require(Required::Basic { username: "me".to_owned(), password: "s3cret".to_owned() });
    let (_kept, mine) = credentials(&[&served.host(), &elsewhere.host()]);
    let registry = client(mine);
    let place = format!("http://{}/v2/{REPOSITORY}/blobs/uploads/1?state=x", elsewhere.host());
    // The first one asks who it is.
    served.fail("POST", "/uploads/", 2, Fault::Location(place));
    registry.push_blob(&of, &blob(b"x"), b"x").await.unwrap();
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].method.as_str(), &asked[0].authorization), ("PUT", &None));
    assert_eq!(elsewhere.content(REPOSITORY, &Digest::of(b"x")).as_deref(), Some(&b"x"[..]));
    served.heal();
    served.fail("POST", "/uploads/", 1, Fault::Location("http://registry.example.com/upload".to_owned()));
    let error = registry.push_blob(&of, &blob(b"y"), b"y").await.unwrap_err();
    assert_eq!(error.code(), Code::RegistryRefused, "{error}");
}

#[tokio::test]
async fn an_upload_that_fails_is_begun_again_and_never_stores_something_else() {
    let served = Served::start().unwrap();
    let (registry, of, bytes) = (anonymous(), repository(&served), large());
    for (method, fault) in [
        ("POST", Fault::Status(503)),
        ("POST", Fault::Cut),
        ("PUT", Fault::Cut),
        ("PUT", Fault::Status(500)),
        ("HEAD", Fault::Status(502)),
        // It was stored, and the answer is lost.
        ("PUT", Fault::Lost),
    ] {
        served.heal();
        served.lose(REPOSITORY, &Digest::of(&bytes));
        served.fail(method, "/blobs/", 1, fault.clone());
        registry.push_blob(&of, &blob(&bytes), &bytes).await.unwrap();
        assert_eq!(served.content(REPOSITORY, &Digest::of(&bytes)).as_ref(), Some(&bytes), "{method} {fault:?}");
    }
    served.forget();
    let error = registry.push_blob(&of, &blob(b"x"), b"y").await.unwrap_err();
    assert_eq!(error.code(), Code::ReleaseMalformed);
    assert!(served.requests().is_empty());
    served.fail("PUT", "/manifests/", 100, Fault::Digest(Digest::of(b"other").to_string()));
    let error = registry.push_manifest(&of, &blob(b"{}"), b"{}", Some("v1")).await.unwrap_err();
    assert_eq!(error.code(), Code::RegistryLied);
    for (status, code) in [(413, Code::RegistryRefused), (405, Code::RegistryRefused), (404, Code::RegistryRefused)] {
        served.heal();
        served.fail("PUT", "/manifests/", 100, Fault::Status(status));
        let error = registry.push_manifest(&of, &blob(b"{}"), b"{}", Some("v1")).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn tags_are_read_page_by_page_and_only_from_the_registry_itself() {
    let (served, elsewhere) = (Served::start().unwrap(), Served::start().unwrap());
    let (registry, of) = (anonymous(), repository(&served));
    let wanted: Vec<String> = (0..25).map(|number| format!("v{number:02}")).collect();
    for tag in &wanted {
        served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some(tag));
    }
    for page in [1000, 25, 10, 1] {
        served.page(page);
        assert_eq!(registry.tags(&of).await.unwrap(), wanted, "{page}");
    }
    served.page(10);
    let endless = format!("/v2/{REPOSITORY}/tags/list?n=1000");
    for place in [format!("http://{}/v2/x/tags/list", elsewhere.host()), endless] {
        served.fail("GET", "/tags/", 1000, Fault::Next(place));
        assert_eq!(registry.tags(&of).await.unwrap_err().code(), Code::RegistryLied);
        served.heal();
    }
    assert!(elsewhere.requests().is_empty());
    served.fail("GET", "/tags/", 100, Fault::Bytes(b"<html>".to_vec()));
    assert_eq!(registry.tags(&of).await.unwrap_err().code(), Code::RegistryLied);
}

#[tokio::test]
async fn what_speaks_of_something_is_found_whether_the_registry_lists_it_or_not() {
    for known in [true, false] {
        let served = Served::start().unwrap();
        served.referrers(known);
        let (registry, of) = (anonymous(), repository(&served));
        let subject = push_all(&registry, &of, "application/x", None, Some("v1")).await;
        assert!(registry.referrers(&of, &subject.digest, None).await.unwrap().is_empty());
        let one = push_all(&registry, &of, "application/one", Some(&subject), None).await;
        let two = push_all(&registry, &of, "application/two", Some(&subject), None).await;
        // Once more changes nothing.
        push_all(&registry, &of, "application/two", Some(&subject), None).await;
        let mut found = registry.referrers(&of, &subject.digest, None).await.unwrap();
        found.sort_by(|one, other| one.artifact_type.cmp(&other.artifact_type));
        assert_eq!(found, [one.clone(), two], "{known}");
        let found = registry.referrers(&of, &subject.digest, Some("application/one")).await.unwrap();
        assert_eq!(found, [one]);
        let listed = served.tag(REPOSITORY, &subject.referrers_tag());
        assert_eq!(listed.is_none(), known);
    }
}

#[tokio::test]
async fn more_than_anybody_has_is_refused() {
    let served = Served::start().unwrap();
    let (registry, of) = (anonymous(), repository(&served));
    let one = json!({"mediaType": "x", "digest": Digest::of(b"x"), "size": 1});
    let many = json!({"schemaVersion": 2, "manifests": vec![one; 1001]}).to_string();
    served.fail("GET", "/referrers/", 100, Fault::Bytes(many.into_bytes()));
    assert!(registry.referrers(&of, &Digest::of(b"y"), None).await.is_err());
    let tags: Vec<String> = (0..100_001).map(|number| number.to_string()).collect();
    served.fail("GET", "/tags/", 100, Fault::Bytes(json!({"tags": tags}).to_string().into_bytes()));
    served.put_manifest(REPOSITORY, media_type::MANIFEST, b"{}", Some("v1"));
    assert_eq!(registry.tags(&of).await.unwrap_err().code(), Code::ReleaseTooLarge);
}

#[test]
fn plain_http_is_for_this_machine_and_for_hosts_that_were_named() {
    let options = Options { plain_http: vec!["Registry.local:5000".to_owned()], ..Options::default() };
    let registry = Registry::new(options).unwrap();
    let scheme = |name: &str| {
        let of: RepositoryName = name.parse().unwrap();
        registry.call(&of, Method::GET, "tags/list", String::new()).unwrap().url.scheme().to_owned()
    };
    for plain in ["localhost:5000/a", "127.0.0.1:5000/a", "[::1]:5000/a", "registry.local:5000/a"] {
        assert_eq!(scheme(plain), "http", "{plain}");
    }
    for secure in ["registry.local/a", "registry.local:5001/a", "registry.example.com/a", "10.0.0.1:5000/a"] {
        assert_eq!(scheme(secure), "https", "{secure}");
    }
}

#[test]
fn challenges_are_read_however_they_are_written() {
    let read = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for &value in values {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        challenge(&headers)
    };
    let bearer = |realm: &str, service: &str| {
        Some(Challenge::Bearer(Asked { realm: realm.to_owned(), service: service.to_owned() }))
    };
    assert_eq!(read(&[]), None);
    assert_eq!(read(&["Negotiate abc=="]), None);
    assert_eq!(read(&["Basic realm=\"x, y\""]), Some(Challenge::Basic));
    assert_eq!(read(&["basic"]), Some(Challenge::Basic));
    let full = "Bearer realm=\"https://a/token?x=1,2\",service=\"s\",scope=\"repository:a:pull,push\"";
    assert_eq!(read(&[full]), bearer("https://a/token?x=1,2", "s"));
    assert_eq!(read(&["Basic realm=\"b\"", full]), bearer("https://a/token?x=1,2", "s"));
    assert_eq!(read(&["Basic realm=\"b\", Bearer realm=\"https://a\""]), bearer("https://a", ""));
    assert_eq!(read(&["bearer service = s , realm = https://a"]), bearer("https://a", "s"));
    assert_eq!(read(&["Bearer realm=\"a\\\"b\""]), bearer("a\"b", ""));
    for odd in ["Bearer", "Bearer service=\"s\"", "=,=,,", "Bearer ===", ",", "\"", "realm=\"x\""] {
        assert_eq!(read(&[odd]), None, "{odd}");
    }
    assert_eq!(read(&["Bearer realm=\"unfinished"]), bearer("unfinished", ""));
}

#[test]
fn only_a_link_to_the_next_page_is_one() {
    assert_eq!(next_page("</v2/a/tags/list?n=1&last=b>; rel=\"next\""), Some("/v2/a/tags/list?n=1&last=b"));
    assert_eq!(next_page("<x>;rel=next"), Some("x"));
    for other in ["", "x", "<x>", "<x>; rel=\"prev\"", "<x; rel=\"next\""] {
        assert_eq!(next_page(other), None, "{other}");
    }
}

/// A registry behind TLS that answers everything alike, and what it was asked.
fn behind_tls(answer: String) -> (SocketAddr, String, Arc<Mutex<Vec<String>>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rcgen::KeyPair::generate().unwrap();
    let names = ["registry.test".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key);
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut piece = [0; 8192];
            // A handshake that the client gives up ends the reading; then there is nobody to answer.
            let Ok(length) = stream.read(&mut piece) else { continue };
            hears.lock().unwrap().push(String::from_utf8_lossy(&piece[..length]).to_ascii_lowercase());
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (address, certificate.pem(), heard)
}

fn answered(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

#[tokio::test]
async fn tls_is_never_left_and_only_a_certificate_that_is_trusted_will_do() {
    let tag = Reference::Tag("v1".to_owned());
    let ask = async |address: SocketAddr, certificates: Option<String>, credentials: Credentials| {
        let resolved = vec![("registry.test".to_owned(), address)];
        let options = Options { credentials, certificates, resolved, patience: patience(), ..Options::default() };
        let of: RepositoryName = format!("registry.test:{}/a", address.port()).parse().unwrap();
        Registry::new(options).unwrap().manifest(&of, &tag, 1000).await
    };
    let (address, pem, heard) = behind_tls(answered("200 OK", "", "{}"));
    assert_eq!(ask(address, Some(pem), Credentials::None).await.unwrap().1, b"{}");
    assert_eq!(heard.lock().unwrap().len(), 1);
    let untrusted = ask(address, None, Credentials::None).await.unwrap_err();
    assert_eq!(untrusted.code(), Code::RegistryRefused, "{untrusted}");
    assert_eq!(heard.lock().unwrap().len(), 1, "it was not told what is wanted");
    // From there to plain HTTP leads no way: not for a blob that is elsewhere, not for a token.
    let plain = Served::start().unwrap();
    let redirect = format!("location: http://{}/v2/a/manifests/v1\r\n", plain.host());
    let (address, pem, _) = behind_tls(answered("307 Temporary Redirect", &redirect, ""));
    let refused = ask(address, Some(pem), Credentials::None).await.unwrap_err();
    assert_eq!(refused.code(), Code::RegistryRefused, "{refused}");
    let realm = format!("www-authenticate: Bearer realm=\"http://{}/token\"\r\n", plain.host());
    let (address, pem, heard) = behind_tls(answered("401 Unauthorized", &realm, ""));
    let (_kept, mine) = credentials(&[&format!("registry.test:{}", address.port())]);
    let refused = ask(address, Some(pem), mine).await.unwrap_err();
    assert_eq!(refused.code(), Code::RegistryRefused, "{refused}");
    assert!(plain.requests().is_empty(), "{:?}", plain.requests());
    assert!(heard.lock().unwrap().iter().all(|request| !request.contains("authorization")));
}
