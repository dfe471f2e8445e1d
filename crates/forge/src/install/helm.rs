//! The `helm` program, behind a port: it is given a kubeconfig and values in files that only we can read, never a secret as
//! an argument; what it says is bounded, and so is its time; and it does not outlive us. What it does is the caller's.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::install::{HISTORY, Listed};
use forge_core::name::clip;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::charts::{Source, digest, field};
use crate::child::{self, Bounds, ChildError};
use crate::interrupt::Interrupts;
use crate::registry::Options;

/// The oldest minor version of Helm 3 that keeps labels of a release.
const OLDEST: u64 = 14;
/// What it may print: the objects of a release are a few megabytes.
const MOST_OUTPUT: u64 = 32 << 20;
/// How long what asks nothing of a cluster may take; a chart may have to be fetched.
const QUICK: Duration = Duration::from_secs(120);
/// How long it may take to put things away when it is told to stop.
const GRACE: Duration = Duration::from_secs(20);
/// Ends it when we are killed, where there is such a program; where there is none, as in a container, all processes end with
/// the first one.
const GUARD: &[&str] = if cfg!(target_os = "linux") { &["setpriv", "--pdeathsig", "KILL", "--"] } else { &[] };
/// The variable by which Go, and so helm, is told where certificates of authorities are, on Linux; and where it looks otherwise.
const CERTIFICATES: &str = "SSL_CERT_DIR";
const TRUSTED: &str = "/etc/ssl/certs:/etc/pki/tls/certs";
/// What helm calls the repository that charts come from, in a list of repositories that is ours alone.
const REPOSITORY: &str = "forge";
/// What of the environment would change what it does, or is not its business.
const REMOVED: [&str; 15] = [
    "FORGE_KUBECONFIG_DATA",
    "HELM_BURST_LIMIT",
    "HELM_DEBUG",
    "HELM_DRIVER",
    "HELM_KUBEAPISERVER",
    "HELM_KUBEASGROUPS",
    "HELM_KUBEASUSER",
    "HELM_KUBECAFILE",
    "HELM_KUBECONTEXT",
    "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
    "HELM_KUBETLS_SERVER_NAME",
    "HELM_KUBETOKEN",
    "HELM_MAX_HISTORY",
    "HELM_NAMESPACE",
    "KUBECONFIG_DATA",
];

/// Why helm did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelmError {
    /// It is not there, or is no program.
    #[error("`{program}` cannot be started: {error}")]
    Missing {
        /// Which.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// It is another Helm.
    #[error("`{program}` is Helm {found}")]
    Version {
        /// Which.
        program: String,
        /// What it says.
        found: String,
    },
    /// It said no.
    #[error("`helm {what}` failed: {said}")]
    Failed {
        /// What was asked for.
        what: &'static str,
        /// In its own words.
        said: String,
    },
    /// It did not end.
    #[error("`helm {what}` did not end within {seconds} s and was killed")]
    TimedOut {
        /// What was asked for.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It did not stop talking.
    #[error("`helm {what}` wrote more than {MOST_OUTPUT} bytes and was killed")]
    Flooded {
        /// What was asked for.
        what: &'static str,
    },
    /// It got a chart that is not what was asked for, or none.
    #[error("chart {name} of `{repository}`: {why}")]
    Chart {
        /// Which.
        name: String,
        /// From where.
        repository: String,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be told who it is for registries.
    #[error("failed to read credentials of registries: {0}")]
    Credentials(String),
    /// Somebody told us to stop, and we told it.
    #[error("interrupted")]
    Interrupted,
    /// A file for it cannot be written, or it cannot be waited for.
    #[error("failed to work with helm: {0}")]
    Machine(io::Error),
}

impl HelmError {
    /// Where helm itself is the reason, and nothing of the cluster.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Missing { .. } | Self::Version { .. } => Failure::new(Code::HelmUnusable, self)
                .hint(format!("install Helm 3.{OLDEST} or newer (not 4), or name it with --helm or FORGE_HELM")),
            Self::Credentials(_) => Failure::new(Code::BadArgument, self)
                .hint("they are a file as Docker keeps it: --registry-config, or what Secret `forge-registry` has"),
            _ => Failure::new(Code::HelmUnusable, self).hint("run it again; `helm version` must say what it is"),
        }
    }
}

/// A release and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release<'r> {
    pub(crate) name: &'r str,
    pub(crate) namespace: &'r str,
}

/// What a release is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made<'m> {
    /// The chart, as arguments.
    pub(crate) chart: &'m [OsString],
    /// The file of values.
    pub(crate) values: &'m Path,
}

/// The program, for one cluster.
pub(crate) struct Helm {
    program: PathBuf,
    guard: &'static [&'static str],
    /// Kubeconfig, values and caches; gone when this is.
    folder: TempDir,
    /// How it speaks with registries, and what its environment says of that.
    registries: Options,
    variables: Vec<(&'static str, OsString)>,
}

impl Helm {
    /// The program that is named, or that of the path, if it is one that can be used.
    ///
    /// # Errors
    /// When it cannot be started, is another version, or credentials of registries cannot be read.
    pub(crate) async fn find(
        program: Option<&Path>,
        kubeconfig: &SecretString,
        registries: Options,
        interrupts: &mut Interrupts,
    ) -> Result<Self, HelmError> {
        let program = program.map_or_else(|| PathBuf::from("helm"), Path::to_owned);
        let folder = tempfile::tempdir().map_err(HelmError::Machine)?;
        let mut helm = Self { program, guard: GUARD, folder, registries, variables: Vec::new() };
        helm.file("kubeconfig", kubeconfig.expose_secret())?;
        helm.variables = helm.reaching(std::env::var_os(CERTIFICATES))?;
        let said = match helm.version(interrupts).await {
            Err(HelmError::Missing { .. } | HelmError::Failed { .. }) => {
                // The guard may be what is not there, or knows less than ours.
                helm.guard = &[];
                helm.version(interrupts).await?
            }
            other => other?,
        };
        let found = said.trim();
        let mut numbers = found.trim_start_matches('v').split('.').map(|part| part.parse::<u64>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(3), Some(minor)) if minor >= OLDEST => Ok(helm),
            _ => Err(HelmError::Version { program: helm.shown(), found: clip(found) }),
        }
    }

    async fn version(&self, interrupts: &mut Interrupts) -> Result<String, HelmError> {
        self.run("version", words(&["version", "--template", "{{.Version}}"]), QUICK, interrupts).await
    }

    fn shown(&self) -> String {
        clip(&self.program.display().to_string())
    }

    /// A file that only we and helm can read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<PathBuf, HelmError> {
        let path = self.folder.path().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(HelmError::Machine)?;
        Ok(path)
    }

    /// What its environment says of registries: a file of credentials, and a folder of certificates before those that it looks
    /// into anyway. As `--ca-file` they would be all that it trusts, and nothing that is published could be fetched.
    fn reaching(&self, trusted: Option<OsString>) -> Result<Vec<(&'static str, OsString)>, HelmError> {
        let mut variables = Vec::new();
        if let Some(text) = self.registries.credentials.for_programs().map_err(HelmError::Credentials)? {
            let file = self.file("registries.json", text.expose_secret())?;
            variables.push(("HELM_REGISTRY_CONFIG", file.into_os_string()));
        }
        if let Some(certificates) = &self.registries.certificates {
            let own = self.folder.path().join("trusted");
            fs::create_dir(&own).map_err(HelmError::Machine)?;
            self.file("trusted/ca.crt", certificates)?;
            let mut folders = own.into_os_string();
            folders.push(":");
            folders.push(trusted.filter(|folders| !folders.is_empty()).unwrap_or_else(|| TRUSTED.into()));
            variables.push((CERTIFICATES, folders));
        }
        Ok(variables)
    }

    /// The chart as arguments: a registry that speaks plain HTTP is asked so.
    fn chart(&self, made: Made<'_>) -> Vec<OsString> {
        let mut words = made.chart.to_vec();
        let reference = words.first().and_then(|reference| reference.to_str()?.strip_prefix("oci://"));
        let host = reference.and_then(|reference| reference.split('/').next());
        if host.is_some_and(|host| self.registries.is_plain(host)) {
            words.push("--plain-http".into());
        }
        words
    }

    /// The chart as arguments, at hand where it can be. One that a repository lists in an index is fetched once, so that every
    /// later step works with the same bytes, and held against the index, which helm does not do: it takes whatever is
    /// downloaded, a version that only begins like the wanted one, and before all a folder of the chart's name in whatever
    /// folder we were started in.
    ///
    /// # Errors
    /// When it is not there, or is not what the index says.
    pub(crate) async fn at_hand(
        &self,
        source: &Source,
        interrupts: &mut Interrupts,
    ) -> Result<Vec<OsString>, HelmError> {
        let (Some(repository), Some(version)) = (&source.repository, &source.version) else {
            return Ok(source.arguments());
        };
        let name = source.reference.to_string_lossy();
        let wrong = |why: String| HelmError::Chart { name: name.to_string(), repository: clip(repository), why };
        // Where it was added before, its index is here already.
        self.run("repo add", words(&["repo", "add", REPOSITORY, repository]), QUICK, interrupts).await?;
        let index = self.repositories().join(format!("{REPOSITORY}-index.yaml"));
        let length = fs::metadata(&index).map_err(HelmError::Machine)?.len();
        if length > MOST_OUTPUT {
            return Err(wrong(format!("its index has {length} bytes, more than {MOST_OUTPUT}")));
        }
        let index = fs::read(&index).map_err(HelmError::Machine)?;
        let listed = Listed::read(&String::from_utf8_lossy(&index), &name, version).map_err(wrong)?;
        let folder = self.folder.path().join(format!("fetched-{name}"));
        fs::create_dir(&folder).map_err(HelmError::Machine)?;
        let mut arguments = words(&["pull", &name, "--repo", repository, "--version", version, "--destination"]);
        arguments.push(folder.clone().into_os_string());
        self.run("pull", arguments, QUICK, interrupts).await?;
        // Its name is the last word of an address that the index says.
        let mut files = fs::read_dir(&folder).map_err(HelmError::Machine)?;
        let archive = files.next().transpose().map_err(HelmError::Machine)?;
        let archive = archive.ok_or_else(|| wrong("helm downloaded nothing".to_owned()))?.path();
        listed.admit(&digest(&archive).map_err(HelmError::Machine)?).map_err(wrong)?;
        let arguments = vec!["show".into(), "chart".into(), archive.clone().into_os_string()];
        let description = self.run("show chart", arguments, QUICK, interrupts).await?;
        let (found, at) = (field(&description, "name"), field(&description, "version"));
        if found.as_deref() != Some(&*name) || at.as_ref() != Some(version) {
            let shown = |text: Option<String>| text.map_or_else(|| "nothing".to_owned(), |text| clip(&text));
            let (found, at) = (shown(found), shown(at));
            return Err(wrong(format!("what its index calls {name} {version} is chart {found}, version {at}")));
        }
        Ok(vec![archive.into_os_string()])
    }

    /// Where helm keeps the indexes of repositories.
    fn repositories(&self) -> PathBuf {
        self.folder.path().join("cache/repository")
    }

    /// The objects that a chart gives with values; asks nothing of the cluster.
    pub(crate) async fn template(
        &self,
        release: Release<'_>,
        made: Made<'_>,
        interrupts: &mut Interrupts,
    ) -> Result<String, HelmError> {
        let mut arguments = words(&["template", release.name]);
        arguments.extend(self.chart(made));
        arguments.extend(words(&["--namespace", release.namespace, "--values"]));
        arguments.push(made.values.as_os_str().to_owned());
        self.run("template", arguments, QUICK, interrupts).await
    }

    /// The objects that an upgrade would make, with what the cluster can do; changes nothing.
    pub(crate) async fn rendered(
        &self,
        release: Release<'_>,
        made: Made<'_>,
        interrupts: &mut Interrupts,
    ) -> Result<String, HelmError> {
        let mut arguments = words(&["upgrade", release.name]);
        arguments.extend(self.chart(made));
        arguments.extend(words(&["--install", "--dry-run=server", "--reset-values", "--output", "json"]));
        arguments.extend(words(&["--namespace", release.namespace, "--values"]));
        arguments.push(made.values.as_os_str().to_owned());
        let said = self.run("upgrade", arguments, QUICK, interrupts).await?;
        let release: Option<Value> = serde_json::from_str(&said).ok();
        let manifest = release.as_ref().and_then(|release| release.get("manifest")?.as_str());
        let unclear = || HelmError::Failed { what: "upgrade", said: "its answer has no manifest".to_owned() };
        manifest.map(str::to_owned).ok_or_else(unclear)
    }

    /// Installs or upgrades, waits until everything is ready, and takes it back by itself where it does not become so.
    pub(crate) async fn upgrade(
        &self,
        release: Release<'_>,
        made: Made<'_>,
        labels: &str,
        timeout: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<(), HelmError> {
        let mut arguments = words(&["upgrade", release.name]);
        arguments.extend(self.chart(made));
        arguments.extend(words(&["--install", "--atomic", "--wait", "--reset-values"]));
        arguments.extend(words(&["--history-max", &HISTORY.to_string()]));
        arguments.extend(words(&["--timeout", &seconds(timeout), "--namespace", release.namespace]));
        arguments.extend(words(&["--labels", labels, "--values"]));
        arguments.push(made.values.as_os_str().to_owned());
        self.run("upgrade", arguments, patience(timeout), interrupts).await.map(drop)
    }

    /// Makes a release again what it was as an earlier revision.
    pub(crate) async fn rollback(
        &self,
        release: Release<'_>,
        revision: u64,
        timeout: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<(), HelmError> {
        let mut arguments = words(&["rollback", release.name, &revision.to_string(), "--wait"]);
        arguments.extend(words(&["--timeout", &seconds(timeout), "--namespace", release.namespace]));
        arguments.extend(words(&["--history-max", &HISTORY.to_string()]));
        self.run("rollback", arguments, patience(timeout), interrupts).await.map(drop)
    }

    /// Removes a release; what its chart keeps stays.
    pub(crate) async fn uninstall(
        &self,
        release: Release<'_>,
        timeout: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<(), HelmError> {
        let mut arguments = words(&["uninstall", release.name, "--wait", "--ignore-not-found"]);
        arguments.extend(words(&["--timeout", &seconds(timeout), "--namespace", release.namespace]));
        self.run("uninstall", arguments, patience(timeout), interrupts).await.map(drop)
    }

    /// The objects of the release as it is, or its hooks.
    pub(crate) async fn get(
        &self,
        what: &'static str,
        release: Release<'_>,
        interrupts: &mut Interrupts,
    ) -> Result<String, HelmError> {
        let arguments = words(&["get", what, release.name, "--namespace", release.namespace]);
        self.run("get", arguments, QUICK, interrupts).await
    }

    /// Runs the tests of the chart.
    pub(crate) async fn test(
        &self,
        release: Release<'_>,
        timeout: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<(), HelmError> {
        let mut arguments = words(&["test", release.name, "--namespace", release.namespace]);
        arguments.extend(words(&["--timeout", &seconds(timeout)]));
        self.run("test", arguments, patience(timeout), interrupts).await.map(drop)
    }

    /// The program with what it is asked for, and of our environment only what is its business.
    fn command(&self, arguments: Vec<OsString>) -> Command {
        let mut all = words(self.guard);
        all.push(self.program.clone().into_os_string());
        all.extend(arguments);
        let mut all = all.into_iter();
        let mut command = Command::new(all.next().unwrap_or_default());
        command.args(all);
        for name in REMOVED {
            command.env_remove(name);
        }
        command.env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        // Neither the user's caches and repositories nor a root file system that cannot be written to.
        for (name, place) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_DATA_HOME", "data"),
            ("HELM_REPOSITORY_CONFIG", "repositories.yaml"),
            ("KUBECACHEDIR", "kube"),
        ] {
            command.env(name, self.folder.path().join(place));
        }
        command.env("HELM_REPOSITORY_CACHE", self.repositories());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    async fn run(
        &self,
        what: &'static str,
        arguments: Vec<OsString>,
        limit: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<String, HelmError> {
        let bounds = Bounds { time: limit, grace: GRACE, output: MOST_OUTPUT };
        let said = child::output(self.command(arguments), bounds, interrupts).await.map_err(|error| match error {
            ChildError::Start(error) => HelmError::Missing { program: self.shown(), error },
            ChildError::Failed(said) => HelmError::Failed { what, said },
            ChildError::TimedOut => HelmError::TimedOut { what, seconds: limit.as_secs() },
            ChildError::Flooded => HelmError::Flooded { what },
            ChildError::Interrupted => HelmError::Interrupted,
            ChildError::Machine(error) => HelmError::Machine(error),
        })?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn seconds(timeout: Duration) -> String {
    format!("{}s", timeout.as_secs())
}

/// How long helm may take in all: as long as it is told to wait, twice, because it may have to go back.
fn patience(timeout: Duration) -> Duration {
    timeout * 2 + Duration::from_secs(60)
}

#[cfg(test)]
mod tests {
    use super::super::Charts;
    use super::*;
    use crate::registry::Credentials;
    use crate::runtime::block_on;
    use forge_core::digest::Digest;
    use forge_core::executor::Input;
    use std::process::Stdio;
    use std::time::Instant;

    const RELEASE: Release<'_> = Release { name: "argo-cd", namespace: "argocd" };

    /// A program that says it is this version, and otherwise does what the script says.
    fn fake(folder: &Path, version: &str, script: &str) -> PathBuf {
        let path = folder.join("helm");
        let text = format!("#!/bin/sh\nif [ \"$1\" = version ]; then echo {version}; exit 0; fi\n{script}\n");
        // Not written by this process: what another test starts meanwhile would hold the file open, and nobody could run it.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(&path).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path
    }

    /// Runs what is asked for against a program of this version and script.
    fn with<T>(
        version: &str,
        script: &str,
        ask: impl AsyncFnOnce(&Helm, &mut Interrupts) -> T,
    ) -> Result<T, HelmError> {
        reaching(Options::default(), version, script, ask)
    }

    /// The same, where registries are spoken with like this.
    fn reaching<T>(
        registries: Options,
        version: &str,
        script: &str,
        ask: impl AsyncFnOnce(&Helm, &mut Interrupts) -> T,
    ) -> Result<T, HelmError> {
        let folder = tempfile::tempdir().unwrap();
        let program = fake(folder.path(), version, script);
        let asked = block_on(async {
            let mut interrupts = Interrupts::listen();
            let secret = SecretString::from("{}".to_owned());
            let helm = Helm::find(Some(&program), &secret, registries, &mut interrupts).await?;
            Ok::<T, HelmError>(ask(&helm, &mut interrupts).await)
        });
        asked.unwrap()
    }

    async fn nothing(_: &Helm, _: &mut Interrupts) {}

    async fn manifest(helm: &Helm, interrupts: &mut Interrupts) -> Result<String, HelmError> {
        helm.get("manifest", RELEASE, interrupts).await
    }

    async fn brief(helm: &Helm, interrupts: &mut Interrupts) -> Result<String, HelmError> {
        helm.run("get", words(&["get"]), Duration::from_millis(1500), interrupts).await
    }

    async fn template(helm: &Helm, interrupts: &mut Interrupts) -> Result<String, HelmError> {
        let values = helm.file("values.json", "{\"password\":\"hunter2\"}").unwrap();
        let chart = words(&["oci://r.example.com/argo-cd", "--version", "9.2.0"]);
        helm.template(RELEASE, Made { chart: &chart, values: &values }, interrupts).await
    }

    #[test]
    fn a_program_that_is_not_there_or_another_version_is_told() {
        let nowhere = block_on(async {
            let mut interrupts = Interrupts::listen();
            let (program, registries) = (Path::new("/nowhere/helm"), Options::default());
            let secret = SecretString::from(String::new());
            Helm::find(Some(program), &secret, registries, &mut interrupts).await.map(drop)
        });
        let error = nowhere.unwrap().unwrap_err();
        assert!(matches!(&error, HelmError::Missing { program, .. } if program == "/nowhere/helm"), "{error}");
        assert_eq!(error.failure().code, Code::HelmUnusable);
        for version in ["v3.13.9", "v4.0.1", "v2.17.0", "something", ""] {
            let error = with(version, "exit 1", nothing).unwrap_err();
            assert!(matches!(error, HelmError::Version { .. }), "{version}: {error}");
        }
        for version in ["v3.14.0", "v3.22.0", "v3.19.0+g3d8990f"] {
            with(version, "exit 1", nothing).unwrap();
        }
    }

    #[test]
    fn what_it_says_is_given_and_why_it_failed_is_told_in_its_words() {
        let said = with("v3.22.0", "echo \"$@\"", manifest).unwrap().unwrap();
        assert_eq!(said, "get manifest argo-cd --namespace argocd\n");
        let script = "echo 'WARNING: old' >&2; echo 'Error: UPGRADE FAILED: no' >&2; printf 'so \\033[2J' >&2; exit 1";
        let error = with("v3.22.0", script, manifest).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "`helm get` failed: UPGRADE FAILED: no; so \u{fffd}[2J");
        let error = with("v3.22.0", "exit 3", manifest).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "`helm get` failed: it does not say why");
        let much = "yes 'WARNING: nothing new' | head -c 100000 >&2; echo 'Error: end' >&2; exit 1";
        let error = with("v3.22.0", much, manifest).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "`helm get` failed: end");
    }

    #[test]
    fn no_secret_is_an_argument_and_its_files_are_ours_alone() {
        let script = "stat -c %a \"$KUBECONFIG\"; echo \"$HELM_DRIVER$FORGE_KUBECONFIG_DATA.\"; cat \"$KUBECONFIG\"";
        let said = with("v3.22.0", script, manifest).unwrap().unwrap();
        assert_eq!(said, "600\n.\n{}");
        let said = with("v3.22.0", "echo \"$@\"; cat \"$9\"", template).unwrap().unwrap();
        let (arguments, values) = said.split_once('\n').unwrap();
        assert!(arguments.starts_with("template argo-cd oci://r.example.com/argo-cd --version 9.2.0 --namespace"));
        assert!(!arguments.contains("hunter2"), "{arguments}");
        assert!(values.contains("hunter2"), "{values}");
    }

    #[test]
    fn a_registry_hears_from_it_who_it_is_and_plain_http_where_that_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let entry = r#"{"auths":{"r.example.com":{"auth":"bWU6czNjcmV0"}}}"#;
        let with_helper = entry.replace("{\"auths\"", "{\"credsStore\":\"x\",\"auths\"");
        fs::write(folder.path().join(".dockerconfigjson"), with_helper).unwrap();
        let mounted = Options {
            plain_http: vec!["R.example.com".to_owned()],
            credentials: Credentials::Mounted(folder.path().to_owned()),
            certificates: Some("of their own".to_owned()),
            ..Options::default()
        };
        let script = "echo \"$@\"; stat -c %a \"$HELM_REGISTRY_CONFIG\"; cat \"$HELM_REGISTRY_CONFIG\"; echo; echo \"$SSL_CERT_DIR\"; cat \"${SSL_CERT_DIR%%:*}/ca.crt\"";
        let said = reaching(mounted.clone(), "v3.22.0", script, template).unwrap().unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let chart = "template argo-cd oci://r.example.com/argo-cd --version 9.2.0 --plain-http --namespace argocd ";
        assert!(lines[0].starts_with(chart) && !lines[0].contains("czNj"), "{said}");
        // No program is started, whatever the Secret says; what is trusted anyway still is.
        assert_eq!((lines[1], lines[2]), ("600", entry), "{said}");
        let usual = std::env::var(CERTIFICATES).ok().filter(|folders| !folders.is_empty());
        let usual = usual.unwrap_or_else(|| TRUSTED.to_owned());
        assert!(lines[3].ends_with(&format!("/trusted:{usual}")), "{said}");
        assert_eq!(lines[4], "of their own");
        // Another registry speaks TLS, and a chart at hand no protocol at all.
        let tls = Options { plain_http: vec!["other:5000".to_owned()], ..Options::default() };
        let said = reaching(tls, "v3.22.0", "echo \"$@\"", template).unwrap().unwrap();
        assert!(!said.contains("--plain-http"), "{said}");
        let answer = r#"case "$*" in *--plain-http*) exit 1;; *) echo '{"manifest":""}';; esac"#;
        assert_eq!(reaching(mounted, "v3.22.0", answer, rendered).unwrap().unwrap(), "");
        // Who says nothing leaves it its own ways.
        let script = "echo \"$HELM_REGISTRY_CONFIG.\"";
        let said = with("v3.22.0", script, manifest).unwrap().unwrap();
        assert_eq!(said.trim_end(), format!("{}.", std::env::var("HELM_REGISTRY_CONFIG").unwrap_or_default()));
        let named = Options { credentials: Credentials::Named("/not/there".into()), ..Options::default() };
        let error = reaching(named, "v3.22.0", "exit 1", nothing).unwrap_err();
        assert_eq!(error.failure().code, Code::BadArgument, "{error}");
    }

    async fn fetched(helm: &Helm, interrupts: &mut Interrupts) -> Result<Vec<u8>, HelmError> {
        let source = Charts::parse("https://charts.example.com/").unwrap().source("argo-cd", "9.2.0").unwrap();
        let chart = helm.at_hand(&source, interrupts).await?;
        assert_eq!(chart.len(), 1, "{chart:?}");
        Ok(fs::read(&chart[0]).unwrap())
    }

    /// helm as far as it fetches: the index that it gets, the archive, and what that says it is.
    fn fetching(index: &str, archive: &str, description: &str) -> String {
        format!(
            "case \"$1 $2\" in\n\
             'repo add') [ \"$3 $4\" = 'forge https://charts.example.com' ] && mkdir -p \"$HELM_REPOSITORY_CACHE\" || exit 1\n\
             printf '%b' '{index}' > \"$HELM_REPOSITORY_CACHE/forge-index.yaml\";;\n\
             'pull argo-cd') [ \"$4 $6\" = 'https://charts.example.com 9.2.0' ] || exit 1\n\
             [ -z '{archive}' ] || printf '{archive}' > \"$8/some.tgz\";;\n\
             'show chart') printf '%b' '{description}';;\n\
             *) exit 1;;\n\
             esac"
        )
    }

    #[test]
    fn a_chart_of_a_repository_is_what_its_index_and_it_itself_say_or_it_is_not_used() {
        let index =
            |version: &str, digest: &str| format!(r"entries:\n  argo-cd: [{{version: {version}, digest: {digest}}}]\n");
        let digest = Digest::of(b"archive").to_string();
        let good = index("9.2.0", digest.trim_start_matches("sha256:"));
        let itself = r"name: argo-cd\nversion: 9.2.0\n";
        let said = with("v3.22.0", &fetching(&good, "archive", itself), fetched).unwrap();
        assert_eq!(said.unwrap(), b"archive");
        for (index, archive, itself, why) in [
            (
                index("9.2.0+mine", &digest),
                "archive",
                itself,
                "its index has chart argo-cd at 9.2.0+mine, and not at 9.2.0",
            ),
            ("<html>".to_owned(), "archive", itself, "its index has no entries"),
            (good.clone(), "another", itself, "its index says that the archive is sha256:"),
            (good.clone(), "", itself, "helm downloaded nothing"),
            (good.clone(), "archive", r"name: argo-cd\nversion: 9.1.0\n", "is chart argo-cd, version 9.1.0"),
            (good.clone(), "archive", r"name: other\nversion: 9.2.0\n", "is chart other, version 9.2.0"),
            (good.clone(), "archive", "", "is chart nothing, version nothing"),
        ] {
            let error = with("v3.22.0", &fetching(&index, archive, itself), fetched).unwrap().unwrap_err().to_string();
            assert!(error.starts_with("chart argo-cd of `https://charts.example.com`: "), "{error}");
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    async fn removed(helm: &Helm, _: &mut Interrupts) -> Vec<String> {
        let command = helm.command(Vec::new());
        let gone = command.as_std().get_envs().filter(|(_, value)| value.is_none());
        gone.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_kubeconfig_of_the_executor_is_not_handed_on_by_either_of_its_names() {
        let removed = with("v3.22.0", "exit 1", removed).unwrap();
        let name = Input::KubeconfigData.variable();
        for name in [name.to_owned(), format!("FORGE_{name}"), "HELM_DRIVER".to_owned()] {
            assert!(removed.contains(&name), "{name}: {removed:?}");
        }
    }

    async fn rendered(helm: &Helm, interrupts: &mut Interrupts) -> Result<String, HelmError> {
        let values = helm.file("values.json", "{}").unwrap();
        helm.rendered(RELEASE, Made { chart: &words(&["charts/argo-cd"]), values: &values }, interrupts).await
    }

    #[test]
    fn what_an_upgrade_would_make_is_asked_for_and_nothing_is_changed() {
        let answer = r#"printf '%s' '{"name":"argo-cd","manifest":"a: 1\n"}'"#;
        let script = format!("case \"$*\" in *--dry-run=server*) {answer};; *) exit 1;; esac");
        assert_eq!(with("v3.22.0", &script, rendered).unwrap().unwrap(), "a: 1\n");
        for odd in ["echo '{}'", "echo nothing", "exit 1"] {
            let error = with("v3.22.0", odd, rendered).unwrap().unwrap_err();
            assert!(matches!(error, HelmError::Failed { what: "upgrade", .. }), "{odd}: {error}");
        }
    }

    #[test]
    fn what_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("child");
        let script = format!("sleep 300 & echo $! > {}; wait", note.display());
        let begin = Instant::now();
        let error = with("v3.22.0", &script, brief).unwrap().unwrap_err();
        assert!(matches!(error, HelmError::TimedOut { what: "get", .. }), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(60));
        let child: i32 = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
        let start = Instant::now();
        // Until its parent of last resort has buried it.
        while nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), None).is_ok() && !is_zombie(child) {
            assert!(start.elapsed() < Duration::from_secs(20), "{child} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_zombie(process: i32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    }

    #[test]
    fn what_does_not_stop_talking_is_killed() {
        let error = with("v3.22.0", "exec cat /dev/zero", manifest).unwrap().unwrap_err();
        assert!(matches!(error, HelmError::Flooded { what: "get" }), "{error}");
        // Complaints are taken without end and kept within bounds.
        let error = with("v3.22.0", "exec cat /dev/zero >&2", brief).unwrap().unwrap_err();
        assert!(matches!(error, HelmError::TimedOut { .. }), "{error}");
    }
}
