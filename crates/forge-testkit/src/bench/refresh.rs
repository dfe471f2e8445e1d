//! What a hard refresh costs end to end in Argo CD: the example's 46 applications as releases through the plugin, as plain
//! directories of Git, and as OCI sources of Argo CD's own. All of them hold what the plugin renders, on one Argo CD, from one Git
//! server and one registry, and Argo CD is found to see the same objects in each before anything is measured. Figures for people;
//! nothing about time is asserted.
//!
//! Nothing is synced: a refresh compares all the same, and no set has anything live that another one lacks. Argo CD gets the
//! plugin as its owner would give it, by what `forge bootstrap --print` has for its chart, and is as it was afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forge_core::install::{CMP, INITIAL_SECRET, PASSWORD_KEY, merged};
use forge_core::oci::media_type;
use forge_core::render::REGISTRY_SECRET;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::times::quantile;
use super::{Measured, PATIENCE, kubectl, leave, say};
use crate::example::{self, SAMPLE_IMAGE};
use crate::platform::{Environment, GIT, Platform};
use crate::registry_client::RegistryClient;
use crate::releases::{PLAIN_HTTP, Releases, commit, layer};
use crate::sandbox::{Sandbox, run};
use crate::twin::{self, ARGOCD, EXAMPLE_ENVIRONMENT, GitRepository, LABEL, Options, Pointer};

/// The Helm release of Argo CD, and its chart.
const RELEASE: &str = "argo-cd";
/// The list of the chart that both the sandbox and the plugin have something to say in.
const VARIABLES: &str = "/repoServer/env";
/// Between two of Argo CD's own looks at an Application: longer than all of this takes, so that it is not measured too.
const OWN_LOOKS: &str = "1h";
/// Below this the registry keeps what Argo CD's own OCI sources name.
const ARTIFACTS: &str = "artifacts";
/// The credentials of Argo CD's own OCI sources: that there is no TLS.
const OCI_SECRET: &str = "bench-refresh-oci";
/// How long Argo CD may answer with something else than a comparison: the sidecar is just started, the repo-server restarted.
const SETTLING: Duration = Duration::from_secs(180);
/// Before it is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// What runs in the repo-server's pod: it, and beside it what starts the plugin.
const SERVERS: [&str; 2] = ["argocd-repo-server", "argocd-cmp-server"];
/// Ticks a second in `/proc/<pid>/stat`.
const TICKS: f64 = 100.0;
/// How much of an error is shown.
const SHOWN: usize = 240;
/// The annotation by which a refresh is asked for, and which goes with its answer.
const ANNOTATION: &str = "argocd.argoproj.io/refresh";

/// What the Applications of a set are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    Directories,
    Oci,
    Plugin,
}

impl Set {
    const ALL: [Self; 3] = [Self::Directories, Self::Oci, Self::Plugin];

    /// As the names of its Applications have it.
    fn word(self) -> &'static str {
        match self {
            Self::Directories => "plain",
            Self::Oci => "oci",
            Self::Plugin => "plugin",
        }
    }
}

/// A way to the same objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// What everything is compared with.
    Directories,
    Oci,
    /// The plugin, which has rendered these releases before.
    Warm,
    /// The plugin, whose cache was emptied.
    Cold,
}

impl Way {
    /// All, in the order of a round.
    const ALL: [Self; 4] = [Self::Directories, Self::Oci, Self::Warm, Self::Cold];

    fn set(self) -> Set {
        match self {
            Self::Directories => Set::Directories,
            Self::Oci => Set::Oci,
            Self::Warm | Self::Cold => Set::Plugin,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Directories => "plain directories in Git",
            Self::Oci => "Argo CD's own OCI sources",
            Self::Warm => "plugin",
            Self::Cold => "plugin, its cache emptied",
        }
    }
}

/// What a way took, in seconds.
#[derive(Debug, Clone, Default, PartialEq)]
struct Times {
    /// Of each Application in each round, from the moment at which all were asked for.
    each: Vec<f64>,
    /// Of all of them, by round.
    all: Vec<f64>,
    /// Of the processor in the repo-server's pod, by round; a round in which a process of it was started again has none.
    processor: Vec<f64>,
    /// What Argo CD answered that was no comparison; it was asked again.
    errors: Vec<String>,
}

impl Times {
    fn sorted(&self) -> Self {
        let sorted = |seconds: &[f64]| {
            let mut seconds = seconds.to_vec();
            seconds.sort_by(f64::total_cmp);
            seconds
        };
        let (each, all, processor) = (sorted(&self.each), sorted(&self.all), sorted(&self.processor));
        Self { each, all, processor, errors: self.errors.clone() }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    applications: usize,
    /// Of each set.
    objects: usize,
    rounds: usize,
    times: BTreeMap<Way, Times>,
}

/// Has Argo CD refresh each set so many times, in turn, in an environment that is gone afterwards.
///
/// # Errors
/// When an Application is not rendered, or not like its counterparts.
pub fn measure(platform: &'static Platform, rounds: usize) -> Measured<Outcome> {
    say("46 releases, and the same objects as directories and as OCI artifacts");
    let environment = platform.environment("refresh");
    let sources = Sources::make(&environment)?;
    let values = with_plugin(&environment)?;
    let sandbox = &platform.sandbox;
    say("Argo CD gets the plugin");
    let chart = sandbox.charts.join(RELEASE);
    // First: one that comes after the pod is mounted a minute later.
    applied(sandbox, &secrets(&sources.registry))?;
    let outcome = helm(sandbox, &["upgrade", RELEASE, &chart.to_string_lossy(), "--values", "-"], &values)
        .and_then(|_| refreshes(&environment, &sources, rounds));
    let undone = undo(sandbox);
    let outcome = outcome?;
    undone?;
    leave(platform, environment)?;
    Ok(outcome)
}

/// Argo CD as it was before, and without the Secrets that it was given.
fn undo(sandbox: &Sandbox) -> Measured<()> {
    helm(sandbox, &["rollback", RELEASE], "")?;
    for secret in [REGISTRY_SECRET, OCI_SECRET] {
        kubectl(sandbox, &["delete", "secret", secret, "-n", ARGOCD, "--ignore-not-found"], None)?;
    }
    Ok(())
}

/// Where the same objects are, three times.
struct Sources {
    /// The registry, by host and port.
    registry: String,
    /// The repository with the directories.
    plain: String,
    /// The digest of each project's artifact, by its id.
    artifacts: BTreeMap<String, String>,
}

impl Sources {
    fn make(environment: &Environment) -> Measured<Self> {
        let Environment { platform, repository, .. } = environment;
        let releases = Releases::new(platform);
        let options = Options { environment: EXAMPLE_ENVIRONMENT.to_owned(), ..environment.options() };
        let pointers: BTreeMap<String, Pointer> = example::apps()
            .map(|(stack, app)| {
                let files = example::manifests(stack, app).into_iter();
                let files: Vec<_> =
                    files.map(|(name, text)| (name, text.replace(SAMPLE_IMAGE, &options.image))).collect();
                // A registry that was kept has the releases of earlier ones.
                let commit = commit(&format!("{} {}", app.id(), environment.name));
                (app.id(), releases.pushed(&app.id(), &commit, &files))
            })
            .collect();
        environment.push(&twin::released_example(&options, &releases.registry(), &pointers), "46 releases");

        let rendered = rendered(&platform.binary, repository.folder(), releases.host())?;
        let path = format!("refresh/{}-plain.git", environment.name);
        let plain = GitRepository::open(&platform.sandbox.git, &path, "main")?;
        let files = rendered.iter().map(|(id, text)| (format!("{}/all.yaml", directory(id)), text.clone()));
        plain.write(&files.collect::<Vec<_>>())?;
        plain.commit_and_push("what the plugin renders")?;
        let client = RegistryClient::new(releases.host());
        let mut artifacts = BTreeMap::new();
        for (id, text) in &rendered {
            artifacts.insert(id.clone(), artifact(&client, &format!("{ARTIFACTS}/{id}"), text)?);
        }
        Ok(Self { registry: releases.host().to_owned(), plain: format!("{GIT}/{path}"), artifacts })
    }

    /// What an Application of a set is told of its source.
    fn source(&self, set: Set, url: &str, id: &str) -> Value {
        match set {
            Set::Directories => json!({"repoURL": self.plain, "targetRevision": "main", "path": directory(id)}),
            Set::Oci => json!({
                "repoURL": format!("oci://{}/{ARTIFACTS}/{id}", self.registry),
                "targetRevision": self.artifacts.get(id), "path": ".",
            }),
            Set::Plugin => json!({
                "repoURL": url, "targetRevision": "main", "path": format!("{EXAMPLE_ENVIRONMENT}/apps/{id}"),
                "plugin": {"name": CMP},
            }),
        }
    }

    /// The AppProject, and the Applications of all sets, which differ in nothing but their sources.
    fn objects(&self, environment: &str, url: &str) -> Vec<Value> {
        let metadata = |name: &str| json!({"name": name, "namespace": ARGOCD, "labels": {LABEL: environment}});
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": metadata(environment),
            "spec": {
                "sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        });
        let mut objects = vec![project];
        for set in Set::ALL {
            for id in self.artifacts.keys() {
                let name = application(environment, set, id);
                objects.push(json!({
                    "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata(&name),
                    "spec": {
                        "project": environment,
                        "source": self.source(set, url, id),
                        "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
                        "syncPolicy": {"syncOptions": ["CreateNamespace=true"]},
                    },
                }));
            }
        }
        objects
    }
}

/// The folder of a project among plain directories.
fn directory(id: &str) -> String {
    format!("apps/{id}")
}

fn application(environment: &str, set: Set, id: &str) -> String {
    format!("{environment}-{}-{}", set.word(), id.replace('/', "-"))
}

/// What the plugin writes for each project of a repository, by its id.
fn rendered(forge: &Path, repository: &Path, registry: &str) -> Measured<BTreeMap<String, String>> {
    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join(CMP);
    symlink(forge.canonicalize()?, &plugin)?;
    let mut found = BTreeMap::new();
    for (_, app) in example::apps() {
        let id = app.id();
        let mut command = Command::new(&plugin);
        command.arg("generate").current_dir(repository.join(EXAMPLE_ENVIRONMENT).join("apps").join(&id)).env_clear();
        command.env("HOME", folder.path()).env("TMPDIR", folder.path()).env(PLAIN_HTTP, registry);
        let ended = run(&mut command, None);
        if ended.code != 0 {
            return Err(format!("{CMP} generate of {id}: exit {}\n{}", ended.code, ended.stderr).into());
        }
        found.insert(id, ended.stdout);
    }
    Ok(found)
}

/// Stores a file as Argo CD's own OCI sources want it: one layer that is an archive. Gives its digest.
fn artifact(client: &RegistryClient, repository: &str, text: &str) -> Measured<String> {
    let layer = layer(&[("all.yaml", text.as_bytes())])?;
    let config = client.put_blob(repository, b"{}")?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media_type::MANIFEST, "artifactType": "application/vnd.example.manifests",
        "config": {"mediaType": media_type::EMPTY, "digest": config, "size": 2},
        "layers": [{
            "mediaType": media_type::LAYER_GZIP, "digest": client.put_blob(repository, &layer)?, "size": layer.len(),
        }],
    });
    let digest = client.put_manifest(repository, media_type::MANIFEST, manifest.to_string().as_bytes(), None)?;
    Ok(digest.to_string())
}

/// The values that Argo CD is to run with: those that it has, and over them what `forge bootstrap --print` has for its owner.
fn with_plugin(environment: &Environment) -> Measured<String> {
    let platform = environment.platform;
    let print = ["bootstrap", "--print", "--environment", EXAMPLE_ENVIRONMENT, "--image", platform.image()];
    let printed = environment.forge(&[&print[..], &["--output", "json"]].concat(), PATIENCE);
    if printed.code != 0 {
        return Err(format!("forge bootstrap --print: exit {}\n{}", printed.code, printed.stderr).into());
    }
    let printed: Value = serde_json::from_str(&printed.stdout)?;
    let parts = printed.get("merge").and_then(Value::as_array).into_iter().flatten();
    let mut of_argo_cd = parts.filter(|part| part.get("chart").and_then(Value::as_str) == Some(RELEASE));
    let theirs = of_argo_cd.find_map(|part| part.get("values")).ok_or("nothing is printed for the chart of Argo CD")?;
    let ours = helm(&platform.sandbox, &["get", "values", RELEASE, "--output", "json"], "")?;
    Ok(joined(serde_json::from_str(&ours)?, theirs).to_string())
}

/// Values over others, the variables of the repo-server beside those that it has; and Argo CD does not look by itself.
fn joined(ours: Value, theirs: &Value) -> Value {
    let of = |values: &Value| values.pointer(VARIABLES).and_then(Value::as_array).cloned().unwrap_or_default();
    let variables = [of(&ours), of(theirs)].concat();
    let own = json!({"repoServer": {"env": variables}, "configs": {"cm": {"timeout.reconciliation": OWN_LOOKS}}});
    merged(merged(ours, theirs), &own)
}

/// Runs helm on the release of Argo CD and gives what it wrote; what changes it waits until it runs.
fn helm(sandbox: &Sandbox, args: &[&str], input: &str) -> Measured<String> {
    let mut command = Command::new(&sandbox.helm);
    command.args(args).args(["--namespace", ARGOCD]).env("KUBECONFIG", &sandbox.kubeconfig);
    if args.first() != Some(&"get") {
        command.args(["--wait", "--timeout", "5m"]);
    }
    let ended = run(&mut command, Some(input));
    if ended.code == 0 { Ok(ended.stdout) } else { Err(format!("helm {}: {}", args.join(" "), ended.stderr).into()) }
}

fn applied(sandbox: &Sandbox, objects: &[Value]) -> Measured<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    kubectl(sandbox, &["apply", "--server-side", "-f", "-"], Some(&list))?;
    Ok(())
}

/// Gives Argo CD the Applications, waits until it renders all of it, and measures.
fn refreshes(environment: &Environment, sources: &Sources, rounds: usize) -> Measured<Outcome> {
    let sandbox = &environment.platform.sandbox;
    applied(sandbox, &sources.objects(&environment.name, &environment.url))?;
    let server = Server::of(sandbox)?;
    let ids: Vec<&String> = sources.artifacts.keys().collect();
    let names = |set: Set| -> Vec<String> { ids.iter().map(|id| application(&environment.name, set, id)).collect() };
    let mut seen = BTreeMap::new();
    for set in Set::ALL {
        // A sidecar that was just started needs a moment: what does not count is asked for again.
        let answers = server.refresh(&names(set))?;
        seen.insert(set, answers.iter().map(|answer| objects_of(&answer.application)).collect::<Vec<_>>());
    }
    let directories = seen.get(&Set::Directories).ok_or("no directories")?;
    for (set, objects) in &seen {
        let mut pairs = ids.iter().zip(directories.iter().zip(objects));
        if let Some((id, (wanted, found))) = pairs.find(|(_, (wanted, found))| wanted != found || wanted.is_empty()) {
            return Err(format!("{id}: {wanted:?} of a directory, {found:?} of {}", set.word()).into());
        }
    }
    let mut times: BTreeMap<Way, Times> = BTreeMap::new();
    for round in 1..=rounds {
        for way in Way::ALL {
            if way == Way::Cold {
                empty_cache(sandbox)?;
            }
            let before = processor(sandbox)?;
            let answers = server.refresh(&names(way.set()))?;
            let spent = spent(&before, &processor(sandbox)?);
            let own = times.entry(way).or_default();
            let each = answers.iter().map(|answer| answer.seconds);
            let all = each.clone().fold(0.0, f64::max);
            say(&format!("round {round} of {rounds}, {}: {all:.2} s", way.title()));
            own.each.extend(each);
            own.all.push(all);
            own.processor.extend(spent);
            own.errors.extend(answers.into_iter().flat_map(|answer| answer.errors));
        }
    }
    let objects = directories.iter().map(BTreeSet::len).sum();
    Ok(Outcome { applications: ids.len(), objects, rounds, times })
}

/// That the registry has no TLS, as the plugin is told it and as Argo CD is.
fn secrets(registry: &str) -> Vec<Value> {
    let secret = |name: &str, labels: Value, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": name, "namespace": ARGOCD, "labels": labels},
        })
    };
    let kind = json!({"argocd.argoproj.io/secret-type": "repo-creds"});
    let url = format!("oci://{registry}/{ARTIFACTS}");
    vec![
        secret(REGISTRY_SECRET, json!({}), json!({"plain-http": registry})),
        secret(OCI_SECRET, kind, json!({"type": "oci", "url": url, "insecureOCIForceHttp": "true"})),
    ]
}

/// Takes away what the plugin has rendered before, in the volumes of the pods that it is in. It may go at any time.
fn empty_cache(sandbox: &Sandbox) -> Measured<()> {
    // Folder of the sandbox, its `pki`, the file.
    let folder = sandbox.kubeconfig.ancestors().nth(2).ok_or("no folder of the sandbox")?;
    let volume = |uid: &str| -> PathBuf {
        folder.join("data/kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/forge-cmp-tmp/forge-cmp")
    };
    let pods = pods(sandbox)?;
    let caches: Vec<PathBuf> = pods.iter().map(|uid| volume(uid)).filter(|cache| cache.is_dir()).collect();
    if caches.is_empty() {
        return Err(format!("no cache of the plugin in the volumes of {pods:?}").into());
    }
    for cache in caches {
        fs::remove_dir_all(cache)?;
    }
    Ok(())
}

/// The pods of the repo-server, by their uids.
fn pods(sandbox: &Sandbox) -> Measured<Vec<String>> {
    let label = "app.kubernetes.io/component=repo-server";
    let args = ["get", "pods", "-n", ARGOCD, "-l", label, "-o", "jsonpath={.items[*].metadata.uid}"];
    Ok(kubectl(sandbox, &args, None)?.split_whitespace().map(ToOwned::to_owned).collect())
}

/// Seconds of the processor that the servers in the repo-server's pods have used since they began, with all that they started and
/// that has ended, by process.
fn processor(sandbox: &Sandbox) -> Measured<BTreeMap<u32, f64>> {
    let pods = pods(sandbox)?;
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let command = text("cmdline");
        let program = command.split('\0').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let cgroup = text("cgroup");
        // systemd's cgroups spell it with underscores.
        let ours = |uid: &String| cgroup.contains(uid.as_str()) || cgroup.contains(&uid.replace('-', "_"));
        if SERVERS.contains(&program)
            && pods.iter().any(ours)
            && let Some(seconds) = with_children(&text("stat"))
        {
            found.insert(pid, seconds);
        }
    }
    Ok(found)
}

/// Seconds of the processor of a process and of those that it started and that have ended. The name may hold anything, so fields
/// count from its end.
fn with_children(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(ticks as f64 / TICKS)
}

/// What was used between two looks; nothing where they did not see the same processes.
fn spent(before: &BTreeMap<u32, f64>, after: &BTreeMap<u32, f64>) -> Option<f64> {
    let same = !before.is_empty() && before.keys().eq(after.keys());
    same.then(|| after.values().sum::<f64>() - before.values().sum::<f64>())
}

/// What was answered to a refresh.
struct Answer {
    /// From the moment at which all were asked for.
    seconds: f64,
    application: Value,
    /// What was answered before that did not count.
    errors: Vec<String>,
}

/// Argo CD's API, as its administrator. The sandbox's has no TLS.
struct Server {
    client: RegistryClient,
    authorization: String,
}

impl Server {
    fn of(sandbox: &Sandbox) -> Measured<Self> {
        let (label, address) = ("app.kubernetes.io/name=argocd-server", "jsonpath={.items[0].spec.clusterIP}");
        let address = kubectl(sandbox, &["get", "services", "-n", ARGOCD, "-l", label, "-o", address], None)?;
        let password = format!("jsonpath={{.data.{PASSWORD_KEY}}}");
        let password = kubectl(sandbox, &["get", "secret", INITIAL_SECRET, "-n", ARGOCD, "-o", &password], None)?;
        let password = String::from_utf8(STANDARD.decode(password.trim())?)?;
        let client = RegistryClient::new(&format!("{}:80", address.trim()));
        let body = json!({"username": "admin", "password": password}).to_string();
        let kind = ("Content-Type", "application/json");
        let answer = client.ask("POST", "/api/v1/session", &[kind], body.as_bytes())?;
        let session: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let token = session.get("token").and_then(Value::as_str);
        let token = token.ok_or_else(|| format!("Argo CD gives no token: status {}", answer.status))?;
        Ok(Self { client, authorization: format!("Bearer {token}") })
    }

    /// Asks for a hard refresh of all at once. What was answered and is no comparison is asked for again.
    fn refresh(&self, names: &[String]) -> Measured<Vec<Answer>> {
        let start = Instant::now();
        let answers: Vec<Result<Answer, String>> = thread::scope(|scope| {
            let ask = |name: &String| {
                let target = format!("/api/v1/applications/{name}?refresh=hard");
                scope.spawn(move || self.compared(&target, start))
            };
            let asked: Vec<_> = names.iter().map(ask).collect();
            let ended = asked.into_iter().zip(names).map(|(thread, name)| {
                let answer = thread.join().unwrap_or_else(|_| Err("not asked".to_owned()));
                answer.map_err(|why| format!("{name}: {why}"))
            });
            ended.collect()
        });
        answers.into_iter().collect::<Result<_, _>>().map_err(Into::into)
    }

    fn compared(&self, target: &str, start: Instant) -> Result<Answer, String> {
        let headers = [("Authorization", self.authorization.as_str())];
        let mut errors = Vec::new();
        loop {
            let now = Timestamp::now();
            let answer = self.client.ask("GET", target, &headers, b"").map_err(|error| error.to_string())?;
            let seconds = start.elapsed().as_secs_f64();
            let application: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let judged = if answer.status == 200 {
                compared(&application, now)
            } else {
                Err(format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)))
            };
            match judged {
                Ok(()) => return Ok(Answer { seconds, application, errors }),
                Err(why) if start.elapsed() > SETTLING => return Err(why),
                Err(why) => errors.push(why),
            }
            thread::sleep(PAUSE);
        }
    }
}

/// That Argo CD has compared an Application since then, and with something.
fn compared(application: &Value, since: Timestamp) -> Result<(), String> {
    let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let annotations = application.pointer("/metadata/annotations");
    if annotations.is_some_and(|annotations| annotations.get(ANNOTATION).is_some()) {
        return Err("the refresh is still to come".to_owned());
    }
    let conditions = application.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let of = |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut errors = conditions.filter(|condition| of(condition, "type").ends_with("Error"));
    if let Some(error) = errors.next() {
        return Err(of(error, "message"));
    }
    // To the second, and from its beginning.
    let reconciled = text("/status/reconciledAt").parse::<Timestamp>().map_or(i64::MIN, Timestamp::as_second);
    if reconciled < since.as_second() {
        return Err(format!("compared at {}, asked for at {since}", text("/status/reconciledAt")));
    }
    match text("/status/sync/status") {
        "Synced" | "OutOfSync" => Ok(()),
        status => Err(format!("its state is `{status}`")),
    }
}

/// What Argo CD sees in an Application, but for where it is bound for.
fn objects_of(application: &Value) -> BTreeSet<String> {
    let resources = application.pointer("/status/resources").and_then(Value::as_array).into_iter().flatten();
    let text = |resource: &Value, key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    resources.map(|resource| ["group", "version", "kind", "name"].map(|key| text(resource, key)).join("/")).collect()
}

/// The ways side by side.
pub fn table(outcome: &Outcome) -> String {
    let Outcome { applications, objects, rounds, times } = outcome;
    let mut text = format!(
        "  {applications} Applications and {objects} objects in each set, all asked for at once; medians of {rounds} rounds, measured in turn\n"
    );
    let _ = writeln!(
        text,
        "  {:<28}{:>10}{:>15}{:>11}{:>11}{:>12}{:>8}",
        "", "all", "÷ directories", "one, p50", "one, p95", "processor", "errors"
    );
    let median = |way: Way| times.get(&way).map_or(0.0, |times| quantile(&times.sorted().all, 0.5));
    let directories = median(Way::Directories);
    for (way, times) in times {
        let (all, Times { each, processor, errors, .. }) = (median(*way), times.sorted());
        let ratio = if directories > 0.0 { all / directories } else { 0.0 };
        let (p50, p95, processor) = (quantile(&each, 0.5), quantile(&each, 0.95), quantile(&processor, 0.5));
        let _ = writeln!(
            text,
            "  {:<28}{all:>8.2} s{ratio:>15.2}{p50:>9.2} s{p95:>9.2} s{processor:>10.2} s{:>8}",
            way.title(),
            errors.len()
        );
    }
    text.push_str(
        "  from the moment at which all are asked for to the answer of Argo CD's API, which comes when it has compared
  processor: of the repo-server and of what stands beside it, with all that they start
  errors: answers that were no comparison, and were asked for again within the time that is shown
  not synced: there is nothing live to compare with, in any set; Argo CD's own looks are an hour apart meanwhile
  a hard refresh fetches Git and OCI sources anew; what the plugin rendered before it finds in its cache, unless emptied
",
    );
    for (way, times) in times {
        if let Some(error) = times.errors.first() {
            let _ = writeln!(text, "  {}, first error: {}", way.title(), error.chars().take(SHOWN).collect::<String>());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        let artifacts = BTreeMap::from([("shop/api".to_owned(), "sha256:1".to_owned())]);
        Sources { registry: "10.0.0.1:5000".to_owned(), plain: "http://git/plain.git".to_owned(), artifacts }
    }

    #[test]
    fn applications_of_the_sets_differ_in_nothing_but_their_sources_and_names() {
        let objects = sources().objects("refresh-1-0", "http://git/x.git");
        assert_eq!(objects.len(), 1 + Set::ALL.len());
        let mut applications = objects.into_iter().skip(1).collect::<Vec<_>>();
        let sources: Vec<Value> = applications.iter_mut().map(|object| object["spec"]["source"].take()).collect();
        assert_eq!(sources[0]["path"], "apps/shop/api");
        assert_eq!(sources[1]["repoURL"], "oci://10.0.0.1:5000/artifacts/shop/api");
        assert_eq!(sources[1]["targetRevision"], "sha256:1");
        assert_eq!((&sources[2]["path"], &sources[2]["plugin"]["name"]), (&json!("dev/apps/shop/api"), &json!(CMP)));
        let names = ["plain", "oci", "plugin"].map(|set| format!("refresh-1-0-{set}-shop-api"));
        for (object, name) in applications.iter_mut().zip(&names) {
            assert_eq!(object["metadata"]["name"].take(), name.as_str());
            assert_eq!(object["spec"]["destination"]["namespace"].take(), name.as_str());
        }
        assert!(applications.windows(2).all(|pair| pair[0] == pair[1]), "{applications:#?}");
    }

    #[test]
    fn an_answer_counts_when_it_is_of_a_comparison_that_was_asked_for_and_has_no_error() {
        let since: Timestamp = "2026-01-01T00:00:10.9Z".parse().unwrap();
        let good = json!({
            "metadata": {"annotations": {"other": "x"}},
            "status": {
                "reconciledAt": "2026-01-01T00:00:10Z", "sync": {"status": "OutOfSync"},
                "conditions": [{"type": "OrphanedResourceWarning", "message": "something"}],
            },
        });
        assert_eq!(compared(&good, since), Ok(()));
        let with = |pointer: &str, value: Value| {
            let mut changed = good.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            compared(&changed, since).unwrap_err()
        };
        assert_eq!(with("/metadata/annotations", json!({ANNOTATION: "hard"})), "the refresh is still to come");
        assert!(with("/status/reconciledAt", json!("2026-01-01T00:00:09Z")).starts_with("compared at 2026"));
        assert_eq!(with("/status/sync/status", json!("Unknown")), "its state is `Unknown`");
        let error = json!({"type": "ComparisonError", "message": "no such plugin"});
        assert_eq!(with("/status/conditions/0", error), "no such plugin");
        assert!(compared(&json!({}), since).is_err());
    }

    #[test]
    fn the_same_objects_are_the_same_wherever_they_are_bound_for() {
        let of = |namespace: &str, name: &str| {
            let resource =
                json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": namespace, "name": name});
            objects_of(&json!({"status": {"resources": [resource]}}))
        };
        assert_eq!(of("a", "api"), of("b", "api"));
        assert_ne!(of("a", "api"), of("a", "other"));
        assert!(objects_of(&json!({})).is_empty());
    }

    #[test]
    fn variables_that_the_repo_server_has_stay_beside_those_of_the_plugin() {
        let ours = json!({"repoServer": {"env": [{"name": "GOGC"}]}, "configs": {"params": {"server.insecure": true}}});
        let theirs = json!({"repoServer": {"env": [{"name": "CHUNK"}], "volumes": []}});
        assert_eq!(
            joined(ours, &theirs),
            json!({
                "repoServer": {"env": [{"name": "GOGC"}, {"name": "CHUNK"}], "volumes": []},
                "configs": {"params": {"server.insecure": true}, "cm": {"timeout.reconciliation": OWN_LOOKS}},
            })
        );
    }

    #[test]
    fn ways_are_compared_with_directories_by_the_median_of_their_rounds() {
        let times = |all: [f64; 3], errors: &[&str]| {
            let errors = errors.iter().map(|error| (*error).to_owned()).collect();
            Times { each: all.to_vec(), all: all.to_vec(), processor: vec![0.5], errors }
        };
        let times = BTreeMap::from([
            (Way::Warm, times([9.0, 1.0, 3.0], &["it is away"])),
            (Way::Directories, times([2.0, 2.0, 8.0], &[])),
        ]);
        let said = table(&Outcome { applications: 46, objects: 150, rounds: 3, times });
        let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2][4..], ["2.00", "s", "1.00", "2.00", "s", "8.00", "s", "0.50", "s", "0"]);
        assert_eq!(lines[3], ["plugin", "3.00", "s", "1.50", "3.00", "s", "9.00", "s", "0.50", "s", "1"]);
        assert!(said.ends_with("  plugin, first error: it is away\n"), "{said}");
    }

    #[test]
    fn processor_time_is_that_of_a_process_and_its_children_and_only_where_none_was_started_again() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 20 30 20 0 9 0 4242 1 1";
        assert_eq!((with_children(text), with_children("7 (a) S 1")), (Some(2.5), None));
        let of = |pid: u32, seconds: f64| BTreeMap::from([(pid, seconds)]);
        assert_eq!(spent(&of(1, 2.0), &of(1, 2.5)), Some(0.5));
        assert_eq!(spent(&of(1, 2.0), &of(2, 2.5)), None);
        assert_eq!(spent(&BTreeMap::new(), &BTreeMap::new()), None);
    }
}
