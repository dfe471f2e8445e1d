//! Large inputs, the same from the same seed: repositories of thousands of projects, graphs of any size.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// Small, seeded, and ours: a figure or a failure replays from its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next_number() % (limit.max(1) as u64)).unwrap_or(0)
    }
}

/// How many projects share a source repository in a generated tree.
const PER_REPO: usize = 50;

/// The name of the n-th generated project.
pub fn project(n: usize) -> String {
    format!("team-{:03}/service-{n:05}", n / PER_REPO)
}

/// `graph.yaml` of `nodes` projects and about `edges` edges between them, in stacks of 100. Edges go from later to
/// earlier projects, most of them to near ones, as in real platforms.
pub fn graph_yaml(nodes: usize, edges: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text =
        String::from("apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n");
    let mut owed = 0;
    for n in 0..nodes {
        if n % 100 == 0 {
            let _ = writeln!(text, "    - name: stack-{:04}\n      apps:", n / 100);
        }
        let _ = writeln!(text, "        - project: {}", project(n));
        // Spread the edges evenly; what early nodes cannot take, later ones do.
        owed += edges;
        let mut targets = std::collections::BTreeSet::new();
        while owed >= nodes.max(1) && targets.len() < n.min(12) {
            let back = if random.below(4) == 0 { random.below(n) + 1 } else { random.below(n.min(200)) + 1 };
            if targets.insert(n - back) {
                owed -= nodes;
            }
        }
        if !targets.is_empty() {
            let list: Vec<String> = targets.into_iter().map(project).collect();
            let _ = writeln!(text, "          dependsOn: [{}]", list.join(", "));
        }
    }
    text
}

/// What is wrong with a planted pointer.
const PLANTED: [(&str, &str); 4] = [
    ("  digest: sha256:", "  dgest: sha256:"),
    ("  release: \"", "  release: \"x"),
    ("kind: ReleasePointer", "kind: ReleasePointr"),
    ("spec:\n", "spec:\n  comment: later\n"),
];

/// A repository of `projects` projects in one environment with a graph of `edges` edges, and `planted` broken pointers
/// spread over it. Gives the paths of the broken ones.
pub fn repository(root: &Path, projects: usize, edges: usize, planted: usize, seed: u64) -> io::Result<Vec<String>> {
    let forge = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  registry: registry.example.com/releases\n  repository: {url: https://git.example.com/platform.git, branch: main}\n  environments:\n    - {name: dev, cluster: dev, sync: auto}\n";
    fs::create_dir_all(root)?;
    fs::write(root.join("forge.yaml"), forge)?;
    fs::write(root.join("graph.yaml"), graph_yaml(projects, edges, seed))?;
    let mut random = Random::new(seed ^ 1);
    let every = projects.checked_div(planted).unwrap_or(usize::MAX).max(1);
    let mut broken = Vec::new();
    for n in 0..projects {
        let id = project(n);
        let name = id.rsplit('/').next().unwrap_or_default();
        let digits = |random: &mut Random, words: usize| -> String {
            (0..words).map(|_| format!("{:016x}", random.next_number())).collect()
        };
        let release: String = digits(&mut random, 3).chars().take(40).collect();
        let mut text = format!(
            "# yaml-language-server: $schema=../../../../.forge/schemas/ReleasePointer.json\napiVersion: forge.projectcatalyst.io/v1alpha1\nkind: ReleasePointer\nmetadata:\n  name: {name}\nspec:\n  release: \"{release}\"\n  digest: sha256:{}\n",
            digits(&mut random, 4)
        );
        let folder = root.join("dev/apps").join(&id);
        fs::create_dir_all(&folder)?;
        if n % every == every / 2
            && let Some((good, bad)) = PLANTED.get(broken.len() % PLANTED.len())
        {
            text = text.replace(good, bad);
            broken.push(format!("dev/apps/{id}/release.yaml"));
        }
        fs::write(folder.join("release.yaml"), text)?;
        if n % 4 == 0 {
            let joined = id.replace('/', "-");
            let config = format!(
                "apiVersion: apiextensions.crossplane.io/v1beta1\nkind: EnvironmentConfig\nmetadata:\n  name: {joined}\ndata:\n  replicas: \"3\"\n  domain: {name}.dev.example.com\n  limits: {{cpu: 500m, memory: 256Mi}}\n"
            );
            fs::write(folder.join("env.yaml"), config)?;
        }
    }
    Ok(broken)
}
