//! Where objects are in the Kubernetes API.

/// A collection of the core group.
pub(crate) fn core(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

/// A collection of another group, in a namespace.
pub(crate) fn named(group: &str, version: &str, namespace: &str, plural: &str) -> String {
    format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
}

/// A collection of another group, of the whole cluster.
pub(crate) fn global(group: &str, version: &str, plural: &str) -> String {
    format!("/apis/{group}/{version}/{plural}")
}

/// A collection of Argo: Applications, AppProjects, Workflows.
pub(crate) fn argo(namespace: &str, plural: &str) -> String {
    named("argoproj.io", "v1alpha1", namespace, plural)
}

/// ConfigMaps.
pub(crate) fn config_maps(namespace: &str) -> String {
    core(namespace, "configmaps")
}

/// One object of a collection.
pub(crate) fn object(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}
