//! Prepares a cluster that runs Argo CD and Argo Workflows for runs: Forge's own objects, the token of its account, and the
//! root of the repository (SPEC.md section 4, phase 1). Applied on the server's side, and only where something else is
//! there: a second time writes nothing (INV-2). What says that it is done is written last, so that whoever was killed on
//! the way is known not to have come to the end.

pub(crate) mod administrator;
pub(crate) mod bus;
pub(crate) mod root;
pub(crate) mod signatures;
pub(crate) mod triggers;

use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::duration::Duration;
use forge_core::failure::Failure;
use forge_core::install::{PlannedObjects, PlannedWay, says};
use forge_core::name::EnvironmentName;
use forge_core::preflight::is_foreign;
use forge_core::render::{self, ARGOCD_SECRET, FormerPolicy, Placed, Places};
use forge_core::root::{Root, identity, receipt};
use forge_core::token;
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::Value;

use crate::account::{self, Content, Minter, Stored};
use crate::argocd::{self, ACCOUNT, ArgoCd};
use crate::cluster::{Cluster, ClusterError, path, secret_text};
use crate::failpoint;
use root::Rooting;
use triggers::{DEFINITIONS, Events};

/// What is to be prepared.
pub(crate) struct Wanted<'w> {
    pub(crate) cluster: &'w Cluster,
    pub(crate) places: Places,
    pub(crate) environments: Vec<EnvironmentName>,
    /// For each environment that has no AppProject yet, what its first window holds: of all of them where there is a root file,
    /// which brings them all.
    pub(crate) held: Vec<(EnvironmentName, BTreeSet<String>)>,
    /// The address of Argo CD inside the cluster; found by its labels if absent.
    pub(crate) server: Option<String>,
    /// A token of the account `forge`; made by the account itself, or with the initial administrator's password, if absent.
    pub(crate) token: Option<SecretString>,
    /// How long a token is good for that is made.
    pub(crate) lifetime: Duration,
    /// What may start runs by itself; absent where there is no Argo Events.
    pub(crate) events: Option<Events<'w>>,
    /// The root file, where it is Forge's to apply.
    pub(crate) root: Option<Rooting>,
    /// Argo CD is somebody else's: nothing is made in its namespace, phase 0 has seen that its owner did.
    pub(crate) handed: bool,
    /// Argo CD is one that Forge installs: the first password of its administrator is Forge's to replace.
    pub(crate) installed: bool,
}

/// Policies that an earlier version left for this namespace, as they are to go. Two of one account both hold, and an old one
/// knows neither the image nor the fields of today.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn former(cluster: &Cluster, places: &Places) -> Result<Vec<Placed>, ClusterError> {
    let mut found = Vec::new();
    for former in FormerPolicy::all() {
        let live = permitted(cluster.get(&at(&former.policy)).await)?.flatten();
        if !live.is_some_and(|live| former.is_of(&live, &places.workflows)) {
            continue;
        }
        let bound = permitted(cluster.get(&at(&former.binding)).await)?.flatten();
        if bound.is_some_and(|live| former.binds(&live)) {
            found.push(former.binding);
        }
        found.push(former.policy);
    }
    Ok(found)
}

/// An answer; nothing where the account may not ask.
fn permitted<T>(answer: Result<T, ClusterError>) -> Result<Option<T>, ClusterError> {
    match answer {
        Err(ClusterError::Refused { code: 401 | 403, .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// What every run needs, as far as Forge makes it itself: where Argo CD is somebody else's, nothing in its namespace.
pub(crate) fn applied(places: &Places, environments: &[EnvironmentName], handed: bool) -> Vec<Placed> {
    if handed { render::of_runs(places) } else { render::bootstrap(places, environments) }
}

/// What the owner of Argo CD has not made of what these environments need in its namespace, in a line each, as far as the account
/// may look.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn lacking(
    cluster: &Cluster,
    (workflows, argocd): (&str, &str),
    environments: &[EnvironmentName],
) -> Result<Vec<String>, ClusterError> {
    let places = Places { workflows: workflows.to_owned(), argocd: argocd.to_owned(), ..Places::default() };
    let mut found = Vec::new();
    for placed in render::handed(&places, environments) {
        let (title, name) = title(&placed);
        match permitted(cluster.get(&path::object(&placed.collection, name)).await)? {
            Some(None) => found.push(format!("{title} is not there")),
            Some(Some(live)) if !says(&live, &placed.object) => found.push(format!("{title} says something else")),
            _ => {}
        }
    }
    let projects = path::argo(argocd, "appprojects");
    for environment in environments {
        let live = permitted(cluster.get(&path::object(&projects, environment.as_str())).await)?;
        if matches!(live, Some(None)) {
            found.push(format!("AppProject {environment} is not there"));
        }
    }
    Ok(found)
}

/// Why a run cannot begin where Argo CD is somebody else's: its AppProject is not there.
///
/// # Errors
/// Exactly then, and when the cluster does not answer.
pub(crate) async fn project_is_there(
    cluster: &Cluster,
    argocd: &str,
    environment: &EnvironmentName,
) -> Result<(), Failure> {
    let project = path::object(&path::argo(argocd, "appprojects"), environment.as_str());
    if matches!(permitted(cluster.get(&project).await)?, Some(None)) {
        let message = format!("AppProject {environment} is not there, and Argo CD is its owner's");
        return Err(Failure::new(Code::NotMerged, message).hint(
            "`forge bootstrap --print` has it, with why: let the owner of Argo CD make it, then run this again",
        ));
    }
    Ok(())
}

/// The same as [`bootstrap`] makes, in its order, for a program that makes it by other means.
pub(crate) fn planned(
    places: &Places,
    (environments, handed): (&[EnvironmentName], bool),
    held: &[(EnvironmentName, BTreeSet<String>)],
    events: Option<&Events<'_>>,
    root: Option<&Root>,
) -> Vec<PlannedObjects> {
    let of = |title: &str, way: PlannedWay, objects: Vec<Value>| PlannedObjects {
        title: title.to_owned(),
        way,
        needs: Vec::new(),
        objects,
    };
    let objects = |placed: Vec<Placed>| -> Vec<Value> { placed.into_iter().map(|placed| placed.object).collect() };
    // Where Argo CD is somebody else's, its owner makes them.
    let made = held.iter().filter(|_| !handed);
    let projects = made.map(|(environment, names)| project(places, environment, names));
    let mut all = vec![
        of("what every run needs", PlannedWay::Apply, objects(applied(places, environments, handed))),
        of("AppProjects", PlannedWay::Create, projects.collect()),
        of("credentials", PlannedWay::Credentials, Vec::new()),
    ];
    if let Some(events) = events {
        let needs: Vec<String> = DEFINITIONS.iter().map(|crd| (*crd).to_owned()).collect();
        for (title, way, objects) in [
            ("what no longer starts runs", PlannedWay::Remove, objects(events.withdrawn(places))),
            ("what starts runs", PlannedWay::Apply, objects(events.objects(places))),
        ] {
            all.push(PlannedObjects { needs: needs.clone(), ..of(title, way, objects) });
        }
    }
    if let Some(root) = root {
        let named = root.objects.iter().map(|placed| identity(&placed.object)).collect();
        all.push(of("the root", PlannedWay::Ours, root.objects.iter().map(|placed| placed.object.clone()).collect()));
        // Whoever hands Argo CD over to itself writes more into it.
        all.push(of("the receipt of the root", PlannedWay::Create, vec![receipt(&places.argocd, &named)]));
    }
    all.push(of("what says that it is done", PlannedWay::Apply, objects(render::receipts(places, environments))));
    all.retain(|planned| planned.way == PlannedWay::Credentials || !planned.objects.is_empty());
    all
}

/// The AppProject of an environment as it is made where there is none.
fn project(places: &Places, environment: &EnvironmentName, names: &BTreeSet<String>) -> Value {
    render::app_project(places, environment, &render::windows(&[], "bootstrap", names))
}

/// Prepares the cluster. `done` hears of every object; what is left to be done by somebody is given back.
///
/// # Errors
/// When Argo is not there, or something may not be made.
pub(crate) async fn bootstrap(wanted: &Wanted<'_>, mut done: impl FnMut(&str)) -> Result<Vec<String>, Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    for (crd, what) in [("applications.argoproj.io", "Argo CD"), ("workflows.argoproj.io", "Argo Workflows")] {
        let collection = path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        if cluster.get(&path::object(&collection, crd)).await?.is_none() {
            return Err(Failure::new(
                Code::NotBootstrapped,
                format!("{what} is not installed: there is no CRD `{crd}`"),
            )
            .hint(format!("install {what} first; in the sandbox: forge sandbox up --with argo-cd,argo-workflows")));
        }
    }
    // The receipts have the digest of all of these.
    let receipts = render::receipts(places, &wanted.environments);
    let mut afresh = false;
    for receipt in &receipts {
        afresh |= is_lacking(looked(cluster, receipt).await?.as_ref(), &receipt.object, false);
    }
    for placed in applied(places, &wanted.environments, wanted.handed) {
        apply(cluster, &placed, afresh, &mut done).await?;
    }
    let projects = path::argo(&places.argocd, "appprojects");
    for (environment, names) in wanted.held.iter().filter(|_| !wanted.handed) {
        let object = path::object(&projects, environment.as_str());
        if cluster.get(&object).await?.is_some() {
            continue;
        }
        failpoint::write(&format!("AppProject {environment}"));
        match cluster.create(&projects, &project(places, environment, names)).await {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => done(&format!("AppProject {environment}, holding {} Applications", names.len())),
        }
    }
    let mut notes = accounts(wanted, &mut done).await?;
    notes.extend(dropped(cluster, places, &mut done).await?);
    if let Some(events) = &wanted.events {
        notes.extend(triggers::settle(cluster, places, events, &mut done).await?);
    }
    // What it brings finds its AppProjects, with their windows.
    if let Some(rooting) = &wanted.root {
        notes.extend(root::rooted(cluster, places, rooting, &mut done).await?);
    }
    notes.extend(signatures::settle(cluster, places, wanted.handed, &mut done).await?);
    for receipt in &receipts {
        apply(cluster, receipt, false, &mut done).await?;
    }
    Ok(notes)
}

/// Only what others cannot do: the token of the account, the administrator's password, the key that deliveries are signed with, and what
/// is rendered again because another policy of signatures counts. `done` hears of what was done; what is left to be done by somebody is given back.
///
/// # Errors
/// When Argo CD is not there, or something may not be made.
pub(crate) async fn credentials(wanted: &Wanted<'_>, mut done: impl FnMut(&str)) -> Result<Vec<String>, Failure> {
    signatures::refuse(wanted.cluster, &wanted.places).await?;
    let mut notes = accounts(wanted, &mut done).await?;
    if wanted.events.as_ref().is_some_and(Events::pushes) && triggers::undefined(wanted.cluster).await?.is_none() {
        triggers::sign(wanted.cluster, &wanted.places, &mut done).await?;
    }
    notes.extend(signatures::settle(wanted.cluster, &wanted.places, wanted.handed, &mut done).await?);
    Ok(notes)
}

/// What an object is called, and its name alone.
fn title(placed: &Placed) -> (String, &str) {
    let text = |pointer: &str| placed.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = text("/metadata/name");
    (format!("{} {name}", text("/kind")), name)
}

/// What tests call the write of an object: two of one name are in different namespaces.
fn point(title: &str, placed: &Placed) {
    let namespace = placed.object.pointer("/metadata/namespace").and_then(Value::as_str);
    let place = namespace.map_or_else(String::new, |namespace| format!(" in {namespace}"));
    failpoint::write(&format!("{title}{place}"));
}

/// Where an object is.
fn at(placed: &Placed) -> String {
    let (_, name) = title(placed);
    path::object(&placed.collection, name)
}

/// What is there of an object. Who may not look may still be allowed to write.
async fn looked(cluster: &Cluster, placed: &Placed) -> Result<Option<Value>, Failure> {
    Ok(permitted(cluster.get(&at(placed)).await)?.flatten())
}

/// Whether an object has to be applied. What is wanted no longer cannot be told from what the server added, so where something else
/// was applied before, `afresh` is true: whatever is there, server-side apply takes away what we no longer name.
fn is_lacking(live: Option<&Value>, wanted: &Value, afresh: bool) -> bool {
    afresh || !live.is_some_and(|live| says(live, wanted))
}

async fn apply(cluster: &Cluster, placed: &Placed, afresh: bool, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let (title, _) = title(placed);
    let live = looked(cluster, placed).await?;
    if live.as_ref().is_some_and(|live| is_foreign(live, &placed.object)) {
        return Err(account::foreign_object(&title, &placed.object));
    }
    // What somebody else made and says the same stays his.
    let is_his = live.as_ref().is_some_and(|live| !render::is_ours(live));
    if !is_his && is_lacking(live.as_ref(), &placed.object, afresh) {
        point(&title, placed);
        cluster.apply(&at(placed), &placed.object).await?;
    }
    done(&title);
    Ok(())
}

/// Removes the policies of an earlier version, now that those of this one are there; gives what somebody else has to remove.
async fn dropped(cluster: &Cluster, places: &Places, done: &mut impl FnMut(&str)) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for placed in former(cluster, places).await? {
        let (title, _) = title(&placed);
        failpoint::write(&format!("{title} goes"));
        match permitted(cluster.delete(&at(&placed)).await)? {
            Some(()) => done(&format!("removed {title}: an earlier version left it")),
            None => notes.push(format!(
                "an earlier version left {title}, which minds what this one does, and it may not be removed: kubectl delete {}",
                title.to_lowercase()
            )),
        }
    }
    Ok(notes)
}

fn random_bytes<const N: usize>() -> Result<[u8; N], Failure> {
    use std::io::Read as _;
    let mut bytes = [0_u8; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::new(Code::CannotWrite, format!("failed to read random bytes: {error}")))?;
    Ok(bytes)
}

/// Accounts of Argo CD: Forge's own gets its token, and then the administrator, who made it, another password where he is ours.
/// Gives what is still to come.
async fn accounts(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<Vec<String>, Failure> {
    let note = account(wanted, done).await?;
    if wanted.installed {
        administrator::settle(wanted.cluster, &wanted.places, done).await?;
    }
    Ok(note.into_iter().collect())
}

/// The Secret of the account; gives what is still to come. Who prepares the same cluster at the same time may be first with it,
/// and what he stored is as good.
async fn account(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<Option<String>, Failure> {
    const TRIES: usize = 5;
    for _ in 1..TRIES {
        match settled(wanted, done).await {
            Err(failure) if failure.code == Code::TokenContested => {}
            other => return other,
        }
    }
    settled(wanted, done).await
}

/// The account's token, Argo CD's address and its certificate, in a Secret beside the Workflows. What is stored and
/// works is kept until two thirds of its life are over, except for what was named.
async fn settled(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<Option<String>, Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let secret = cluster.get(&account::secret_path(&places.workflows)).await?;
    let stored = secret.as_ref().and_then(Stored::read);
    let taken = taken(wanted, stored.as_ref()).await?;
    let server = taken.server.as_str();
    let encrypted = server.starts_with("https://");
    let certificates = if encrypted { certificates(cluster, &places.argocd).await? } else { None };
    // Whoever runs now still reads the old token: it stays until the next time.
    let retire_after = match &taken.minted {
        Some(_) if stored.is_some() => Timestamp::now().checked_add(token::GRACE.as_jiff()).ok(),
        Some(_) => None,
        None => stored.as_ref().filter(|_| wanted.token.is_none()).and_then(|stored| stored.retire_after),
    };
    let content = Content { server, token: &taken.token, certificates: certificates.as_deref(), retire_after };
    match account::store(cluster, &places.workflows, secret.as_ref(), &content).await {
        Ok(false) => {}
        Ok(true) => {
            let trust = match (encrypted, &certificates) {
                (false, _) => "",
                (true, Some(_)) => ", and its certificate",
                (true, None) => "; no certificate of Argo CD was found, so the image must trust the one that it shows",
            };
            let made = taken.minted.as_ref().map_or(String::new(), |(minter, _)| format!(", made by {}", minter.who));
            done(&format!(
                "Secret {ARGOCD_SECRET}: a token of the Argo CD account `{ACCOUNT}`{made}, at {server}{trust}"
            ));
        }
        Err(failure) => {
            if let Some((minter, id)) = &taken.minted {
                minter.take_back(id).await;
            }
            return Err(failure);
        }
    }
    // A rotation that did not come to its end, or a bootstrap that has replaced a token.
    if let (None, Some(after), Some(id)) = (&taken.minted, retire_after, stored.and_then(|stored| stored.id)) {
        if after <= Timestamp::now() {
            let gone = account::retire(cluster, &places.workflows, &id).await?;
            done(&format!("{} older tokens of the Argo CD account `{ACCOUNT}` are deleted", gone.len()));
        } else {
            return Ok(Some(format!(
                "older tokens of the Argo CD account `{ACCOUNT}` go on until {after}; the next `forge bootstrap` or `forge rotate` after that deletes them"
            )));
        }
    }
    Ok(None)
}

/// An address and a token, and if it was made just now, by whom and under which id.
struct Taken {
    server: String,
    token: SecretString,
    minted: Option<(Minter, String)>,
}

/// The address and the token that were named, else those that are stored where Argo CD accepts them and their end is far,
/// else found and made.
async fn taken(wanted: &Wanted<'_>, stored: Option<&Stored>) -> Result<Taken, Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let server = match wanted.server.clone().or_else(|| stored.map(|stored| stored.server.clone())) {
        Some(server) => server,
        None => server(cluster, &places.argocd).await?,
    };
    if let Some(token) = &wanted.token {
        // That both are good is found out now and not in the middle of a run: they take the place of what works.
        let (server, _) = asked(wanted, server, token).await?;
        let argocd = ArgoCd::proxied(cluster, &server, token.clone()).ok_or_else(|| account::unusable(&server))?;
        account::usable(&argocd).await?;
        return Ok(Taken { server, token: token.clone(), minted: None });
    }
    let (server, accepted) = match stored {
        Some(stored) => asked(wanted, server, &stored.token).await?,
        None => (server, None),
    };
    if let (Some(stored), Some(name)) = (stored, &accepted) {
        // One of somebody else was named once, and is not ours to replace.
        if name != ACCOUNT || !stored.is_due(Timestamp::now()) {
            return Ok(Taken { server, token: stored.token.clone(), minted: None });
        }
    }
    let token = stored.map_or_else(|| SecretString::from(String::new()), |stored| stored.token.clone());
    let argocd = ArgoCd::proxied(cluster, &server, token).ok_or_else(|| account::unusable(&server))?;
    let minter = account::minter(cluster, &places.argocd, &argocd, accepted.is_some(), None).await?;
    let (id, token) = minter.mint(wanted.lifetime).await?;
    Ok(Taken { server, token, minted: Some((minter, id)) })
}

/// Whose Argo CD says that a token is, at the stored address or, where that does not answer, at the one that is found now;
/// nothing where it is not accepted.
async fn asked(wanted: &Wanted<'_>, server: String, token: &SecretString) -> Result<(String, Option<String>), Failure> {
    let who = async |server: &str| match ArgoCd::proxied(wanted.cluster, server, token.clone()) {
        Some(argocd) => argocd.who().await.ok(),
        None => None,
    };
    if let Some(name) = who(&server).await {
        return Ok((server, name));
    }
    if wanted.server.is_some() {
        return Ok((server, None));
    }
    let found = self::server(wanted.cluster, &wanted.places.argocd).await?;
    let name = who(&found).await.flatten();
    Ok((found, name))
}

/// The certificate that Argo CD shows: that of `argocd-server-tls` where there is one, else the one that it made.
async fn certificates(cluster: &Cluster, argocd: &str) -> Result<Option<String>, Failure> {
    for name in ["argocd-server-tls", "argocd-secret"] {
        let secret = cluster.get(&path::object(&path::core(argocd, "secrets"), name)).await?;
        if let Some(found) = secret.as_ref().and_then(shown) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The certificate of a Secret, and who issued it where it says so.
fn shown(secret: &Value) -> Option<String> {
    let shown = argocd::certificates(&secret_text(secret, "tls.crt")?)?;
    let issuer = secret_text(secret, "ca.crt").and_then(|text| argocd::certificates(&text)).unwrap_or_default();
    argocd::certificates(&format!("{issuer}{shown}"))
}

/// The address of argocd-server, from its Service.
async fn server(cluster: &Cluster, argocd: &str) -> Result<String, Failure> {
    let services = cluster.list(&path::core(argocd, "services"), "app.kubernetes.io/name=argocd-server").await?;
    let name = services.iter().find_map(|service| service.pointer("/metadata/name").and_then(Value::as_str));
    let name = name.ok_or_else(|| {
        Failure::new(Code::NotBootstrapped, format!("no Service of argocd-server in namespace `{argocd}`"))
            .hint("name its address inside the cluster with --argocd-server")
    })?;
    let parameters = cluster.get(&path::object(&path::config_maps(argocd), "argocd-cmd-params-cm")).await?;
    let insecure = parameters.as_ref().and_then(|found| found.pointer("/data/server.insecure")).and_then(Value::as_str);
    let scheme = if insecure == Some("true") { "http" } else { "https" };
    Ok(format!("{scheme}://{name}.{argocd}.svc"))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_not_be_asked_is_not_there_and_what_is_not_answered_is_not_known() {
        let refused = |code: u16| Err::<u8, _>(ClusterError::Refused { code, message: String::new() });
        assert!(matches!((permitted(refused(403)), permitted(refused(401))), (Ok(None), Ok(None))));
        assert!(permitted(refused(500)).is_err() && permitted(refused(404)).is_err());
        assert!(matches!(permitted(Ok(1)), Ok(Some(1))));
    }

    fn certificate(name: &str) -> String {
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem()
    }

    fn secret(fields: &[(&str, &str)]) -> Value {
        let encoded = |text: &str| json!(base64::engine::general_purpose::STANDARD.encode(text));
        let data: serde_json::Map<String, Value> =
            fields.iter().map(|(key, text)| ((*key).to_owned(), encoded(text))).collect();
        json!({ "data": data })
    }

    #[test]
    fn of_a_secret_of_argo_cd_the_certificate_and_its_issuer_are_taken_and_nothing_else() {
        let (own, issuer) = (certificate("own"), certificate("issuer"));
        let made = secret(&[("tls.crt", &own), ("tls.key", "k"), ("admin.password", "p")]);
        assert_eq!(shown(&made), argocd::certificates(&own));
        let issued = secret(&[("ca.crt", &issuer), ("tls.crt", &own)]);
        assert_eq!(shown(&issued), argocd::certificates(&format!("{issuer}{own}")));
        // Self-signed, as cert-manager writes it: once is enough.
        let twice = secret(&[("ca.crt", &own), ("tls.crt", &own)]);
        assert_eq!(shown(&twice), argocd::certificates(&own));
        // Argo CD does not use a Secret that has no certificate of its own.
        for nothing in [secret(&[]), secret(&[("tls.crt", "")]), secret(&[("ca.crt", &issuer)])] {
            assert_eq!(shown(&nothing), None);
        }
    }

    #[test]
    fn what_was_applied_otherwise_before_is_applied_though_it_says_all_that_is_wanted() {
        let (more, wanted) =
            (json!({"rules": [{"verbs": ["get"], "resourceNames": ["x"]}]}), json!({"rules": [{"verbs": ["get"]}]}));
        assert!(!is_lacking(Some(&more), &wanted, false) && is_lacking(Some(&more), &wanted, true));
        assert!(is_lacking(None, &wanted, false) && is_lacking(Some(&json!({})), &wanted, false));
        // And that it was otherwise is what the receipt says: its digest is that of every field.
        let environments: [EnvironmentName; 1] = ["dev".parse().unwrap()];
        let receipt = |places: &Places| render::receipts(places, &environments).remove(0).object;
        let other = Places { agent_tick: 77, ..Places::default() };
        assert!(is_lacking(Some(&receipt(&other)), &receipt(&Places::default()), false));
    }
}
