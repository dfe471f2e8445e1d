//! `examples/platform` as it is meant: 46 projects, each released from its sources, through the plugin of an Argo CD that Forge
//! installed, and proven by their digests.

use std::collections::{BTreeMap, BTreeSet};

use forge_core::render::ENVIRONMENT_LABEL;
use forge_testkit::crd::SOURCES;
use forge_testkit::example::{self, App, Flavour, SAMPLE_IMAGE, Stack};
use forge_testkit::modules;
use forge_testkit::sandbox::{Sandbox, eventually};
use forge_testkit::twin::{self, EXAMPLE_ENVIRONMENT, File, Pointer};
use serde_json::Value;

use super::{PATIENCE, Pods, Shop, commit, digest, run_image};

/// How long a run of the whole example may take on a machine with other work; nothing of it waits longer than a minute.
const LIMIT: &str = "30m";
/// What gets another release: something is before it, and something waits for it.
const CHANGED: &str = "shop/orders";
/// The end of the groups of the example's custom resources.
const DEFINITIONS: &str = ".example.com";

/// Simulated nodes, without which nobody plays the operators of custom resources and the controller of Ingresses. They go with
/// this, and so does the kind that describes them: others want the cluster bare.
struct Simulated(Sandbox);

impl Simulated {
    fn on(sandbox: &Sandbox) -> Self {
        Self(Sandbox::up(&sandbox.name, &["--nodes", "4"]))
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.0.command(&["up", "--nodes", "0"]);
        self.0.try_kubectl(&["delete", "crd", "stages.kwok.x-k8s.io", "--ignore-not-found", "--wait=false"], None);
    }
}

/// The sources of a project, with an image that is there in the place of the one that the example made up.
fn sources(stack: &Stack, app: &App, image: &str) -> Vec<File> {
    example::manifests(stack, app).into_iter().map(|(name, text)| (name, text.replace(SAMPLE_IMAGE, image))).collect()
}

/// Whether a project has pods that stay.
fn runs(app: &App) -> bool {
    !matches!(app.flavour, Flavour::Job | Flavour::CustomResource(_))
}

/// What serves the configuration of an environment and of projects, which is all that is needed of Crossplane here.
fn serve_configuration(sandbox: &Sandbox) {
    let (module, version, folder) = SOURCES.into_iter().find(|(module, ..)| module.contains("/crossplane/")).unwrap();
    let root = modules::folders(&[(module, version)]).unwrap().remove(0);
    let file = root.join(folder).join("apiextensions.crossplane.io_environmentconfigs.yaml");
    sandbox.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
}

/// Takes away what no namespace takes along.
fn forget_definitions(sandbox: &Sandbox) {
    let names =
        |all: &str| all.lines().filter(|name| name.ends_with(DEFINITIONS)).map(str::to_owned).collect::<Vec<_>>();
    for name in names(&sandbox.kubectl(&["get", "crd", "-o", "name"])) {
        sandbox.kubectl(&["delete", &name, "--ignore-not-found", "--wait=false"]);
    }
    eventually("the definitions of the example are gone", PATIENCE, || {
        let left = names(&sandbox.kubectl(&["get", "crd", "-o", "name"]));
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Everything is proven by the release that its pointer names and by the images that run; gives what runs.
fn all_is_proven(
    shop: &Shop,
    answers: &BTreeMap<String, Value>,
    pointers: &BTreeMap<String, Pointer>,
    images: &BTreeMap<String, String>,
) -> BTreeMap<String, Pods> {
    let running = shop.running();
    for (_, app) in example::apps() {
        let id = app.id();
        let (proof, image) = (&answers[&id], &images[&id]);
        assert_eq!((&proof["type"], &proof["proof"]), (&"proven".into(), &"digest".into()), "{id}: {proof:#}");
        assert_eq!(proof["render"]["release"], pointers[&id].digest.as_str(), "{id}: {proof:#}");
        let found: BTreeSet<&str> =
            proof["images"].as_object().unwrap().values().map(|image| image.as_str().unwrap()).collect();
        // What has ended does not run any more, and a custom resource never did.
        let wanted = if runs(app) { BTreeSet::from([digest(image)]) } else { BTreeSet::new() };
        assert_eq!(found, wanted, "{id}: {proof:#}");
        if runs(app) {
            let pods = running.get(&shop.application_of(&id)).cloned().unwrap_or_default();
            assert!(run_image(&pods, image), "{id}: {pods:?}");
        }
    }
    running
}

/// One story, because each step begins where the last one ended. The small one of three projects is what `make test` runs.
#[test]
#[ignore = "takes a quarter of an hour; tools/soak runs it"]
fn the_example_is_deployed_from_forty_six_releases_and_each_is_proven_by_its_digest() {
    let shop = Shop::empty(EXAMPLE_ENVIRONMENT);
    let sandbox = shop.bare.sandbox();
    forget_definitions(sandbox);
    let _simulated = Simulated::on(sandbox);
    serve_configuration(sandbox);
    let image = shop.options.image.clone();
    let mut pointers = BTreeMap::new();
    let mut images = BTreeMap::new();
    for (stack, app) in example::apps() {
        let id = app.id();
        let made = shop.releases.pushed(&id, &commit(&format!("{id} one")), &sources(stack, app, &image));
        pointers.insert(id.clone(), made);
        images.insert(id, image.clone());
    }
    assert_eq!(pointers.len(), 46);
    let released: BTreeSet<&str> = pointers.values().map(|pointer| pointer.digest.as_str()).collect();
    assert_eq!(released.len(), 46, "each is of another source: {released:?}");
    shop.install(twin::released_example(&shop.options, &shop.releases.registry(), &pointers), &[]);

    let applications: BTreeSet<String> = pointers.keys().map(|id| shop.application_of(id)).collect();
    let syncs = || -> BTreeMap<String, u64> {
        shop.synced().into_iter().filter(|(name, _)| applications.contains(name)).collect()
    };
    let mut wanted: BTreeMap<String, u64> = applications.iter().map(|name| (name.clone(), 1)).collect();
    let (report, said) = shop.deploy_within(LIMIT, 0);
    assert_eq!(report["verdict"], "done", "{report:#}\n{said}");
    assert_eq!(syncs(), wanted, "{report:#}");
    // The plugin rendered each of them, the configuration of one too.
    for project in example::apps().map(|(_, app)| shop.application_of(&app.id())) {
        sandbox.kubectl(&["get", "configmap", "forge-receipt", "-n", &project]);
    }
    let kind = "environmentconfigs.apiextensions.crossplane.io";
    let told = shop.bare.json(&["get", kind, "shop-storefront"]);
    assert_eq!(told["data"]["host"], "shop.dev.example.com", "{told:#}");
    let label = format!("{ENVIRONMENT_LABEL}={EXAMPLE_ENVIRONMENT}");
    let namespaces = sandbox.kubectl(&["get", "namespaces", "-l", &label, "-o", "name"]);
    assert_eq!(namespaces.lines().count(), 46, "{namespaces}");
    let mut answers = shop.answers(&report);
    let mut running = all_is_proven(&shop, &answers, &pointers, &images);
    assert_eq!(shop.held(), BTreeSet::new());

    // Again: nothing to do.
    let before = shop.runs();
    let (_, said) = shop.deploy_within(LIMIT, 0);
    assert!(said.contains("nothing to do"), "{said}");
    assert_eq!((syncs(), shop.running(), shop.runs()), (wanted.clone(), running.clone(), before));

    // Another release of one of them: its pods run another image, and nothing else was touched.
    let other = shop.releases.another_image(&image, "somebody");
    assert_ne!(digest(&other), digest(&image));
    let (stack, app) = example::apps().find(|(_, app)| app.id() == CHANGED).unwrap();
    let made = shop.releases.pushed(CHANGED, &commit(&format!("{CHANGED} two")), &sources(stack, app, &other));
    pointers.insert(CHANGED.to_owned(), made.clone());
    images.insert(CHANGED.to_owned(), other);
    shop.push(&[shop.pointed(CHANGED, &made)], "another release");
    let (report, said) = shop.deploy_within(LIMIT, 0);
    assert_eq!(report["verdict"], "done", "{report:#}\n{said}");
    let changed = shop.application_of(CHANGED);
    wanted.insert(changed.clone(), 2);
    assert_eq!(syncs(), wanted, "{report:#}");
    answers.extend(shop.answers(&report));
    let mut after = all_is_proven(&shop, &answers, &pointers, &images);
    let (old, new) = (running.remove(&changed).unwrap(), after.remove(&changed).unwrap());
    assert!(new.keys().all(|pod| !old.contains_key(pod)), "{old:?} {new:?}");
    assert_eq!(after, running, "others were touched");

    shop.clear();
    forget_definitions(sandbox);
}
