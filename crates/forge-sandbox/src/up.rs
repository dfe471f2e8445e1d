//! From whatever is there to a cluster that serves. Every step looks first and makes only what is missing, so that a second
//! `up` repairs what a first one, or a `kill -9`, left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::build::Built;
use crate::cgroup;
use crate::cluster::{self, Cluster};
use crate::component::{self, Component, Context};
use crate::error::UpError;
use crate::folder::{FORMAT, Folder, Record};
use crate::health::{self, Asker};
use crate::init::{Child, Init};
use crate::network;
use crate::pki;
use crate::range::Range;
use crate::with::Addition;

/// What a sandbox is asked to be.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Simulated nodes; as before if absent.
    pub nodes: Option<u32>,
    /// Charts to install, beside those of before.
    pub with: Vec<Addition>,
}

/// How long each step took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What was done or waited for.
    pub name: String,
    /// How long it took.
    pub took: Duration,
}

/// Tells what is going on.
pub trait Watcher {
    /// Something has begun that may take a while.
    fn waits(&mut self, what: &str);
    /// It is done.
    fn done(&mut self, step: &Step);
}

/// A running sandbox and how it came to be.
#[derive(Debug)]
pub struct Running {
    /// Its addresses.
    pub range: Range,
    /// Its first process.
    pub init: Init,
    /// What is remembered of it.
    pub record: Record,
    /// What was done, in order.
    pub steps: Vec<Step>,
}

/// How long one component, the node or the name server may take.
const LIMIT: Duration = Duration::from_secs(90);
/// How long a component that was already running may be unwell before it is started again.
const UNWELL: Duration = Duration::from_secs(20);

struct Up<'u> {
    folder: &'u Folder,
    watcher: &'u mut dyn Watcher,
    steps: Vec<Step>,
}

/// Brings a sandbox up. The caller holds its lock.
pub fn up(
    folder: &Folder,
    cache: &Path,
    built: &Built,
    wanted: &Wanted,
    watcher: &mut dyn Watcher,
) -> Result<Running, UpError> {
    let mut up = Up { folder, watcher, steps: Vec::new() };
    let mut record = up.record(wanted)?;
    let (init, range) = up.step("namespaces and network", |up| up.namespaces(cache, &mut record))?;
    let context = Context { folder, range, built, simulate: record.nodes > 0 };
    up.step("certificates and configuration", |up| up.files(&context))?;
    let cluster = Cluster::new(folder, built);
    let asker = Asker { kubectl: cluster.program(), kubeconfig: cluster.kubeconfig(), init };
    let components = context.components();
    for step in 0..=2 {
        up.start(init, &asker, components.iter().filter(|component| component.step == step).collect())?;
        if step == 1 {
            up.step("rights, CoreDNS, storage class", |_| Ok(cluster.apply(&cluster::addons(range, built)?)?))?;
        }
    }
    if context.simulate {
        up.step("simulated behaviour", |up| {
            cluster.apply_stage_kind()?;
            up.wait("simulated behaviour", || cluster.stage_kind_served())?;
            if init.list()?.get("kwok").is_none_or(|child| child.ended.is_some()) {
                cluster.release_leases()?;
            }
            Ok(cluster.apply_stages()?)
        })?;
    }
    up.start(init, &asker, components.iter().filter(|component| component.step == 3).collect())?;
    if !context.simulate {
        init.kill("kwok")?;
    }
    up.step("node", |up| up.wait("node", || cluster.node_ready()))?;
    if record.nodes > 0 || wanted.nodes.is_some() {
        up.step("simulated nodes", |_| simulated(&cluster, record.nodes))?;
    }
    up.step("coredns", |up| {
        let name = "kubernetes.default.svc.cluster.local";
        up.wait("coredns", || match health::resolve(range.dns(), name)? {
            address if address == range.kubernetes() => Ok(()),
            other => Err(format!("{name} is {other}, not {}", range.kubernetes())),
        })
    })?;
    for addition in Addition::ALL.into_iter().filter(|addition| record.with.iter().any(|name| name == addition.name()))
    {
        up.step(addition.name(), |_| addition.install(&cluster, built))?;
    }
    let steps = up.steps;
    Ok(Running { range, init, record, steps })
}

impl Up<'_> {
    fn step<T>(&mut self, name: &str, act: impl FnOnce(&mut Self) -> Result<T, UpError>) -> Result<T, UpError> {
        let start = Instant::now();
        self.watcher.waits(name);
        let done = act(self)?;
        self.done(name, start);
        Ok(done)
    }

    fn done(&mut self, name: &str, start: Instant) {
        let step = Step { name: name.to_owned(), took: start.elapsed() };
        self.watcher.done(&step);
        self.steps.push(step);
    }

    /// What is remembered, with what is wanted now.
    fn record(&self, wanted: &Wanted) -> Result<Record, UpError> {
        let mut found = self.folder.record()?;
        if let Some(half) = found.take_if(|found| found.removing) {
            crate::down::finish(self.folder, &half)?;
        }
        let new = Record { format: FORMAT, range: None, nodes: 0, with: Vec::new(), removing: false };
        let mut record = found.clone().unwrap_or(new);
        record.nodes = wanted.nodes.unwrap_or(record.nodes);
        for addition in &wanted.with {
            if !record.with.iter().any(|name| name == addition.name()) {
                record.with.push(addition.name().to_owned());
            }
        }
        // The record first: a folder without one is nobody's.
        if found.as_ref() != Some(&record) {
            self.folder.write_record(&record)?;
        }
        self.folder.create(&component::FOLDERS)?;
        Ok(record)
    }

    /// PID 1 in its namespaces, linked to the host.
    fn namespaces(&self, cache: &Path, record: &mut Record) -> Result<(Init, Range), UpError> {
        let mut running = self.settled()?;
        if let (Some(init), None) = (running, record.range) {
            // An `up` was killed before it took addresses: there is nothing in it to keep.
            crate::down::end(init)?;
            running = None;
        }
        let init = match running {
            Some(init) => init,
            None => {
                if let Some(range) = record.range {
                    // What a killed sandbox leaves for a moment must not look like somebody else's.
                    if network::release(range, self.folder.path())? {
                        cgroup::remove(range, Duration::from_secs(10)).map_err(UpError::Cgroup)?;
                    }
                }
                self.first_process(cache)?
            }
        };
        let range = match (running, record.range) {
            (Some(_), Some(range)) => range,
            (_, kept) => network::claim(init, self.folder, kept).inspect_err(|_| drop(crate::down::end(init)))?,
        };
        if record.range != Some(range) {
            record.range = Some(range);
            self.folder.write_record(record)?;
        }
        network::ensure(init, self.folder, range)?;
        cgroup::ensure(range).map_err(UpError::Cgroup)?;
        Ok((init, range))
    }

    /// The first process, if it runs and answers. One that was just killed is waited for, one that hangs is ended.
    fn settled(&self) -> Result<Option<Init>, UpError> {
        let start = Instant::now();
        while let Some(init) = Init::running(self.folder) {
            if init.list().is_ok() {
                return Ok(Some(init));
            }
            if start.elapsed() > UNWELL {
                crate::down::end(init)?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(None)
    }

    fn first_process(&self, cache: &Path) -> Result<Init, UpError> {
        // Sockets and locks of a former life; data is elsewhere.
        for name in ["run", "tmp"] {
            let _ = fs::remove_dir_all(self.folder.join(name));
        }
        let program = std::env::current_exe().map_err(UpError::Program)?;
        let output = Command::new(program)
            .arg("enter")
            .args([self.folder.path(), cache])
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(UpError::Program)?;
        if !output.status.success() {
            return Err(UpError::Enter(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let start = Instant::now();
        loop {
            let Some(init) = Init::running(self.folder) else {
                return Err(UpError::Enter(last_lines(&self.folder.log("init"))));
            };
            match init.list() {
                Ok(_) => return Ok(init),
                Err(error) if start.elapsed() > Duration::from_secs(10) => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn files(&self, context: &Context<'_>) -> Result<(), UpError> {
        pki::ensure(&self.folder.pki(), context.range)?;
        for (name, text) in context.files()? {
            self.folder.publish(&format!("etc/{name}"), &text)?;
        }
        let registry = component::registry_folder(self.folder);
        if !registry.exists() {
            let draft = registry.with_extension("draft");
            let _ = fs::remove_dir_all(&draft);
            seed(&context.built.registry, &draft)
                .and_then(|()| fs::rename(&draft, &registry))
                .map_err(|source| UpError::Seed { folder: registry, source })?;
        }
        Ok(())
    }

    /// Starts those that do not run and waits until all of them are well.
    fn start(&mut self, init: Init, asker: &Asker<'_>, components: Vec<&Component>) -> Result<(), UpError> {
        let before = init.list()?;
        let start = Instant::now();
        for component in &components {
            init.start(&component.start)?;
        }
        for component in components {
            let name = component.name();
            self.watcher.waits(name);
            let ran = before.get(name).is_some_and(|child| child.ended.is_none());
            let check = || asker.ask(&component.check);
            let limit = if ran { UNWELL } else { LIMIT };
            let outcome = self.wait_for(init, name, limit, check);
            match outcome {
                Err(UpError::Unwell { .. }) if ran => {
                    init.kill(name)?;
                    init.start(&component.start)?;
                    self.wait_for(init, name, LIMIT, check)?;
                }
                other => other?,
            }
            self.done(name, start);
        }
        Ok(())
    }

    /// Waits for something that is no component.
    fn wait(&self, name: &str, check: impl Fn() -> Result<(), String>) -> Result<(), UpError> {
        poll(LIMIT, check).map_err(|why| self.unwell(name, LIMIT, why))
    }

    fn wait_for(
        &self,
        init: Init,
        name: &str,
        limit: Duration,
        check: impl Fn() -> Result<(), String>,
    ) -> Result<(), UpError> {
        let mut ended = None;
        let alive = |children: &BTreeMap<String, Child>| children.get(name).and_then(|child| child.ended.clone());
        let outcome = poll(limit, || {
            check().or_else(|why| match init.list() {
                // No use in waiting for the dead.
                Ok(children) => match alive(&children) {
                    Some(how) => {
                        ended = Some(how);
                        Ok(())
                    }
                    None => Err(why),
                },
                Err(_) => Err(why),
            })
        });
        match (outcome, ended) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(how)) => {
                Err(UpError::Died { name: name.to_owned(), how, said: last_lines(&self.folder.log(name)) })
            }
            (Err(why), _) => Err(self.unwell(name, limit, why)),
        }
    }

    fn unwell(&self, name: &str, limit: Duration, why: String) -> UpError {
        UpError::Unwell { name: name.to_owned(), seconds: limit.as_secs(), why }
    }
}

/// Asks until the answer is good, more seldom with time.
fn poll(limit: Duration, mut check: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(why) if start.elapsed() > limit => return Err(why),
            Err(_) => thread::sleep(pause),
        }
        pause = (pause * 3 / 2).min(Duration::from_millis(250));
    }
}

/// As many simulated nodes as wanted, and no more.
fn simulated(cluster: &Cluster, wanted: u32) -> Result<(), UpError> {
    let there = cluster.simulated_nodes()?;
    let names: Vec<String> = (0..wanted).map(cluster::simulated_name).collect();
    let missing: Vec<_> = (0..wanted)
        .filter(|number| !there.contains(&cluster::simulated_name(*number)))
        .map(cluster::simulated_node)
        .collect();
    if !missing.is_empty() {
        cluster.apply(&missing)?;
    }
    let surplus: Vec<&str> = there.iter().filter(|name| !names.contains(name)).map(String::as_str).collect();
    if !surplus.is_empty() {
        cluster.kubectl(&["delete", "node"]).args(surplus).run()?;
    }
    if wanted > 0 {
        let wait = ["wait", "nodes", "-l", "type=kwok", "--for=condition=Ready", "--timeout=60s"];
        cluster.kubectl(&wait).limit(LIMIT).run()?;
    }
    Ok(())
}

/// A registry's storage, with everything that was pushed when the images were built. Blobs are named by their content and
/// never written again, so they are linked; the small files that name them are copied.
fn seed(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            seed(&entry.path(), &target)?;
        } else if entry.file_name() != "data" || fs::hard_link(entry.path(), &target).is_err() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// What a component said last.
pub fn last_lines(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
}
