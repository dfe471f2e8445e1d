//! `platform/clusters/<env>/cluster.yaml`: a cluster to create, or the platform cluster that exists already.

use schemars::JsonSchema;
use serde::Serialize;

use super::header;
use crate::code::Code;
use crate::yaml::{At, Decoder, Node};

/// Either kind of cluster file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ClusterFile {
    /// A cluster that Crossplane creates and registers.
    Cluster(Cluster),
    /// The cluster that runs Argo CD.
    Platform(PlatformCluster),
}

impl ClusterFile {
    /// The name, which must be the folder's.
    pub fn name(&self) -> &At<String> {
        match self {
            Self::Cluster(cluster) => &cluster.name,
            Self::Platform(cluster) => &cluster.name,
        }
    }
}

/// A cluster that Crossplane creates and registers with Argo CD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// The name.
    pub name: At<String>,
    /// Who runs it.
    pub provider: Provider,
    /// Where; `aws` only.
    pub region: Option<String>,
    /// Its machines; `aws` only.
    pub node_groups: Vec<NodeGroup>,
}

/// The platform cluster: nothing is created, base infrastructure is deployed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlatformCluster {
    /// The name.
    pub name: At<String>,
}

/// Who runs a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename_all = "lowercase")]
pub enum Provider {
    /// Amazon EKS.
    Aws,
    /// A virtual cluster inside the platform cluster.
    Vcluster,
}

/// A group of machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeGroup {
    /// The name.
    pub name: String,
    /// The machine type.
    pub instance_type: String,
    /// At least so many.
    #[schemars(range(min = 0, max = 1000))]
    pub min_size: u32,
    /// At most so many.
    #[schemars(range(min = 1, max = 1000))]
    pub max_size: u32,
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "Cluster", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(super) struct ClusterSchema {
    #[schemars(extend("const" = super::API_VERSION))]
    api_version: String,
    #[schemars(extend("const" = "Cluster"))]
    kind: String,
    metadata: super::schema::Metadata,
    spec: ClusterSpec,
}

/// What to create.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct ClusterSpec {
    /// Who runs it.
    provider: Provider,
    /// Where it runs; needed for `aws`.
    region: Option<String>,
    /// Its machines; `aws` only.
    node_groups: Option<Vec<NodeGroup>>,
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "PlatformCluster", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(super) struct PlatformClusterSchema {
    #[schemars(extend("const" = super::API_VERSION))]
    api_version: String,
    #[schemars(extend("const" = "PlatformCluster"))]
    kind: String,
    metadata: super::schema::Metadata,
    spec: Option<Empty>,
}

/// Nothing to say: the cluster exists.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Empty {}

impl ClusterFile {
    /// Takes either kind out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        match node.text_at(&["kind"]) {
            Some("PlatformCluster") => platform(decoder, node).map(Self::Platform),
            Some("Cluster") => cluster(decoder, node).map(Self::Cluster),
            _ => {
                let at = node.get("kind").map_or(node.at, |kind| kind.at);
                decoder.report(Code::UnknownKind, at, "kind must be `Cluster` or `PlatformCluster`");
                None
            }
        }
    }
}

fn platform(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<PlatformCluster> {
    let mut fields = header::document(decoder, node, super::API_VERSION, "PlatformCluster")?;
    let name = header::name(decoder, &mut fields);
    if let Some(spec) = fields.take("spec")
        && let Some(spec) = decoder.mapping(spec, "spec")
    {
        decoder.finish(&spec);
    }
    decoder.finish(&fields);
    Some(PlatformCluster { name: name? })
}

fn cluster(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Cluster> {
    let mut fields = header::document(decoder, node, super::API_VERSION, "Cluster")?;
    let name = header::name(decoder, &mut fields);
    let spec = decoder.required(&mut fields, "spec");
    decoder.finish(&fields);
    let mut spec = decoder.mapping(spec?, "spec")?;
    let provider = decoder
        .required(&mut spec, "provider")
        .and_then(|node| decoder.one_of(node, "provider", &[("aws", Provider::Aws), ("vcluster", Provider::Vcluster)]));
    let region_node = spec.take("region");
    let region = region_node.and_then(|node| decoder.text(node, "region")).map(|text| text.value.to_owned());
    let groups = spec.take("nodeGroups");
    let mut node_groups = Vec::new();
    for item in decoder.list(groups, "nodeGroups") {
        node_groups.extend(node_group(decoder, item));
    }
    match provider {
        Some(Provider::Aws) if region_node.is_none() => {
            decoder.report(Code::MissingField, spec.at(), "a cluster of provider `aws` needs `region`");
        }
        Some(Provider::Vcluster) => {
            for node in [region_node, groups].into_iter().flatten() {
                decoder
                    .report(Code::InvalidValue, node.at, "a cluster of provider `vcluster` has no region and machines")
                    .fix("remove it, or write `provider: aws`");
            }
        }
        _ => {}
    }
    decoder.finish(&spec);
    Some(Cluster { name: name?, provider: provider?, region, node_groups })
}

fn node_group(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<NodeGroup> {
    let mut fields = decoder.mapping(node, "a node group")?;
    let mut text = |decoder: &mut Decoder<'_>, name| {
        let node = decoder.required(&mut fields, name)?;
        decoder.text(node, name).map(|text| text.value.to_owned())
    };
    let name = text(decoder, "name");
    let instance_type = text(decoder, "instanceType");
    let min = decoder.required(&mut fields, "minSize").and_then(|n| decoder.number(n, "minSize", 0..=1000));
    let max_node = decoder.required(&mut fields, "maxSize");
    let max = max_node.and_then(|n| decoder.number(n, "maxSize", 1..=1000));
    decoder.finish(&fields);
    if let (Some(min), Some(max), Some(node)) = (min, max, max_node)
        && max < min
    {
        decoder.report(Code::InvalidValue, node.at, format!("maxSize is {max}, below minSize {min}"));
    }
    Some(NodeGroup { name: name?, instance_type: instance_type?, min_size: min?, max_size: max? })
}
