//! `forge init`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::install::CHARTS_FOLDER;
use forge_core::preflight::Component as Part;
use forge_core::repository::{INSTALLATION_FILE, ROOT_APP_FILE};
use forge_core::scaffold::{self, PLACEHOLDER, Source, With};

use crate::cli::Global;
use crate::git;
use crate::load;
use crate::output::Output;
use crate::write_files::{Lock, read_own, write_new};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Write a complete GitOps repository into a folder
///
/// Writes what is missing and never overwrites: run it again at any time. The repository's URL is taken from the Git
/// remote `origin`; without one, placeholders are written that `forge lint` reports.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder; --repo or the current one if absent
    folder: Option<PathBuf>,
    /// Add Applications for what the platform itself runs on; their charts come from argo/charts of the repository where they
    /// are there, else from where they are published
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    with: Vec<Component>,
    /// URL of this repository as Argo CD reads it
    #[arg(long)]
    url: Option<String>,
    /// Where releases are kept, for example registry.example.com/releases
    #[arg(long)]
    registry: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Component {
    /// Crossplane, which serves EnvironmentConfig
    Crossplane,
    /// Argo CD manages itself, once `forge bootstrap --with self-managed-argocd` has handed it over
    SelfManagedArgocd,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let folder = arguments.folder.clone().or_else(|| global.repo.clone()).unwrap_or_else(|| PathBuf::from("."));
    for (what, given) in [("--url", &arguments.url), ("--registry", &arguments.registry)] {
        let Some(text) = given else { continue };
        if text.is_empty() || text.chars().any(char::is_whitespace) {
            return Err(Failure::new(Code::BadArgument, format!("{what} must not be empty or hold white space")));
        }
        if git::without_credentials(text) != *text {
            let message = format!("{what} holds a password or token, which must not be in Git");
            return Err(
                Failure::new(Code::BadArgument, message).hint("leave it out; Argo CD has credentials of its own")
            );
        }
    }
    std::fs::create_dir_all(&folder).map_err(|error| Failure::write(format!("`{}`", folder.display()), &error))?;
    let _lock = Lock::take(&folder)?;
    let url = arguments.url.clone().or_else(|| git::origin(&folder));
    let branch = git::branch(&folder).unwrap_or_else(|| "main".to_owned());
    // A chart that the repository has itself is taken from there: no way out is needed.
    let source = |component: Component, chart: &str| {
        let vendored = folder.join(CHARTS_FOLDER).join(chart).join("Chart.yaml").is_file();
        match (arguments.with.contains(&component), vendored) {
            (false, _) => Source::Without,
            (true, false) => Source::Published,
            (true, true) => Source::Vendored,
        }
    };
    let with = With {
        crossplane: source(Component::Crossplane, "crossplane"),
        argocd: source(Component::SelfManagedArgocd, Part::Cd.release()),
    };
    let forge = scaffold::installation_file(url.as_deref(), &branch, arguments.registry.as_deref());
    let (mut written, _) = write_new(&folder, &[forge, scaffold::graph_file()], output)?;
    // What is there already decides about the rest: environments that were added, another namespace, another URL.
    let installation = load::installation(&read_own(&folder, INSTALLATION_FILE)?)?;
    let (more, kept) = write_new(&folder, &scaffold::installation_files(&installation, with), output)?;
    written += more;
    output.say("");
    if written == 0 {
        output.say("Nothing to do: everything is there.");
    }
    if installation.repository.url.contains(PLACEHOLDER) {
        output.say(&format!(
            "There is no Git remote `origin`: replace `{PLACEHOLDER}` in forge.yaml and the app.yaml files."
        ));
    }
    if !arguments.with.is_empty() && kept.iter().any(|path| path == ROOT_APP_FILE) {
        output.say("app.yaml was there and was kept: what --with adds is not in it; `forge init --with …` in an empty folder shows it.");
    }
    output.say("Next: forge project add <repo>/<project> --stack <stack>, then forge lint, forge graph, git commit.");
    Ok(Exit::Done)
}
