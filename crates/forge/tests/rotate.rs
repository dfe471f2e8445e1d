//! `rotate` through the real binary, against an API server of our own with an Argo CD behind it that knows tokens: what is
//! done in which order, and that at no moment no stored token works. The real Argo CD is in `tests/runs/credentials.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use forge_core::preflight::Purpose;
use forge_core::rights::{self, Request};
use serde_json::{Value, json};

const SECRET: &str = "/api/v1/namespaces/argo/secrets/forge-argocd";
const ADMIN: &str = "/api/v1/namespaces/argocd/secrets/argocd-initial-admin-secret";
const OWN: &str = "/api/v1/namespaces/argocd/secrets/forge-argocd-admin";
const RECEIPT: &str = "/api/v1/namespaces/argocd/configmaps/forge-install-argo-cd";
const HEADER: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
const PROXY: &str = "/api/v1/namespaces/argocd/services/http:argocd-server:80/proxy/api/v1";

/// A cluster with one Secret, and the account of Argo CD.
#[derive(Default)]
struct Fake {
    secret: Value,
    version: u64,
    /// The account's tokens: id, when it was made, the token.
    tokens: Vec<(String, i64, String)>,
    /// The administrator's first password can be read.
    password: bool,
    /// The password that Argo CD accepts of him, and when it was changed, where it was.
    counts: String,
    changed: Option<&'static str>,
    /// The Secret with the one that bootstrap made.
    own: Option<Value>,
    /// The receipt of an Argo CD that Forge installed.
    receipt: Option<Value>,
    /// Another bootstrap does the same, and is a moment faster with every write.
    raced: bool,
    /// ConfigMap `forge-signatures`, where there is one.
    policy: Option<Value>,
    /// It is there, and the account may not read it.
    hidden: bool,
    /// Somebody else writes the Secret as soon as a token is made.
    busy: bool,
    /// The Secret is somebody else's.
    foreign: bool,
    /// What was changed, in order.
    log: Vec<String>,
    /// Everything that was asked for: method and path.
    asked: Vec<(String, String)>,
}

fn encoded(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn token(id: &str, issued: i64) -> String {
    let claims = json!({"sub": "forge:apiKey", "jti": id, "iat": issued, "exp": issued + 1_000_000_000});
    format!("e30.{}.c2ln", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string()))
}

impl Fake {
    /// With these tokens in the account; the Secret holds the last of them, or one that is in no account.
    fn new(ids: &[&str]) -> Self {
        let tokens = ids.iter().enumerate().map(|(n, id)| {
            let issued = 1_700_000_000 + i64::try_from(n).unwrap();
            ((*id).to_owned(), issued, token(id, issued))
        });
        let tokens: Vec<_> = tokens.collect();
        let gone = || ("gone".to_owned(), token("gone", 1));
        let (id, held) = tokens.last().map_or_else(gone, |(id, _, token)| (id.clone(), token.clone()));
        let data = json!({
            "token": encoded(&held), "token-id": encoded(&id), "server": encoded("http://argocd-server.argocd.svc"),
            "ca.crt": encoded("kept"),
        });
        Self { secret: data, version: 1, tokens, counts: "pass".to_owned(), ..Self::default() }
    }

    fn stored(&self, key: &str) -> Option<String> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(self.secret[key].as_str()?).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    /// Whoever reads the Secret now is accepted.
    fn works(&self) -> bool {
        self.tokens.iter().any(|(_, _, token)| Some(token) == self.stored("token").as_ref())
    }

    fn object(&self) -> Value {
        let labels = json!({"app.kubernetes.io/managed-by": if self.foreign { "somebody" } else { "forge" }});
        let version = self.version.to_string();
        let metadata =
            json!({"name": "forge-argocd", "namespace": "argo", "resourceVersion": version, "labels": labels});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": self.secret})
    }

    fn answer(&mut self, method: &str, path: &str, cookie: &str, body: &Value) -> (u16, Value) {
        self.asked.push((method.to_owned(), path.to_owned()));
        let known = self.tokens.iter().any(|(_, _, token)| cookie == format!("argocd.token={token}"));
        let known = known || cookie == "argocd.token=administrator";
        let refused = (401, json!({"code": 16, "message": "invalid session"}));
        match (method, path.strip_prefix(PROXY).unwrap_or(path)) {
            ("GET", SECRET) => (200, self.object()),
            ("PATCH", SECRET) => {
                let wanted = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                if wanted.is_some_and(|wanted| wanted != self.version.to_string()) {
                    return (409, json!({"kind": "Status", "code": 409, "message": "modified", "reason": "Conflict"}));
                }
                for (key, value) in body["data"].as_object().unwrap() {
                    self.secret[key] = value.clone();
                }
                self.version += 1;
                self.log.push(format!("store {}", self.stored("token-id").unwrap()));
                (200, self.object())
            }
            ("GET", ADMIN) if self.hidden => {
                (403, json!({"kind": "Status", "code": 403, "message": "secrets is forbidden", "reason": "Forbidden"}))
            }
            ("GET", ADMIN) if self.password => {
                let metadata = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
                (200, json!({"metadata": metadata, "data": {"password": encoded("pass")}}))
            }
            ("DELETE", ADMIN) => {
                self.password = false;
                self.log.push("delete the first password".to_owned());
                (200, json!({}))
            }
            ("GET", "/api/v1/namespaces/argocd/configmaps/forge-signatures") if self.policy.is_some() => {
                (200, self.policy.clone().unwrap())
            }
            ("GET", RECEIPT) if self.receipt.is_some() => (200, self.receipt.clone().unwrap()),
            ("GET", OWN) if self.own.is_some() => (200, self.own.clone().unwrap()),
            ("PATCH", OWN) => {
                let own = self.own.as_mut().unwrap();
                if self.raced {
                    own["metadata"]["resourceVersion"] = json!("2");
                    own["data"] = json!({"password": encoded("theirs")});
                }
                let wanted = body.pointer("/metadata/resourceVersion");
                if wanted.is_some_and(|wanted| *wanted != own["metadata"]["resourceVersion"]) {
                    return (409, json!({"kind": "Status", "code": 409, "message": "modified", "reason": "Conflict"}));
                }
                own["data"] = body["data"].clone();
                self.log.push("store another password".to_owned());
                (200, own.clone())
            }
            ("POST", "/api/v1/namespaces/argocd/secrets") => {
                self.own = Some(body.clone());
                self.log.push("store another password".to_owned());
                (201, body.clone())
            }
            ("GET", "/api/v1/namespaces/argocd/secrets/argocd-secret") => {
                let data = self.changed.map(|changed| json!({"admin.passwordMtime": encoded(changed)}));
                (200, json!({ "data": data }))
            }
            ("GET", "/session/userinfo") if known => (200, json!({"loggedIn": true, "username": "forge"})),
            ("GET", "/session/userinfo") => (200, json!({})),
            ("POST", "/session") if body["password"] == self.counts.as_str() => {
                (200, json!({"token": "administrator"}))
            }
            ("POST", "/session") => (401, json!({"code": 16, "message": "Invalid username or password"})),
            (_, path) if path.starts_with("/account/") && !known => refused,
            ("GET", "/account/forge") => {
                let listed = self.tokens.iter().map(|(id, issued, _)| json!({"id": id, "issuedAt": issued}));
                (200, json!({"name": "forge", "tokens": listed.collect::<Vec<_>>()}))
            }
            ("PUT", "/account/password") => {
                assert_eq!(body["currentPassword"], self.counts.as_str(), "{body}");
                self.counts = body["newPassword"].as_str().unwrap().to_owned();
                self.changed = Some("2026-01-01T00:05:00Z");
                self.log.push("change the password".to_owned());
                // The session is older than the password that counts now.
                if self.raced { refused } else { (200, json!({})) }
            }
            ("POST", "/account/forge/token") => {
                assert!(body["expiresIn"].as_i64().unwrap() >= 3600, "{body}");
                let (id, issued) = (body["id"].as_str().unwrap().to_owned(), 1_800_000_000);
                let made = token(&id, issued);
                self.tokens.push((id.clone(), issued, made.clone()));
                self.log.push(format!("make {id}"));
                self.version += u64::from(self.busy);
                (200, json!({"token": made}))
            }
            ("DELETE", path) if path.starts_with("/account/forge/token/") => {
                let id = path.rsplit('/').next().unwrap().to_owned();
                self.tokens.retain(|(known, _, _)| *known != id);
                self.log.push(format!("delete {id}"));
                (200, json!({}))
            }
            _ => (404, json!({"kind": "Status", "code": 404, "message": format!("no {path}"), "reason": "NotFound"})),
        }
    }
}

fn serve(fake: Arc<Mutex<Fake>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let fake = Arc::clone(&fake);
            std::thread::spawn(move || handle(&stream, &fake));
        }
    });
    port
}

fn handle(mut stream: &TcpStream, fake: &Mutex<Fake>) {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length, mut cookie) = (String::new(), 0, String::new());
    reader.read_line(&mut request).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "cookie" => cookie = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().split('?').next().unwrap());
    let (code, answer) = {
        let mut fake = fake.lock().unwrap();
        let worked = fake.works();
        let answer = fake.answer(method, path, &cookie, &body);
        assert!(fake.works() || !worked, "{method} {path} left nobody a token that works: {:?}", fake.log);
        answer
    };
    let answer = answer.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
}

/// Runs `forge rotate`.
fn rotate(fake: Fake, arguments: &[&str]) -> (i32, String, String, Arc<Mutex<Fake>>) {
    forge(fake, &[&["rotate"], arguments].concat())
}

/// Runs it; gives how it ended, what it wrote, and what is there afterwards.
fn forge(fake: Fake, arguments: &[&str]) -> (i32, String, String, Arc<Mutex<Fake>>) {
    let fake = Arc::new(Mutex::new(fake));
    let (code, out, err) = run(&fake, "existing", arguments, None);
    (code, out, err, fake)
}

/// Runs it where forge.yaml says this of Argo CD, dying before a write where one is named.
fn run(fake: &Arc<Mutex<Fake>>, cd: &str, arguments: &[&str], dies: Option<&str>) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let port = serve(Arc::clone(fake));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("admin", "administrator\n");
    write("nothing", "\n");
    write("stray", &token("stray", 1_700_000_000));
    write(
        "forge.yaml",
        &format!(
            "{HEADER}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {{cd: {cd}, workflows: existing, events: none}}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
        ),
    );
    write(
        "graph.yaml",
        &format!(
            "{HEADER}kind: DependencyGraph\nspec:\n  stacks: [{{name: base, apps: [{{application: argocd/network}}]}}]\n"
        ),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_forge"))
        .args(arguments)
        .args(["--kubeconfig", "kubeconfig"])
        .current_dir(folder.path())
        .env_clear()
        .env("FORGE_FAILPOINT", dies.unwrap_or_default())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn a_new_token_is_made_stored_and_proven_before_any_other_is_deleted() {
    let (code, out, err, fake) = rotate(Fake::new(&["stray", "old"]), &["--grace", "1s", "--output", "json"]);
    assert_eq!(code, 0, "{err}");
    let fake = fake.lock().unwrap();
    let said: Value = serde_json::from_str(&out).unwrap();
    let id = said["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("forge-"), "{id}");
    let steps = [format!("make {id}"), format!("store {id}"), "delete stray".to_owned(), "delete old".to_owned()];
    assert_eq!(fake.log[..4], steps);
    // Then the mark goes.
    assert_eq!((fake.log.len(), fake.stored("retire-after")), (5, None));
    assert_eq!((&said["deleted"], &said["madeBy"]), (&json!(["stray", "old"]), &json!("the account itself")));
    assert_eq!((fake.stored("token-id"), fake.stored("ca.crt")), (Some(id), Some("kept".to_owned())));
    assert_eq!(fake.stored("expires").as_deref(), said["expires"].as_str());
    assert!(err.contains("waiting 1s for every pod"), "{err}");
    let token = fake.stored("token").unwrap();
    assert!(!out.contains(&token) && !err.contains(&token), "{out}{err}");
}

#[test]
fn an_account_that_may_replace_the_token_and_nothing_else_is_enough_while_the_token_works() {
    let (code, _, err, fake) = rotate(Fake::new(&["stray", "old"]), &["--grace", "0s"]);
    assert_eq!(code, 0, "{err}");
    let (grants, purpose, fake) = (rights::rotator(), Purpose::default(), fake.lock().unwrap());
    let mut verbs = std::collections::BTreeSet::new();
    for (method, path) in &fake.asked {
        let Some(request) = Request::read(method, path) else { continue };
        assert!(grants.iter().any(|grant| grant.covers(&request, &purpose)), "{request:?}");
        // Its role names the one Secret, and has no other.
        assert!(request.resource != "secrets" || path == SECRET, "{path}");
        verbs.insert((request.resource, request.verb));
    }
    // And there is nothing in it that was not needed.
    let given = grants.iter().flat_map(|grant| grant.verbs.iter().map(|verb| (grant.resource, *verb)));
    let given: Vec<(String, String)> = given.map(|(kind, verb)| (kind.to_owned(), verb.to_owned())).collect();
    assert!(!given.is_empty() && given.iter().all(|right| verbs.contains(right)), "{given:?} {verbs:?}");
}

#[test]
fn a_dry_run_says_what_would_go_and_changes_nothing() {
    let (code, out, err, fake) = rotate(Fake::new(&["stray", "old"]), &["--dry-run"]);
    assert_eq!(code, 0, "{err}");
    let first = "the account itself would make a token; 2m after it is stored these would be deleted:";
    assert_eq!(out.lines().collect::<Vec<_>>(), [first, "  stray", "  old"]);
    assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
}

#[test]
fn who_is_not_the_only_one_takes_his_token_back_and_exits_5() {
    let busy = Fake { busy: true, ..Fake::new(&["old"]) };
    let (code, _, err, fake) = rotate(busy, &["--grace", "0s"]);
    assert_eq!(code, 5, "{err}");
    assert!(err.starts_with("error[FORGE-T001]"), "{err}");
    let fake = fake.lock().unwrap();
    let left: Vec<&str> = fake.tokens.iter().map(|(id, _, _)| id.as_str()).collect();
    assert_eq!((left, fake.stored("token-id").as_deref()), (vec!["old"], Some("old")));
}

#[test]
fn once_the_token_has_ended_an_administrator_is_needed() {
    // Whether his password is gone or may not be read.
    for hidden in [false, true] {
        let (code, _, err, fake) = rotate(Fake { hidden, ..Fake::new(&[]) }, &["--grace", "0s"]);
        assert_eq!(code, 3, "{err}");
        assert!(err.starts_with("error[FORGE-T002]") && err.contains("--argocd-admin-token-file"), "{err}");
        assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
    }
    let replaced = Fake {
        own: Some(json!({"data": {"password": encoded("another")}})),
        counts: "another".to_owned(),
        ..Fake::new(&[])
    };
    let (code, out, err, _) = rotate(replaced, &["--grace", "0s", "--output", "json"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\"madeBy\": \"the administrator\""), "{out}");
    // Somebody changed it since.
    let (code, _, err, _) = rotate(
        Fake { own: Some(json!({"data": {"password": encoded("another")}})), ..Fake::new(&[]) },
        &["--grace", "0s"],
    );
    assert_eq!(code, 3, "{err}");
    assert!(err.starts_with("error[FORGE-T002]"), "{err}");
    let initial = Fake { password: true, ..Fake::new(&[]) };
    let (code, out, err, fake) = rotate(initial, &["--grace", "0s", "--output", "json"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\"madeBy\": \"the initial administrator\"") && fake.lock().unwrap().works(), "{out}");
    let (code, out, err, fake) = rotate(Fake::new(&[]), &["--grace", "0s", "--argocd-admin-token-file", "admin"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("token forge-") && out.ends_with("; 0 others are deleted\n"), "{out}");
    assert!(fake.lock().unwrap().works() && !err.contains("administrator\n"), "{err}");
}

#[test]
fn a_token_that_somebody_names_takes_the_place_of_one_that_works_only_where_it_works_itself() {
    let named = |fake: Fake, file: &str| forge(fake, &["bootstrap", "--credentials", "--argocd-token-file", file]);
    // `stray` is a token of nobody here.
    let (code, _, err, fake) = named(Fake::new(&["old"]), "stray");
    assert_eq!(code, 3, "{err}");
    assert!(err.starts_with("error[FORGE-T002]"), "{err}");
    assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
    let (code, _, err, fake) = named(Fake::new(&["old"]), "nothing");
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("holds no token"), "{err}");
    assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
    let (code, _, err, fake) = named(Fake::new(&["stray", "old"]), "stray");
    assert_eq!(code, 0, "{err}");
    assert_eq!(fake.lock().unwrap().log, ["store stray"]);
}

#[test]
fn a_secret_of_somebody_else_is_left_as_it_is() {
    let foreign = Fake { foreign: true, ..Fake::new(&["stray", "old"]) };
    let (code, _, err, fake) = forge(foreign, &["bootstrap", "--credentials", "--argocd-token-file", "stray"]);
    assert_eq!(code, 3, "{err}");
    let hint = "kubectl -n argo label secret forge-argocd app.kubernetes.io/managed-by=forge --overwrite";
    assert!(err.starts_with("error[FORGE-B024]") && err.contains(hint), "{err}");
    assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
}

#[test]
fn lifetimes_that_cannot_be_kept_and_clusters_without_a_token_are_refused() {
    let (code, _, err, _) = rotate(Fake::new(&["old"]), &["--token-lifetime", "10m"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("--token-lifetime is at least 1h"), "{err}");
    let (code, _, err, _) = rotate(Fake { secret: json!({}), ..Fake::new(&[]) }, &[]);
    assert_eq!(code, 3, "{err}");
    assert!(err.starts_with("error[FORGE-D003]"), "{err}");
}

/// An object of Forge's beside Argo CD.
fn ours(name: &str) -> Value {
    let labels = json!({"app.kubernetes.io/managed-by": "forge"});
    json!({"metadata": {"name": name, "namespace": "argocd", "resourceVersion": "1", "labels": labels}})
}

/// `forge bootstrap --credentials`, which does of all of bootstrap what is secret.
fn credentials(fake: &Arc<Mutex<Fake>>, cd: &str, dies: Option<&str>) -> (i32, String, String) {
    run(fake, cd, &["bootstrap", "--credentials"], dies)
}

/// An Argo CD that Forge installed, with its first password, and a token of the account that works and is stored as it is today.
fn fresh() -> Fake {
    let receipt = Some(ours("forge-install-argo-cd"));
    let mut fake = Fake { password: true, receipt, ..Fake::new(&["old"]) };
    let ends = jiff::Timestamp::from_second(2_700_000_000).unwrap();
    let secret = fake.secret.as_object_mut().unwrap();
    secret.remove("ca.crt");
    secret.insert("expires".to_owned(), json!(encoded(&ends.to_string())));
    fake
}

#[test]
fn the_first_password_of_an_argo_cd_that_forge_installed_is_replaced_wherever_it_was_killed_before() {
    let points = [
        "Secret forge-argocd-admin",
        "the password of Argo CD's administrator",
        "Secret argocd-initial-admin-secret goes",
    ];
    for dies in [None].into_iter().chain(points.map(Some)) {
        let fake = Arc::new(Mutex::new(fresh()));
        if dies.is_some() {
            let (code, _, err) = credentials(&fake, "install", dies);
            assert_eq!(code, -1, "{dies:?}: {err}");
        }
        let (code, out, err) = credentials(&fake, "install", None);
        assert_eq!((code, out.lines().count()), (0, 1), "{dies:?}: {out}{err}");
        let log = {
            let fake = fake.lock().unwrap();
            let steps = ["store another password", "change the password", "delete the first password"];
            assert_eq!(fake.log, steps, "{dies:?}");
            // What counts is what is stored, in a Secret that is ours, and nobody is told.
            let own = fake.own.as_ref().unwrap();
            assert_eq!(own["data"]["password"], encoded(&fake.counts));
            assert_eq!(own["metadata"]["labels"]["app.kubernetes.io/managed-by"], "forge");
            assert!(!fake.password && fake.counts != "pass" && fake.counts.len() == 32);
            assert!(!out.contains(&fake.counts) && !err.contains(&fake.counts), "{out}{err}");
            let (grants, purpose) = (rights::installer(), Purpose::default());
            for (method, path) in &fake.asked {
                let Some(request) = Request::read(method, path) else { continue };
                assert!(grants.iter().any(|grant| grant.covers(&request, &purpose)), "{request:?}");
            }
            fake.log.clone()
        };
        // Again: nothing is left to be done.
        let (code, out, err) = credentials(&fake, "install", None);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert_eq!(fake.lock().unwrap().log, log);
    }
}

#[test]
fn a_policy_of_signatures_that_cannot_be_used_is_refused_before_anything_is_written() {
    let image = format!("registry.example.com/forge@sha256:{}", "0".repeat(64));
    for arguments in [&["bootstrap", "--credentials"][..], &["bootstrap", "--image", image.as_str()][..]] {
        let policy = Some(json!({"metadata": {}, "data": {"policy.yaml": "kind: Nothing\n"}}));
        let fake = Arc::new(Mutex::new(Fake { policy, ..fresh() }));
        let (code, _, err) = run(&fake, "install", arguments, None);
        assert_eq!(code, 3, "{err}");
        assert!(err.contains("error[FORGE-N015]: ConfigMap forge-signatures"), "{err}");
        let fake = fake.lock().unwrap();
        assert!(fake.asked.iter().all(|(method, _)| method == "GET") && !fake.asked.is_empty(), "{:?}", fake.asked);
    }
}

#[test]
fn the_first_password_of_an_argo_cd_of_somebody_else_is_left_to_him() {
    let foreign = Some(json!({"metadata": {"name": "forge-install-argo-cd", "namespace": "argocd"}}));
    // Whatever forge.yaml says: an Argo CD that Forge is to install and did not is not Forge's.
    for (cd, receipt) in [("existing", fresh().receipt), ("install", None), ("install", foreign)] {
        let fake = Arc::new(Mutex::new(Fake { receipt, ..fresh() }));
        let (code, _, err) = credentials(&fake, cd, None);
        assert_eq!(code, 0, "{cd}: {err}");
        let fake = fake.lock().unwrap();
        assert_eq!((fake.log.as_slice(), fake.password, fake.counts.as_str()), (&[][..], true, "pass"), "{cd}");
    }
}

#[test]
fn of_two_bootstraps_at_once_the_slower_one_takes_what_the_other_stored() {
    let own = Some(ours("forge-argocd-admin"));
    let fake = Arc::new(Mutex::new(Fake { own, raced: true, ..fresh() }));
    let (code, _, err) = credentials(&fake, "install", None);
    assert_eq!(code, 0, "{err}");
    let fake = fake.lock().unwrap();
    assert_eq!(fake.log, ["change the password", "delete the first password"]);
    assert_eq!((fake.counts.as_str(), fake.password), ("theirs", false));
    assert_eq!(fake.own.as_ref().unwrap()["data"]["password"], encoded("theirs"));
}

#[test]
fn a_password_that_a_person_chose_stays_and_one_that_is_only_refused_is_not_taken_for_that() {
    let mine = || Fake { counts: "mine".to_owned(), ..fresh() };
    let fake = Arc::new(Mutex::new(Fake { changed: Some("2026-01-02T00:00:00Z"), ..mine() }));
    let (code, _, err) = credentials(&fake, "install", None);
    assert_eq!(code, 0, "{err}");
    assert_eq!(fake.lock().unwrap().log, ["delete the first password"]);
    // After failed logins Argo CD refuses a good one too, and its clock may be ahead of the API server's.
    for changed in [None, Some("2026-01-01T00:00:01Z")] {
        let fake = Arc::new(Mutex::new(Fake { changed, ..mine() }));
        let (code, _, err) = credentials(&fake, "install", None);
        assert_eq!(code, 3, "{err}");
        for hint in ["kubectl -n argocd delete secret argocd-initial-admin-secret", "Secret forge-argocd-admin"] {
            assert!(err.starts_with("error[FORGE-T003]") && err.contains(hint), "{err}");
        }
        assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
    }
    // What has the name of ours and is somebody else's stays as it is.
    let foreign = json!({"kind": "Secret", "metadata": {"name": "forge-argocd-admin", "namespace": "argocd"}});
    let fake = Arc::new(Mutex::new(Fake { own: Some(foreign), ..fresh() }));
    let (code, _, err) = credentials(&fake, "install", None);
    assert_eq!(code, 3, "{err}");
    assert!(err.starts_with("error[FORGE-B024]"), "{err}");
    assert_eq!(fake.lock().unwrap().log, Vec::<String>::new());
}
