//! `forge plan --simulate`: the graph on a virtual clock, watched live on a terminal, one line per event elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use forge_core::code::Code;
use forge_core::graph::{Graph, NodeIx};
use forge_core::name::ApplicationId;
use forge_core::repository::{EnvironmentFiles, application_name};
use forge_core::simulate::{self as simulation, Change, Event, Moment, NodeState, Options, Outcome, Subject};
use serde_json::json;

use super::plan::{Format, documents};
use super::selection;
use crate::live::{self, Frame, Screen};
use crate::output::{Output, Paint};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// What a simulation takes.
#[derive(Debug, Args)]
pub(super) struct SimulationArguments {
    /// Let this application or stack fail: shows the blast radius
    #[arg(long, value_name = "APP", requires = "simulate")]
    fail: Vec<String>,
    /// Other durations: the same seed gives the same run
    #[arg(long, default_value_t = 0, requires = "simulate")]
    seed: u64,
    /// Do not play it on the terminal, print the result at once
    #[arg(long, requires = "simulate")]
    instant: bool,
}

pub(super) fn run(
    arguments: &SimulationArguments,
    files: &EnvironmentFiles,
    graph: &Graph,
    nodes: &[NodeIx],
    format: Format,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let environment = &files.environment.name.value;
    let mut fail = BTreeSet::new();
    for name in &arguments.fail {
        let selected = graph.select(name, Some(environment))?;
        if !selected.iter().any(|node| nodes.binary_search(node).is_ok()) {
            let message = format!("`{}` is not in this scope, so it cannot fail in it", forge_core::name::clip(name));
            return Err(
                Failure::new(Code::UnknownName, message).hint("plan a larger --scope, or let something else fail")
            );
        }
        fail.extend(selected.iter().map(|node| graph.node(*node).id.clone()));
    }
    let subjects = subjects(environment, graph, nodes);
    let options = Options { seed: arguments.seed, fail, run_timeout: graph.timeout };
    let mut events: Vec<Event> = Vec::new();
    let outcome = simulation::run(&subjects, &options, |event| events.push(event.clone()));
    if format != Format::Text {
        let value = json!({
            "environment": environment,
            "seed": arguments.seed,
            "nodes": subjects.iter().map(|subject| &subject.id).collect::<Vec<_>>(),
            "outcome": outcome,
        });
        output.data(&documents(&[value], format))?;
        return Ok(Exit::Done);
    }
    if output.live && !arguments.instant {
        play(&subjects, &events, &outcome, output);
    } else {
        output.data(&lines(&subjects, &events, output))?;
    }
    let summary = summary(&subjects, &outcome, arguments.seed, output);
    output.data(&summary)?;
    Ok(Exit::Done)
}

fn subjects(environment: &forge_core::name::EnvironmentName, graph: &Graph, nodes: &[NodeIx]) -> Vec<Subject> {
    let ordered = graph.ordered(nodes);
    let rank: BTreeMap<NodeIx, usize> = ordered.iter().enumerate().map(|(i, node)| (*node, i)).collect();
    ordered
        .iter()
        .filter_map(|ix| {
            let node = graph.node(*ix);
            let name = application_name(environment, "argocd", &node.subject);
            let application: ApplicationId = format!("{}/{}", name.namespace, name.name).parse().ok()?;
            let predecessors = graph.predecessors(*ix).iter().filter_map(|p| rank.get(p).copied()).collect();
            Some(Subject {
                id: node.id.clone(),
                application,
                predecessors,
                wave: graph.wave(*ix),
                timeouts: node.timeouts,
                retry: node.retry,
            })
        })
        .collect()
}

fn name(subjects: &[Subject], node: usize) -> &str {
    subjects.get(node).map_or("?", |subject| subject.id.as_str())
}

fn clock(moment: Moment) -> String {
    live::clock(moment.0 / 1000)
}

/// One line per event that changes what may start.
fn lines(subjects: &[Subject], events: &[Event], output: &Output<'_>) -> String {
    let blocked: BTreeMap<usize, usize> = events
        .iter()
        .filter_map(|event| match event.change {
            Change::Blocked(by) => Some((event.node, by)),
            _ => None,
        })
        .collect();
    // What is blocked by something that is blocked itself is blocked by what failed.
    let culprit = |mut node: usize| {
        while let Some(by) = blocked.get(&node) {
            node = *by;
        }
        node
    };
    let mut text = String::new();
    for event in events {
        let (word, detail) = match &event.change {
            Change::Started => (output.paint(Paint::Dim, "start  "), String::new()),
            Change::Proven => (output.paint(Paint::Good, "proven "), String::new()),
            Change::Failed(why) => (output.paint(Paint::Bad, "FAILED "), format!("  {why}")),
            Change::Blocked(by) => {
                let by = name(subjects, culprit(*by));
                (output.paint(Paint::Busy, "blocked"), format!("  by {by}"))
            }
            Change::Syncing | Change::WaitingFor(_) => continue,
        };
        let _ = writeln!(text, "{}  {word}  {}{detail}", clock(event.at), name(subjects, event.node));
    }
    text
}

/// What is known about a node at one moment of the replay.
#[derive(Clone)]
enum Seen {
    Waiting,
    Running { since: Moment, on: String },
    Proven,
    Failed,
    Blocked,
}

/// Plays the events on the terminal in a few seconds, whatever the simulated time.
fn play(subjects: &[Subject], events: &[Event], outcome: &Outcome, output: &mut Output<'_>) {
    const FRAMES: u64 = 90;
    const FRAME: Duration = Duration::from_millis(90);
    let mut seen = vec![Seen::Waiting; subjects.len()];
    let mut next = 0;
    let mut screen = Screen::default();
    let end = outcome.makespan.0.max(1);
    for step in 0..=FRAMES {
        let now = Moment(end * step / FRAMES);
        while let Some(event) = events.get(next).filter(|event| event.at <= now) {
            next += 1;
            if let Some(slot) = seen.get_mut(event.node) {
                *slot = match (&event.change, &*slot) {
                    (Change::Started, _) => Seen::Running { since: event.at, on: "starting".to_owned() },
                    (Change::Syncing, Seen::Running { since, .. }) => {
                        Seen::Running { since: *since, on: "syncing".to_owned() }
                    }
                    (Change::WaitingFor(on), Seen::Running { since, .. }) => {
                        Seen::Running { since: *since, on: on.clone() }
                    }
                    (Change::Proven, _) => Seen::Proven,
                    (Change::Failed(_), _) => Seen::Failed,
                    (Change::Blocked(_), _) => Seen::Blocked,
                    (_, kept) => kept.clone(),
                };
            }
        }
        screen.show("", &frame(subjects, &seen, now, outcome), output);
        std::thread::sleep(FRAME);
    }
}

fn frame(subjects: &[Subject], seen: &[Seen], now: Moment, outcome: &Outcome) -> Frame {
    let count = |test: fn(&Seen) -> bool| seen.iter().filter(|seen| test(seen)).count();
    let running = subjects.iter().zip(seen).filter_map(|(subject, state)| match state {
        Seen::Running { since, on } => {
            let took = Moment(now.0.saturating_sub(since.0));
            Some((subject.id.to_string(), took.to_string(), on.clone()))
        }
        _ => None,
    });
    let open = |node: &&usize| !seen.get(**node).is_some_and(|seen| matches!(seen, Seen::Proven));
    let pending = subjects.iter().zip(seen).filter(|(_, state)| matches!(state, Seen::Waiting)).map(|(subject, _)| {
        let before = subject.predecessors.iter().filter(open).map(|node| name(subjects, *node).to_owned());
        (subject.id.to_string(), before.collect::<Vec<String>>())
    });
    let mut pending: Vec<_> = pending.collect();
    pending.sort_by_key(|(_, open)| open.len());
    Frame {
        clock: clock(now),
        of: format!("of predicted {}", clock(outcome.makespan)),
        nodes: seen.len(),
        done: count(|s| matches!(s, Seen::Proven)),
        word: "proven",
        waiting: count(|s| matches!(s, Seen::Waiting)),
        failed: count(|s| matches!(s, Seen::Failed)),
        blocked: count(|s| matches!(s, Seen::Blocked)),
        running: running.collect(),
        pending,
    }
}

fn summary(subjects: &[Subject], outcome: &Outcome, seed: u64, output: &Output<'_>) -> String {
    let mut text = String::new();
    let proven = outcome.nodes.iter().filter(|node| node.state == NodeState::Proven).count();
    let _ = writeln!(
        text,
        "\nsimulated with seed {seed}: {proven} of {} proven in {}, at most {} at once",
        subjects.len(),
        outcome.makespan,
        outcome.max_parallel
    );
    if outcome.failed.is_empty() {
        let percent = (outcome.wave_barriers.0 * 100).checked_div(outcome.makespan.0).unwrap_or(100);
        let _ = writeln!(
            text,
            "with wave barriers the same work would take {} ({}.{:02} times as long)",
            outcome.wave_barriers,
            percent / 100,
            percent % 100
        );
        let path: Vec<&str> = outcome.critical_path.iter().map(|node| name(subjects, *node)).collect();
        let _ = writeln!(text, "what determined it:\n{}", selection::chain(&path));
        return text;
    }
    for node in &outcome.failed {
        if let Some(NodeState::Failed { why }) = outcome.nodes.get(*node).map(|node| &node.state) {
            let _ = writeln!(text, "{} {}: {why}", output.paint(Paint::Bad, "failed"), name(subjects, *node));
        }
    }
    let blocked: Vec<&str> = outcome.blocked.iter().map(|node| name(subjects, *node)).collect();
    let _ = writeln!(
        text,
        "blast radius: {} never started, everything else finished; a real run would exit {}",
        if blocked.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", blocked.len()) },
        if proven == 0 { 1 } else { 2 }
    );
    for line in blocked.chunks(3) {
        let _ = writeln!(text, "  {}", line.join(", "));
    }
    text
}
