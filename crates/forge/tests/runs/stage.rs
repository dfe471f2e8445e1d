//! An environment that is prepared for runs, and what tests ask of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forge_testkit::order;
use forge_testkit::platform::{Environment, Platform};
use forge_testkit::sandbox::{Ended, eventually};
use forge_testkit::twin::{self, File, Options, TwinNode};
use serde_json::Value;

/// When a test gives up: no figure of how long anything should take, so that a machine with other work fails nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// An environment with a repository, an AppProject that holds everything, and Applications.
pub(crate) struct Stage {
    pub(crate) environment: Environment,
    pub(crate) options: Options,
}

impl Stage {
    /// With these nodes; Argo CD syncs by itself where `auto`.
    pub(crate) fn new(test: &str, auto: bool, nodes: impl FnOnce(&Options) -> Vec<TwinNode>) -> Self {
        let environment = Platform::shared().environment(test);
        let mut options = environment.options();
        options.auto = auto;
        options.timeouts = Some(("2m".to_owned(), "4m".to_owned()));
        let nodes = nodes(&options);
        environment.push(&twin::small(&options, &nodes), "the platform");
        Self::prepared(environment, options)
    }

    /// With what its repository holds.
    pub(crate) fn prepared(environment: Environment, options: Options) -> Self {
        let stage = Self { environment, options };
        let image = stage.environment.platform.image().to_owned();
        // Argo CD is the sandbox's, and so is what is in its namespace.
        stage.environment.merge();
        let made = stage.forge(&["bootstrap", "--image", &image]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        // After the AppProject, whose window holds them: nothing starts by itself.
        let file = stage.environment.repository.folder().join("argocd/applications.yaml");
        stage.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
        stage
    }

    pub(crate) fn forge(&self, args: &[&str]) -> Ended {
        self.environment.forge(args, PATIENCE)
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.environment.platform.sandbox.kubectl(args)
    }

    /// Deploys and expects this exit code; gives the report.
    pub(crate) fn deploy(&self, code: i32) -> Value {
        let ended = self.forge(&["platform", "deploy", "--output", "json"]);
        assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
        serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr))
    }

    /// Entries of the newest run, by node.
    pub(crate) fn entries(&self) -> BTreeMap<String, Value> {
        self.entries_of(&self.runs().last().cloned().unwrap_or_default())
    }

    fn entries_of(&self, run: &str) -> BTreeMap<String, Value> {
        let mut entries = BTreeMap::new();
        for config_map in self.config_maps() {
            if config_map["metadata"]["labels"]["forge.projectcatalyst.io/run"] != run {
                continue;
            }
            let name = config_map["metadata"]["name"].as_str().unwrap_or_default();
            let data = config_map["data"].as_object().into_iter().flatten();
            for (key, text) in
                data.filter(|(key, _)| name.starts_with("forge-run-") && key.ends_with(".json") && *key != "run.json")
            {
                let entry: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
                let node = key.trim_end_matches(".json").replace(&format!("argocd_{}-", self.environment.name), "");
                entries.insert(node, entry);
            }
        }
        entries
    }

    fn config_maps(&self) -> Vec<Value> {
        let selector = format!("forge.projectcatalyst.io/environment={}", self.environment.name);
        let list = self.environment.json(&["get", "configmaps", "-n", "argo", "-l", &selector]);
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Names of the runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<String> {
        let label = |c: &Value| c["metadata"]["labels"]["forge.projectcatalyst.io/run"].as_str().map(str::to_owned);
        let names: BTreeSet<String> = self.config_maps().iter().filter_map(label).collect();
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_by_key(|name| name.rsplit('-').next().and_then(|n| n.parse::<u64>().ok()));
        names
    }

    /// What the last answer about a node is: `proven`, `wait` or `failed`; nothing if it was never asked for.
    pub(crate) fn answer(&self, node: &str) -> Option<String> {
        self.entries().get(node).map(|entry| entry["decision"]["type"].as_str().unwrap_or_default().to_owned())
    }

    /// Where `why` leads to from a node: the node whose fault it is, and what is said of that one, with the resource.
    pub(crate) fn cause(&self, node: &str) -> (String, String) {
        let said = self.forge(&["why", &self.options.id(node), "--output", "json"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        let links = said["chain"]["links"].as_array().cloned().unwrap_or_default();
        let root = links.last().cloned().unwrap_or_default();
        let text = |field: &str| root[field].as_str().unwrap_or_default().to_owned();
        let name = text("node").trim_start_matches(&self.options.id("")).to_owned();
        (name, format!("{} {}", text("detail"), text("resource")))
    }

    /// Nodes that our window holds.
    pub(crate) fn held(&self) -> BTreeSet<String> {
        let project = self.environment.json(&["get", "appproject", &self.environment.name, "-n", "argocd"]);
        let windows = project["spec"]["syncWindows"].as_array().cloned().unwrap_or_default();
        let names = windows.iter().flat_map(|window| window["applications"].as_array().cloned().unwrap_or_default());
        let prefix = format!("{}-", self.environment.name);
        names.map(|name| name.as_str().unwrap().trim_start_matches(&prefix).to_owned()).collect()
    }

    /// How often a node was synced, by Argo CD's own count.
    pub(crate) fn syncs(&self, node: &str) -> usize {
        self.environment.application(node)["status"]["history"].as_array().map_or(0, Vec::len)
    }

    /// How often each node was synced: one question for all. What was killed in the middle counts once.
    pub(crate) fn all_syncs(&self) -> BTreeMap<String, usize> {
        let label = format!("{}={}", twin::LABEL, self.environment.name);
        let list = self.environment.json(&["get", "applications", "-n", "argocd", "-l", &label]);
        let prefix = format!("{}-", self.environment.name);
        let of = |item: &Value| {
            let name = item["metadata"]["name"].as_str().unwrap().trim_start_matches(&prefix).to_owned();
            (name, operations(item))
        };
        list["items"].as_array().into_iter().flatten().map(of).collect()
    }

    /// Edges whose later Application Argo CD began to sync before the operation of the earlier one had ended, by its own times, and
    /// how many edges that could be told of. Only operations of ours tell.
    pub(crate) fn began_too_early(&self, predecessors: &BTreeMap<String, BTreeSet<String>>) -> (Vec<String>, usize) {
        let label = format!("{}={}", twin::LABEL, self.environment.name);
        let list = self.environment.json(&["get", "applications", "-n", "argocd", "-l", &label]);
        let times = |item: &Value| {
            let state = &item["status"]["operationState"];
            let ours = state["operation"]["info"].as_array()?.iter().any(|info| info["name"] == "forge-nonce");
            let time = |field: &str| state[field].as_str()?.parse::<jiff::Timestamp>().ok();
            let times = (time("startedAt")?, time("finishedAt")?);
            ours.then(|| (item["metadata"]["name"].as_str().unwrap().to_owned(), times))
        };
        let times: BTreeMap<String, _> = list["items"].as_array().into_iter().flatten().filter_map(times).collect();
        let (mut early, mut judged) = (Vec::new(), 0);
        for (node, before) in predecessors {
            for before in before {
                let (Some((began, _)), Some((_, ended))) = (times.get(node), times.get(before)) else { continue };
                judged += 1;
                if began < ended {
                    early.push(format!("{node} began at {began}, {before} ended at {ended}"));
                }
            }
        }
        (early, judged)
    }

    /// How often Argo CD began to sync each node because it was asked to, by the API server's log, and how many attempts
    /// at it the records of all runs name: two requests for one attempt are one too many, whatever came of them.
    pub(crate) fn requests(&self) -> BTreeMap<String, (usize, usize)> {
        let mut attempts: BTreeMap<String, usize> = BTreeMap::new();
        for run in self.runs() {
            for (node, entry) in self.entries_of(&run) {
                *attempts.entry(node).or_default() += last_attempt(&entry);
            }
        }
        let begun = order::requests(&self.environment.audit(self.environment.started));
        let of = |node: &str| begun.get(&self.options.application(node)).copied().unwrap_or(0);
        let counted = attempts.into_iter().map(|(node, attempts)| {
            let counts = (of(&node), attempts);
            (node, counts)
        });
        counted.collect()
    }

    /// Waits until the newest run has ended and gives its header.
    pub(crate) fn ended(&self) -> Value {
        let run = eventually("there is a run", PATIENCE, || self.runs().pop().ok_or_else(|| "no run".to_owned()));
        self.ended_as(&run)
    }

    /// The header of a run, once it has ended.
    pub(crate) fn ended_as(&self, run: &str) -> Value {
        eventually("the run has ended", PATIENCE, || {
            let name = format!("forge-run-{run}-0");
            let found = self
                .environment
                .platform
                .sandbox
                .try_kubectl(&["get", "configmap", &name, "-n", "argo", "-o", "json"], None);
            let found: Value = serde_json::from_str(&found.stdout).map_err(|error| error.to_string())?;
            let header: Value = serde_json::from_str(found["data"]["run.json"].as_str().unwrap_or_default())
                .map_err(|error| error.to_string())?;
            if header["ended"].is_object() { Ok(header) } else { Err(header.to_string()) }
        })
    }

    /// Waits until the newest run has asked Argo CD to sync a node.
    pub(crate) fn until_asked(&self, node: &str) {
        eventually(&format!("a sync of {node} was asked for"), PATIENCE, || {
            let asked = self.entries().get(node).and_then(|entry| entry["asked"].as_array().map(Vec::len)).unwrap_or(0);
            if asked > 0 { Ok(()) } else { Err("not yet".to_owned()) }
        });
    }
}

/// A file as a node's folder in the repository has it.
pub(crate) fn placed(node: &str, (file, text): File) -> File {
    (format!("apps/{node}/{file}"), text)
}

/// A Service that the API server refuses for its port.
pub(crate) fn refused_service(port: u32) -> File {
    let text = format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: bad\nspec:\n  ports: [{{port: {port}}}]\n");
    ("bad.yaml".to_owned(), text)
}

/// A set of names.
pub(crate) fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// The highest attempt at a node that the record of a run names; 0 where it asked for none.
fn last_attempt(entry: &Value) -> usize {
    let asked = entry["asked"].as_array().into_iter().flatten().map(|asked| &asked["attempt"]);
    // One that was adopted from a process that died before it could write it down is there and not in the list.
    let known = asked.chain([&entry["progress"]["syncRequested"]["attempt"]]);
    known.filter_map(Value::as_u64).max().map_or(0, |attempt| usize::try_from(attempt).unwrap())
}

/// How many operations an Application went through. One that the application-controller died in, after its entry in the
/// history and before its end, is taken up again and enters twice, with the same start, revision and author.
fn operations(application: &Value) -> usize {
    let history = application["status"]["history"].as_array();
    let of = |entry: &Value| match &entry["deployStartedAt"] {
        // What does not say when it started is one of its own.
        Value::Null => entry["id"].to_string(),
        started => format!("{started} {} {}", entry["revision"], entry["initiatedBy"]),
    };
    history.into_iter().flatten().map(of).collect::<BTreeSet<String>>().len()
}
