//! What a path means.

use crate::format::Installation;
use crate::health;
use crate::install;
use crate::preflight::Component;

/// Where the environments are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Folder and index of each environment.
    folders: Vec<(String, usize)>,
}

/// What a file is, by its path alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role<'p> {
    /// `forge.yaml`
    Installation,
    /// `graph.yaml`
    Graph,
    /// `app.yaml`
    RootApp,
    /// `<env>/app.yaml`
    EnvironmentApp(usize),
    /// `<env>/env.yaml`
    EnvironmentConfig(usize),
    /// `<env>/graph.yaml`
    Override(usize),
    /// `<env>/apps/<repo>/<project>/release.yaml`
    Pointer {
        /// Index of the environment.
        environment: usize,
        /// Folder names, not checked yet.
        repo: &'p str,
        /// Folder names, not checked yet.
        project: &'p str,
    },
    /// `<env>/apps/<repo>/<project>/env.yaml`
    ProjectConfig {
        /// Index of the environment.
        environment: usize,
        /// Folder names, not checked yet.
        repo: &'p str,
        /// Folder names, not checked yet.
        project: &'p str,
    },
    /// Anything else in or below a project folder, or YAML between `apps` and one.
    Illegal {
        /// Index of the environment.
        environment: usize,
        /// Folder names, where the path goes that deep.
        project: Option<(&'p str, &'p str)>,
    },
    /// `platform/clusters/<name>/cluster.yaml`
    Cluster(&'p str),
    /// `health/<name>.lua`: a health check for Argo CD. The name is not checked yet, and may lead into folders.
    HealthCheck(&'p str),
    /// `argo/values/<chart>.yaml`: values of a chart that Forge installs.
    Values(Component),
    /// Below `argo/charts`: a chart as somebody else published it.
    Vendored,
    /// A template of a Helm chart: text, not YAML.
    Template,
    /// Any other YAML or JSON.
    Foreign,
    /// Any other file that is read.
    Text,
}

/// True for what Argo CD would read as a manifest.
pub fn is_manifest(path: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| path.ends_with(ending))
}

/// The name of a health check for Argo CD, not checked yet, if this is where one may be.
fn health_check(path: &str) -> Option<&str> {
    path.strip_prefix(health::FOLDER)?.strip_prefix('/')?.strip_suffix(".lua")
}

/// True for what is read as a health check for Argo CD.
pub fn is_health_check(path: &str) -> bool {
    health_check(path).is_some()
}

impl Layout {
    /// The layout that `forge.yaml` describes.
    pub fn of(installation: &Installation) -> Self {
        let folders = installation.environments.iter().enumerate().map(|(i, env)| (env.path.clone(), i)).collect();
        Self { folders }
    }

    /// A guess for a repository whose `forge.yaml` cannot be read: top-level folders with an `app.yaml` or `apps/`.
    pub fn guess<'p>(paths: impl Iterator<Item = &'p str>) -> Self {
        let mut names: Vec<&str> = paths
            .filter_map(|path| path.split_once('/'))
            .filter(|(_, rest)| *rest == "app.yaml" || rest.starts_with("apps/"))
            .map(|(folder, _)| folder)
            .collect();
        names.sort_unstable();
        names.dedup();
        Self { folders: names.into_iter().enumerate().map(|(i, name)| (name.to_owned(), i)).collect() }
    }

    /// What the file at this path is.
    pub fn role<'p>(&self, path: &'p str) -> Role<'p> {
        match path {
            "forge.yaml" => return Role::Installation,
            "graph.yaml" => return Role::Graph,
            "app.yaml" => return Role::RootApp,
            _ => {}
        }
        if let Some(rest) = path.strip_prefix("platform/clusters/")
            && let Some((name, "cluster.yaml")) = rest.split_once('/')
        {
            return Role::Cluster(name);
        }
        for (folder, index) in &self.folders {
            if let Some(inside) = path.strip_prefix(folder.as_str()).and_then(|rest| rest.strip_prefix('/'))
                && let Some(role) = environment_role(inside, *index)
            {
                return role;
            }
        }
        if let Some(name) = health_check(path) {
            return Role::HealthCheck(name);
        }
        if let Some(component) = install::values_file(path) {
            return Role::Values(component);
        }
        if path.strip_prefix(install::CHARTS_FOLDER).is_some_and(|rest| rest.starts_with('/')) {
            return Role::Vendored;
        }
        let in_templates = path.split('/').rev().skip(1).any(|part| part == "templates");
        if in_templates || path.ends_with(".tpl") {
            Role::Template
        } else if is_manifest(path) {
            Role::Foreign
        } else {
            Role::Text
        }
    }
}

fn environment_role(inside: &str, environment: usize) -> Option<Role<'_>> {
    match inside {
        "app.yaml" => return Some(Role::EnvironmentApp(environment)),
        "env.yaml" => return Some(Role::EnvironmentConfig(environment)),
        "graph.yaml" => return Some(Role::Override(environment)),
        _ => {}
    }
    let below = inside.strip_prefix("apps/")?;
    let mut parts = below.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(repo), Some(project), Some("release.yaml")) => Some(Role::Pointer { environment, repo, project }),
        (Some(repo), Some(project), Some("env.yaml")) => Some(Role::ProjectConfig { environment, repo, project }),
        (Some(repo), Some(project), Some(_)) => Some(Role::Illegal { environment, project: Some((repo, project)) }),
        _ if is_manifest(below) => Some(Role::Illegal { environment, project: None }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_alone_says_what_a_file_is() {
        let layout = Layout { folders: vec![("dev".into(), 0), ("clusters/eu/prod".into(), 1)] };
        let pointer = |environment| Role::Pointer { environment, repo: "a", project: "b" };
        for (path, role) in [
            ("forge.yaml", Role::Installation),
            ("dev/app.yaml", Role::EnvironmentApp(0)),
            ("dev/graph.yaml", Role::Override(0)),
            ("dev/apps/a/b/release.yaml", pointer(0)),
            ("clusters/eu/prod/apps/a/b/release.yaml", pointer(1)),
            ("dev/apps/a/b/c/release.yaml", Role::Illegal { environment: 0, project: Some(("a", "b")) }),
            ("dev/apps/a/release.yaml", Role::Illegal { environment: 0, project: None }),
            ("dev/apps/README.md", Role::Text),
            ("developer/app.yaml", Role::Foreign),
            ("platform/clusters/dev/cluster.yaml", Role::Cluster("dev")),
            ("charts/x/templates/a/b.yaml", Role::Template),
            ("health/apps_StatefulSet.lua", Role::HealthCheck("apps_StatefulSet")),
            ("health/templates/a.lua", Role::HealthCheck("templates/a")),
            ("health/README.md", Role::Text),
            ("healthy/a.lua", Role::Text),
            ("dev/health/a.lua", Role::Text),
            ("argo/values/argo-cd.yaml", Role::Values(Component::Cd)),
            ("argo/values/production.yaml", Role::Foreign),
            ("argo/charts/argo-cd/templates/a.yaml", Role::Vendored),
            ("argo/charts.yaml", Role::Foreign),
            ("dev/argo/charts/a.yaml", Role::Foreign),
            ("dev/argo/values/argo-cd.yaml", Role::Foreign),
        ] {
            assert_eq!(layout.role(path), role, "{path}");
        }
    }
}
