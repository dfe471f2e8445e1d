//! `forge sandbox status`.

use std::fmt::Write as _;
use std::thread;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use serde::Serialize;

use crate::cli::{self, Format, Global};
use crate::cluster::Cluster;
use crate::component::{Context, port};
use crate::error::IntoFailure;
use crate::folder::{Folder, Record};
use crate::health::{self, Asker};
use crate::init::Init;
use crate::process;
use crate::range::Range;

/// Show each component: process, age, memory, healthy or why not
///
/// Exits with 1 if something is not well.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How it is written
    #[arg(long, short, value_enum, default_value = "text")]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    name: String,
    kubeconfig: String,
    /// On the host. Everything of the sandbox lives in its namespaces.
    init_pid: i32,
    registry: String,
    git: String,
    /// Of all processes, those in pods included.
    memory_bytes: u64,
    healthy: bool,
    components: Vec<Line>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    name: String,
    /// On the host; absent if it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    memory_bytes: u64,
    healthy: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What is remembered of a sandbox, or that there is none.
pub(crate) fn known(folder: &Folder) -> Result<Record, Failure> {
    let none = || {
        Failure::new(Code::NoSandbox, format!("there is no sandbox `{}`", folder.name))
            .hint("`forge sandbox up` makes one; `forge sandbox list` shows those that there are")
    };
    folder.record().map_err(IntoFailure::into_failure)?.ok_or_else(none)
}

/// The first process and the addresses of a sandbox, or that it does not run.
pub(crate) fn running(folder: &Folder) -> Result<(Init, Range), Failure> {
    let record = known(folder)?;
    Init::running(folder).zip(record.range).ok_or_else(|| {
        Failure::new(Code::NoSandbox, format!("sandbox `{}` does not run", folder.name))
            .hint("`forge sandbox up` starts it again")
    })
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> Result<Exit, Failure> {
    let folder = global.folder()?;
    let record = known(&folder)?;
    let (init, range) = running(&folder)?;
    let built = cli::built()?;
    let context = Context { folder: &folder, range, built: &built, simulate: record.nodes > 0 };
    let cluster = Cluster::new(&folder, &built);
    let asker = Asker { kubectl: cluster.program(), kubeconfig: cluster.kubeconfig(), init };
    let children = init.list().map_err(|error| Failure::new(Code::SandboxStep, error))?;
    let processes = process::of_namespace(init.pid);

    // All at once: what hangs must not hold up the others.
    let all = context.components();
    let reasons: Vec<Option<String>> = thread::scope(|scope| {
        let asked: Vec<_> = all.iter().map(|component| scope.spawn(|| asker.ask(&component.check).err())).collect();
        asked.into_iter().map(|answer| answer.join().unwrap_or(None)).collect()
    });
    let mut components: Vec<Line> = all
        .iter()
        .zip(reasons)
        .map(|(component, asked)| {
            let child = children.get(component.name());
            let ended = child.map_or_else(|| Some("was never started".to_owned()), |child| child.ended.clone());
            let process = child.filter(|_| ended.is_none()).and_then(|child| processes.get(&child.pid));
            let unreaped = process.is_none().then(|| "has ended and is not cleared up yet".to_owned());
            let reason = ended.or(unreaped).or(asked);
            Line {
                name: component.name().to_owned(),
                pid: process.map(|process| process.pid),
                age_seconds: process.and_then(|process| process::age(process.started)),
                memory_bytes: process.map_or(0, |process| process.memory),
                healthy: reason.is_none(),
                reason,
            }
        })
        .collect();
    let api = components.iter().any(|line| line.name == "kube-apiserver" && line.healthy);
    let in_cluster = |name: &str, asked: Result<(), String>| {
        let reason = if api { asked.err() } else { Some("unknown: the API server is not well".to_owned()) };
        Line { name: name.to_owned(), pid: None, age_seconds: None, memory_bytes: 0, healthy: reason.is_none(), reason }
    };
    components.push(in_cluster("node", if api { cluster.node_ready() } else { Ok(()) }));
    let asked = health::resolve(range.dns(), "kubernetes.default.svc.cluster.local").map(drop);
    components.push(Line { reason: asked.clone().err(), healthy: asked.is_ok(), ..in_cluster("coredns", Ok(())) });

    let node = range.node();
    let status = Status {
        name: folder.name.to_string(),
        kubeconfig: folder.kubeconfig().display().to_string(),
        init_pid: init.pid,
        registry: format!("{node}:{}", port::REGISTRY),
        git: format!("http://{node}:{}", port::GIT),
        memory_bytes: processes.values().map(|process| process.memory).sum(),
        healthy: components.iter().all(|line| line.healthy),
        components,
    };
    let text = match arguments.output {
        Format::Json => format!("{:#}\n", serde_json::json!(status)),
        Format::Text => table(&status),
    };
    cli::data(&text)?;
    if status.healthy {
        return Ok(Exit::Done);
    }
    cli::say("\nhint: `forge sandbox up` starts what is dead; `forge sandbox logs COMPONENT` says why it died");
    Ok(Exit::Findings)
}

fn table(status: &Status) -> String {
    let mut text = format!("{:<24} {:>8} {:>7} {:>9}  health\n", "component", "pid", "age", "memory");
    for line in &status.components {
        let pid = line.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let age = line.age_seconds.map_or_else(|| "-".to_owned(), age);
        let memory = if line.memory_bytes == 0 { "-".to_owned() } else { format!("{} MiB", line.memory_bytes >> 20) };
        let health = line.reason.clone().unwrap_or_else(|| "healthy".to_owned());
        let _ = writeln!(text, "{:<24} {pid:>8} {age:>7} {memory:>9}  {health}", line.name);
    }
    let _ = writeln!(
        text,
        "{:<24} {:>8} {:>7} {:>9}  all processes, pods included",
        "",
        "",
        "",
        format!("{} MiB", status.memory_bytes >> 20)
    );
    text
}

/// In the largest unit that says enough.
fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}
