//! What the plugin of Argo CD costs, for `make bench`: renders of one release as processes, cold and warm, alone and many at a time,
//! beside a client on the Go OCI client library that pulls and unpacks the same release, and `helm template` and `kustomize build` of the
//! same resources, where the sandbox's build cache has these programs; and the memory of the largest release that it may render. Figures
//! for people; nothing about time is asserted.

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use forge_core::digest::Digest;
use forge_core::release::Limits;
use tempfile::TempDir;

use super::{Measured, say};
use crate::generate::Random;
use crate::registry::Registry;
use crate::registry_client::RegistryClient;
use crate::releases::{commit, layer, stored};

/// How many resources the release has.
const RESOURCES: usize = 100;
/// How many renders go on at a time, and how often that is done.
const SERIES: [(usize, usize); 3] = [(1, 40), (16, 8), (64, 4)];
/// Below this the registry keeps releases.
const PREFIX: &str = "releases";
/// The release that is rendered many times, and the large ones.
const PROJECTS: [&str; 3] = ["shop/api", "shop/large", "shop/dense"];
/// What of a large release is output: of what the limit allows, so much is left for the receipt and what writing adds.
const OUTPUT: u64 = 62_000_000;
const SEED: u64 = 20_260_101;

/// A registry on loopback.
enum Served {
    /// The sandbox's own program, which is a real one.
    Program { process: Child, host: String },
    /// The testkit's, in memory, where the build cache has no other.
    Memory(Registry),
}

impl Served {
    fn start(folder: &Path) -> Measured<Self> {
        let Some(program) = built("services", "registry") else { return Ok(Self::Memory(Registry::start()?)) };
        // Nobody else takes a port that was free a moment ago, as a rule.
        let host = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let mut command = Command::new(program);
        command.args(["--listen", &host, "--root"]).arg(folder.join("registry"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let served = Self::Program { process, host };
        let client = RegistryClient::new(served.host().as_str());
        let start = Instant::now();
        while client.ask("GET", "/v2/", &[], b"").is_err() {
            if start.elapsed() > Duration::from_secs(30) {
                return Err("the sandbox's registry does not answer".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(served)
    }

    fn host(&self) -> String {
        match self {
            Self::Program { host, .. } => host.clone(),
            Self::Memory(registry) => registry.host(),
        }
    }

    fn as_str(&self) -> &'static str {
        match self {
            Self::Program { .. } => "the sandbox's registry",
            Self::Memory(_) => "a registry in memory",
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Self::Program { process, .. } = self {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A program of the sandbox's build cache, the newest of its name.
pub fn built(entry: &str, program: &str) -> Option<PathBuf> {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let forge = path("FORGE_CACHE")
        .or_else(|| path("XDG_CACHE_HOME").map(|path| path.join("forge")))
        .or_else(|| path("HOME").map(|path| path.join(".cache/forge")))?;
    let start = format!("{entry}-");
    let entries = fs::read_dir(forge.join("sandbox")).ok()?.flatten();
    let ours = entries.filter(|found| found.file_name().to_string_lossy().starts_with(&start));
    let found = ours.map(|found| found.path().join("bin").join(program)).filter(|path| path.is_file());
    found.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
}

/// What is measured, and where.
struct Ground {
    served: Served,
    forge: PathBuf,
    // The last to go: the registry writes into it.
    folder: TempDir,
}

impl Ground {
    fn new(forge: &Path) -> Measured<Self> {
        let folder = tempfile::tempdir()?;
        let served = Served::start(folder.path())?;
        let ground = Self { served, forge: forge.canonicalize()?, folder };
        std::os::unix::fs::symlink(&ground.forge, ground.path("catalyst-forge-cmp"))?;
        let installation = format!(
            "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  registry: \"{}/{PREFIX}\"\n  repository: {{url: https://git.example.com/p.git}}\n  environments: [{{name: dev, cluster: dev, sync: manual}}]\n",
            ground.served.host()
        );
        ground.write("repo/forge.yaml", &installation)?;
        Ok(ground)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Measured<()> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(self.folder.path()))?;
        Ok(fs::write(path, text)?)
    }

    fn point(&self, project: &str, digest: &Digest) -> Measured<()> {
        let name = project.rsplit('/').next().unwrap_or(project);
        let text = format!(
            "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: ReleasePointer\nmetadata: {{name: {name}}}\nspec:\n  release: {}\n  digest: {digest}\n",
            commit(project)
        );
        self.write(&format!("repo/dev/apps/{project}/release.yaml"), &text)
    }

    /// Builds a release of a folder and pushes it, as people do. Gives how others name it.
    fn released(&self, source: &str, project: &str) -> Measured<String> {
        let mut command = Command::new(&self.forge);
        command.args(["release", "build"]).arg(self.path(source)).args(["--project", project, "--commit"]);
        command.arg(commit(project).as_str()).arg("--push").arg(format!("{}/{PREFIX}", self.served.host()));
        let output = scrubbed(&mut command, self.folder.path()).current_dir(self.folder.path()).output()?;
        if !output.status.success() {
            return Err(format!("release build: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let digest = said.trim().rsplit('@').next().unwrap_or_default().parse::<Digest>()?;
        self.point(project, &digest)?;
        Ok(format!("{}/{PREFIX}/{project}@{digest}", self.served.host()))
    }

    /// Stores a release by hand.
    fn stored(&self, project: &str, files: &[(String, String)]) -> Measured<()> {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect();
        let client = RegistryClient::new(&self.served.host());
        let digest = stored(&client, &format!("{PREFIX}/{project}"), project, &commit(project), &layer(&files)?)?;
        self.point(project, &digest)
    }

    /// The plugin as Argo CD starts it, with this cache.
    fn render(&self, project: &str, cache: &str) -> Command {
        let mut command = Command::new(self.path("catalyst-forge-cmp"));
        command.arg("generate").current_dir(self.path("repo/dev/apps").join(project));
        scrubbed(&mut command, self.folder.path()).env("FORGE_CMP_CACHE", self.path(cache));
        command
    }
}

/// A program that sees nothing of this machine's settings.
fn scrubbed<'c>(command: &'c mut Command, home: &Path) -> &'c mut Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("HOME", home).env("TMPDIR", home).stdin(Stdio::null())
}

/// How long each took, and all of a round together.
#[derive(Default)]
struct Times {
    each: Vec<Duration>,
    rounds: Vec<Duration>,
}

/// The one that this share of all does not exceed.
fn quantile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let place = (share * times.len() as f64) as usize;
    times.get(place.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Starts so many at a time, so often. What is started is numbered through; `after` each round may tidy up.
fn timed(
    (many, rounds): (usize, usize),
    command: impl Fn(usize) -> Command,
    after: impl Fn() -> Measured<()>,
) -> Measured<Times> {
    let mut times = Times::default();
    for round in 0..rounds {
        let commands: Vec<Command> = (0..many).map(|n| command(round * many + n)).collect();
        let start = Instant::now();
        let ended: Vec<Option<Duration>> = thread::scope(|scope| {
            let started = commands.into_iter().map(|mut command| {
                scope.spawn(move || {
                    let start = Instant::now();
                    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
                    ended.is_ok_and(|status| status.success()).then(|| start.elapsed())
                })
            });
            let started: Vec<_> = started.collect();
            started.into_iter().map(|thread| thread.join().ok().flatten()).collect()
        });
        times.rounds.push(start.elapsed());
        for time in ended {
            times.each.push(time.ok_or("a render failed")?);
        }
        after()?;
    }
    Ok(times)
}

/// Runs a program and gives the most memory that it had, in KiB, and how long it took.
fn peak(command: &mut Command) -> Measured<(u64, Duration)> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let seen = watched(&mut child);
    let ended = child.wait()?;
    if ended.success() { Ok((seen?, start.elapsed())) } else { Err(format!("{command:?}: {ended}").into()) }
}

/// The most memory of a process when it begins to write. Nothing is read before that, so one that writes more than fits into a pipe
/// is still there.
fn watched(child: &mut Child) -> Measured<u64> {
    let mut output = child.stdout.take().ok_or("no output")?;
    output.read_exact(&mut [0])?;
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    std::io::copy(&mut output, &mut std::io::sink())?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let peak = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    Ok(peak.ok_or("it was gone before it was looked at")?)
}

/// Resources of the kinds that applications are made of, one document each.
fn resources(count: usize) -> String {
    let image = format!("registry.example.com/shop/app@{}", Digest::of(b"image"));
    let one = |n: usize| match n % 4 {
        0 => format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-{n:03}\n  labels: {{app.kubernetes.io/name: app-{n:03}, app.kubernetes.io/part-of: shop}}\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {{app.kubernetes.io/name: app-{n:03}}}\n  template:\n    metadata:\n      labels: {{app.kubernetes.io/name: app-{n:03}, app.kubernetes.io/part-of: shop}}\n    spec:\n      securityContext: {{runAsNonRoot: true, runAsUser: 65532}}\n      containers:\n        - name: app\n          image: \"{image}\"\n          args: [--listen, \":8080\", --upstream, \"http://app-{n:03}-upstream:8080\", --cache, \"64Mi\"]\n          env:\n            - {{name: LOG_LEVEL, value: info}}\n            - {{name: POOL, value: \"{n}\"}}\n            - name: PASSWORD\n              valueFrom: {{secretKeyRef: {{name: app-{n:03}, key: password}}}}\n          ports: [{{name: http, containerPort: 8080}}]\n          readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 5}}\n          resources: {{requests: {{cpu: 50m, memory: 64Mi}}, limits: {{memory: 128Mi}}}}\n          volumeMounts: [{{name: config, mountPath: /etc/app, readOnly: true}}]\n      volumes:\n        - name: config\n          configMap: {{name: app-{n:03}}}\n"
        ),
        1 => format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: app-{n:03}\nspec:\n  selector: {{app.kubernetes.io/name: app-{n:03}}}\n  ports: [{{name: http, port: 80, targetPort: http}}]\n"
        ),
        2 => format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-{n:03}\ndata:\n  app.yaml: |\n{}",
            (0..40)
                .map(|line| format!("    setting-{line:02}: value of setting {line} of application {n}\n"))
                .collect::<String>()
        ),
        _ => format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: app-{n:03}\nautomountServiceAccountToken: false\n"
        ),
    };
    (0..count).map(|n| format!("---\n{}", one(n))).collect()
}

/// A file with one document that comes to so many bytes, filled up to its size by comments, which are not rendered.
fn large(random: &mut Random, n: usize, document: u64, size: u64) -> (String, String) {
    let mut text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: large-{n:02}\ndata:\n");
    let mut key = 0;
    while (text.len() as u64) + 1_100 < document {
        let _ = write!(text, "  key-{key:05}: x");
        for _ in 0..62 {
            let _ = write!(text, "{:016x}", random.next_number());
        }
        text.push('\n');
        key += 1;
    }
    while (text.len() as u64) + 100 <= size {
        text.push_str("# ");
        text.push_str(&"what nobody needs ".repeat(5));
        text.push_str("      \n");
    }
    (format!("large-{n:02}.yaml"), text)
}

/// Everything, as lines.
///
/// # Errors
/// When something cannot be started, or does not end well.
pub fn measure(forge: &Path) -> Measured<String> {
    say("render: releases, as processes");
    let ground = Ground::new(forge)?;
    let [project, loose, dense] = PROJECTS;
    let text = resources(RESOURCES);
    ground.write("plain/all.yaml", &text)?;
    ground.write("kustomize/all.yaml", &text)?;
    ground.write("kustomize/kustomization.yaml", "resources: [all.yaml]\n")?;
    ground.write("chart/Chart.yaml", "apiVersion: v2\nname: bench\nversion: 1.0.0\n")?;
    ground.write("chart/templates/all.yaml", &text)?;
    let reference = ground.released("plain", project)?;

    let mut lines = format!(
        "render     {RESOURCES} resources, {} KiB, from {} on loopback; cold is with an empty cache of its own\n",
        text.len() >> 10,
        ground.served.as_str()
    );
    let nothing = || -> Measured<()> { Ok(()) };
    let emptied = || -> Measured<()> {
        for folder in ["cold", "pulled"].map(|name| ground.path(name)).into_iter().filter(|folder| folder.exists()) {
            fs::remove_dir_all(folder)?;
        }
        Ok(())
    };
    // Once, so that all of them find it.
    timed((1, 1), |_| ground.render(project, "warm"), nothing)?;
    let (helm, kustomize) = (built("helm", "helm"), built("kustomize", "kustomize"));
    let client = built("oci-client", "oci-client");
    for series in SERIES {
        let cold = timed(series, |n| ground.render(project, &format!("cold/{n}")), emptied)?;
        row(&mut lines, "plugin, cold", series.0, cold, "");
        let warm = timed(series, |_| ground.render(project, "warm"), nothing)?;
        let wanted = if series.0 == 1 { "   (wanted: p50 at most 5 ms)" } else { "" };
        row(&mut lines, "plugin, warm", series.0, warm, wanted);
        if let Some(client) = &client {
            let pulls = timed(series, |n| pull(&ground, client, &reference, n), emptied)?;
            row(&mut lines, "pull and untar", series.0, pulls, "");
        }
        if let Some(helm) = &helm {
            row(&mut lines, "helm template", series.0, timed(series, |_| helm_template(&ground, helm), nothing)?, "");
        }
        if let Some(kustomize) = &kustomize {
            let build = timed(series, |_| kustomize_build(&ground, kustomize), nothing)?;
            row(&mut lines, "kustomize build", series.0, build, "");
        }
    }
    let programs = [("oci-client", client.is_some()), ("helm", helm.is_some()), ("kustomize", kustomize.is_some())];
    for (name, there) in programs {
        if !there {
            let _ =
                writeln!(lines, "           no {name} in the sandbox's build cache: `forge sandbox build` makes it");
        }
    }
    let mut memory = |name: &str, command: &mut Command, further: &str| -> Measured<()> {
        let (peak, took) = peak(command)?;
        let _ = writeln!(lines, "           {name:<16} {:>6.1} MiB at most, {took:.2?}{further}", peak as f64 / 1024.0);
        Ok(())
    };
    memory("plugin, cold", &mut ground.render(project, "cold/memory"), "")?;
    memory("plugin, warm", &mut ground.render(project, "warm"), "")?;
    if let Some(helm) = &helm {
        memory("helm template", &mut helm_template(&ground, helm), "")?;
    }
    if let Some(kustomize) = &kustomize {
        memory("kustomize build", &mut kustomize_build(&ground, kustomize), "")?;
    }

    // As large as a release may be: files as large as one may be, as many as may be unpacked. They may not come to as much
    // output, so most of each is comments, which nobody but who writes a release by hand puts into one.
    let limits = Limits::default();
    let file = limits.file as u64 - 1_024;
    let files = limits.extracted / limits.file as u64;
    let document = OUTPUT / files;
    let mut random = Random::new(SEED);
    let mut made = |size: u64| -> Vec<(String, String)> {
        (0..usize::try_from(files).unwrap_or(1)).map(|n| large(&mut random, n, document, size)).collect()
    };
    ground.stored(loose, &made(file))?;
    ground.stored(dense, &made(document))?;
    let mib = |bytes: u64| bytes >> 20;
    let largest = format!(
        "   ({files} files of {} MiB, the most that may be unpacked: {} MiB; as output at most {} MiB is allowed, so {} MiB of it are documents of {} MiB and the rest is comments; wanted: at most the largest file and 32 MiB)",
        mib(limits.file as u64),
        mib(limits.extracted),
        mib(limits.output),
        mib(OUTPUT),
        mib(document)
    );
    memory("largest release", &mut ground.render(loose, "cold/loose"), &largest)?;
    let all = format!(
        "   ({files} files of {} MiB, all of it output; wanted: at most the largest and 32 MiB)",
        mib(document)
    );
    memory("largest output", &mut ground.render(dense, "cold/dense"), &all)?;
    memory("the same, warm", &mut ground.render(dense, "cold/dense"), "")?;
    Ok(lines)
}

/// Pulls a release and unpacks its layers, into a folder of its own, with a client on the Go OCI client library.
fn pull(ground: &Ground, client: &Path, reference: &str, n: usize) -> Command {
    let mut command = Command::new(client);
    command.args(["pull", "--plain-http", reference]).arg(ground.path(&format!("pulled/{n}")));
    scrubbed(&mut command, ground.folder.path());
    command
}

fn helm_template(ground: &Ground, helm: &Path) -> Command {
    let mut command = Command::new(helm);
    command.args(["template", "bench"]).arg(ground.path("chart"));
    scrubbed(&mut command, ground.folder.path());
    command
}

fn kustomize_build(ground: &Ground, kustomize: &Path) -> Command {
    let mut command = Command::new(kustomize);
    command.arg("build").arg(ground.path("kustomize"));
    scrubbed(&mut command, ground.folder.path());
    command
}

fn row(lines: &mut String, name: &str, many: usize, mut times: Times, further: &str) {
    let (half, most) = (quantile(&mut times.each, 0.5), quantile(&mut times.each, 0.95));
    let all = quantile(&mut times.rounds, 0.5);
    let _ = writeln!(
        lines,
        "           {name:<16} {many:>2} at a time   p50 {half:>8.1?}   p95 {most:>8.1?}   all {all:>8.1?}{further}"
    );
}

#[cfg(test)]
mod tests {
    use forge_core::release::documents;

    use super::*;

    #[test]
    fn the_resources_are_as_many_objects_and_more_than_fits_into_a_pipe() {
        let text = resources(RESOURCES);
        let found = documents("all.yaml", text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(found.len(), RESOURCES);
        let written: usize = found.iter().map(|document| document.text().len()).sum();
        assert!(text.len() > 64 << 10 && written > 64 << 10, "{} {written}", text.len());
        // A chart takes it for a template.
        assert!(!text.contains("{{"));
    }

    #[test]
    fn large_files_are_within_the_limits_and_nearly_at_them() {
        let limits = Limits { file: 1 << 20, ..Limits::default() };
        let (_, text) = large(&mut Random::new(1), 3, 300_000, (1 << 20) - 1_024);
        assert!(text.len() <= (1 << 20) - 1_024 && text.len() > (1 << 20) - 1_224, "{}", text.len());
        let found = documents("large.yaml", text.as_bytes(), &limits).unwrap();
        let written = found.iter().map(|document| document.text().len()).sum::<usize>();
        assert!(found.len() == 1 && (290_000..305_000).contains(&written), "{written}");
    }

    #[test]
    fn a_share_of_times_is_one_that_occurred() {
        let mut times: Vec<Duration> = (1..=20).rev().map(Duration::from_millis).collect();
        let found = [0.5, 0.95, 1.0].map(|share| quantile(&mut times, share));
        assert_eq!(found, [11, 20, 20].map(Duration::from_millis));
        assert_eq!(quantile(&mut [], 0.5), Duration::ZERO);
    }
}
