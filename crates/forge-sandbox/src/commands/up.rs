//! `forge sandbox up`.

use std::io::IsTerminal;
use std::time::Instant;

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use serde_json::json;

use crate::build::{debian, progress};
use crate::cli::{self, Format, Global};
use crate::component::port;
use crate::error::IntoFailure;
use crate::host::Machine;
use crate::pki;
use crate::up::{Running, Step, Wanted, Watcher, up};
use crate::with::Addition;

/// Start a sandbox, or repair one
///
/// Builds what is missing in the cache first. A second `up` starts what died and makes what is gone.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Simulated nodes beside the real one, tainted `kwok.x-k8s.io/node=fake:NoSchedule`; as before if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    nodes: Option<u32>,
    /// Charts to install from the cache, with images from the sandbox's registry
    #[arg(long, value_name = "CHART", value_delimiter = ',')]
    with: Vec<Addition>,
    /// How the summary is written
    #[arg(long, short, value_enum, default_value = "text")]
    output: Format,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> Result<Exit, Failure> {
    let start = Instant::now();
    let folder = global.folder()?;
    let cache = cli::cache()?;
    // Root first: without it nothing can be installed or asked. The kernel is asked with programs that may be missing.
    Machine::read(folder.path(), false).check(folder.path()).map_err(IntoFailure::into_failure)?;
    // A name that cannot be had is said before anything is installed or built for it.
    let lock = folder.lock().map_err(IntoFailure::into_failure)?;
    if let Err(error) = folder.record() {
        folder.forget_lock(&lock);
        return Err(error.into_failure());
    }
    debian::ensure_packages(&mut progress::of_stderr()).map_err(IntoFailure::into_failure)?;
    Machine::read(folder.path(), true).check(folder.path()).map_err(IntoFailure::into_failure)?;
    let built = cli::built()?;
    let wanted = Wanted { nodes: arguments.nodes, with: arguments.with.clone() };
    let running = up(&folder, cache.root(), &built, &wanted, &mut Lines).map_err(IntoFailure::into_failure)?;
    let (node, kubeconfig) = (running.range.node(), folder.kubeconfig());
    let password = pki::git_password(&folder.pki()).unwrap_or_default();
    if arguments.output == Format::Json {
        let steps: Vec<_> =
            running.steps.iter().map(|step| json!({"name": step.name, "seconds": step.took.as_secs_f64()})).collect();
        let summary = json!({
            "name": folder.name.as_str(),
            "kubeconfig": kubeconfig,
            "registry": format!("{node}:{}", port::REGISTRY),
            "git": {"url": format!("http://{node}:{}", port::GIT), "user": pki::GIT_USER, "password": password},
            "kubectl": built.kubernetes.join("kubectl"),
            "helm": built.helm,
            "kustomize": built.kustomize,
            "charts": built.charts,
            "seconds": start.elapsed().as_secs_f64(),
            "steps": steps,
        });
        cli::data(&format!("{summary:#}\n"))?;
        return Ok(Exit::Done);
    }
    cli::live("");
    cli::data(&summary(&running, folder.name.as_str(), &kubeconfig.display().to_string(), &password, start))?;
    Ok(Exit::Done)
}

fn summary(running: &Running, name: &str, kubeconfig: &str, password: &str, start: Instant) -> String {
    let node = running.range.node();
    let flag = if name == "default" { String::new() } else { format!(" --name {name}") };
    format!(
        "sandbox {name} is up after {:.1} s\n\n\
         kubeconfig   {kubeconfig}\n\
         registry     {node}:{registry}           in pods: any host name leads to it\n\
         git          http://{node}:{git}    in pods: http://{git_name}:{git}    user {user}, password {password}\n\
         charts       forge sandbox exec{flag} helm ls -A\n\n\
         next:\n  \
         forge sandbox exec{flag} get pods -A      kubectl in it\n  \
         export KUBECONFIG=$(forge sandbox kubeconfig{flag})\n  \
         forge sandbox status{flag}                what runs, and how well\n  \
         forge sandbox down{flag}                  and nothing is left\n",
        start.elapsed().as_secs_f64(),
        registry = port::REGISTRY,
        git = port::GIT,
        git_name = crate::cluster::GIT_NAME,
        user = pki::GIT_USER,
    )
}

/// One line per step on stderr; on a terminal also what is waited for.
struct Lines;

impl Watcher for Lines {
    fn waits(&mut self, what: &str) {
        cli::live(&format!("         {what} …"));
    }

    fn done(&mut self, step: &Step) {
        cli::live("");
        if std::io::stderr().is_terminal() || step.took.as_millis() >= 10 {
            cli::say(&format!("{:6.1} s  {}", step.took.as_secs_f64(), step.name));
        }
    }
}
