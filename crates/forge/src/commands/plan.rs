//! `forge plan`

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::gate::Content;
use forge_core::graph::{Graph, NodeIx, Scope};
use forge_core::plan::{Plan, plan};
use forge_core::render::{self, Places, RenderError};
use forge_core::repository::{EnvironmentFiles, Repository};
use forge_core::run::RunPlan;
use forge_core::yaml;
use serde_json::{Value, json};

use super::{selection, simulate};
use crate::cli::Global;
use crate::output::{Output, Paint};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Show what a run would do, in which order, with which limits
///
/// The same inputs give the same plan, the same objects and the same hash. --offline plans from the repository alone;
/// --simulate runs the graph through the real decisions on a virtual clock.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The environment
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: Option<String>,
    /// What it is about: platform, stack:<name> or app:<name>; a scope brings its predecessors along
    #[arg(long, short, default_value = "platform", env = "FORGE_TARGET_SCOPE")]
    scope: String,
    /// Plan from the repository alone, without looking at a cluster
    #[arg(long)]
    offline: bool,
    /// What to show
    #[arg(long, value_enum, default_value_t = Show::Plan, conflicts_with = "simulate")]
    show: Show,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Run the graph on a virtual clock
    #[arg(long)]
    simulate: bool,
    #[command(flatten)]
    simulation: simulate::SimulationArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Show {
    /// The ordered plan
    Plan,
    /// The Argo Workflow as it would be submitted
    Workflow,
    /// Every object of the run: Applications, window, templates, plan, Workflow
    Objects,
}

/// How data is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people; objects are written as YAML
    Text,
    /// For programs
    Json,
    /// For programs that people read
    Yaml,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if !arguments.offline && !arguments.simulate {
        return Err(Failure::new(Code::NeedsCluster, "this version of forge plans without a cluster only")
            .hint("add --offline for the plan, or --simulate to watch it on a virtual clock"));
    }
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let Some(name) = arguments.environment.as_ref().filter(|name| !name.is_empty()) else {
        return Err(Failure::new(Code::BadArgument, "which environment?")
            .hint(format!("--environment takes one of: {}", selection::names(repository))));
    };
    let files = selection::environment(repository, name)?;
    let graph = selection::graph(repository, Some(files))?;
    let scope: Scope = if arguments.scope.is_empty() { Scope::Platform } else { arguments.scope.parse()? };
    let (scope, nodes) = graph.scope(&scope, Some(&files.environment.name))?;
    usable.require_pointers(files, &graph, &nodes)?;
    if arguments.simulate {
        let exit = simulate::run(&arguments.simulation, files, &graph, &nodes, arguments.output, output)?;
        usable.note(output);
        return Ok(exit);
    }
    let plan = plan(repository, files, &graph, &scope, &nodes);
    let made = Made { repository, files, graph: &graph, nodes: &nodes, plan: &plan };
    let rendered = match (arguments.show, arguments.output) {
        (Show::Plan, Format::Text) => made.text(output),
        (Show::Plan, format) => documents(&[json!(plan)], format),
        (Show::Workflow, format) => documents(&[made.workflow()?], format),
        (Show::Objects, format) => documents(&made.objects()?, format),
    };
    output.data(&rendered)?;
    usable.note(output);
    Ok(Exit::Done)
}

/// Documents in a format: one as it is, several as a stream or a list.
pub(super) fn documents(values: &[Value], format: Format) -> String {
    match (format, values) {
        (Format::Json, [value]) => format!("{value:#}\n"),
        (Format::Json, values) => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": values});
            format!("{list:#}\n")
        }
        (_, values) => values.iter().map(yaml::write).collect::<Vec<_>>().join("---\n"),
    }
}

/// A graph that no Workflow holds.
pub(super) fn too_large(error: &RenderError) -> Failure {
    Failure::new(Code::WorkflowTooLarge, error)
        .hint("plan a smaller --scope, or say `stack:` where many edges are meant")
}

struct Made<'m> {
    repository: &'m Repository,
    files: &'m EnvironmentFiles,
    graph: &'m Graph,
    nodes: &'m [NodeIx],
    plan: &'m Plan,
}

impl Made<'_> {
    /// The run as far as the repository alone tells: under the plan's name, at the commit that is checked out.
    fn run(&self) -> Result<RunPlan, Failure> {
        let unnamed = |error| Failure::new(Code::BadArgument, error);
        let run = self.plan.run().parse().map_err(unnamed)?;
        Ok(RunPlan::new(run, self.plan, self.graph, self.nodes, |_| Content::Revisions { revisions: Vec::new() }))
    }

    fn workflow(&self) -> Result<Value, Failure> {
        render::workflow(&self.run()?, &self.places(), 0).map_err(|error| too_large(&error))
    }

    fn places(&self) -> Places {
        Places { argocd: self.repository.installation.argo.namespace.to_string(), ..Places::default() }
    }

    fn objects(&self) -> Result<Vec<Value>, Failure> {
        let mut objects = render::applications(self.repository, self.files, self.graph, self.nodes);
        objects.extend(render::window(self.repository, self.plan));
        objects.extend(render::templates());
        objects.extend(render::plan_config_maps(&self.run()?, &self.places()));
        objects.push(self.workflow()?);
        Ok(objects)
    }

    fn text(&self, output: &Output<'_>) -> String {
        let plan = self.plan;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "plan {} for {}, scope {}: {} nodes, {} waves, at most {} at once",
            output.paint(Paint::Strong, plan.hash.short(12)),
            plan.environment,
            plan.scope,
            plan.nodes.len(),
            plan.waves,
            plan.width
        );
        let width = plan.nodes.iter().map(|node| node.id.as_str().len()).max().unwrap_or(0).clamp(8, 40);
        let _ = writeln!(text, "\n  # wave  {:<width$}  sync health retry release  waits for", "node");
        let ordered = self.graph.ordered(self.nodes);
        for (i, (node, ix)) in plan.nodes.iter().zip(&ordered).enumerate() {
            let release = node.release.as_ref().map_or("-", |release| release.commit.as_str().get(..7).unwrap_or("-"));
            let waits = selection::waits_for(self.graph.awaited(*ix), 60_usize.saturating_sub(width));
            let (sync, health) = (node.timeouts.sync.to_string(), node.timeouts.health.to_string());
            let (number, id, limit) = (i + 1, node.id.as_str(), node.retry.limit);
            let line = format!(
                "{number:>3} {:>4}  {id:<width$} {sync:>5} {health:>6} {limit:>5} {release:<7}  {waits}",
                node.wave
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let path: Vec<&str> = plan.critical_path.iter().map(forge_core::name::NodeId::as_str).collect();
        let _ = writeln!(
            text,
            "\ncritical path: {} nodes, at most {} (deadline of the run: {})\n{}\nhash: {}",
            path.len(),
            plan.bound,
            plan.timeout,
            selection::chain(&path),
            plan.hash
        );
        text
    }
}
