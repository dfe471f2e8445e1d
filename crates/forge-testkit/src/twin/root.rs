//! The twin with a root: Applications that nobody has to apply, because phase 1 applies `app.yaml` and Argo CD makes the rest of
//! it, in the layout that `forge init` writes (SPEC.md section 2).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use forge_core::scaffold::{self, With};
use forge_core::validate::{self, Content};
use forge_core::yaml::{Dialect, Limits, Node, read};
use serde_json::Value;

use super::{ARGOCD, IN_CLUSTER, LABEL, Options};

/// What a twin has instead of a root: it is applied by hand.
const BY_HAND: [&str; 2] = ["argocd/applications.yaml", "argocd/project.yaml"];

/// The files of a twin with `app.yaml` and `<environment>/app.yaml` in the place of what is applied by hand. The latter also
/// holds an ApplicationSet with the Applications of the twin: as a part of it they would be waited for by their own
/// app-of-apps, for which they wait. There is no `env.yaml`, because nothing here serves EnvironmentConfigs, so lint has
/// one finding, which keeps nothing from being deployed.
///
/// # Panics
/// When the files are not those of a twin.
#[expect(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]
pub fn rooted(options: &Options, files: &[(String, String)]) -> Vec<(String, String)> {
    let bytes = |(path, text): &(String, String)| (path.clone(), Content::Bytes(text.clone().into_bytes()));
    let tree: BTreeMap<String, Content> = files.iter().map(bytes).collect();
    let report = validate::tree(&tree);
    let Some(repository) = report.repository else { panic!("not a repository: {:?}", report.findings) };
    let installation = &repository.installation;
    let Some(environment) = installation.environments.first() else { panic!("no environment") };
    let by_hand = files.iter().find(|(path, _)| path == BY_HAND[0]).map(|(_, text)| text.as_str());
    let set = set(options, by_hand.unwrap_or_default());
    let mut rooted: Vec<(String, String)> =
        files.iter().filter(|(path, _)| !BY_HAND.contains(&path.as_str())).cloned().collect();
    rooted.push(("app.yaml".to_owned(), scaffold::root_app(installation, With::default())));
    let path = format!("{}/app.yaml", options.environment);
    rooted.push((path, format!("{}---\n{set}", scaffold::environment_app(installation, environment))));
    rooted.sort();
    rooted
}

/// The ApplicationSet that makes these Applications.
fn set(options: &Options, applications: &str) -> String {
    let Options { environment, url, auto, .. } = options;
    let stream = read(applications, Dialect::Kubernetes, Limits::FILE);
    let mut elements = String::new();
    for application in stream.documents.iter().map(Node::to_json) {
        let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (name, folder) = (text("/metadata/name"), text("/spec/source/path"));
        let _ = writeln!(elements, "          - {{name: {name}, folder: {folder}}}");
    }
    let automated = if *auto { "        automated: {prune: true, selfHeal: true}\n" } else { "" };
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: {environment}-twin
  namespace: {ARGOCD}
  annotations:
    argocd.argoproj.io/sync-options: Delete=false,Prune=false
  finalizers:
    - resources-finalizer.argocd.argoproj.io
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
    - list:
        elements:
{elements}  syncPolicy:
    applicationsSync: create-update
  template:
    metadata:
      name: \"{{{{.name}}}}\"
      labels:
        {LABEL}: {environment}
    spec:
      project: {environment}
      source:
        repoURL: \"{url}\"
        targetRevision: main
        path: \"{{{{.folder}}}}\"
      destination:
        server: {IN_CLUSTER}
        namespace: \"{{{{.name}}}}\"
      syncPolicy:
{automated}        syncOptions:
          - CreateNamespace=true
"
    )
}
