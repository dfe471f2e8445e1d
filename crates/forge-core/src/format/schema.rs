//! The JSON Schemas of our files, generated from the types beside the decoders, and of what we write for programs. `docs/reference/schemas/` holds them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{cluster, environment_config, executor_environment, graph::files, installation, pointer};
use crate::teardown::{inventory, rehearse};

/// The kinds that have a schema, by the name that `forge schema` takes.
pub const KINDS: [&str; 7] =
    ["Cluster", "DependencyGraph", "EnvironmentConfig", "Forge", "GraphOverride", "PlatformCluster", "ReleasePointer"];

/// What the executor and the plugin for Argo CD are given as a file and has a schema, by the name that `forge schema` takes; no
/// file of an environment.
pub const INPUTS: [&str; 2] = ["ExecutorEnvironment", "SignaturePolicy"];

/// What Forge writes for programs and has a schema, by the name that `forge schema` takes.
pub const OUTPUTS: [&str; 8] = [
    "BootstrapCheck",
    "BootstrapPlan",
    "CleanExitReport",
    "PreflightReport",
    "RehearsalReport",
    "ReleaseMetadata",
    "RunReport",
    "ValidationReport",
];

/// `metadata` of a file of ours.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the files for the schemas")]
pub(super) struct Metadata {
    /// The name, which follows from the path.
    name: String,
    /// Ignored by Forge.
    labels: Option<std::collections::BTreeMap<String, String>>,
    /// Ignored by Forge.
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

/// The schema of a kind, whatever the case of its name.
pub fn schema(kind: &str) -> Option<Schema> {
    let generate = |of: fn(SchemaGenerator) -> Schema| {
        Some(of(SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = false).into_generator()))
    };
    let known = KINDS.iter().chain(&INPUTS).chain(&OUTPUTS).find(|known| known.eq_ignore_ascii_case(kind))?;
    match *known {
        "Cluster" => generate(SchemaGenerator::into_root_schema_for::<cluster::ClusterSchema>),
        "DependencyGraph" => generate(SchemaGenerator::into_root_schema_for::<files::GraphFile>),
        "EnvironmentConfig" => generate(SchemaGenerator::into_root_schema_for::<environment_config::File>),
        "ExecutorEnvironment" => generate(SchemaGenerator::into_root_schema_for::<executor_environment::File>),
        "Forge" => generate(SchemaGenerator::into_root_schema_for::<installation::File>),
        "GraphOverride" => generate(SchemaGenerator::into_root_schema_for::<files::OverrideFile>),
        "PlatformCluster" => generate(SchemaGenerator::into_root_schema_for::<cluster::PlatformClusterSchema>),
        "ReleasePointer" => generate(SchemaGenerator::into_root_schema_for::<pointer::File>),
        "SignaturePolicy" => generate(SchemaGenerator::into_root_schema_for::<crate::release::policy::File>),
        "BootstrapCheck" => generate(SchemaGenerator::into_root_schema_for::<crate::install::BootstrapCheck>),
        "BootstrapPlan" => generate(SchemaGenerator::into_root_schema_for::<crate::install::BootstrapPlan>),
        "CleanExitReport" => generate(SchemaGenerator::into_root_schema_for::<inventory::CleanExitReport>),
        "RehearsalReport" => generate(SchemaGenerator::into_root_schema_for::<rehearse::RehearsalReport>),
        "PreflightReport" => generate(SchemaGenerator::into_root_schema_for::<crate::preflight::PreflightReport>),
        "ReleaseMetadata" => generate(SchemaGenerator::into_root_schema_for::<crate::release::ReleaseMetadata>),
        "RunReport" => generate(SchemaGenerator::into_root_schema_for::<crate::view::RunReport>),
        "ValidationReport" => generate(SchemaGenerator::into_root_schema_for::<crate::truth::ValidationReport>),
        _ => None,
    }
}
