//! The token of the Argo CD account: what it can do, which is to get and sync Applications and nothing else but to keep its
//! own account, and how it is replaced under a run in progress (SPEC.md sections 4 and 5).

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use forge_testkit::platform::Platform;
use forge_testkit::twin::{TwinNode, config_map};
use serde_json::{Value, json};

use crate::stage::Stage;

/// Everything that Argo CD's RBAC knows.
const RESOURCES: [&str; 12] = [
    "clusters",
    "projects",
    "applications",
    "applicationsets",
    "repositories",
    "write-repositories",
    "certificates",
    "accounts",
    "gpgkeys",
    "logs",
    "exec",
    "extensions",
];
const ACTIONS: [&str; 8] = ["get", "create", "update", "delete", "sync", "override", "action", "invoke"];

/// What the Secret of the account says under a key; nothing where it does not.
fn stored(key: &str) -> Option<String> {
    let sandbox = &Platform::shared().sandbox;
    let secret = sandbox.kubectl(&["get", "secret", "forge-argocd", "-n", "argo", "-o", "json"]);
    let secret: Value = serde_json::from_str(&secret).unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(secret["data"][key].as_str()?).unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

/// Asks Argo CD itself with a token; gives the code and what it says.
fn ask(token: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let services = ["get", "services", "-n", "argocd", "-l", "app.kubernetes.io/name=argocd-server"];
    let address = "-o=jsonpath={.items[0].spec.clusterIP}";
    let address = Platform::shared().sandbox.kubectl(&[&services[..], &[address]].concat());
    let mut stream = TcpStream::connect(format!("{}:80", address.trim())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body.map(ToString::to_string).unwrap_or_default();
    let head = format!("{method} /api/v1{path} HTTP/1.1\r\nhost: argocd\r\ncookie: argocd.token={token}");
    let rest = format!("content-type: application/json\r\nconnection: close\r\ncontent-length: {}", body.len());
    stream.write_all(format!("{head}\r\n{rest}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let said = answer.split_once("\r\n\r\n").map(|(_, said)| said.to_owned()).unwrap_or_default();
    (code.unwrap_or_else(|| panic!("{method} {path}: no answer: {answer}")), said)
}

/// The ids of all tokens of the account.
fn ids(token: &str) -> BTreeSet<String> {
    let (code, answer) = ask(token, "GET", "/account/forge", None);
    assert_eq!(code, 200, "{answer}");
    // Whether it came in one piece or in several.
    let (start, end) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
    let account: Value = serde_json::from_str(&answer[start..=end]).unwrap();
    let tokens = account["tokens"].as_array().cloned().unwrap_or_default();
    tokens.iter().map(|token| token["id"].as_str().unwrap().to_owned()).collect()
}

/// Every other request that changes or reads something: method, path, body.
fn other_requests(project: &str, application: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let repository = "https%3A%2F%2Fgit.example.com%2Fother.git";
    let cluster = "https%3A%2F%2Fkubernetes.default.svc";
    let spec = json!({
        "project": project,
        "source": {"repoURL": "https://git.example.com/other.git", "path": ".", "targetRevision": "main"},
        "destination": {"server": "https://kubernetes.default.svc", "namespace": "other"},
    });
    let whole = |name: &str| json!({"metadata": {"name": name, "namespace": "argocd"}, "spec": spec});
    let object = format!("namespace={application}&resourceName=only&version=v1&group=&kind=ConfigMap");
    let app = |rest: &str| format!("/applications/{application}{rest}");
    let named = |rest: &str| format!("/projects/{project}{rest}");
    let fresh = json!({"metadata": {"name": "forge-other"}});
    let set = json!({
        "metadata": {"name": "forge-other", "namespace": "argocd"},
        "spec": {
            "generators": [{"list": {"elements": [{"name": "x"}]}}],
            "template": {"metadata": {"name": "forge-other-{{name}}"}, "spec": spec},
        },
    });
    let certificate = json!({"items": [
        {"serverName": "git.example.com", "certType": "https", "certData": "", "certInfo": ""},
    ]});
    let patch = json!({"name": application, "patch": "{}", "patchType": "merge"});
    let action = json!({
        "namespace": application, "resourceName": "only", "version": "v1", "kind": "ConfigMap", "action": "restart",
    });
    let details = json!({"source": spec["source"], "appName": application, "appProject": project});
    let other = || Some(json!({"repo": "https://git.example.com/other.git"}));
    let password = json!({"name": "admin", "currentPassword": "x", "newPassword": "another-pass-word"});
    vec![
        ("POST", "/applications".to_owned(), Some(whole("forge-other"))),
        ("PUT", app(""), Some(whole(application))),
        ("PUT", app("/spec"), Some(spec.clone())),
        ("PATCH", app(""), Some(patch)),
        ("DELETE", app("?cascade=false"), None),
        ("POST", app("/sync"), Some(json!({"manifests": ["{}"]}))),
        ("DELETE", app(&format!("/resource?{object}")), None),
        ("POST", app(&format!("/resource?{object}&patchType=application/merge-patch%2Bjson")), Some(json!("{}"))),
        ("POST", app("/resource/actions/v2"), Some(action)),
        ("GET", app(&format!("/logs?namespace={application}&kind=ConfigMap&resourceName=only")), None),
        ("GET", named(""), None),
        ("GET", named("/detailed"), None),
        ("POST", "/projects".to_owned(), Some(json!({"project": fresh}))),
        ("PUT", named(""), Some(json!({"project": {"metadata": {"name": project}}}))),
        ("DELETE", named(""), None),
        ("POST", named("/roles/any/token"), Some(json!({"project": project, "role": "any", "expiresIn": 60}))),
        ("GET", format!("/repositories/{repository}"), None),
        ("POST", "/repositories".to_owned(), other()),
        ("PUT", format!("/repositories/{repository}"), other()),
        ("DELETE", format!("/repositories/{repository}"), None),
        ("POST", format!("/repositories/{repository}/appdetails"), Some(details)),
        ("POST", "/write-repositories".to_owned(), other()),
        ("POST", "/repocreds".to_owned(), Some(json!({"url": "https://git.example.com"}))),
        ("PUT", "/repocreds/https%3A%2F%2Fgit.example.com".to_owned(), Some(json!({"url": "https://git.example.com"}))),
        ("DELETE", "/repocreds/https%3A%2F%2Fgit.example.com".to_owned(), None),
        ("GET", format!("/clusters/{cluster}"), None),
        ("POST", "/clusters".to_owned(), Some(json!({"server": "https://other.example.com", "name": "other"}))),
        ("PUT", format!("/clusters/{cluster}"), Some(json!({"server": "https://kubernetes.default.svc"}))),
        ("DELETE", format!("/clusters/{cluster}"), None),
        ("POST", format!("/clusters/{cluster}/rotate-auth"), None),
        ("POST", format!("/clusters/{cluster}/invalidate-cache"), None),
        ("GET", "/certificates".to_owned(), None),
        ("POST", "/certificates".to_owned(), Some(certificate)),
        ("DELETE", "/certificates?hostNamePattern=git.example.com".to_owned(), None),
        ("GET", "/gpgkeys".to_owned(), None),
        ("POST", "/gpgkeys".to_owned(), Some(json!({"keyData": "x"}))),
        ("DELETE", "/gpgkeys?keyID=0123456789ABCDEF".to_owned(), None),
        ("POST", "/applicationsets/generate".to_owned(), Some(json!({"applicationSet": set}))),
        ("POST", "/applicationsets".to_owned(), Some(set)),
        ("GET", "/account/admin".to_owned(), None),
        ("POST", "/account/admin/token".to_owned(), Some(json!({"name": "admin", "expiresIn": 60}))),
        ("DELETE", "/account/admin/token/any".to_owned(), None),
        ("PUT", "/account/password".to_owned(), Some(password)),
    ]
}

/// Argo CD did not do it: it may not be asked for, or it is switched off for everybody.
fn refused(code: u16, answer: &str) -> bool {
    code == 403 || (code == 501 && answer.contains("hydrator is disabled"))
}

#[test]
fn the_token_can_get_and_sync_applications_and_nothing_else_but_its_own_account() {
    let stage = Stage::new("rights", false, |_| vec![TwinNode::new("only", &[], vec![config_map("only", "1")])]);
    let token = stored("token").unwrap();
    let (project, application) = (stage.environment.name.clone(), stage.options.application("only"));
    // A role that tokens could be made for: of one that is not there Argo CD says so before it asks who wants to know.
    let role = json!({"spec": {"roles": [{"name": "any"}]}}).to_string();
    stage.kubectl(&["patch", "appproject", &project, "-n", "argocd", "--type=merge", "-p", &role]);
    let mut odd = Vec::new();
    // What it is for.
    for (method, path, body) in [
        ("GET", format!("/applications/{application}"), None),
        ("GET", format!("/applications/{application}?refresh=normal"), None),
        ("GET", format!("/applications/{application}/resource-tree"), None),
        ("POST", format!("/applications/{application}/sync"), Some(json!({"dryRun": true}))),
        ("GET", "/account/forge".to_owned(), None),
    ] {
        let (code, answer) = ask(&token, method, &path, body.as_ref());
        if code != 200 {
            odd.push(format!("{method} {path}: {code} {answer}"));
        }
    }
    // A rollback is a sync to Argo CD, which has no other word for it: it is not refused, and there is nothing to go back to.
    let (code, answer) =
        ask(&token, "POST", &format!("/applications/{application}/rollback"), Some(&json!({"id": 99})));
    if code == 403 || !answer.contains("99") {
        odd.push(format!("rollback: {code} {answer}"));
    }
    // Everything that its policy could say.
    for resource in RESOURCES {
        let object = match resource {
            "applications" | "applicationsets" | "logs" | "exec" => format!("{project}/{application}"),
            "projects" => project.clone(),
            "accounts" => "admin".to_owned(),
            _ => "*".to_owned(),
        };
        for action in ACTIONS {
            let (code, answer) = ask(&token, "GET", &format!("/account/can-i/{resource}/{action}/{object}"), None);
            let wanted = resource == "applications" && ["get", "sync"].contains(&action);
            if code != 200 || answer.contains("\"yes\"") != wanted || answer.contains("\"no\"") == wanted {
                odd.push(format!("can-i {resource} {action}: {answer}"));
            }
        }
    }
    // And what Argo CD really lets it do.
    for (method, path, body) in other_requests(&project, &application) {
        let (code, answer) = ask(&token, method, &path, body.as_ref());
        if !refused(code, &answer) {
            odd.push(format!("{method} {path}: {code} {answer}"));
        }
    }
    // Lists are not refused: they are empty.
    for path in ["/projects", "/repositories", "/write-repositories", "/repocreds", "/clusters", "/applicationsets"] {
        let (code, answer) = ask(&token, "GET", path, None);
        if !refused(code, &answer)
            && (code != 200 || answer.contains("\"metadata\":{\"name\"") || answer.contains("http"))
        {
            odd.push(format!("GET {path}: {answer}"));
        }
    }
    let (_, accounts) = ask(&token, "GET", "/account", None);
    if accounts.contains("admin") {
        odd.push(format!("GET /account: {accounts}"));
    }
    assert!(odd.is_empty(), "{}", odd.join("\n\n"));
    assert_eq!(stage.syncs("only"), 0);
}

/// Rotations take the tokens of everybody: these are run while nobody else is there.
mod alone {
    use std::process::{Command, Stdio};

    use forge_testkit::sandbox::eventually;
    use forge_testkit::twin::deployment;

    use super::*;
    use crate::stage::PATIENCE;

    #[test]
    fn after_a_rotation_the_old_token_is_refused_and_a_run_in_progress_goes_on_to_proven() {
        let stage = Stage::new("rotate", false, |options| {
            let slow = TwinNode::new("slow", &["first"], vec![deployment("slow", &options.image, 200, &[])]);
            vec![
                TwinNode::new("first", &[], vec![config_map("first", "1")]),
                TwinNode { settings: "timeouts: {health: 10m}".to_owned(), ..slow },
                TwinNode::new("last", &["slow"], vec![config_map("last", "1")]),
            ]
        });
        let started = stage.forge(&["platform", "deploy", "--detach"]);
        assert_eq!(started.code, 0, "{}", started.stderr);
        stage.until_asked("slow");
        let (old, old_id) = (stored("token").unwrap(), stored("token-id").unwrap());
        assert_eq!(ask(&old, "GET", "/applications", None).0, 200);
        let dry = stage.forge(&["rotate", "--dry-run", "--output", "json"]);
        assert_eq!(dry.code, 0, "{}", dry.stderr);
        let dry: Value = serde_json::from_str(&dry.stdout).unwrap();
        assert!(dry["deleted"].as_array().unwrap().contains(&json!(old_id)), "{dry:#}");
        assert_eq!((stored("token"), dry["madeBy"].as_str()), (Some(old.clone()), Some("the account itself")));
        let rotated = stage.forge(&["rotate", "--output", "json"]);
        assert_eq!(rotated.code, 0, "{}", rotated.stderr);
        let rotated: Value = serde_json::from_str(&rotated.stdout).unwrap();
        let (new, new_id) = (stored("token").unwrap(), stored("token-id").unwrap());
        assert_eq!(rotated["id"], json!(new_id), "{rotated:#}");
        assert!(rotated["deleted"].as_array().unwrap().contains(&json!(old_id)), "{rotated:#}");
        assert_eq!((rotated["expires"].as_str(), stored("retire-after")), (stored("expires").as_deref(), None));
        assert_eq!((ask(&old, "GET", "/applications", None).0, ask(&new, "GET", "/applications", None).0), (401, 200));
        assert_eq!(ids(&new), BTreeSet::from([new_id]));
        // It was under way all the time, and what comes now is done with the new token.
        assert_eq!((stage.answer("slow").as_deref(), stage.answer("last")), (Some("wait"), None));
        let header = stage.ended();
        assert_eq!(header["ended"]["verdict"], "done", "{header:#}");
        assert_eq!(stage.answer("last").as_deref(), Some("proven"));
    }

    #[test]
    fn a_rotation_that_was_killed_leaves_tokens_that_work_and_bootstrap_completes_it() {
        let stage = Stage::new("killed", false, |_| vec![TwinNode::new("only", &[], vec![config_map("only", "1")])]);
        let platform = stage.environment.platform;
        let old = stored("token").unwrap();
        let mut rotation = Command::new(&platform.binary)
            .args(["rotate", "--grace", "10m"])
            .env("KUBECONFIG", &platform.sandbox.kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let new = eventually("a new token is stored", PATIENCE, || {
            stored("token").filter(|token| *token != old).ok_or_else(|| "not yet".to_owned())
        });
        rotation.kill().unwrap();
        rotation.wait().unwrap();
        assert_eq!((ask(&old, "GET", "/applications", None).0, ask(&new, "GET", "/applications", None).0), (200, 200));
        // Before its time nothing is taken from anybody.
        let image = platform.image().to_owned();
        let early = stage.forge(&["bootstrap", "--image", &image]);
        assert_eq!(early.code, 0, "{}", early.stderr);
        assert_eq!((stored("token"), ask(&old, "GET", "/applications", None).0), (Some(new.clone()), 200));
        let past = base64::engine::general_purpose::STANDARD.encode("2020-01-01T00:00:00Z");
        let patch = json!({"data": {"retire-after": past}}).to_string();
        stage.kubectl(&["patch", "secret", "forge-argocd", "-n", "argo", "--type=merge", "-p", &patch]);
        let late = stage.forge(&["bootstrap", "--image", &image]);
        assert_eq!(late.code, 0, "{}", late.stderr);
        assert_eq!((stored("token"), stored("retire-after")), (Some(new.clone()), None));
        assert_eq!(ids(&new), BTreeSet::from([stored("token-id").unwrap()]));
        assert_eq!(ask(&old, "GET", "/applications", None).0, 401);
    }
}
