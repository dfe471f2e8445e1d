use super::*;
use crate::release::{Document, Limits, documents};
use crate::validate::{Content, Report, tree};

const INSTALLATION: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1
kind: Forge
spec:
  repository: {url: https://git.example.com/p.git}
  environments:
    - {name: dev, cluster: dev, sync: auto}
    - {name: staging, cluster: staging, sync: auto}
";

fn report(stacks: &str) -> Report {
    let graph =
        format!("apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n{stacks}");
    let files = [("forge.yaml", INSTALLATION), ("graph.yaml", graph.as_str())];
    tree(&files.map(|(path, text)| (path.to_owned(), Content::Bytes(text.into()))).into())
}

fn read(text: &str) -> Vec<Document> {
    documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
}

fn profiles(releases: &[(&str, &str)]) -> Profiles {
    let profile = |(id, text): &(&str, &str)| {
        let id: ProjectId = id.parse().unwrap();
        let profile = Profile::of(&read(text), &id.joined());
        (id, profile)
    };
    releases.iter().map(profile).collect()
}

fn judged(stacks: &str, releases: &[(&str, &str)]) -> Judged {
    let report = report(stacks);
    let read = [("dev".parse().unwrap(), profiles(releases))].into();
    judge(&report.repository.unwrap(), &read)
}

/// `user < provider` of every finding.
fn missing(judged: &Judged) -> Vec<String> {
    let pair = |finding: &Finding| {
        let mut names = finding.message.split('`').skip(1).step_by(2);
        format!("{} < {}", names.next().unwrap(), names.next().unwrap())
    };
    judged.findings.iter().map(pair).collect()
}

const TWO: &str = "    - {name: all, apps: [{project: a/user}, {project: b/provider}]}\n";
const ORDERED: &str = "    - {name: all, apps: [{project: a/user, dependsOn: [b/provider]}, {project: b/provider}]}\n";

const WIDGETS: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, \
                       spec: {group: example.com, names: {kind: Widget, plural: widgets}}}";
const WIDGET: &str = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}";

#[test]
fn what_another_release_brings_is_evidence_of_a_dependency() {
    let class = |group: &str, kind: &str| {
        format!("{{apiVersion: {group}/v1, kind: {kind}, metadata: {{name: fast}}, provisioner: x, controller: x}}")
    };
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: fast}}";
    let default = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: any, annotations: \
                   {storageclass.kubernetes.io/is-default-class: 'true'}}}";
    let cases: &[(&str, &str, String)] = &[
        ("the definition of Widget.example.com", WIDGET, WIDGETS.to_owned()),
        (
            "the definition of Bucket.example.com",
            "{apiVersion: example.com/v1, kind: Bucket, metadata: {name: b}}",
            "{apiVersion: apiextensions.crossplane.io/v2, kind: CompositeResourceDefinition, metadata: {name: \
             xbuckets.example.com}, spec: {group: example.com, names: {kind: XBucket}, claimNames: {kind: Bucket}}}"
                .to_owned(),
        ),
        (
            "Namespace shared",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shared}}",
            "{apiVersion: v1, kind: Namespace, metadata: {name: shared}}".to_owned(),
        ),
        // Argo CD makes it when the other project is synced.
        (
            "Namespace b-provider",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: b-provider}}",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: d}}".to_owned(),
        ),
        ("StorageClass fast", claim, class("storage.k8s.io", "StorageClass")),
        (
            "StorageClass fast",
            "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {volumeClaimTemplates: [{metadata: {name: d}, \
             spec: {storageClassName: fast}}]}}",
            class("storage.k8s.io", "StorageClass"),
        ),
        (
            "a default StorageClass",
            "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {}}",
            default.to_owned(),
        ),
        (
            "IngressClass fast",
            "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i}, spec: {ingressClassName: fast}}",
            class("networking.k8s.io", "IngressClass"),
        ),
        (
            "IngressClass fast",
            "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, annotations: {kubernetes.io/ingress.class: fast}}}",
            class("networking.k8s.io", "IngressClass"),
        ),
        (
            "ClusterIssuer ca",
            "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: t}, spec: {issuerRef: {name: ca, kind: ClusterIssuer}}}",
            "{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: ca}}".to_owned(),
        ),
        (
            "Issuer b-provider/ca",
            "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: t, namespace: b-provider}, spec: {issuerRef: {name: ca}}}",
            "{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: ca}}".to_owned(),
        ),
        (
            "ClusterSecretStore vault",
            "{apiVersion: external-secrets.io/v1, kind: ExternalSecret, metadata: {name: s}, spec: {secretStoreRef: {kind: \
             ClusterSecretStore, name: vault}}}",
            "{apiVersion: external-secrets.io/v1, kind: ClusterSecretStore, metadata: {name: vault}}".to_owned(),
        ),
        (
            "Service b-provider/hook",
            "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: v}, webhooks: \
             [{clientConfig: {service: {namespace: b-provider, name: hook}}}]}",
            "{apiVersion: v1, kind: Service, metadata: {name: hook}}".to_owned(),
        ),
    ];
    for (what, user, provider) in cases {
        let found = judged(TWO, &[("a/user", user), ("b/provider", provider)]);
        assert_eq!(missing(&found), ["a/user < b/provider"], "{what}: {found:?}");
        let [finding] = found.findings.as_slice() else { panic!("{found:?}") };
        assert!(finding.message.contains(&format!(" needs {what}")), "{what}: {}", finding.message);
        assert_eq!(finding.fix.as_deref(), Some("add `dependsOn: [b/provider]` to it, or to what it waits for"));
        assert_eq!(finding.place.to_string(), "graph.yaml:5:36");
        // With the dependency there is nothing to tell, and the dependency has its reason.
        let ordered = judged(ORDERED, &[("a/user", user), ("b/provider", provider)]);
        assert_eq!(ordered, Judged::default(), "{what}");
    }
}

#[test]
fn what_nobody_else_brings_or_everybody_has_is_no_evidence() {
    let twice = format!("{WIDGETS}\n---\n{WIDGET}");
    let system = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: kube-system}}";
    for (user, provider) in [
        // Its own definition, a second time.
        (twice.as_str(), WIDGETS),
        (WIDGET, system),
        (system, WIDGETS),
        // A claim without a class that is bound to a volume, and one with the class of nobody.
        ("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {volumeName: v}}", WIDGETS),
        ("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: ''}}", WIDGETS),
    ] {
        let found = judged(TWO, &[("a/user", user), ("b/provider", provider)]);
        assert_eq!(found, Judged::default(), "{user}");
    }
    // Of a project whose release was not read nothing is known.
    assert_eq!(judged(TWO, &[("a/user", WIDGET)]), Judged::default());
}

#[test]
fn a_webhook_must_answer_before_what_it_is_asked_about_is_made() {
    let hook = |more: &str, rule: &str| {
        format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {{name: v}}, webhooks: \
             [{{{more}clientConfig: {{service: {{namespace: b-provider, name: hook}}}}, rules: [{rule}]}}]}}\n---\n\
             {{apiVersion: v1, kind: Service, metadata: {{name: hook}}}}"
        )
    };
    let ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i}}";
    let rule = "{apiGroups: [networking.k8s.io], operations: [CREATE, UPDATE], resources: [ingresses]}";
    let release = hook("", rule);
    let found = judged(TWO, &[("a/user", ingress), ("b/provider", &release)]);
    assert_eq!(missing(&found), ["a/user < b/provider"]);
    assert!(found.findings[0].message.contains("ValidatingWebhookConfiguration.admissionregistration.k8s.io v"));
    for (more, rule) in [
        ("failurePolicy: Ignore, ", rule),
        ("namespaceSelector: {matchLabels: {inject: 'true'}}, ", rule),
        ("", "{apiGroups: ['*'], operations: [CREATE], resources: ['*']}"),
        ("", "{apiGroups: [networking.k8s.io], operations: [DELETE], resources: [ingresses]}"),
        ("", "{apiGroups: [networking.k8s.io], operations: [CREATE], resources: [networkpolicies]}"),
    ] {
        let release = hook(more, rule);
        let found = judged(TWO, &[("a/user", ingress), ("b/provider", &release)]);
        assert_eq!(found, Judged::default(), "{more}{rule}");
    }
    // One that comes later is not asked yet.
    let later = "    - {name: all, apps: [{project: a/user}, {project: b/provider, dependsOn: [a/user]}]}\n";
    assert!(judged(later, &[("a/user", ingress), ("b/provider", &release)]).findings.is_empty());
}

#[test]
fn one_of_several_providers_is_enough_and_a_chain_counts() {
    let stacks = "    - name: all
      apps:
        - {project: a/user, dependsOn: [x/between]}
        - {project: x/between, dependsOn: [b/provider]}
        - {project: b/provider}
        - {project: c/other}
";
    let releases = [("a/user", WIDGET), ("b/provider", WIDGETS), ("c/other", WIDGETS), ("x/between", "{}")];
    assert!(judged(stacks, &releases).findings.is_empty());
    let apart = stacks.replace("dependsOn: [x/between]", "dependsOn: []");
    let found = judged(&apart, &releases);
    assert!(found.findings[0].message.starts_with("`a/user` does not wait for `b/provider` or `c/other`, "));
    assert_eq!(found.findings[0].fix.as_deref(), Some("add one of `b/provider`, `c/other` to its `dependsOn`"));
}

#[test]
fn who_waits_for_its_own_user_is_told_that_the_dependency_is_the_wrong_way_round() {
    let stacks = "    - {name: all, apps: [{project: a/user}, {project: b/provider, dependsOn: [a/user]}]}\n";
    let found = judged(stacks, &[("a/user", WIDGET), ("b/provider", WIDGETS)]);
    assert_eq!(missing(&found), ["a/user < b/provider"]);
    assert!(found.findings[0].fix.as_ref().is_some_and(|fix| fix.contains("turn that dependency round")));
}

#[test]
fn a_required_object_that_another_release_brings_is_needed() {
    let stacks = "    - name: all
      apps:
        - {project: a/user, requires: [{apiVersion: v1, kind: Service, name: db, namespace: b-provider}]}
        - {project: b/provider}
";
    let service = "{apiVersion: v1, kind: Service, metadata: {name: db}}";
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    let found = judged(stacks, &[("a/user", map), ("b/provider", service)]);
    assert!(found.findings[0].message.contains("its `requires` needs Service b-provider/db"), "{found:?}");
}

#[test]
fn a_dependency_that_no_release_explains_is_a_note_unless_it_costs_nothing() {
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    let plain = [("a/user", map), ("b/provider", map), ("x/between", map)];
    let found = judged(ORDERED, &plain);
    assert!(found.findings.is_empty());
    let [note] = found.notes.as_slice() else { panic!("{found:?}") };
    assert!(note.message.starts_with("`a/user` waits for `b/provider`, and nothing in their releases says why"));
    assert_eq!(note.place.path, "graph.yaml");
    // A Service that is spoken to is a reason.
    let service = "{apiVersion: v1, kind: Service, metadata: {name: db}}";
    let speaks =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {url: 'postgres://db.b-provider.svc:5432/x'}}";
    assert_eq!(judged(ORDERED, &[("a/user", speaks), ("b/provider", service)]), Judged::default());
    // What follows from another dependency costs nothing; and what carries one is explained by it.
    let chain = "    - name: all
      apps:
        - {project: a/user, dependsOn: [x/between, b/provider]}
        - {project: x/between, dependsOn: [b/provider]}
        - {project: b/provider}
";
    let found = judged(chain, &[("a/user", speaks), ("x/between", speaks), ("b/provider", service)]);
    let waits: Vec<&str> = found.notes.iter().filter_map(|note| note.message.split(',').next()).collect();
    assert_eq!(waits, ["`a/user` waits for `x/between`"]);
    let through = chain.replace("[x/between, b/provider]", "[x/between]");
    assert_eq!(
        judged(&through, &[("a/user", speaks), ("x/between", speaks), ("b/provider", service)]),
        Judged::default()
    );
    // Of a stack it is told once.
    let stacks = "    - {name: low, apps: [{project: b/provider}]}
    - {name: high, dependsOn: [\"stack:low\"], apps: [{project: a/user}, {project: x/between}]}
";
    let found = judged(stacks, &plain);
    let [note] = found.notes.as_slice() else { panic!("{found:?}") };
    assert!(note.message.starts_with("`stack:high` waits for `stack:low`, "), "{}", note.message);
    // With a member that is not known nothing is told.
    assert_eq!(judged(stacks, &[("a/user", map), ("b/provider", map)]), Judged::default());
}

#[test]
fn environments_are_told_together_and_a_reason_in_one_of_them_is_one() {
    let report = report(TWO);
    let repository = report.repository.unwrap();
    let releases = profiles(&[("a/user", WIDGET), ("b/provider", WIDGETS)]);
    let both = [("dev".parse().unwrap(), releases.clone()), ("staging".parse().unwrap(), releases.clone())].into();
    let found = judge(&repository, &both);
    assert_eq!(found.findings.len(), 1);
    assert!(found.findings[0].message.contains("(in dev, staging)"), "{found:?}");
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    let repository = self::report(ORDERED).repository.unwrap();
    let other = profiles(&[("a/user", map), ("b/provider", map)]);
    let mixed = [("dev".parse().unwrap(), releases), ("staging".parse().unwrap(), other)].into();
    assert_eq!(judge(&repository, &mixed), Judged::default());
}

#[test]
fn a_comment_allows_it_and_one_that_allows_nothing_is_told_once_all_was_read() {
    let stacks = "    - name: all
      apps:
        # forge:allow FORGE-G011 the definition is made with the cluster
        - {project: a/user}
        - {project: b/provider}
";
    let mut report = self::report(stacks);
    let of_comment = |report: &Report| report.findings.iter().filter(|f| f.code == Code::SuppressionUnused).count();
    assert_eq!(of_comment(&report), 0, "{:?}", report.findings);
    let found = judged(stacks, &[("a/user", WIDGET), ("b/provider", WIDGETS)]);
    assert_eq!(found.findings.len(), 1);
    report.add_releases(found, true);
    assert!(report.findings.iter().all(|finding| finding.code != Code::ForgottenEdge));
    assert_eq!(report.suppressed.len(), 1);
    assert_eq!(of_comment(&report), 0);
    let mut without = self::report(stacks);
    without.add_releases(Judged::default(), false);
    assert_eq!(of_comment(&without), 0);
    without.add_releases(Judged::default(), true);
    assert_eq!(of_comment(&without), 1);
}
