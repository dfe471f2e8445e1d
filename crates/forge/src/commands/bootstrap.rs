//! `forge bootstrap`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::duration::Duration;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{
    BootstrapPlan, CHARTS_FOLDER, Fragment, HISTORY, Wanted as Chosen, fragments, handed, merges, values_path,
};
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::{self, Places};
use forge_core::repository::{ROOT_APP_FILE, RootFile};
use forge_core::root::Root;
use forge_core::scaffold::{self, Source};
use forge_core::yaml::{Dialect, Limits, Node};
use forge_core::{token, yaml};
use serde_json::{Value, json};

use super::plan::Format;
use super::release::ReachArguments;
use super::selection::{self, Usable};
use crate::account;
use crate::bootstrap::bus::{self, Standing};
use crate::bootstrap::root::{Rooting, brings};
use crate::bootstrap::triggers::{self, Events};
use crate::bootstrap::{self as own, Wanted, bootstrap, signatures};
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments, MANAGER};
use crate::install::{self, Charts, Compared, Installing, Outcome, Phase, TIMEOUT};
use crate::interrupt::Interrupts;
use crate::load;
use crate::output::{Output, Paint};
use crate::preflight;
use crate::run::prepare;
use crate::runtime::block_on;
use crate::teardown::inventory;

/// Install Argo where forge.yaml says so, and prepare the cluster for runs
///
/// Argo CD, Argo Workflows and Argo Events are installed by helm at fixed versions, one after the other, each through
/// pre-check, apply, test, validate, rollback and result; what is `existing` is never changed. What fails is taken back, and
/// what a bootstrap that was killed left is repaired by the next one.
///
/// Then it makes accounts with the least that they can do with, the template of all nodes, the executor plugin, the policy that
/// limits who writes sync windows, the AppProject of every environment where there is none, the token of the Argo CD
/// account `forge`, and, where an environment is `sync: ordered` or has a schedule, what starts its runs. Last it applies the root
/// file `app.yaml`, where there is one and Argo CD is Forge's own. A second time changes nothing, except that a token of which less than a third of its life is left is
/// replaced. Whether the cluster is ready is checked first, as by `forge preflight`; where something must be put right, nothing
/// is written and the exit code is 3.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these environments; all of forge.yaml if absent
    #[arg(long, short, env = "FORGE_ENVIRONMENT", value_delimiter = ',')]
    environment: Vec<String>,
    /// The image of forge, by digest, that the cluster can pull; with --check, that of the last bootstrap if absent
    #[arg(long, env = "FORGE_IMAGE", required_unless_present_any = ["check", "credentials", "snapshot"])]
    image: Option<String>,
    /// How often an agent tells the controller of finished nodes: sooner starts the next node sooner, later asks less of
    /// the API server
    #[arg(long, value_name = "MILLISECONDS", default_value_t = render::AGENT_TICK, value_parser = ticks())]
    agent_tick: u32,
    /// The address of Argo CD inside the cluster; found by its labels if absent
    #[arg(long, value_name = "URL")]
    argocd_server: Option<String>,
    /// A file with a token of the Argo CD account `forge`; made by the account itself while it has one, else with the initial
    /// administrator's password, if absent
    #[arg(long, value_name = "FILE")]
    argocd_token_file: Option<PathBuf>,
    /// How long a token is good for that is made
    #[arg(long, value_name = "DURATION", default_value_t = token::LIFETIME)]
    token_lifetime: Duration,
    /// Where the charts are: a folder, oci://REGISTRY/PATH, or the URL of a repository; argo/charts of this repository for what it
    /// has, else that of argo-helm, if absent
    #[arg(long, value_name = "PLACE", env = "FORGE_CHARTS")]
    charts: Option<String>,
    /// What is handed over to Argo CD itself
    #[arg(long, value_delimiter = ',', value_name = "WHAT", env = "FORGE_WITH")]
    with: Vec<Addition>,
    /// The helm program, 3.14 or newer; that of PATH if absent
    #[arg(long, value_name = "PROGRAM", env = "FORGE_HELM")]
    helm: Option<PathBuf>,
    /// How long each part of Argo may take to come up, and as long again to go back where it does not
    #[arg(long, value_name = "DURATION", default_value_t = TIMEOUT)]
    timeout: Duration,
    /// Something needs volumes: before anything is written, one of the default StorageClass is made and mounted
    #[arg(long, conflicts_with_all = ["check", "print", "credentials", "snapshot"])]
    storage: bool,
    /// Say what is missing or different, and write nothing: exit 0 where nothing is, else 1
    #[arg(long, conflicts_with = "print")]
    check: bool,
    /// Print the objects and the values of charts instead, as YAML, and for what is `existing` what its owner should merge;
    /// asks nothing of any cluster
    #[arg(long)]
    print: bool,
    /// Only make what is secret and is missing or due: the token of the Argo CD account, another password for the administrator
    /// of an Argo CD that Forge installs, and the key that deliveries are signed with; and have everything rendered again where
    /// another policy of signatures counts. For those who make the rest by other means; says what it made, and nothing where
    /// nothing was made
    #[arg(long, conflicts_with_all = ["check", "print"])]
    credentials: bool,
    /// Print what a teardown compares its end with, and write nothing: a list of ConfigMaps with the names of all that is in the
    /// cluster, empty where one is kept already or the cluster is prepared; fails where it may not look. For those who make the
    /// rest by other means: ask before anything is made, and make them, in their order, as soon as their namespace is there
    #[arg(long, conflicts_with_all = ["check", "print", "credentials"])]
    snapshot: bool,
    /// How what --check, --print and --snapshot say is written; for programs (`forge schema BootstrapCheck`, `BootstrapPlan`), what
    /// is to be merged is there as objects and as values of the charts
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registries: ReachArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Addition {
    /// Argo CD, to its own Application in app.yaml: it takes over what Helm installed, no pod changes, and Helm is not run for it
    /// any more
    SelfManagedArgocd,
}

fn ticks() -> clap::builder::RangedI64ValueParser<u32> {
    let (least, most) = (*render::AGENT_TICKS.start(), *render::AGENT_TICKS.end());
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let folder = load::root(global.repo.as_deref())?;
    let asked = arguments.with.contains(&Addition::SelfManagedArgocd);
    // The root file brings all environments, so all of them get their windows first.
    let rooted = repository.applies_root();
    let mut held: Vec<(EnvironmentName, BTreeSet<String>)> = Vec::new();
    let (mut selected, mut environments) = (Vec::new(), Vec::<EnvironmentName>::new());
    // What was torn down comes back when it is prepared again.
    let mut brought = BTreeSet::new();
    for files in &repository.environments {
        let name = &files.environment.name.value;
        let named = arguments.environment.iter().any(|wanted| wanted == name.as_str());
        let chosen = named || arguments.environment.is_empty();
        if !chosen && !rooted {
            continue;
        }
        let graph = selection::graph(repository, Some(files))?;
        let (scope, nodes) = graph.scope(&forge_core::graph::Scope::Platform, Some(&files.environment.name))?;
        let plan = forge_core::plan::plan(repository, files, &graph, &scope, &nodes);
        let names = plan.nodes.iter().filter(|node| !node.implicit).map(|node| node.application.name.clone());
        held.push((name.clone(), names.collect()));
        if chosen {
            selected.push(&files.environment);
            environments.push(name.clone());
            brought.insert(brings(&files.environment.path));
        }
    }
    for wanted in &arguments.environment {
        selection::environment(repository, wanted)?;
    }
    let places = Places {
        workflows: arguments.cluster.workflows_namespace.clone(),
        argocd: repository.installation.argo.namespace.to_string(),
        image: arguments.image.clone().unwrap_or_default(),
        agent_tick: arguments.agent_tick,
    };
    let events = Some(Events::new(&repository.installation, selected));
    let installation = Some(&repository.installation);
    let purpose = preflight::purpose(installation, &places.workflows, &places.image, environments.clone());
    let purpose = Purpose { root: rooted, storage: arguments.storage, ..purpose };
    if arguments.output != Format::Text && !arguments.print && !arguments.check && !arguments.snapshot {
        return Err(Failure::new(
            Code::BadArgument,
            "--output says how --check, --print and --snapshot write, and none of them is there",
        )
        .hint("leave it out, or add one of them"));
    }
    if arguments.print {
        let own = asked.then(|| vendored(&folder));
        let handed = if purpose.handed { handed(&places, &held) } else { Vec::new() };
        let (usable, purpose, places, events) = (&usable, &purpose, &places, events.as_ref());
        let printed = Printed { usable, purpose, places, events, own, handed };
        output.data(&match arguments.output {
            Format::Text => printed.text()?,
            format => {
                let charts = Charts::chosen(arguments.charts.as_deref(), &folder)?;
                document(format, &json!(printed.plan(&charts, &held, install::root(repository)?.as_ref())?))
            }
        })?;
        if arguments.output == Format::Text && events.is_some_and(Events::pushes) {
            let (name, key) = (render::WEBHOOK_SECRET, render::WEBHOOK_SECRET_KEY);
            output.say(&format!(
                "note: what deliveries are signed with is not printed; make it: kubectl create secret generic {name} -n {} --from-literal={key}=$(openssl rand -hex 32)",
                places.workflows
            ));
        }
        return Ok(Exit::Done);
    }
    if arguments.snapshot {
        return block_on(async {
            let cluster = Cluster::connect(&arguments.cluster).await?;
            let before = inventory::snapshot(&cluster, &places.workflows, &places.argocd).await?;
            output.data(&document(arguments.output, &before.list()))?;
            Ok(Exit::Done)
        })?;
    }
    if arguments.timeout == Duration::ZERO {
        return Err(Failure::new(Code::BadArgument, "--timeout must be more than 0s")
            .hint(format!("leave it out for {TIMEOUT}")));
    }
    let token = arguments.argocd_token_file.as_deref().map(account::token_in).transpose()?;
    let lifetime = account::lifetime(arguments.token_lifetime, token::GRACE)?;
    let server = arguments.argocd_server.clone();
    if arguments.credentials {
        return block_on(async {
            let cluster = Cluster::connect(&arguments.cluster).await?;
            let (cluster, root) = (&cluster, None);
            let (handed, installed) = (purpose.handed, installs_argocd(&purpose));
            let wanted = Wanted {
                cluster,
                places,
                environments,
                held,
                server,
                token,
                lifetime,
                events,
                root,
                handed,
                installed,
            };
            credentials(&wanted, output).await
        })?;
    }
    let charts = Charts::chosen(arguments.charts.as_deref(), &folder)?;
    let root = install::root(repository)?;
    let own = if asked { Some(install::own(repository)?) } else { None };
    let given = own.as_ref().map(|own| (own, folder.as_path()));
    if arguments.check {
        let (health, values) = (usable.health_checks()?, usable.values()?);
        let installing = |purpose: &Purpose| install::installing(purpose, &health, values, &charts, given);
        let root = root.as_ref().map(|root| (root, asked, &brought));
        let projects: Vec<EnvironmentName> = held.into_iter().map(|(environment, _)| environment).collect();
        let (purpose, health, events) = (&purpose, &health, events.as_ref());
        let checking = Checking { purpose, health, installing: &installing, projects: &projects, events, root };
        return block_on(checked(arguments, &checking, places, output))?;
    }
    let mut further = Vec::new();
    let installing = if installs(&purpose) {
        let (health, values) = (usable.health_checks()?, usable.values()?);
        further.extend(own.as_ref().and_then(|own| install::outdated(own, &purpose, &health, values)));
        install::installing(&purpose, &health, values, &charts, given)?
    } else {
        Vec::new()
    };
    if repository.root != RootFile::Absent && !rooted {
        further.push(format!(
            "{ROOT_APP_FILE} is applied by whoever owns Argo CD, now that AppProjects are there: kubectl apply -f {ROOT_APP_FILE}"
        ));
    }
    let context = block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let workflows = places.workflows.clone();
        let (handed, installed) = (purpose.handed, installs_argocd(&purpose));
        // Before the checks, which write too, though they put it away.
        signatures::refuse(&cluster, &places).await?;
        let checked = preflight::Wanted::new(purpose).unless_prepared(&cluster).await;
        preflight::required(&cluster, &checked, output).await?;
        let mut note = |line: &str| output.say(&format!("note: {line}"));
        let before = inventory::snapshot_or_note(&cluster, (&workflows, &places.argocd), &mut note).await;
        // The checks listen to interrupts, and who has once listened has to go on.
        let mut interrupts = Interrupts::listen();
        let phase = Phase {
            cluster: &cluster,
            kubeconfig: &|| arguments.cluster.for_programs(),
            registries: &|| arguments.registries.options(),
            workflows: &workflows,
            installing: &installing,
            helm: arguments.helm.as_deref(),
            timeout: std::time::Duration::from_secs(arguments.timeout.seconds()),
            before: &before,
        };
        let good = output.paint(Paint::Good, "ok");
        let mut say = |line: &str| output.say(&format!("{good} {line}"));
        if install::phase_one(&phase, &mut interrupts, &mut say).await? == Outcome::Interrupted {
            return Ok::<_, Failure>(None);
        }
        // Where nothing was installed.
        before.keep(&cluster, &mut say).await?;
        let patience = phase.timeout;
        let (cluster, root) = (&cluster, root.map(|root| Rooting { root, asked, patience, brought }));
        let wanted =
            Wanted { cluster, places, environments, held, server, token, lifetime, events, root, handed, installed };
        let done = tokio::select! {
            // Said as it happens: whoever fails half way has made something all the same.
            done = bootstrap(&wanted, &mut say) => Some(done?),
            () = interrupts.heard() => None,
        };
        Ok::<_, Failure>(done.map(|notes| (cluster.context.clone(), notes)))
    })??;
    let Some((context, notes)) = context else {
        output.say("\ninterrupted; run it again, and it goes on from there");
        return Ok(Exit::Findings);
    };
    for note in notes.into_iter().chain(further) {
        output.say(&format!("\nnote: {note}"));
    }
    output.say(&format!("\n{context} is prepared for runs\n\nhint: forge platform deploy --environment <environment>"));
    Ok(Exit::Done)
}

fn installs(purpose: &Purpose) -> bool {
    Component::ALL.into_iter().any(|component| purpose.intent(component) == Intent::Install)
}

fn installs_argocd(purpose: &Purpose) -> bool {
    purpose.intent(Component::Cd) == Intent::Install
}

/// Makes what is secret; says on stdout what was made.
async fn credentials(wanted: &Wanted<'_>, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let mut made = String::new();
    let mut interrupts = Interrupts::listen();
    let notes = tokio::select! {
        notes = own::credentials(wanted, |line| made.push_str(&format!("{line}\n"))) => Some(notes?),
        () = interrupts.heard() => None,
    };
    output.data(&made)?;
    let Some(notes) = notes else {
        output.say("\ninterrupted; run it again, and it goes on from there");
        return Ok(Exit::Findings);
    };
    for note in notes {
        output.say(&format!("note: {note}"));
    }
    Ok(Exit::Done)
}

/// Where Argo CD's own Application takes its chart from: the repository, where that has it.
fn vendored(folder: &Path) -> Source {
    let chart = folder.join(CHARTS_FOLDER).join(Component::Cd.release()).join("Chart.yaml");
    if chart.is_file() { Source::Vendored } else { Source::Published }
}

/// Data for programs.
fn document(format: Format, data: &Value) -> String {
    match format {
        Format::Json => format!("{data:#}\n"),
        Format::Text | Format::Yaml => yaml::write_blocks(data),
    }
}

/// Forge's own objects, the values of what it installs, and what the owner of what is there should merge: an Argo that is
/// somebody else's is not changed. With `own`, Argo CD's own Application in place of its values, its chart from there.
struct Printed<'p> {
    usable: &'p Usable,
    purpose: &'p Purpose,
    places: &'p Places,
    events: Option<&'p Events<'p>>,
    own: Option<Source>,
    /// What the owner of Argo CD makes in its namespace.
    handed: Vec<Fragment>,
}

impl Printed<'_> {
    /// YAML documents, with why as comments.
    fn text(&self) -> Result<String, Failure> {
        let (health, values) = (self.usable.health_checks()?, self.usable.values()?);
        let own = own::applied(self.places, &self.purpose.environments, self.purpose.handed);
        let triggers = self.events.map(|events| events.objects(self.places)).unwrap_or_default();
        let mut documents: Vec<String> =
            own.iter().chain(&triggers).map(|placed| yaml::write(&placed.object)).collect();
        let wanted = Component::ALL.into_iter().filter(|component| self.purpose.intent(*component) == Intent::Install);
        for component in wanted {
            let namespace = self.purpose.place(component);
            let wanted = Chosen::of(self.purpose, component, &health, values.get(&component), None);
            if let (Component::Cd, Some(source)) = (component, self.own) {
                documents.push(self.application(&wanted, source));
                continue;
            }
            let (chart, over, values) = (wanted.chart, values_path(component), yaml::write_blocks(&wanted.values));
            documents.push(format!(
                "# Values of chart {} {}, installed as Helm release {} in namespace {namespace}. What\n# {over} says lies over Forge's own.\n{values}",
                chart.name, chart.version, chart.name,
            ));
        }
        documents.extend(fragments(self.purpose, &health, &self.handed));
        Ok(documents.join("---\n"))
    }

    /// Argo CD's own Application, as it should stand in the root file.
    fn application(&self, wanted: &Chosen, source: Source) -> String {
        scaffold::own_application(&self.usable.repository.installation, &wanted.values, source)
    }

    /// For a program that makes it by other means: the same, with where charts come from, and everything else that phase 1 makes.
    fn plan(
        &self,
        charts: &Charts,
        held: &[(EnvironmentName, BTreeSet<String>)],
        root: Option<&Root>,
    ) -> Result<BootstrapPlan, Failure> {
        let (health, values) = (self.usable.health_checks()?, self.usable.values()?);
        let mut installing = install::installing(self.purpose, &health, values, charts, None)?;
        let namespaces = install::namespaces(&installing, &self.places.workflows);
        let mut application = None;
        if let Some(source) = self.own
            && let Some(at) = installing.iter().position(|part| part.wanted.component == Component::Cd)
        {
            let text = self.application(&installing.remove(at).wanted, source);
            let stream = yaml::read(&text, Dialect::Kubernetes, Limits::FILE);
            application = stream.documents.first().map(Node::to_json);
        }
        let environments = self.purpose.environments.as_slice();
        Ok(BootstrapPlan {
            field_manager: MANAGER.to_owned(),
            history_max: HISTORY,
            namespaces,
            charts: install::planned(&installing),
            application,
            objects: own::planned(self.places, (environments, self.purpose.handed), held, self.events, root),
            merge: merges(self.purpose, &health, &self.handed),
        })
    }
}

/// What a cluster is compared with.
struct Checking<'c> {
    purpose: &'c Purpose,
    health: &'c HealthChecks,
    /// What is to be installed, once it is known with which image the cluster is prepared.
    installing: &'c dyn Fn(&Purpose) -> Result<Vec<Installing>, Failure>,
    /// Environments whose AppProjects must be there.
    projects: &'c [EnvironmentName],
    events: Option<&'c Events<'c>>,
    root: Option<(&'c Root, bool, &'c BTreeSet<String>)>,
}

/// Compares a cluster with what it should be.
async fn checked(
    arguments: &Arguments,
    checking: &Checking<'_>,
    mut places: Places,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let Checking { purpose, health, installing, projects, events, root } = *checking;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    if arguments.image.is_none()
        && let Some(prepared) = prepare::prepared(&cluster, &places.workflows, &places.argocd).await?
    {
        places = prepared;
    }
    let purpose = &Purpose { image: places.image.clone(), ..purpose.clone() };
    let installing = installing(purpose)?;
    let environments = &purpose.environments;
    let (mut objects, mut lacking) = (own::applied(&places, environments, purpose.handed), Vec::new());
    if purpose.handed {
        lacking = own::lacking(&cluster, (purpose.workflows.as_str(), purpose.argocd.as_str()), environments).await?;
    }
    objects.extend(render::receipts(&places, &purpose.environments));
    let (mut signed, mut unwanted, mut heard) = (false, Vec::new(), Standing::Well);
    if let Some(events) = events
        && triggers::undefined(&cluster).await?.is_none()
    {
        let starting = events.objects(&places);
        heard = bus::look(&cluster, &places, &starting).await?;
        objects.extend(starting);
        signed = events.pushes();
        unwanted = triggers::unwanted(&cluster, &places, events).await?;
    }
    // Where Argo CD is somebody else's, its AppProjects are among what is lacking.
    let projects: &[EnvironmentName] = if purpose.handed { &[] } else { projects };
    let former = own::former(&cluster, &places).await?;
    let policy = signatures::look(&cluster, &places).await?;
    let (objects, unwanted, former, lacking, heard) = (&objects, &unwanted, &former, &lacking, &heard);
    let compared = Compared {
        purpose,
        health,
        installing: &installing,
        objects,
        projects,
        lacking,
        signed,
        unwanted,
        former,
        heard,
        policy: &policy,
        root,
    };
    let checked = install::check(&cluster, &compared).await?;
    output.data(&match arguments.output {
        Format::Text => checked.text(),
        format => document(format, &json!(checked)),
    })?;
    if let Some(who) = &checked.at_work {
        output.say(&format!("note: another bootstrap is at work ({who})"));
    }
    Ok(match checked.missing {
        0 => Exit::Done,
        missing => {
            let things = if missing == 1 { "1 thing is".to_owned() } else { format!("{missing} things are") };
            output.say(&format!("\n{things} missing or different on {}; nothing was changed", cluster.context));
            Exit::Findings
        }
    })
}
