//! `forge project`: projects of the repository.

mod import;

use clap::{Args, Subcommand};
use forge_core::code::Code;
use forge_core::digest::{CommitId, Digest};
use forge_core::format::Reference;
use forge_core::name::{ProjectId, StackName};
use forge_core::repository::GRAPH_FILE;
use forge_core::scaffold;

use super::selection;
use crate::cli::Global;
use crate::load;
use crate::output::Output;
use crate::write_files::{Lock, read_own, replace_edited, write_new};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Add projects to the repository, new ones or what an Argo CD has already
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(Add),
    Import(Box<import::Arguments>),
}

/// Add a project to graph.yaml and write its release pointers
///
/// Nothing that is there is overwritten. Without --release and --digest the pointers hold zeros, which `forge lint`
/// reports until a release is deployed.
#[derive(Debug, Args)]
struct Add {
    /// The project, as repo/project
    project: ProjectId,
    /// Its stack, which is made if it is not there
    #[arg(long)]
    stack: Option<StackName>,
    /// What it waits for: repo/project, namespace/name or stack:name
    #[arg(long, value_delimiter = ',', value_name = "NODE")]
    depends_on: Vec<Reference>,
    /// Environments that run it; all if absent
    #[arg(long, short, value_delimiter = ',', value_name = "ENVIRONMENT")]
    environment: Vec<String>,
    /// Source commit of the release: 40 hexadecimal digits
    #[arg(long, requires = "digest")]
    release: Option<CommitId>,
    /// Manifest digest of the release image
    #[arg(long, requires = "release")]
    digest: Option<Digest>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    match &arguments.command {
        Command::Add(arguments) => add(global, arguments, output),
        Command::Import(arguments) => import::run(global, arguments, output),
    }
}

fn add(global: &Global, add: &Add, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let root = load::root(global.repo.as_deref())?;
    let lock = Lock::take(&root)?;
    let report = selection::report(global)?;
    let Some(repository) = report.repository else { return Err(Failure::unusable(report.findings)) };
    let mut chosen = Vec::new();
    for name in &add.environment {
        chosen.push(selection::environment(&repository, name)?);
    }
    if chosen.is_empty() {
        chosen.extend(&repository.environments);
    }
    let apps = || repository.graph.stacks.iter().flat_map(|stack| stack.apps.iter().map(move |app| (stack, app)));
    let present = apps().find(|(_, app)| app.subject.id() == (&add.project).into());
    match (present, &add.stack) {
        (Some((stack, _)), wanted) => {
            let known = &stack.name.value;
            if wanted.as_ref().is_some_and(|wanted| wanted != known) {
                let message = format!("`{}` is in stack `{known}` already", add.project);
                return Err(Failure::new(Code::BadArgument, message).hint(format!("move it in {GRAPH_FILE} by hand")));
            }
            if !add.depends_on.is_empty() {
                let message = format!("`{}` is in {GRAPH_FILE} already", add.project);
                return Err(Failure::new(Code::BadArgument, message)
                    .hint(format!("add its dependencies in {GRAPH_FILE} by hand")));
            }
            output.say(&format!("{} is in {GRAPH_FILE} already", add.project));
        }
        (None, None) => {
            let stacks: Vec<&str> = repository.graph.stacks.iter().map(|stack| stack.name.as_str()).collect();
            let message = format!("`{}` is not in {GRAPH_FILE} yet, so it needs --stack", add.project);
            let hint = if stacks.is_empty() {
                "any name makes a new one".to_owned()
            } else {
                format!("stacks: {}; another name makes a new one", stacks.join(", "))
            };
            return Err(Failure::new(Code::BadArgument, message).hint(hint));
        }
        (None, Some(stack)) => {
            for reference in &add.depends_on {
                let known = match reference {
                    Reference::Stack(name) => repository.graph.stacks.iter().any(|stack| stack.name.value == *name),
                    Reference::Node(id) => apps().any(|(_, app)| app.subject.id() == *id),
                };
                if !known {
                    let message = format!("no `{reference}` in {GRAPH_FILE} to depend on");
                    return Err(
                        Failure::new(Code::UnknownName, message).hint("`forge graph` lists stacks and applications")
                    );
                }
            }
            let text = read_own(&root, GRAPH_FILE)?;
            let edited = scaffold::add_project(&text, &add.project, stack, &add.depends_on)
                .map_err(|error| Failure::new(Code::BadArgument, error).hint("nothing was changed"))?;
            replace_edited(&root, GRAPH_FILE, &edited, &lock)?;
            output.say(&format!("changed   {GRAPH_FILE}"));
        }
    }
    let release = add.release.as_ref().zip(add.digest.as_ref());
    let files: Vec<_> =
        chosen.iter().map(|files| scaffold::pointer_file(&files.environment, &add.project, release)).collect();
    let (_, kept) = write_new(&root, &files, output)?;
    if release.is_some() && !kept.is_empty() {
        let message = format!("{} was there and was kept: --release and --digest are not in it", kept.join(", "));
        return Err(Failure::new(Code::BadArgument, message)
            .hint("change the pointer by hand; a new release is a commit of its own"));
    }
    output.say("\nNext: forge lint, forge graph.");
    Ok(Exit::Done)
}
