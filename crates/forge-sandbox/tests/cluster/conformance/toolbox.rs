//! Pods with a shell: the image of Argo CD, the only one of the sandbox with more than one program.
//!
//! It has neither `curl` nor `getent`; what it has is `git`, which resolves a name as any C program does, speaks HTTP,
//! and tells when asked what it connected to and what it was answered.

use std::sync::OnceLock;

use forge_testkit::sandbox::{Ended, Sandbox, eventually};
use serde_json::{Value, json};

use super::{Answer, LIMIT, deployment, image, sample, service};

/// The namespace of the toolbox that all tests share.
pub(super) const NAMESPACE: &str = "toolbox";

/// What the pods with a shell share; the script is what it runs. `exec sleep infinity` at its end keeps the pod.
pub(super) fn tools(script: &str) -> Value {
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": [{
            "name": "tools",
            "image": image("argoproj/argocd"),
            "command": ["tini", "--", "sh", "-c", script],
        }],
    })
}

/// A place from which commands are run.
#[derive(Debug, Clone)]
pub(super) struct Toolbox {
    pub(super) namespace: String,
    /// Its name, or that of a Deployment, as kubectl takes it.
    pub(super) pod: String,
}

impl Toolbox {
    /// The one that all tests share. It stays for the next run, with a service `web` beside it.
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Toolbox> = OnceLock::new();
        SHARED.get_or_init(|| {
            let sandbox = Sandbox::shared();
            let mut spec = tools("exec sleep infinity");
            spec["restartPolicy"] = json!("Always");
            let mut toolbox = deployment("toolbox", 1, &spec);
            toolbox["spec"]["selector"]["matchLabels"] = json!({"app": "toolbox"});
            toolbox["spec"]["template"]["metadata"]["labels"] = json!({"app": "toolbox"});
            let web = deployment("web", 1, &sample(&[("NAME", "neighbour")]));
            let mut all = vec![service("web", &json!({})), web, toolbox];
            for object in &mut all {
                object["metadata"]["namespace"] = json!(NAMESPACE);
            }
            all.insert(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
            let list = json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string();
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
            eventually("the toolbox is applied", LIMIT, || {
                let ended = sandbox.try_kubectl(&apply, Some(&list));
                if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
            });
            for name in ["deployment/toolbox", "deployment/web"] {
                sandbox.kubectl(&["rollout", "status", name, "--namespace", NAMESPACE, "--timeout=120s"]);
            }
            Toolbox { namespace: NAMESPACE.to_owned(), pod: "deployment/toolbox".to_owned() }
        })
    }

    /// Runs a command, whatever comes of it.
    pub(super) fn exec(&self, args: &[&str], input: Option<&str>) -> Ended {
        let mut all = vec!["exec", "-i", "--namespace", &self.namespace, &self.pod, "--container", "tools", "--"];
        all.extend(args);
        Sandbox::shared().try_kubectl(&all, input)
    }

    /// Asks a web server; gives its answer and the address where it was.
    pub(super) fn fetch(&self, url: &str) -> Result<(Answer, String), String> {
        self.fetch_with("", url)
    }

    /// The same with options of git, which the shell reads.
    pub(super) fn fetch_with(&self, options: &str, url: &str) -> Result<(Answer, String), String> {
        // Git adds to the path; behind a question mark that does not matter.
        let script = format!("GIT_TRACE_CURL=1 GIT_TERMINAL_PROMPT=0 timeout 10 git {options} ls-remote '{url}?'");
        let trace = self.exec(&["sh", "-c", &script], None).stderr;
        let after = |mark: &str| {
            trace.lines().filter_map(|line| line.split_once(mark)).map(|(_, rest)| rest).collect::<Vec<_>>()
        };
        let status = after("<= Recv header: HTTP/")
            .last()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok());
        let address = after("== Info: Connected to ").last().and_then(|line| line.split(['(', ')']).nth(1));
        let (Some(status), Some(address)) = (status, address) else {
            return Err(trace);
        };
        // A dot stands for the end of the last line.
        let body = after("<= Recv data: ").concat();
        Ok((Answer { status, body: body.trim_end_matches('.').to_owned() }, address.to_owned()))
    }
}
