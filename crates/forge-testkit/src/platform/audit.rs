//! The audit log of a sandbox's API server, those files included that it was moved to when it had grown.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use forge_core::render::{EXECUTOR_ACCOUNT, INSTALLER_ACCOUNT, READER_ACCOUNT, ROTATOR_ACCOUNT};
use forge_core::rights::Request;
use jiff::Timestamp;
use serde_json::Value;

use crate::order::Line;
use crate::sandbox::Sandbox;

/// Verbs that change something.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Requests since a moment that succeeded and changed something, in the order of their answers.
pub fn audit(sandbox: &Sandbox, since: Timestamp) -> Vec<Line> {
    attempts(sandbox, since).into_iter().filter(Line::succeeded).collect()
}

/// Requests since a moment that were to change something, those included that were refused, in the order of their answers. Leases
/// of people are among them. Those of Forge's Jobs are not, but [`asked`] tells of them: a run is over before it gives its Lease
/// back. Others are not in the log.
pub fn attempts(sandbox: &Sandbox, since: Timestamp) -> Vec<Line> {
    let meant = |line: &Line| line.at.latest >= since && is_attempt(line);
    let mut found: Vec<Line> = Vec::new();
    each(sandbox, since, |line| found.extend(Line::parse(line).filter(meant)));
    found.sort_by_key(|line| line.at.latest);
    found
}

fn is_attempt(line: &Line) -> bool {
    let by_job = line.resource == "leases" && line.user.starts_with("system:serviceaccount:");
    WRITES.contains(&line.verb.as_str()) && !by_job
}

/// A request of one of the accounts of Forge's Jobs, read or write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Who.
    pub user: String,
    /// What.
    pub request: Request,
    /// The object; empty for a collection, and for what is made.
    pub name: String,
    /// RBAC refused it.
    pub forbidden: bool,
}

impl Asked {
    /// It was to change something. A question about rights is answered and not stored.
    pub fn writes(&self) -> bool {
        WRITES.contains(&self.request.verb.as_str()) && !self.request.is_review() && !self.is_proxied()
    }

    /// It went through the API server to somebody else, who has rules of his own.
    fn is_proxied(&self) -> bool {
        self.request.resource.ends_with("/proxy")
    }

    fn parse(line: &str, since: Timestamp) -> Option<Vec<Self>> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        // What is followed is told of when it begins, and again when it ends.
        let stage = text("/stage");
        let at = text("/stageTimestamp").parse::<Timestamp>().ok()?;
        if at < since || !matches!(stage.as_str(), "ResponseStarted" | "ResponseComplete") {
            return None;
        }
        let (kind, part) = (text("/objectRef/resource"), text("/objectRef/subresource"));
        if kind.is_empty() {
            // Versions and discovery.
            return None;
        }
        let resource = if part.is_empty() { kind } else { format!("{kind}/{part}") };
        let of = |verb: String| {
            let (group, namespace) = (text("/objectRef/apiGroup"), text("/objectRef/namespace"));
            let request = Request { verb, group, resource: resource.clone(), namespace };
            let forbidden = text("/annotations/authorization.k8s.io~1decision") == "forbid";
            Self { user: text("/user/username"), request, name: text("/objectRef/name"), forbidden }
        };
        let verb = text("/verb");
        // An apply that made its object needed the right to make it too.
        let made = verb == "patch" && event.pointer("/responseStatus/code").and_then(Value::as_u64) == Some(201);
        let also = made.then(|| of("create".to_owned()));
        Some([of(verb)].into_iter().chain(also).collect())
    }
}

/// Everything that the accounts of Forge's Jobs asked for since a moment, each once: the log has their reads too.
pub fn asked(sandbox: &Sandbox, since: Timestamp) -> BTreeSet<Asked> {
    let accounts = [EXECUTOR_ACCOUNT, INSTALLER_ACCOUNT, READER_ACCOUNT, ROTATOR_ACCOUNT];
    let accounts = accounts.map(|name| format!("system:serviceaccount:argo:{name}"));
    let mut found = BTreeSet::new();
    each(sandbox, since, |line| {
        let asked = Asked::parse(line, since).into_iter().flatten();
        found.extend(asked.filter(|asked| accounts.contains(&asked.user)));
    });
    found
}

/// Reads the log, line by line.
///
/// # Panics
/// When there is no log: what was looked for in nothing was not looked for.
#[expect(clippy::panic, reason = "a test that reads no log proves nothing")]
fn each(sandbox: &Sandbox, since: Timestamp, mut take: impl FnMut(&str)) {
    let files = files(sandbox);
    if files.is_empty() {
        panic!("sandbox {}: there is no audit log", sandbox.name);
    }
    // A file that nothing was written to since then has nothing to say.
    let recent = |path: &PathBuf| {
        let written = fs::metadata(path).and_then(|data| data.modified()).ok();
        written.is_some_and(|time| timestamp(time) >= since)
    };
    for file in files.into_iter().filter(recent) {
        let file = fs::File::open(&file).unwrap_or_else(|error| panic!("failed to open {}: {error}", file.display()));
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        lines.for_each(|line| take(&line));
    }
}

/// The log, and what was moved away.
fn files(sandbox: &Sandbox) -> Vec<PathBuf> {
    // Folder of the sandbox, its `pki`, the file.
    let Some(logs) = sandbox.kubeconfig.ancestors().nth(2).map(|folder| folder.join("logs")) else { return Vec::new() };
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    let of_audit = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("audit"));
    entries.map(|entry| entry.path()).filter(of_audit).collect()
}

/// A time of this machine, whose clock is also the cluster's.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// The time now: where a window of [`audit`] begins.
pub fn mark() -> Timestamp {
    timestamp(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Moment;

    fn event(verb: &str, resource: &str, code: u16, decision: &str) -> String {
        serde_json::json!({
            "stage": "ResponseComplete", "verb": verb, "user": {"username": "system:serviceaccount:argo:forge-installer"},
            "objectRef": {"resource": resource, "namespace": "argo", "name": "x", "apiGroup": "apps"},
            "responseStatus": {"code": code}, "annotations": {"authorization.k8s.io/decision": decision},
            "stageTimestamp": "2026-11-16T12:00:00.000000Z",
        })
        .to_string()
    }

    #[test]
    fn a_lease_that_a_person_takes_is_a_write_and_that_of_a_job_is_not_among_them() {
        let line = |user: &str, verb: &str| Line {
            verb: verb.to_owned(),
            user: user.to_owned(),
            resource: "leases".to_owned(),
            namespace: "argo".to_owned(),
            name: "forge-bootstrap".to_owned(),
            subresource: String::new(),
            code: 200,
            at: Moment::between(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH),
        };
        assert!(is_attempt(&line("sandbox-admin", "patch")));
        assert!(!is_attempt(&line("sandbox-admin", "get")));
        assert!(!is_attempt(&line("system:serviceaccount:argo:forge-executor", "patch")));
    }

    #[test]
    fn what_an_account_asked_for_is_read_from_the_log_and_an_apply_that_made_something_is_both() {
        let parse = |line: &str| Asked::parse(line, Timestamp::UNIX_EPOCH).unwrap_or_default();
        let verbs = |line: &str| -> Vec<String> { parse(line).into_iter().map(|asked| asked.request.verb).collect() };
        assert_eq!(verbs(&event("patch", "deployments", 201, "allow")), ["patch", "create"]);
        assert_eq!(verbs(&event("patch", "deployments", 200, "allow")), ["patch"]);
        let refused = parse(&event("list", "secrets", 403, "forbid"));
        assert!(refused[0].forbidden && !refused[0].writes());
        assert!(parse(&event("create", "deployments", 201, "allow"))[0].writes());
        assert!(!parse(&event("create", "selfsubjectaccessreviews", 201, "allow"))[0].writes());
        assert!(parse(&event("get", "", 200, "allow")).is_empty());
        let late = "2027-01-01T00:00:00Z".parse().unwrap();
        assert!(Asked::parse(&event("get", "pods", 200, "allow"), late).is_none());
    }
}
