//! Phase 1 as the executor enters it (SPEC.md section 4): whether it is complete, what of Argo is to be installed, and what
//! is Forge's own.

use std::collections::BTreeSet;
use std::path::Path;

use forge_core::code::Code;
use forge_core::executor::{Input, Inputs};
use forge_core::failure::Failure;
use forge_core::format::ArgoInstall;
use forge_core::install::says;
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::{self, AGENT_TICK, Places};
use forge_core::rights::{Answer, Ask};
use forge_core::token;
use jiff::Timestamp;
use serde_json::Value;

use super::deploy::mounted_argocd;
use super::desired::{self, Desired};
use super::{Options, Stopped};
use crate::account::{self, Stored};
use crate::argocd::{ACCOUNT, ArgoCd};
use crate::bootstrap::root::{self, Rooting};
use crate::bootstrap::triggers::{self, Events};
use crate::bootstrap::{Wanted, administrator, bootstrap};
use crate::cluster::{Cluster, ClusterError, for_programs, path};
use crate::install::{self, Charts, Installing, Outcome, Phase, TIMEOUT};
use crate::interrupt::Interrupts;
use crate::run::prepare;
use crate::teardown::inventory::Before;

/// Where a cluster stands.
pub(super) enum Prepared {
    /// Phase 1 is complete for this environment; with what it was completed.
    Yes(Places),
    /// It is not; with what it is to be completed.
    No(Places),
}

/// Looks where a cluster stands. Reads only, and only what the account of a run may read. `mounted` is where the Secret of the
/// Argo CD account is mounted, if it is; `warn` hears of what somebody else has to do about it.
///
/// # Errors
/// When it cannot be told, or when it is not known with what to prepare it.
pub(super) async fn looked(
    cluster: &Cluster,
    inputs: &Inputs,
    desired: &Desired,
    mounted: Option<&Path>,
    variable: &str,
    warn: impl Fn(&str),
) -> Result<Prepared, Failure> {
    let workflows = inputs.workflows_namespace.as_str();
    let argocd = desired.repository().installation.argo.namespace.as_str();
    let noted = prepare::prepared(cluster, workflows, argocd).await?;
    let same = noted.as_ref().is_some_and(|noted| inputs.image.as_ref().is_none_or(|image| *image == noted.image));
    let project = path::object(&path::argo(argocd, "appprojects"), inputs.environment.as_str());
    let complete = match &noted {
        Some(places) if same => {
            has_receipt(cluster, places, &inputs.environment).await?
                && seen(cluster, &project).await?.is_some()
                && has_token(cluster, workflows, mounted, warn).await?
                && root_is_settled(cluster, inputs, desired).await?
                && administrator_is_settled(cluster, desired).await?
                && triggers_are_settled(cluster, places, inputs, desired).await?
        }
        _ => false,
    };
    match (noted, complete) {
        (Some(places), true) => Ok(Prepared::Yes(places)),
        (noted, _) => {
            let agent_tick = noted.as_ref().map_or(AGENT_TICK, |noted| noted.agent_tick);
            let image = inputs.image.clone().or(noted.map(|noted| noted.image)).ok_or_else(|| {
                let flag = Input::Image.flag();
                let hint = format!("set {variable} or give {flag}: an image, by digest, that the cluster can pull");
                Failure::new(Code::MissingInput, "the cluster is not prepared, and no image is given").hint(hint)
            })?;
            let (workflows, argocd) = (workflows.to_owned(), argocd.to_owned());
            Ok(Prepared::No(Places { workflows, argocd, image, agent_tick }))
        }
    }
}

/// An object, as far as the account may know: what it may not read it cannot rely on.
async fn seen(cluster: &Cluster, object: &str) -> Result<Option<Value>, Failure> {
    match cluster.get(object).await {
        Ok(found) => Ok(found),
        Err(ClusterError::Refused { code: 401 | 403, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Phase 1 came to its end for this environment, with what it is made of now.
async fn has_receipt(cluster: &Cluster, places: &Places, environment: &EnvironmentName) -> Result<bool, Failure> {
    for receipt in render::receipts(places, std::slice::from_ref(environment)) {
        let name = receipt.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let found = seen(cluster, &path::object(&receipt.collection, name)).await?;
        if !found.is_some_and(|found| says(&found, &receipt.object)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the account holds a right: asked, and not tried, because a refusal is nothing to cause on every deployment.
async fn may(
    cluster: &Cluster,
    namespace: &str,
    (group, resource): (&'static str, &'static str),
    verb: &'static str,
) -> Result<bool, Failure> {
    let reviews = path::global("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    let (namespace, name) = (namespace.to_owned(), String::new());
    let ask = Ask::Resource { namespace, group, resource, verb, name };
    Ok(Answer::read(&cluster.create(&reviews, &ask.review()).await?) == Answer::Allowed)
}

/// Whether Helm has nothing to do for any of these; nothing where the account may not look at what Helm keeps of them: that of a
/// run may not, and has nothing to install.
///
/// # Errors
/// When it is not answered, or something is somebody else's.
pub(super) async fn is_installed(cluster: &Cluster, installing: &[Installing]) -> Result<Option<bool>, Failure> {
    let places: BTreeSet<&str> = installing.iter().map(|part| part.wanted.namespace.as_str()).collect();
    for namespace in places {
        if !may(cluster, namespace, ("", "secrets"), "list").await? {
            return Ok(None);
        }
    }
    install::is_done(cluster, installing).await.map(Some)
}

/// Nothing of the root file has to be written. Whoever may not look, as the account of a run, leaves it as it is.
async fn root_is_settled(cluster: &Cluster, inputs: &Inputs, desired: &Desired) -> Result<bool, Failure> {
    let Some(rooting) = rooting(inputs, desired)? else { return Ok(true) };
    let argocd = desired.repository().installation.argo.namespace.as_str();
    if !may(cluster, argocd, ("argoproj.io", "applicationsets"), "get").await? {
        return Ok(true);
    }
    root::settled(cluster, &rooting).await
}

fn installs_argocd(desired: &Desired) -> bool {
    desired.repository().installation.argo.cd == ArgoInstall::Install
}

/// The first password of Argo CD's administrator is not there any more: an earlier version of Forge left it. Whoever may not look,
/// as the account of a run, leaves it as it is.
async fn administrator_is_settled(cluster: &Cluster, desired: &Desired) -> Result<bool, Failure> {
    let argocd = desired.repository().installation.argo.namespace.as_str();
    if !installs_argocd(desired) || !may(cluster, argocd, ("", "secrets"), "get").await? {
        return Ok(true);
    }
    Ok(!administrator::is_due(cluster, argocd).await?)
}

/// What starts runs by itself is as its branch asks for it now: neither another revision nor a dry run has anything to say about
/// that. Whoever may not change it, as the account of a run, leaves it as it is.
async fn triggers_are_settled(
    cluster: &Cluster,
    places: &Places,
    inputs: &Inputs,
    desired: &Desired,
) -> Result<bool, Failure> {
    let branch = &desired.repository().installation.repository.branch.value;
    let asks = !inputs.dry_run && inputs.git_revision.value.to_string() == *branch;
    if !asks || !may(cluster, &places.workflows, ("argoproj.io", "sensors"), "patch").await? {
        return Ok(true);
    }
    triggers::are_settled(cluster, places, &events(desired, &inputs.environment)).await
}

/// Argo CD's token is there, another one is not due, and Argo CD does not refuse it. Whoever has it mounted and may not replace it,
/// as the account of a run, goes on with it as long as it lasts, and says so.
async fn has_token(
    cluster: &Cluster,
    workflows: &str,
    mounted: Option<&Path>,
    warn: impl Fn(&str),
) -> Result<bool, Failure> {
    let Some(folder) = mounted else {
        let secret = seen(cluster, &account::secret_path(workflows)).await?;
        let Some(stored) = secret.as_ref().and_then(Stored::read) else { return Ok(false) };
        let argocd = ArgoCd::proxied(cluster, &stored.server, stored.token.clone());
        return Ok(wanting(&stored, argocd.as_ref()).await.is_none());
    };
    // What cannot be read is told of where it is needed.
    let Some(stored) = Stored::mounted(folder) else { return Ok(true) };
    let Some(why) = wanting(&stored, mounted_argocd(folder).ok().as_ref()).await else { return Ok(true) };
    if may(cluster, workflows, ("", "secrets"), "patch").await? {
        return Ok(false);
    }
    let ends = stored.ends().filter(|ends| *ends > Timestamp::now());
    let ends = ends.map_or_else(String::new, |ends| format!(", ends at {ends}"));
    warn(&format!(
        "the mounted token of the Argo CD account `{ACCOUNT}` {why}{ends}, and this account may not replace it: `forge rotate`, `forge bootstrap`, or `rotate.schedule` of Forge's chart does"
    ));
    Ok(true)
}

/// Why a token does not count; nothing where it does. One that Forge did not make is whoever's gave it to renew.
async fn wanting(stored: &Stored, argocd: Option<&ArgoCd>) -> Option<String> {
    let stale = stored.stale(Timestamp::now()).filter(|_| stored.id.is_some());
    if stale.is_some() {
        return stale;
    }
    is_refused(&argocd?.who().await).then(|| "is refused by Argo CD".to_owned())
}

/// An Argo CD that was installed anew knows none of the tokens of the one before it. One that does not answer says nothing about
/// them, and is told of where it is needed.
fn is_refused(who: &Result<Option<String>, ClusterError>) -> bool {
    matches!(who, Ok(None) | Err(ClusterError::Refused { code: 401, .. }))
}

/// The root file, where it is Forge's to apply.
fn rooting(inputs: &Inputs, desired: &Desired) -> Result<Option<Rooting>, Failure> {
    let (asked, patience) = (inputs.self_managed_argocd, std::time::Duration::from_secs(TIMEOUT.seconds()));
    let own = desired.repository().environment(inputs.environment.as_str());
    let brought: BTreeSet<String> = own.map(|files| root::brings(&files.environment.path)).into_iter().collect();
    Ok(install::root(desired.repository())?.map(|root| Rooting { root, asked, patience, brought }))
}

/// What of Argo is to be installed. `say` hears of what is good to know about it.
///
/// # Errors
/// When charts, values or health checks cannot be used.
pub(super) fn installing(
    inputs: &Inputs,
    desired: &Desired,
    purpose: &Purpose,
    say: impl Fn(&str),
) -> Result<Vec<Installing>, Failure> {
    let own = if inputs.self_managed_argocd { Some(install::own(desired.repository())?) } else { None };
    if !Component::ALL.into_iter().any(|component| purpose.intent(component) == Intent::Install) {
        return Ok(Vec::new());
    }
    let charts = Charts::chosen(inputs.charts.as_deref(), &desired.files())?;
    let usable = desired.usable();
    let (health, values) = (usable.health_checks()?, usable.values()?);
    if let Some(note) = own.as_ref().and_then(|own| install::outdated(own, purpose, &health, values)) {
        say(&note);
    }
    let folder = desired.files();
    install::installing(purpose, &health, values, &charts, own.as_ref().map(|own| (own, folder.as_path())))
}

/// Installs what is to be installed, and makes as it should be what is ours already. Where nothing is to be done, nothing is
/// written. `say` hears of every step.
pub(super) async fn installed(
    cluster: &Cluster,
    (inputs, options): (&Inputs, &Options),
    variable: &str,
    installing: &[Installing],
    before: &Before,
    interrupts: &mut Interrupts,
    mut say: impl FnMut(&str),
) -> Result<(), Stopped> {
    let phase = Phase {
        cluster,
        kubeconfig: &|| for_programs(&inputs.access, variable),
        registries: &|| desired::registries(inputs, options),
        workflows: inputs.workflows_namespace.as_str(),
        installing,
        helm: None,
        timeout: std::time::Duration::from_secs(TIMEOUT.seconds()),
        before,
    };
    match install::phase_one(&phase, interrupts, &mut say).await? {
        Outcome::Done => Ok(()),
        Outcome::Interrupted => Err(Stopped::Interrupted),
    }
}

/// What starts runs of an environment by itself: from the repository alone, as `forge bootstrap` makes it, so that both make
/// the same.
fn events<'d>(desired: &'d Desired, environment: &EnvironmentName) -> Events<'d> {
    let repository = desired.repository();
    let files = repository.environments.iter().find(|files| files.environment.name.value == *environment);
    Events::new(&repository.installation, files.map(|files| &files.environment).into_iter().collect())
}

/// Makes what is Forge's own, for one environment, and applies the root file. `done` hears of everything that was made, `note` of
/// what is left for somebody to do.
///
/// # Errors
/// When something may not be made, or Argo is not there.
pub(super) async fn prepared(
    cluster: &Cluster,
    places: Places,
    desired: &Desired,
    inputs: &Inputs,
    done: impl FnMut(&str),
    note: impl FnMut(&str),
) -> Result<(), Failure> {
    let environment = &inputs.environment;
    let environments = vec![environment.clone()];
    let (held, root) = (desired.held(environment)?, rooting(inputs, desired)?);
    let (lifetime, events) = (token::LIFETIME, Some(events(desired, environment)));
    let (server, token) = (None, None);
    let installed = installs_argocd(desired);
    let handed = !installed;
    let wanted =
        Wanted { cluster, places, environments, held, server, token, lifetime, events, root, handed, installed };
    bootstrap(&wanted, done).await?.iter().map(String::as_str).for_each(note);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::fs;
    use std::net::TcpListener;

    use base64::Engine as _;
    use forge_core::executor::{Access, Action, Given, resolve};
    use forge_core::render::IMAGE_ANNOTATION;
    use forge_testkit::http::{Request, reply};
    use serde_json::json;

    use super::*;
    use crate::executor::desired;

    /// What is given for `dev`.
    fn inputs() -> Inputs {
        let given = [
            (Input::Environment, "dev"),
            (Input::Domain, "dev.example.com"),
            (Input::GitRepository, "https://git.example.com/p.git"),
            (Input::GitRevision, "main"),
        ];
        let given = Given {
            action: Action::Deploy,
            prefix: "",
            flags: given.iter().map(|(input, text)| (*input, (*text).to_owned())).collect(),
            variables: BTreeMap::new(),
            file: None,
        };
        resolve(&given).unwrap()
    }

    /// A repository with one environment that pushes start, and what its env.yaml says.
    fn desired(config: Option<&str>) -> Desired {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("dev")).unwrap();
        let write = |path: &str, rest: &str| {
            let text = format!("apiVersion: forge.projectcatalyst.io/v1alpha1\n{rest}");
            fs::write(tree.join(path), text).unwrap();
        };
        write(
            "forge.yaml",
            "kind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  environments: [{name: dev, cluster: dev, sync: ordered}]\n",
        );
        write(
            "graph.yaml",
            "kind: DependencyGraph\nspec:\n  stacks: [{name: base, apps: [{application: argocd/one}]}]\n",
        );
        if let Some(text) = config {
            fs::write(tree.join("dev/env.yaml"), text).unwrap();
        }
        let commit = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        desired::judged(&inputs(), folder, commit).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn triggers_are_the_same_whatever_domain_an_input_or_the_repository_has() {
        let config = "apiVersion: apiextensions.crossplane.io/v1beta1\nkind: EnvironmentConfig\nmetadata: {name: dev}\ndata: {domain: dev.example.com}\n";
        let [without, with] = [None, Some(config)].map(|config| {
            let desired = desired(config);
            let events = events(&desired, &"dev".parse().unwrap());
            events.objects(&Places::default()).into_iter().map(|placed| placed.object).collect::<Vec<_>>()
        });
        assert!(!with.is_empty() && with == without, "{with:?}");
    }

    #[test]
    fn a_token_counts_unless_argo_cd_says_that_it_is_none() {
        let error = |code: u16| Err(ClusterError::Refused { code, message: String::new() });
        assert!(is_refused(&Ok(None)) && is_refused(&error(401)));
        for other in
            [Ok(Some("forge".to_owned())), error(403), error(503), Err(ClusterError::Unreachable(String::new()))]
        {
            assert!(!is_refused(&other), "{other:?}");
        }
    }

    /// A cluster that is prepared for `dev`, with an Argo CD at the same address: `replaces` is whether the account may replace the
    /// token, `accepts` whether Argo CD accepts it, `more` what else is there.
    async fn served(replaces: bool, accepts: bool, more: Vec<(String, Value)>) -> (Cluster, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (places, environment): (_, EnvironmentName) = (Places::default(), "dev".parse().unwrap());
        let plugin = json!({"metadata": {"annotations": {IMAGE_ANNOTATION: places.image}}});
        let receipt = render::receipts(&places, std::slice::from_ref(&environment)).remove(0).object;
        let who = if accepts { json!({"username": "forge"}) } else { json!({}) };
        let own = [
            ("/api/v1/namespaces/argo/configmaps/forge-executor-plugin", plugin),
            ("/api/v1/namespaces/argo/configmaps/forge-bootstrap-dev", receipt),
            ("/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/dev", json!({})),
            ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!({"status": {"allowed": replaces}})),
            ("/api/v1/session/userinfo", who),
        ];
        let own = own.into_iter().map(|(path, answer)| (path.to_owned(), answer));
        let answers: BTreeMap<String, Value> = own.chain(more).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answers = answers.clone();
                std::thread::spawn(move || {
                    let Some(request) = Request::read(&stream) else { return };
                    let missing = json!({"kind": "Status", "code": 404, "message": "none", "reason": "NotFound"});
                    let path = request.uri.split('?').next().unwrap_or_default();
                    let (code, answer) = answers.get(path).map_or((404, &missing), |answer| (200, answer));
                    reply(&stream, code, &[], &answer.to_string());
                });
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        fs::write(&kubeconfig, text.to_string()).unwrap();
        let access = Access::Path(kubeconfig.display().to_string());
        (Cluster::reach(&access, "KUBECONFIG_DATA").await.unwrap(), address)
    }

    #[tokio::test]
    async fn phase_one_is_done_again_when_the_repository_asks_for_other_triggers_than_there_are() {
        let (desired, places) = (desired(None), Places::default());
        let crd = |name: &str| {
            (format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.argoproj.io"), json!({}))
        };
        let told = ("/api/v1/namespaces/argo/configmaps".to_owned(), json!({"items": []}));
        let definitions = || [["eventbus", "eventsources", "sensors"].map(crd).to_vec(), vec![told.clone()]].concat();
        let there = |object: Value, collection: &str| {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap().to_owned();
            (path::object(collection, &name), object)
        };
        let wanted = events(&desired, &"dev".parse().unwrap()).objects(&places);
        let wanted: Vec<_> = wanted.into_iter().map(|placed| there(placed.object, &placed.collection)).collect();
        let secret = ("/api/v1/namespaces/argo/secrets/forge-webhook".to_owned(), json!({}));
        let labels = json!({"app.kubernetes.io/managed-by": "forge"});
        let clock = json!({"metadata": {"name": "forge-at-dev", "labels": labels}});
        let clock = there(clock, "/apis/argoproj.io/v1alpha1/namespaces/argo/eventsources");
        let all = || [definitions(), wanted.clone(), vec![secret.clone()]].concat();
        let now = Timestamp::now().as_second();
        for (what, more, settled) in [
            ("no Argo Events", Vec::new(), true),
            ("none of them", definitions(), false),
            ("all of them", all(), true),
            ("no key", [definitions(), wanted.clone()].concat(), false),
            ("one too many", [all(), vec![clock]].concat(), false),
        ] {
            for may in [true, false] {
                let (cluster, address) = served(may, true, more.clone()).await;
                let folder = mount(&address, now - 60, now + 86_400);
                let looked = looked(&cluster, &inputs(), &desired, Some(folder.path()), "IMAGE", |_| {}).await.unwrap();
                assert_eq!(matches!(looked, Prepared::Yes(_)), settled || !may, "{what}, {may}");
            }
        }
    }

    /// The Secret of the account as it is mounted, with a token of this life.
    fn mount(address: &str, issued: i64, expires: i64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let claims = json!({"sub": "forge:apiKey", "jti": "forge-1", "iat": issued, "exp": expires});
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string());
        let token = format!("e30.{payload}.c2ln");
        for (name, text) in [("server", address), ("token", token.as_str()), ("token-id", "forge-1")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[tokio::test]
    async fn a_mounted_token_that_does_not_count_is_replaced_by_who_may_and_told_of_by_who_may_not() {
        const DAY: i64 = 86_400;
        let (desired, now) = (desired(None), Timestamp::now().as_second());
        // For how many days it is there and how many it has left, whether Argo CD accepts it, and why it does not count.
        for (since, left, accepts, why) in [
            (1, 29, true, None),
            (25, 5, true, Some("is due to be replaced")),
            (31, -1, false, Some("ended at")),
            // Argo CD was installed anew.
            (1, 29, false, Some("is refused by Argo CD")),
        ] {
            for replaces in [true, false] {
                let (cluster, address) = served(replaces, accepts, Vec::new()).await;
                let folder = mount(&address, now - since * DAY, now + left * DAY);
                let said = RefCell::new(Vec::new());
                let warn = |line: &str| said.borrow_mut().push(line.to_owned());
                let looked = looked(&cluster, &inputs(), &desired, Some(folder.path()), "IMAGE", warn).await.unwrap();
                // Whoever may do it does all of phase 1, which makes another one.
                assert_eq!(matches!(looked, Prepared::Yes(_)), why.is_none() || !replaces, "{why:?} {replaces}");
                let said: Vec<String> = said.into_inner();
                assert_eq!(said.len(), usize::from(why.is_some() && !replaces), "{said:?}");
                if let (Some(why), Some(line)) = (why, said.first()) {
                    assert!(line.contains(why) && line.contains("`forge rotate`"), "{line}");
                    assert_eq!(line.contains(", ends at "), left > 0, "{line}");
                }
            }
        }
    }
}
