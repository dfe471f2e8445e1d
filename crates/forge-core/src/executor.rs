//! The contract of the executor (SPEC.md section 5): which inputs there are, and what they come to. Flag goes over variable,
//! variable over file; what was given is checked even where something goes over it.
//!
//! Pure: texts in, inputs or everything that is wrong with them out. Reading flags, variables and files is the caller's.

mod input;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

pub use input::{Input, reference};
pub use value::{Domain, GitUrl, HttpUrl, Revision, ValueError};

use crate::code::Code;
use crate::duration::Duration;
use crate::finding::{Finding, Place};
use crate::format::{
    Environment, ExecutorEnvironment, ExecutorTimeouts, Installation, RETRY_FACTORS, RETRY_LIMITS, RetrySpec,
    TimeoutsSpec,
};
use crate::graph::Scope;
use crate::name::{EnvironmentName, MAX_ENVIRONMENT, Namespace, clip};
use crate::repository::EnvironmentFiles;
use crate::run::Runner;
use crate::teardown::{ParseTargetError, Target};
use crate::trace::{SpanId, TraceId};
use crate::truth;
use crate::validate::yaml_finding;
use crate::yaml::{At, Decoder, Dialect, Limits, Position, read};

/// Longest value of any input but a kubeconfig.
const LONGEST: usize = 4096;
/// Longest kubeconfig.
const LONGEST_KUBECONFIG: usize = 1 << 20;

/// What the executor is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Deploy an environment and prove it.
    Deploy,
    /// Look at an environment.
    Validate,
    /// Remove an environment.
    Teardown,
}

impl Action {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deploy => "deploy",
            Self::Validate => "validate",
            Self::Teardown => "teardown",
        }
    }
}

/// How much is logged: everything up to this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What failed.
    Error,
    /// What could be a mistake.
    Warn,
    /// What happens.
    Info,
    /// What is waited for, and why.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// What becomes of volumes at a teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PvPolicy {
    /// They stay.
    Retain,
    /// They go.
    Delete,
    /// They are copied, then go.
    Snapshot,
}

impl PvPolicy {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retain => "retain",
            Self::Delete => "delete",
            Self::Snapshot => "snapshot",
        }
    }
}

const LEVELS: [(&str, Level); 5] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];
const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
const POLICIES: [(&str, PvPolicy); 3] =
    [("retain", PvPolicy::Retain), ("delete", PvPolicy::Delete), ("snapshot", PvPolicy::Snapshot)];
const RUNNERS: [(&str, Runner); 2] = [("plugin", Runner::Plugin), ("pod", Runner::Pod)];
const ADDITIONS: [(&str, bool); 1] = [("self-managed-argocd", true)];
const BOOLEANS: [(&str, bool); 2] = [("true", true), ("false", false)];

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// The text itself, for whoever needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// How the cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// By a kubeconfig, in base64.
    Data(Hidden),
    /// By a kubeconfig in this file.
    Path(String),
    /// With the account of the pod.
    InCluster,
}

/// A value and where it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// A flag, a variable, or a place in a file.
    pub place: Place,
}

/// Everything that was given, before anybody looked at it. Cannot be printed: it may hold a kubeconfig.
pub struct Given {
    /// What is to be done.
    pub action: Action,
    /// What stands before the names of all variables: nothing for `executor`, `FORGE_` for `forge`.
    pub prefix: &'static str,
    /// By flag.
    pub flags: BTreeMap<Input, String>,
    /// By variable; nothing where one is not UTF-8.
    pub variables: BTreeMap<Input, Option<String>>,
    /// The path and the text of `environment.yaml`, where there is one.
    pub file: Option<(String, String)>,
}

impl Given {
    /// The full name of a variable.
    pub fn variable(&self, input: Input) -> String {
        format!("{}{}", self.prefix, input.variable())
    }
}

/// What was given, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// The environment.
    pub environment: EnvironmentName,
    /// What of it.
    pub scope: Scope,
    /// Nothing may be written.
    pub dry_run: bool,
    /// How much is logged.
    pub log_level: Level,
    /// How it is logged.
    pub log_format: LogFormat,
    /// What becomes of volumes.
    pub pv_policy: PvPolicy,
    /// Objects whose finalizers are given up.
    pub release_finalizers: Vec<Target>,
    /// The trace that this is a part of.
    pub trace: Option<TraceId>,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// How the cluster is reached.
    pub access: Access,
    /// The DNS name of the environment.
    pub domain: Sourced<Domain>,
    /// The GitOps repository.
    pub git_repository: Sourced<GitUrl>,
    /// What of it is deployed.
    pub git_revision: Sourced<Revision>,
    /// The cluster as `forge.yaml` must name it.
    pub cluster_name: Option<Sourced<String>>,
    /// Argo CD's namespace as `forge.yaml` must name it.
    pub argocd_namespace: Option<Sourced<Namespace>>,
    /// The namespace of Argo Workflows.
    pub workflows_namespace: Namespace,
    /// Limits for every node that has none of its own, and for the run.
    pub timeouts: ExecutorTimeouts,
    /// Retries for every node that has none of its own.
    pub retries: RetrySpec,
    /// Something needs volumes.
    pub storage: bool,
    /// The image of forge that a cluster is prepared with.
    pub image: Option<String>,
    /// Where the charts of Argo are; nothing for the usual place.
    pub charts: Option<String>,
    /// A file of credentials of registries; nothing for what is mounted.
    pub registry_config: Option<String>,
    /// A file of certificates that are trusted for registries; nothing for what is mounted.
    pub registry_ca: Option<String>,
    /// Registries that are asked without TLS; none for what is mounted.
    pub plain_http: Vec<String>,
    /// Argo CD is handed over to its own Application.
    pub self_managed_argocd: bool,
    /// How nodes are run; nothing for what the workflow-controller allows.
    pub runner: Option<Runner>,
    /// How old a comparison may be before a validation calls it stale.
    pub stale_after: Duration,
    /// Codes of rules that a validation tells and does not count.
    pub allowed: BTreeSet<Code>,
    /// A validation goes on and tells every change.
    pub watch: bool,
    /// How long it goes on; nothing for until it is told to stop.
    pub watch_timeout: Option<Duration>,
    /// Where figures are pushed to.
    pub metrics_push_url: Option<HttpUrl>,
    /// Where traces are sent to.
    pub otlp_endpoint: Option<HttpUrl>,
}

/// What the inputs come to.
///
/// # Errors
/// With everything that is wrong, each with where it was given.
pub fn resolve(given: &Given) -> Result<Inputs, Vec<Finding>> {
    let mut resolver = Resolver { given, findings: Vec::new(), file: None };
    resolver.read_file();
    let inputs = resolver.inputs();
    match inputs {
        Some(inputs) if resolver.findings.is_empty() => Ok(inputs),
        _ => Err(resolver.findings),
    }
}

struct Resolver<'g> {
    given: &'g Given,
    findings: Vec<Finding>,
    file: Option<(&'g str, ExecutorEnvironment)>,
}

impl<'g> Resolver<'g> {
    fn read_file(&mut self) {
        let given: &'g Given = self.given;
        let Some((path, text)) = &given.file else { return };
        let stream = read(text, Dialect::Strict, Limits::FILE);
        self.findings.extend(stream.problems.iter().map(|problem| yaml_finding(path, problem)));
        if !stream.problems.is_empty() {
            return;
        }
        let [document] = stream.documents.as_slice() else {
            let message = format!("{} documents; this file must hold exactly one", stream.documents.len());
            self.findings.push(Finding::new(Code::DocumentCount, Place::new(path, Position::START), message));
            return;
        };
        let mut decoder = Decoder::new(path);
        let decoded = ExecutorEnvironment::decode(&mut decoder, document).filter(|_| decoder.is_clean());
        self.findings.extend(decoder.into_findings());
        self.file = decoded.map(|decoded| (path.as_str(), decoded));
    }

    /// A file is there and cannot be used: what it would have said is not missing as well.
    fn file_unusable(&self) -> bool {
        self.given.file.is_some() && self.file.is_none()
    }

    /// What was given for an input by flag, else by variable.
    fn take<T, E: fmt::Display>(&mut self, input: Input, parse: impl Fn(&str) -> Result<T, E>) -> Option<Sourced<T>> {
        let given = self.given;
        let flag = given.flags.get(&input).map(|text| (Place::whole(input.flag()), Some(text.as_str())));
        let variable = given.variables.get(&input).map(|text| (Place::whole(&given.variable(input)), text.as_deref()));
        let mut taken = None;
        for (place, text) in flag.into_iter().chain(variable) {
            let value = checked(input, text).and_then(|text| parse(text).map_err(|error| error.to_string()));
            match value {
                Ok(value) if taken.is_none() => taken = Some(Sourced { value, place }),
                Ok(_) => {}
                Err(why) => self.findings.push(Finding::new(Code::InvalidInput, place, why)),
            }
        }
        taken
    }

    fn parsed<T>(&mut self, input: Input) -> Option<Sourced<T>>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.take(input, str::parse)
    }

    /// By flag, by variable, or from the file.
    fn layered<T>(&mut self, input: Input, field: impl Fn(&ExecutorEnvironment) -> Option<At<T>>) -> Option<Sourced<T>>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        let taken = self.parsed(input);
        taken.or_else(|| {
            let (path, file) = self.file.as_ref()?;
            field(file).map(|found| Sourced { value: found.value, place: Place::new(path, found.at) })
        })
    }

    fn required<T>(&mut self, input: Input, taken: Option<Sourced<T>>) -> Option<Sourced<T>> {
        let (flag, field) = (input.flag(), input.field());
        // The name in the file says whose it is, not which is meant.
        let by_file = !matches!(field, "" | "name");
        let told = self.findings_about(input) || (by_file && self.file_unusable());
        if taken.is_none() && !told {
            let place = Place::whole(&self.given.variable(input));
            let fix = if by_file {
                format!("set it, give {flag}, or write `{field}` into environment.yaml")
            } else {
                format!("set it, or give {flag}")
            };
            self.findings.push(Finding::new(Code::MissingInput, place, "is needed and not given").with_fix(fix));
        }
        taken
    }

    /// What was given for it is wrong, so it is not missing.
    fn findings_about(&self, input: Input) -> bool {
        let names = [input.flag().to_owned(), self.given.variable(input)];
        self.findings.iter().any(|finding| names.contains(&finding.place.path))
    }

    fn contradict(&mut self, place: &Place, message: String, fix: &str) {
        self.findings.push(Finding::new(Code::ContradictoryInput, place.clone(), message).with_fix(fix));
    }

    fn inputs(&mut self) -> Option<Inputs> {
        let environment = self.environment();
        let scope = self.parsed::<Scope>(Input::Scope);
        let dry_run = self.take(Input::DryRun, |text| word(text, &BOOLEANS));
        let log_level = self.take(Input::LogLevel, |text| word(text, &LEVELS));
        let log_format = self.take(Input::LogFormat, |text| word(text, &FORMATS));
        let pv_policy = self.take(Input::PvPolicy, |text| word(text, &POLICIES));
        let release_finalizers = self.take(Input::ReleaseFinalizer, targets);
        self.confirmed(environment.as_ref());
        let trace = self.parsed::<TraceId>(Input::TraceId);
        let parent = self.parsed::<SpanId>(Input::SpanId);
        if let (Some(parent), None) = (&parent, &trace)
            && !self.findings_about(Input::TraceId)
        {
            let missing = self.given.variable(Input::TraceId);
            let message = format!("a parent span without a trace: {missing} is not given");
            self.contradict(&parent.place, message, "give both, or neither");
        }
        let access = self.access();
        let domain = self.layered(Input::Domain, |file| Some(file.domain.clone()));
        let domain = self.required(Input::Domain, domain);
        let git_repository = self.layered(Input::GitRepository, |file| Some(file.git_repository.clone()));
        let git_repository = self.required(Input::GitRepository, git_repository);
        let git_revision = self.layered(Input::GitRevision, |file| Some(file.git_revision.clone()));
        let git_revision = self.required(Input::GitRevision, git_revision);
        let cluster_name = self.layered(Input::ClusterName, |file| file.cluster_name.clone());
        let argocd_namespace = self.layered(Input::ArgocdNamespace, |file| file.argocd_namespace.clone());
        let workflows_namespace = self.layered(Input::WorkflowsNamespace, |file| file.workflows_namespace.clone());
        let timeouts = self.timeouts();
        let retries = self.retries();
        let storage = self.take(Input::Storage, |text| word(text, &BOOLEANS));
        let image = self.take(Input::Image, image);
        let charts = self.parsed::<String>(Input::Charts);
        let registry_config = self.parsed::<String>(Input::RegistryConfig);
        let registry_ca = self.parsed::<String>(Input::RegistryCa);
        let plain_http = self.take(Input::PlainHttp, hosts);
        let with = self.take(Input::With, |text| word(text, &ADDITIONS));
        let runner = self.take(Input::Runner, |text| word(text, &RUNNERS));
        let stale_after = self.span(Input::StaleAfter, |_| None);
        let allowed = self.take(Input::Allow, truth::allowed);
        let watch = self.take(Input::Watch, |text| word(text, &BOOLEANS));
        let watch_timeout = self.span(Input::WatchTimeout, |_| None);
        let metrics_push_url = self.parsed(Input::MetricsPushUrl);
        let otlp_endpoint = self.parsed(Input::OtlpEndpoint);
        Some(Inputs {
            environment: environment?.value,
            scope: scope.map_or(Scope::Platform, |scope| scope.value),
            dry_run: dry_run.is_some_and(|dry_run| dry_run.value),
            log_level: log_level.map_or(Level::Info, |level| level.value),
            log_format: log_format.map_or(LogFormat::Text, |format| format.value),
            pv_policy: pv_policy.map_or(PvPolicy::Retain, |policy| policy.value),
            release_finalizers: release_finalizers.map(|targets| targets.value).unwrap_or_default(),
            trace: trace.map(|trace| trace.value),
            parent: parent.map(|parent| parent.value),
            access,
            domain: domain?,
            git_repository: git_repository?,
            git_revision: git_revision?,
            cluster_name,
            argocd_namespace,
            workflows_namespace: match workflows_namespace {
                Some(namespace) => namespace.value,
                None => "argo".parse().ok()?,
            },
            timeouts,
            retries,
            storage: storage.is_some_and(|storage| storage.value),
            image: image.map(|image| image.value),
            charts: charts.map(|charts| charts.value),
            registry_config: registry_config.map(|file| file.value),
            registry_ca: registry_ca.map(|file| file.value),
            plain_http: plain_http.map(|hosts| hosts.value).unwrap_or_default(),
            self_managed_argocd: with.is_some_and(|with| with.value),
            runner: runner.map(|runner| runner.value),
            stale_after: stale_after.unwrap_or(truth::STALE_AFTER),
            allowed: allowed.map(|allowed| allowed.value).unwrap_or_default(),
            watch: watch.is_some_and(|watch| watch.value),
            watch_timeout,
            metrics_push_url: metrics_push_url.map(|url| url.value),
            otlp_endpoint: otlp_endpoint.map(|url| url.value),
        })
    }

    /// The environment, which must be named. A file says whose it is and never which is meant: one that was mounted by
    /// mistake must not choose what is deployed.
    fn environment(&mut self) -> Option<Sourced<EnvironmentName>> {
        let taken = self.take(Input::Environment, |text| {
            let name = text.parse::<EnvironmentName>().map_err(|error| error.to_string())?;
            if name.as_str().len() > MAX_ENVIRONMENT {
                return Err(format!("`{name}` has more than {MAX_ENVIRONMENT} characters"));
            }
            Ok(name)
        });
        let environment = self.required(Input::Environment, taken)?;
        if let Some((path, file)) = &self.file
            && file.name.value != environment.value
        {
            let place = Place::new(path, file.name.at);
            let (name, given) = (&file.name.value, &environment);
            let message = format!("this file is of `{name}`, and {} says `{}`", given.place, given.value);
            self.contradict(&place, message, "mount the file of the environment that is meant");
        }
        Some(environment)
    }

    /// A teardown is confirmed by the name of the environment; there is no default.
    fn confirmed(&mut self, environment: Option<&Sourced<EnvironmentName>>) {
        let confirm = self.take(Input::Confirm, |text| Ok::<_, String>(text.to_owned()));
        if self.given.action != Action::Teardown {
            return;
        }
        let Some(confirm) = self.required(Input::Confirm, confirm) else { return };
        if let Some(environment) = environment.filter(|environment| environment.value.as_str() != confirm.value) {
            let (place, name) = (&environment.place, &environment.value);
            let message = format!("confirms `{}`, and {place} says `{name}`", clip(&confirm.value));
            self.contradict(&confirm.place, message, "write the name of the environment that is to be removed");
        }
    }

    fn access(&mut self) -> Access {
        let data = self.take(Input::KubeconfigData, |text| Ok::<_, String>(Hidden(text.to_owned())));
        let path = self.take(Input::KubeconfigPath, |text| Ok::<_, String>(text.to_owned()));
        let by_flag = self.given.flags.contains_key(&Input::KubeconfigPath);
        match (data, path) {
            (Some(data), Some(path)) if !by_flag => {
                let message = format!("two kubeconfigs: {} is given too", path.place);
                self.contradict(&data.place, message, "give one of them");
                Access::Path(path.value)
            }
            (_, Some(path)) => Access::Path(path.value),
            (Some(data), None) => Access::Data(data.value),
            (None, None) => Access::InCluster,
        }
    }

    fn span(&mut self, input: Input, file: impl Fn(&ExecutorEnvironment) -> Option<Duration>) -> Option<Duration> {
        let taken = self.take(input, |text| {
            let span = text.parse::<Duration>().map_err(|error| error.to_string())?;
            if span == Duration::ZERO { Err("must be longer than 0s".to_owned()) } else { Ok(span) }
        });
        taken.map(|span| span.value).or_else(|| self.file.as_ref().and_then(|(_, found)| file(found)))
    }

    fn number(
        &mut self,
        input: Input,
        allowed: &std::ops::RangeInclusive<u32>,
        file: impl Fn(&ExecutorEnvironment) -> Option<u32>,
    ) -> Option<u32> {
        let taken = self.take(input, |text| {
            let number = text.parse::<u32>().ok().filter(|number| allowed.contains(number));
            let (low, high) = (allowed.start(), allowed.end());
            number.ok_or_else(|| format!("`{}` is not a whole number from {low} to {high}", clip(text)))
        });
        taken.map(|number| number.value).or_else(|| self.file.as_ref().and_then(|(_, found)| file(found)))
    }

    fn timeouts(&mut self) -> ExecutorTimeouts {
        ExecutorTimeouts {
            sync: self.span(Input::SyncTimeout, |file| file.timeouts.sync),
            health: self.span(Input::HealthTimeout, |file| file.timeouts.health),
            run: self.span(Input::RunTimeout, |file| file.timeouts.run),
        }
    }

    fn retries(&mut self) -> RetrySpec {
        RetrySpec {
            limit: self.number(Input::RetryLimit, &RETRY_LIMITS, |file| file.retries.limit),
            backoff: self.span(Input::RetryBackoff, |file| file.retries.backoff),
            factor: self.number(Input::RetryFactor, &RETRY_FACTORS, |file| file.retries.factor),
            max: self.span(Input::RetryMax, |file| file.retries.max),
        }
    }
}

/// A text that may be a value at all.
fn checked(input: Input, text: Option<&str>) -> Result<&str, String> {
    let text = text.ok_or("is not UTF-8")?;
    let kubeconfig = input == Input::KubeconfigData;
    let longest = if kubeconfig { LONGEST_KUBECONFIG } else { LONGEST };
    if text.trim().is_empty() {
        return Err("is empty; leave it out where the default is meant".to_owned());
    }
    if text.len() > longest {
        return Err(format!("has {} bytes; at most {longest} are read", text.len()));
    }
    // Base64 may come in lines.
    if !kubeconfig && text.chars().any(char::is_control) {
        return Err("holds control characters".to_owned());
    }
    Ok(text)
}

/// One of a few words, whatever their case.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        format!("is `{}`; allowed are {}", clip(text), names.join(", "))
    })
}

/// Objects by name, with commas between them.
fn targets(text: &str) -> Result<Vec<Target>, ParseTargetError> {
    text.split(',').map(|target| target.trim().parse()).collect()
}

/// Registries with commas between them.
fn hosts(text: &str) -> Result<Vec<String>, String> {
    let checked = |host: &str| {
        if host.contains(|c: char| c == '/' || c.is_whitespace()) {
            return Err(format!("`{}` is not a host: write it like `registry.example.com:5000`", clip(host)));
        }
        Ok(host.to_owned())
    };
    text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(checked).collect()
}

/// An image reference, as far as that can be told without a registry.
fn image(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if text.len() > 512 || !text.chars().all(known) || !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(format!("`{}` is not the name of an image", clip(text)));
    }
    Ok(text.to_owned())
}

impl Inputs {
    /// What was said otherwise than the repository says it; `domain` is that of the environment's `env.yaml`. A domain of
    /// nobody contradicts none: whoever gave it leaves that to the repository.
    pub fn contradictions(
        &self,
        installation: &Installation,
        environment: &Environment,
        domain: Option<&str>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut compare = |place: &Place, given: &str, theirs: &str, source: String| {
            if given != theirs {
                let message = format!("is `{}`, and {source} says `{}`", clip(given), clip(theirs));
                let finding = Finding::new(Code::ContradictoryInput, place.clone(), message);
                findings.push(finding.with_fix("is this the repository, and the environment, that is meant?"));
            }
        };
        let name = &environment.name.value;
        if let Some(cluster) = &self.cluster_name {
            let theirs = environment.cluster.as_str();
            compare(&cluster.place, &cluster.value, theirs, format!("forge.yaml of environment `{name}`"));
        }
        if let Some(namespace) = &self.argocd_namespace {
            let theirs = installation.argo.namespace.as_str();
            compare(&namespace.place, namespace.value.as_str(), theirs, "forge.yaml".to_owned());
        }
        if let Some(theirs) = domain.filter(|_| !self.domain.value.is_nobodys()) {
            let source = format!("data.domain of {}/env.yaml", environment.path);
            compare(&self.domain.place, self.domain.value.as_str(), theirs, source);
        }
        findings
    }

    /// The files of the environment with the limits that were given: over those of graph and environment, under those
    /// that a node has of its own.
    pub fn limited(&self, files: &EnvironmentFiles) -> EnvironmentFiles {
        let mut files = files.clone();
        let given = (self.timeouts, self.retries);
        if given == (ExecutorTimeouts::default(), RetrySpec::default()) {
            return files;
        }
        let over = files.overrides.get_or_insert_default();
        over.timeouts = TimeoutsSpec {
            sync: self.timeouts.sync.or(over.timeouts.sync),
            health: self.timeouts.health.or(over.timeouts.health),
        };
        over.timeout = self.timeouts.run.or(over.timeout);
        over.retry = RetrySpec {
            limit: self.retries.limit.or(over.retry.limit),
            backoff: self.retries.backoff.or(over.retry.backoff),
            factor: self.retries.factor.or(over.retry.factor),
            max: self.retries.max.or(over.retry.max),
        };
        files
    }
}

#[cfg(test)]
mod tests;
