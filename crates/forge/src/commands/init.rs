//! `forge init`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::repository::INSTALLATION_FILE;
use forge_core::scaffold::{self, PLACEHOLDER, With};
use forge_core::validate::{Content, Context};

use crate::cli::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::git;
use crate::output::Output;
use crate::write_files::write_new;

/// Write a complete GitOps repository into a folder
///
/// Writes what is missing and never overwrites: run it again at any time. The repository's URL is taken from the Git
/// remote `origin`; without one, placeholders are written that `forge lint` reports.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder; --repo or the current one if absent
    folder: Option<PathBuf>,
    /// Add Applications for what the platform itself runs on
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
    /// Argo CD manages itself
    SelfManagedArgocd,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let folder = arguments.folder.clone().or_else(|| global.repo.clone()).unwrap_or_else(|| PathBuf::from("."));
    std::fs::create_dir_all(&folder).map_err(|error| Failure::write(format!("`{}`", folder.display()), &error))?;
    for (what, given) in [("--url", &arguments.url), ("--registry", &arguments.registry)] {
        if given.as_ref().is_some_and(|text| text.is_empty() || text.chars().any(char::is_whitespace)) {
            return Err(Failure::new(Code::BadArgument, format!("{what} must not be empty or hold white space")));
        }
    }
    let url = arguments.url.clone().or_else(|| git::origin(&folder));
    let branch = git::branch(&folder).unwrap_or_else(|| "main".to_owned());
    let with = With {
        crossplane: arguments.with.contains(&Component::Crossplane),
        argocd: arguments.with.contains(&Component::SelfManagedArgocd),
    };
    let forge = scaffold::installation_file(url.as_deref(), &branch, arguments.registry.as_deref());
    let mut written = write_new(&folder, &[forge, scaffold::graph_file()], output)?;
    // What is there already decides about the rest: environments that were added, another namespace, another URL.
    let bytes = std::fs::read(folder.join(INSTALLATION_FILE))
        .map_err(|error| Failure::new(Code::Unreadable, format!("failed to read {INSTALLATION_FILE}: {error}")))?;
    let context = Context::new(Some(&Content::Bytes(bytes)), std::iter::empty());
    let installation = context.installation.ok_or_else(|| {
        Failure::new(Code::Unusable, format!("{INSTALLATION_FILE} is there but cannot be used"))
            .hint("`forge lint` says what is wrong with it")
    })?;
    written += write_new(&folder, &scaffold::installation_files(&installation, with), output)?;
    output.say("");
    if written == 0 {
        output.say("Nothing to do: everything is there.");
    }
    if installation.repository.url.contains(PLACEHOLDER) {
        output.say(&format!(
            "There is no Git remote `origin`: replace `{PLACEHOLDER}` in forge.yaml and the app.yaml files."
        ));
    }
    output.say("Next: forge project add <repo>/<project> --stack <stack>, then forge lint, forge graph, git commit.");
    Ok(Exit::Done)
}
