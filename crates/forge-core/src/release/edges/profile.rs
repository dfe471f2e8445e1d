//! What a release brings and what it needs, for one environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::gate::ObjectRef;
use crate::release::Document;

/// Longest name of a host that is looked at.
const LONGEST_HOST: usize = 253;
/// Names of hosts that are kept of a release; what is beyond them keeps a note from being told, and nothing else.
const MOST_HOSTS: usize = 50_000;

/// Something that one project brings and another one needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// A kind that is no part of Kubernetes.
    Kind { group: String, kind: String },
    /// An object. Of one whose document says no namespace both are kept: without one, and in that of its project.
    Object { group: String, kind: String, namespace: Option<String>, name: String },
    /// What claims get that name no class.
    DefaultStorage,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { group, kind } => write!(f, "the definition of {kind}.{group}"),
            Self::Object { kind, namespace: Some(namespace), name, .. } => write!(f, "{kind} {namespace}/{name}"),
            Self::Object { kind, namespace: None, name, .. } => write!(f, "{kind} {name}"),
            Self::DefaultStorage => f.write_str("a default StorageClass"),
        }
    }
}

impl Thing {
    fn global(group: &str, kind: &str, name: &str) -> Self {
        Self::Object { group: group.to_owned(), kind: kind.to_owned(), namespace: None, name: name.to_owned() }
    }

    fn inside(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let namespace = Some(namespace.to_owned());
        Self::Object { group: group.to_owned(), kind: kind.to_owned(), namespace, name: name.to_owned() }
    }

    pub(super) fn service(namespace: &str, name: &str) -> Self {
        Self::inside("", "Service", namespace, name)
    }

    /// What `requires` or `health` of a node names.
    pub(super) fn of(object: &ObjectRef) -> Self {
        let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
        match &object.namespace {
            Some(namespace) => Self::inside(group, &object.kind, namespace, &object.name),
            None => Self::global(group, &object.kind, &object.name),
        }
    }
}

/// Who is asked before objects are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Webhook {
    /// The document that says so.
    pub(super) document: String,
    /// Namespace and name of who answers.
    pub(super) service: Option<(String, String)>,
    /// Group and plural of what it is asked about.
    pub(super) rules: Vec<(String, String)>,
}

/// What a release brings and what it needs, in one environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// What it brings, and with which document.
    pub(super) brings: BTreeMap<Thing, String>,
    /// What it needs, and the first document that does.
    pub(super) needs: BTreeMap<Thing, String>,
    pub(super) webhooks: Vec<Webhook>,
    /// The plurals of the kinds that it defines.
    pub(super) plurals: BTreeMap<(String, String), String>,
    /// Services that its texts name, by name and namespace.
    pub(super) hosts: BTreeSet<(String, String)>,
    /// Where it has objects.
    pub(super) namespaces: BTreeSet<String>,
}

fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl Profile {
    /// Of the documents that an environment gets, which are deployed to this namespace where they say none.
    pub fn of(documents: &[Document], namespace: &str) -> Self {
        let mut profile = Self::default();
        // Argo CD makes it when the project is synced.
        profile.brings.insert(Thing::global("", "Namespace", namespace), format!("the sync of namespace {namespace}"));
        for document in documents {
            Reader { profile: &mut profile, document, name: document.key().to_string(), own: namespace }.read();
        }
        profile
    }

    /// The kinds that it has objects of.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.needs.iter().filter_map(|(thing, by)| match thing {
            Thing::Kind { group, kind } => Some((group.as_str(), kind.as_str(), by.as_str())),
            Thing::Object { .. } | Thing::DefaultStorage => None,
        })
    }
}

struct Reader<'r> {
    profile: &'r mut Profile,
    document: &'r Document,
    /// Of the document, for people.
    name: String,
    /// The namespace of the project.
    own: &'r str,
}

impl Reader<'_> {
    fn read(&mut self) {
        let document = self.document;
        let (group, kind, value) = (document.group(), document.kind.as_str(), &document.value);
        let object = |namespace: Option<String>| Thing::Object {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace,
            name: document.name.clone(),
        };
        self.brings(object(document.namespace.clone()));
        match &document.namespace {
            Some(namespace) => {
                self.profile.namespaces.insert(namespace.clone());
                self.needs(Thing::global("", "Namespace", namespace));
            }
            None => {
                self.profile.namespaces.insert(self.own.to_owned());
                self.brings(object(Some(self.own.to_owned())));
            }
        }
        self.needs(Thing::Kind { group: group.to_owned(), kind: kind.to_owned() });
        match (group, kind) {
            _ if document.is_definition() => {
                self.definition();
                return;
            }
            ("apiextensions.crossplane.io", "CompositeResourceDefinition") => {
                for names in ["names", "claimNames"] {
                    self.defines(names);
                }
                return;
            }
            ("storage.k8s.io", "StorageClass") => {
                let default = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
                if text(value, default) == Some("true") {
                    self.brings(Thing::DefaultStorage);
                }
            }
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
                self.webhooks();
                return;
            }
            ("apiregistration.k8s.io", "APIService") => self.service(value.pointer("/spec/service")),
            ("", "PersistentVolumeClaim") => self.claim(value),
            ("apps", "StatefulSet") => {
                for template in list(value, "/spec/volumeClaimTemplates") {
                    self.claim(template);
                }
            }
            _ => {}
        }
        self.annotations();
        let silent = matches!((group, kind), ("", "ConfigMap" | "Secret"));
        self.walk(value, silent);
    }

    fn brings(&mut self, thing: Thing) {
        self.profile.brings.entry(thing).or_insert_with(|| self.name.clone());
    }

    fn needs(&mut self, thing: Thing) {
        self.profile.needs.entry(thing).or_insert_with(|| self.name.clone());
    }

    fn namespace(&self) -> &str {
        self.document.namespace.as_deref().unwrap_or(self.own)
    }

    fn definition(&mut self) {
        let value = &self.document.value;
        self.defines("names");
        let names = (text(value, "/spec/group"), text(value, "/spec/names/kind"), text(value, "/spec/names/plural"));
        if let (Some(group), Some(kind), Some(plural)) = names {
            self.profile.plurals.insert((group.to_owned(), kind.to_owned()), plural.to_owned());
        }
        self.service(value.pointer("/spec/conversion/webhook/clientConfig/service"));
    }

    fn defines(&mut self, names: &str) {
        let value = &self.document.value;
        if let (Some(group), Some(kind)) = (text(value, "/spec/group"), text(value, &format!("/spec/{names}/kind"))) {
            self.brings(Thing::Kind { group: group.to_owned(), kind: kind.to_owned() });
        }
    }

    /// A reference to a Service, as configurations of the API server write it.
    fn service(&mut self, reference: Option<&Value>) {
        if let Some((namespace, name)) = reference.and_then(service) {
            self.needs(Thing::service(&namespace, &name));
        }
    }

    fn webhooks(&mut self) {
        for webhook in list(&self.document.value, "/webhooks") {
            let service = webhook.pointer("/clientConfig/service").and_then(service);
            if text(webhook, "/failurePolicy") == Some("Ignore") {
                continue;
            }
            if let Some((namespace, name)) = &service {
                self.needs(Thing::service(namespace, name));
            }
            // Whoever has to ask for it is not known from documents.
            if selects(webhook, "/namespaceSelector") || selects(webhook, "/objectSelector") {
                continue;
            }
            let mut rules = Vec::new();
            for rule in list(webhook, "/rules") {
                let has = |pointer: &str, wanted: &str| list(rule, pointer).iter().any(|one| one == wanted);
                if !has("/operations", "CREATE") && !has("/operations", "*") {
                    continue;
                }
                // One that is asked about everything is asked about itself too: no order could be right.
                let named = |pointer: &'static str| {
                    list(rule, pointer).iter().filter_map(Value::as_str).filter(|name| !name.contains(['*', '/']))
                };
                for group in named("/apiGroups") {
                    rules.extend(named("/resources").map(|resource| (group.to_owned(), resource.to_owned())));
                }
            }
            if !rules.is_empty() {
                self.profile.webhooks.push(Webhook { document: self.name.clone(), service, rules });
            }
        }
    }

    /// A claim that names no class gets the default one; the class that it names is found with all others.
    fn claim(&mut self, claim: &Value) {
        let named = ["/spec/storageClassName", "/metadata/annotations/volume.beta.kubernetes.io~1storage-class"];
        let said = named.iter().any(|pointer| claim.pointer(pointer).is_some_and(|value| !value.is_null()));
        if !said && text(claim, "/spec/volumeName").is_none() {
            self.needs(Thing::DefaultStorage);
        }
    }

    fn annotations(&mut self) {
        let Some(Value::Object(annotations)) = self.document.value.pointer("/metadata/annotations") else { return };
        let of = |name: &str| annotations.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
        if let Some(class) = of("kubernetes.io/ingress.class") {
            self.needs(Thing::global("networking.k8s.io", "IngressClass", class));
        }
        if let Some(class) = of("volume.beta.kubernetes.io/storage-class") {
            self.needs(Thing::global("storage.k8s.io", "StorageClass", class));
        }
        if let Some(issuer) = of("cert-manager.io/cluster-issuer") {
            self.needs(Thing::global("cert-manager.io", "ClusterIssuer", issuer));
        }
        if let Some(issuer) = of("cert-manager.io/issuer") {
            let kind = of("cert-manager.io/issuer-kind").unwrap_or("Issuer");
            self.reference(of("cert-manager.io/issuer-group").unwrap_or("cert-manager.io"), kind, issuer);
        }
    }

    /// An object of this kind, in the namespace of the document unless all of the cluster have it.
    fn reference(&mut self, group: &str, kind: &str, name: &str) {
        let thing = if kind.starts_with("Cluster") {
            Thing::global(group, kind, name)
        } else {
            Thing::inside(group, kind, self.namespace(), name)
        };
        self.needs(thing);
    }

    /// Fields that name something by a name that every kind gives them. Only what another release brings under that very
    /// name comes of it.
    fn walk(&mut self, value: &Value, silent: bool) {
        match value {
            Value::String(text) => self.hosts(text),
            Value::Array(items) => items.iter().for_each(|item| self.walk(item, silent)),
            Value::Object(fields) => {
                for (field, value) in fields {
                    if !silent {
                        self.field(field, value);
                    }
                    self.walk(value, silent);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn field(&mut self, field: &str, value: &Value) {
        let class = match field {
            "storageClassName" | "storageClass" => Some(("storage.k8s.io", "StorageClass")),
            "ingressClassName" => Some(("networking.k8s.io", "IngressClass")),
            "priorityClassName" => Some(("scheduling.k8s.io", "PriorityClass")),
            "runtimeClassName" => Some(("node.k8s.io", "RuntimeClass")),
            "gatewayClassName" => Some(("gateway.networking.k8s.io", "GatewayClass")),
            _ => None,
        };
        if let (Some((group, kind)), Some(name)) = (class, value.as_str().filter(|name| !name.is_empty())) {
            self.needs(Thing::global(group, kind, name));
            return;
        }
        let (group, kind) = match field {
            "issuerRef" => ("cert-manager.io", "Issuer"),
            "secretStoreRef" | "secretStoreRefs" => ("external-secrets.io", "SecretStore"),
            _ => return,
        };
        let references = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for reference in references {
            if let Some(name) = text(reference, "/name") {
                let (group, kind) =
                    (text(reference, "/group").unwrap_or(group), text(reference, "/kind").unwrap_or(kind));
                self.reference(group, kind, name);
            }
        }
    }

    /// What looks like `service.namespace`, alone or with more behind it.
    fn hosts(&mut self, text: &str) {
        let host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        for token in text.split(|c: char| !host(c)).filter(|token| token.len() <= LONGEST_HOST) {
            let mut labels = token.split('.');
            if let (Some(name), Some(namespace)) = (labels.next(), labels.next())
                && !name.is_empty()
                && !namespace.is_empty()
                && self.profile.hosts.len() < MOST_HOSTS
            {
                self.profile.hosts.insert((name.to_owned(), namespace.to_owned()));
            }
        }
    }
}

fn service(reference: &Value) -> Option<(String, String)> {
    Some((text(reference, "/namespace")?.to_owned(), text(reference, "/name")?.to_owned()))
}

/// Whether a selector picks some. One that only leaves some out picks nearly all.
fn selects(webhook: &Value, pointer: &str) -> bool {
    let Some(selector) = webhook.pointer(pointer) else { return false };
    let labels = selector.get("matchLabels").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    let picks = |expression: &Value| !matches!(text(expression, "/operator"), Some("NotIn" | "DoesNotExist"));
    labels || list(selector, "/matchExpressions").iter().any(picks)
}
