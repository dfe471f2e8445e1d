//! `forge status`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::duration::Duration;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::format::Sync;
use forge_core::gate::{NodeHealth, RunId};
use forge_core::graph::Graph;
use forge_core::name::{ApplicationId, NodeId, clip, cut};
use forge_core::render::{self, Page};
use forge_core::run::{Header, Phase, StoredRun};
use forge_core::token;
use forge_core::view::{
    self, Holder, Installed, Lead, LeadFacts, NodeState, PlatformPhase, Seen, Standing, StatusNode, Stranger, Window,
    age, between, shown,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::look::{self, Applications, Look, LookArguments};
use crate::account;
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments, path};
use crate::output::{Output, Paint};
use crate::{records, runtime};

/// Show the state of an environment: phase, authority, window, and where every node stands
///
/// Reads only, and nothing is refreshed: what Argo CD has not compared for a while is called stale. The record of the last
/// runs says what was proven; without one, the graph of a checkout and Argo CD's own words must do.
///
/// Exit code 0 means that every node is proven, Synced and Healthy; 1 that a node failed or is blocked by one that did; 2
/// that something is missing, degraded, unproven, on its way or stale, or that it is not known which nodes there are:
/// that takes a checkout, or a run of the whole platform. What no run has proven is unproven, however Healthy Argo CD
/// calls it, and so is everything where the records of runs may not be read.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    look: LookArguments,
    /// Only the nodes of this run; what all that are kept say together if absent
    #[arg(long)]
    run: Option<RunId>,
    /// How old Argo CD's comparison may be before it is called stale
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    stale_after: Duration,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

impl Arguments {
    /// The page of an environment.
    pub(crate) fn page(environment: &str, cluster: ClusterArguments) -> Self {
        let look = LookArguments::of(environment, cluster);
        Self { look, run: None, stale_after: Duration::from_seconds(600), output: Format::Html }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// One page with a picture, which needs nothing else
    Html,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    environment: String,
    context: String,
    #[serde(flatten)]
    lead: Lead,
    window: Seen<Window>,
    /// The token of the Argo CD account, where it may be read and says when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<TokenLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunLine>,
    health: NodeHealth,
    /// It is the run that was asked about, which need not be the last one.
    #[serde(skip)]
    asked: bool,
    /// The nodes are all that the environment has.
    whole: bool,
    nodes: Vec<StatusNode>,
    strangers: Vec<Stranger>,
    notes: Vec<String>,
    /// The records of runs could be read.
    #[serde(skip)]
    runs_read: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenLine {
    id: String,
    expires: Timestamp,
    /// What is to be done about its end, when that is near or over.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunLine {
    run: String,
    scope: String,
    commit: Option<String>,
    started: Timestamp,
    verdict: String,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let mut look = Look::new(global, &arguments.look)?;
    let now = Timestamp::now();
    let (status, graph) = runtime::block_on(gather(&mut look, arguments, now))??;
    let rendered = match arguments.output {
        Format::Text => text(&status, now, output),
        Format::Json => format!("{:#}\n", serde_json::to_value(&status).unwrap_or_default()),
        Format::Html => render::html(&Page {
            title: &format!("{}: phase {}", status.environment, status.lead.phase.title()),
            lead: &[named(&status, now), leading(&status, now)].concat(),
            nodes: &status.nodes,
            graph: graph.as_ref(),
            strangers: &status.strangers,
            problems: &[],
            notes: &status.notes,
            now,
        }),
    };
    output.data(&rendered)?;
    // Who asks for one run asks for its nodes.
    let all = status.whole || arguments.run.is_some();
    Ok(exit(status.health, &status.nodes, all))
}

fn exit(health: NodeHealth, nodes: &[StatusNode], all: bool) -> Exit {
    match health {
        NodeHealth::Failed => Exit::Findings,
        _ if all && !nodes.is_empty() && nodes.iter().all(StatusNode::is_well) => Exit::Done,
        _ => Exit::Partial,
    }
}

async fn gather(look: &mut Look, arguments: &Arguments, now: Timestamp) -> Result<(Status, Option<Graph>), Failure> {
    let cluster = Cluster::connect(&arguments.look.cluster).await?;
    let workflows = arguments.look.cluster.workflows_namespace.as_str();
    let installed = installed(look, &cluster).await?;
    let stored = look.runs(&cluster, workflows).await?;
    // Of one run the nodes are shown; what stands above them is about the environment, whichever run is asked about.
    let asked = match &arguments.run {
        Some(run) => Some(records::one(stored.clone(), run)?),
        None => None,
    };
    let broken = stored.newest_is_broken();
    if let (Some(broken), None) = (broken, &asked) {
        return Err(records::unusable(broken));
    }
    let shown_runs = asked.as_ref().map_or(stored.runs.as_slice(), std::slice::from_ref);
    for run in shown_runs {
        look.notes.extend(run.notes.iter().cloned());
    }
    let holder = look.holder(&cluster, workflows).await?;
    let window = window(look, &cluster, &stored.runs).await?;
    let token = token(&cluster, workflows, now).await?;
    let environment = view::standing(&stored.runs);
    let standing = view::standing(shown_runs);
    if standing.is_none() && look.checkout.is_none() {
        return Err(look.nothing_known());
    }
    look.notes.extend(standing.iter().flat_map(Standing::not_held_notes));
    look.notes.extend(shown_runs.first().and_then(|run| trouble(&run.record.header)));
    let mut nodes = listed(look, standing.as_ref(), asked.is_some());
    let live = live(look, &cluster, &mut nodes, arguments.stale_after, now).await?;
    let newest = match stored.runs.first() {
        // What cannot be read is newer, and nothing follows from that.
        _ if broken.is_some() => Seen::Unknown,
        Some(run) => Seen::Found(&run.record.header),
        None if look.runs_read => Seen::Absent,
        None => Seen::Unknown,
    };
    if look.checkout.as_ref().is_some_and(|checkout| checkout.sync == Sync::Ordered) {
        let sensor = path::object(&path::argo(workflows, "sensors"), &render::sensor_name(&look.environment));
        let sensor = look.optional(&cluster, &sensor, "the Sensor of the environment").await?;
        let running = newest.found().is_some_and(|header| header.ended.is_none());
        look.notes.extend(view::ordered(&look.environment, sensor.and_then(|_| Some(())), running, &nodes));
    }
    let all = listed(look, environment.as_ref(), false);
    let proven = environment.is_some() && all.iter().all(|node| node.phase == Some(Phase::Proven));
    let whole = is_whole(look, environment.as_ref(), &all);
    let facts = LeadFacts { installed, holder: holder.as_ref(), window: window.as_ref(), newest, proven, whole, now };
    let strangers = strangers(look, environment.as_ref(), &all, &live);
    let told = shown_runs.first().map(|run| run_line(&run.record.header, holder.as_ref(), now));
    let graph = picture(look, standing.as_ref(), &nodes);
    let mut lead = view::lead(&facts);
    if broken.is_some() && lead.phase == PlatformPhase::NotKnown {
        "the record of the newest run cannot be used".clone_into(&mut lead.because);
    }
    let status = Status {
        environment: look.environment.to_string(),
        context: cluster.context.clone(),
        lead,
        window,
        token,
        push: look.checkout.as_ref().map(|checkout| push(checkout.sync)),
        run: told,
        asked: asked.is_some(),
        health: view::health(&nodes),
        whole: is_whole(look, standing.as_ref(), &nodes),
        nodes,
        strangers,
        notes: look.notes.iter().map(|note| shown(note)).collect(),
        runs_read: look.runs_read,
    };
    Ok((status, graph))
}

/// Who acts on a push (SPEC.md section 4).
fn push(sync: Sync) -> &'static str {
    match sync {
        Sync::Auto => "Argo CD alone syncs what is pushed, in no order (sync: auto)",
        Sync::Manual => "what is pushed waits for a person or a run (sync: manual)",
        Sync::Ordered => "a push starts a run, in dependency order (sync: ordered)",
    }
}

/// What a run that goes on struggles with.
fn trouble(header: &Header) -> Option<String> {
    let why = header.trouble.as_ref().filter(|_| header.ended.is_none())?;
    let times = header.agents_replaced;
    let often = if times > 1 { format!(" (agent pods were replaced {times} times)") } else { String::new() };
    Some(format!("run {}: {}{often}", header.run, shown(why)))
}

fn run_line(header: &Header, holder: Seen<&Holder>, now: Timestamp) -> RunLine {
    RunLine {
        run: header.run.to_string(),
        scope: shown(&header.scope.to_string()),
        commit: header.commit.as_ref().map(ToString::to_string),
        started: header.started,
        verdict: view::verdict(header, holder, now).to_owned(),
    }
}

/// What the API server serves; everybody who may log in may ask for that.
async fn installed(look: &mut Look, cluster: &Cluster) -> Result<Installed, Failure> {
    let served = cluster.get("/apis/argoproj.io/v1alpha1").await?;
    let serves = |plural: &str| {
        let resources = served.as_ref().and_then(|list| list.get("resources")).and_then(Value::as_array);
        resources.is_some_and(|all| all.iter().any(|r| r.get("name").and_then(Value::as_str) == Some(plural)))
    };
    let (argocd, workflows) = (serves("applications"), serves("workflows"));
    let mut forge = Some(false);
    if serves("clusterworkflowtemplates") {
        let template = path::object(&path::global("argoproj.io", "v1alpha1", "clusterworkflowtemplates"), "forge-node");
        forge = match cluster.get(&template).await {
            Ok(found) => Some(found.is_some()),
            Err(error) if look::forbidden(&error) => {
                look.notes.push("ClusterWorkflowTemplates may not be read".to_owned());
                None
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Installed { argocd, workflows, forge })
}

async fn window(look: &mut Look, cluster: &Cluster, runs: &[StoredRun]) -> Result<Seen<Window>, Failure> {
    let project = path::object(&path::argo(&look.argocd, "appprojects"), look.environment.as_str());
    let project = look.optional(cluster, &project, "the AppProject of the environment").await?;
    Ok(project.and_then(|project| {
        let windows = project.pointer("/spec/syncWindows").and_then(Value::as_array)?;
        let (run, names) = render::window_names(windows)?;
        Some(Window {
            since: runs.iter().find(|known| known.plan.run.as_str() == run).map(|known| known.record.header.started),
            run: clip(&run),
            applications: names.iter().map(|name| clip(name)).collect(),
        })
    }))
}

/// When the token of the Argo CD account ends. Who may not read Secrets is not told, and needs no note: most readers may not.
async fn token(cluster: &Cluster, workflows: &str, now: Timestamp) -> Result<Option<TokenLine>, Failure> {
    let secret = match cluster.get(&account::secret_path(workflows)).await {
        Err(error) if look::forbidden(&error) => None,
        other => other?,
    };
    let stored = secret.as_ref().and_then(account::Stored::read);
    Ok(stored.and_then(|stored| {
        let expires = stored.expires?;
        let id = clip(&stored.id.unwrap_or_default());
        Some(TokenLine { id, expires, warning: token::warning(expires, now) })
    }))
}

/// Every node that runs know, and of a checkout those that no run has; of one run those of that run alone.
fn listed(look: &Look, standing: Option<&Standing>, one: bool) -> Vec<StatusNode> {
    let checkout = look.checkout.iter().filter(|_| !one);
    let graph = checkout.flat_map(|checkout| {
        let ordered = checkout.graph.order().into_iter();
        ordered.filter_map(move |ix| checkout.applications.get_key_value(&checkout.graph.node(ix).id))
    });
    view::listed(standing, graph)
}

/// Adds what Argo CD says about each node; gives everything that it says.
async fn live(
    look: &Look,
    cluster: &Cluster,
    nodes: &mut [StatusNode],
    stale_after: Duration,
    now: Timestamp,
) -> Result<Applications, Failure> {
    let wanted: BTreeSet<ApplicationId> = nodes.iter().map(|node| node.application.clone()).collect();
    let live = look::applications(cluster, &look.argocd, &wanted).await?;
    for node in nodes {
        node.live = live.found.get(&node.application).cloned();
        node.stale = node.live.as_ref().is_some_and(|live| live.is_stale(now, stale_after));
    }
    Ok(live)
}

/// All nodes of the environment are among these: a checkout says which there are, else only a run of the platform does.
fn is_whole(look: &Look, standing: Option<&Standing>, nodes: &[StatusNode]) -> bool {
    let Some(checkout) = &look.checkout else { return standing.is_some_and(|standing| standing.whole) };
    let listed: BTreeSet<&NodeId> = nodes.iter().map(|node| &node.node).collect();
    checkout.applications.keys().all(|node| listed.contains(node))
}

/// The graph to draw. A checkout knows the stacks; the plan of a run does not.
fn picture(look: &Look, standing: Option<&Standing>, nodes: &[StatusNode]) -> Option<Graph> {
    let holds_all = |graph: &Graph| nodes.iter().all(|node| graph.find(&node.node).is_some());
    match &look.checkout {
        Some(checkout) if holds_all(&checkout.graph) => Some(checkout.graph.clone()),
        _ => view::graph(&standing?.plan),
    }
}

/// Applications of the environment's AppProject that no node stands for.
fn strangers(look: &mut Look, standing: Option<&Standing>, nodes: &[StatusNode], live: &Applications) -> Vec<Stranger> {
    let mut known: BTreeSet<&ApplicationId> = nodes.iter().map(|node| &node.application).collect();
    if let Some(checkout) = &look.checkout {
        known.extend(checkout.applications.values());
    } else if !standing.is_some_and(|standing| standing.whole) {
        look.notes.push(
            "which Applications are not in the graph is only known in a checkout, or after a run of the platform"
                .to_owned(),
        );
        return Vec::new();
    }
    if !live.complete {
        look.notes.push("Applications may not be listed, so those that are not in the graph are not known".to_owned());
    }
    view::strangers(&look.environment, &known, &live.found)
}

/// What a page must say by itself: of which cluster it is, and of when.
fn named(status: &Status, now: Timestamp) -> Vec<(String, String)> {
    let lines = [("as of", now.strftime("%FT%TZ").to_string()), ("cluster", clip(&status.context))];
    lines.map(|(what, value)| (what.to_owned(), value)).into()
}

/// What everything else stands below.
fn leading(status: &Status, now: Timestamp) -> Vec<(String, String)> {
    let mut lines: Vec<(&str, String)> = vec![
        ("phase", format!("{}: {}", status.lead.phase.title(), status.lead.because)),
        ("authority", status.lead.authority.to_owned()),
    ];
    lines.push(("window", window_line(&status.window, now)));
    if let Some(warning) = status.token.as_ref().and_then(|token| token.warning.as_ref()) {
        lines.push(("token", warning.clone()));
    }
    if let Some(run) = &status.run {
        let commit = run.commit.as_deref().and_then(|commit| commit.get(..10)).map(|c| format!(", commit {c}"));
        let (started, commit) = (run.started.strftime("%FT%TZ"), commit.unwrap_or_default());
        let took = between(run.started, now);
        lines.push((
            if status.asked { "run" } else { "last run" },
            format!("{}, scope {}{commit}, began {started} ({took} ago): {}", run.run, run.scope, run.verdict),
        ));
    }
    if let Some(push) = status.push {
        lines.push(("push", push.to_owned()));
    }
    lines.push(("health", format!("{:?}, {}", status.health, counts(status))));
    lines.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

fn window_line(window: &Seen<Window>, now: Timestamp) -> String {
    let window = match window {
        Seen::Absent => return "none".to_owned(),
        Seen::Unknown => return "not known: the AppProject may not be read".to_owned(),
        Seen::Found(window) => window,
    };
    let names: Vec<&str> = window.applications.iter().map(String::as_str).collect();
    let age = window.since.map_or_else(|| "of unknown age".to_owned(), |since| format!("for {}", between(since, now)));
    let count = names.len();
    let more = if count > 5 { format!(" and {} more", count - 5) } else { String::new() };
    let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    format!("run {} holds {count} {age}: {shown}{more}", window.run)
}

fn counts(status: &Status) -> String {
    let mut phases: BTreeMap<Phase, usize> = BTreeMap::new();
    for phase in status.nodes.iter().filter_map(|node| node.phase) {
        *phases.entry(phase).or_default() += 1;
    }
    let (nodes, well) = (status.nodes.len(), status.nodes.iter().filter(|node| node.is_well()).count());
    if phases.is_empty() {
        let proven =
            if status.runs_read { "no run has proven them" } else { "whether a run has proven them is not known" };
        let healthy = NodeState::Live(NodeHealth::Healthy);
        let healthy = status.nodes.iter().filter(|node| node.state() == healthy).count();
        return format!("{healthy} of {nodes} Synced and Healthy; {proven}");
    }
    let told: Vec<String> = phases.iter().map(|(phase, count)| format!("{count} {}", phase.as_str())).collect();
    format!("{well} of {nodes} well: {}", told.join(", "))
}

fn text(status: &Status, now: Timestamp, output: &Output<'_>) -> String {
    let mut text = format!("{} in {}\n", output.paint(Paint::Strong, &status.environment), clip(&status.context));
    for (what, value) in leading(status, now) {
        let _ = writeln!(text, "  {what:<10} {value}");
    }
    text.push('\n');
    for (line, state) in table(&status.nodes, now, output.columns()) {
        let paint = match state {
            Some(NodeState::Run(Phase::Failed) | NodeState::Live(NodeHealth::Degraded | NodeHealth::Missing)) => {
                Some(Paint::Bad)
            }
            Some(NodeState::Run(Phase::Blocked | Phase::Unfinished)) => Some(Paint::Busy),
            _ => None,
        };
        let _ = writeln!(text, "{}", paint.map_or_else(|| line.clone(), |paint| output.paint(paint, &line)));
    }
    if !status.strangers.is_empty() {
        let _ = writeln!(text, "\nApplications of AppProject {} that no node stands for:", status.environment);
        for stranger in &status.strangers {
            let _ = writeln!(text, "  {}: {}", stranger.application, stranger.why);
        }
    }
    for note in &status.notes {
        let _ = writeln!(text, "\nnote: {note}");
    }
    if status.nodes.iter().any(|node| !node.is_well()) {
        let _ = writeln!(text, "\n`forge why NODE --environment {}` says what keeps a node.", status.environment);
    }
    text
}

/// The nodes as lines below a heading, each with its state. On a terminal they end where it does, with a mark, but the cause
/// has room however narrow that is; who reads them elsewhere gets all of it.
fn table(nodes: &[StatusNode], now: Timestamp, columns: Option<usize>) -> Vec<(String, Option<NodeState>)> {
    const CAUSE: usize = 40;
    let width = nodes.iter().map(|node| node.node.as_str().len()).max().unwrap_or(0).clamp(8, 44);
    let phases = nodes.iter().filter_map(|node| node.phase).map(|phase| phase.as_str().len());
    let phases = phases.max().unwrap_or(0).max(8);
    let row = |node: &str, phase: &str, sync: &str, health: &str, since: &str, detail: &str| {
        let line = format!("{node:<width$}  {phase:<phases$}  {sync:<9}  {health:<11}  {since:>7}  {detail}");
        let longest = columns.map(|columns| columns.max(line.len().saturating_sub(detail.len()) + CAUSE));
        longest.map_or_else(|| line.trim_end().to_owned(), |longest| cut(line.trim_end(), longest).into_owned())
    };
    let mut lines = vec![(row("node", "phase", "sync", "health", "since", "detail"), None)];
    lines.extend(nodes.iter().map(|node| {
        let word = |word: Option<&String>| word.map_or_else(|| "-".to_owned(), |word| clip(word));
        let live = node.live.as_ref();
        let phase = node.phase.map_or("-", Phase::as_str);
        let since = node.since().map_or_else(|| "-".to_owned(), |since| age(between(since, now)));
        let (sync, health) = (word(live.and_then(|l| l.sync.as_ref())), word(live.and_then(|l| l.health.as_ref())));
        (row(node.node.as_str(), phase, &sync, &health, &since, &node.line(now)), Some(node.state()))
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that waits for something with a long name.
    fn waiting(name: &str) -> StatusNode {
        let (node, application) = (name.parse().unwrap(), "argocd/x".parse().unwrap());
        let detail = format!("`{}` is not proven", "x".repeat(100));
        StatusNode { phase: Some(Phase::Waiting), detail, ..StatusNode::unknown(&node, &application) }
    }

    #[test]
    fn a_line_is_cut_on_a_terminal_alone_with_a_mark_and_never_before_the_cause() {
        let now = Timestamp::UNIX_EPOCH;
        let line = |name: &str, columns: Option<usize>| table(&[waiting(name)], now, columns).remove(1).0;
        let whole = line("a/one", None);
        assert!(whole.ends_with("x` is not proven"), "{whole}");
        assert_eq!(line("a/one", Some(300)), whole);
        let cut = line("a/one", Some(120));
        assert!(cut.ends_with("xx…") && cut.len() == 120, "{cut}");
        // Long names and a narrow terminal leave the cause its room.
        let long = line(&format!("{}/app", "s".repeat(40)), Some(80));
        assert!(long.contains(&"x".repeat(36)) && long.ends_with('…'), "{long}");
    }

    #[test]
    fn the_longest_word_for_a_phase_decides_how_wide_its_column_is() {
        let mut nodes = [waiting("a/one"), waiting("a/two")];
        nodes[1].phase = Some(Phase::Unfinished);
        let lines = table(&nodes, Timestamp::UNIX_EPOCH, None);
        assert!(lines[0].0.starts_with("node      phase       sync "), "{lines:?}");
        assert!(lines[1].0.starts_with("a/one     waiting     -    "), "{lines:?}");
        assert!(lines[2].0.starts_with("a/two     unfinished  -    "), "{lines:?}");
    }
}
