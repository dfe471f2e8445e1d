//! `README.md` of the example.

use super::{App, Flavour, MARK, PLATFORM_STACKS, REFRESH, SAMPLE_IMAGE, STACKS, apps};

pub(super) fn readme() -> String {
    let total = apps().count();
    let mut table = "| stack | layer | applications | waits for |\n|---|---|---|---|\n".to_owned();
    for stack in &STACKS {
        let waits = match stack.depends_on {
            [] => "nothing".to_owned(),
            list => list.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", "),
        };
        let (name, layer, count) = (stack.name, stack.layer, stack.apps.len());
        table.push_str(&format!("| {name} | {layer} | {count} | {waits} |\n"));
    }
    table.push_str(&format!("| **{} stacks** | | **{total}** | |\n", STACKS.len()));
    let platform: usize =
        STACKS.iter().filter(|stack| PLATFORM_STACKS.contains(&stack.name)).map(|stack| stack.apps.len()).sum();
    let of = |what: fn(&App) -> bool| apps().filter(|(_, app)| what(app)).count();
    let deployments = of(|app| matches!(app.flavour, Flavour::Deployment));
    let operators = of(|app| matches!(app.flavour, Flavour::Crd(_)));
    let resources = of(|app| matches!(app.flavour, Flavour::CustomResource(_)));
    format!(
        "# The example platform
{MARK}

A working Forge repository: {} stacks, {total} applications, environments `platform`, `dev`, `staging` and `production`.
The demo, the tests and the benchmarks of Forge all run on it.

{table}
Beside what its stack waits for, an application waits for others by name, across stacks, so the graph is no chain of
stacks: only Vault waits for storage, not all of security; rollouts are ready long before the registry is. `platform`, the
cluster that runs Argo CD, has {platform} of the applications (`platform/graph.yaml`); `dev` gives three of them less time
(`dev/graph.yaml`); the others run the graph as it is.

## Look at it
```
forge -C examples/platform lint                        # clean, and nothing is suppressed
forge -C examples/platform graph                       # waves, width, critical path; --output svg draws it
forge -C examples/platform graph --to shop/storefront  # all that the storefront waits for
forge -C examples/platform plan --offline -e dev       # what a run would do; --show workflow prints the Workflow
forge -C examples/platform plan --simulate -e dev      # the run on a virtual clock
forge -C examples/platform plan --simulate -e dev --fail security/vault
```

## What is in it
- `forge.yaml`, `app.yaml`, `<env>/app.yaml`, `<env>/env.yaml`, `platform/clusters/`, `.forge/schemas/`: as `forge init --with
  crossplane` writes them.
- `graph.yaml`: what waits for what, how long each may take, which CustomResourceDefinitions and states it needs.
- `<env>/apps/<repo>/<project>/release.yaml`: which release each environment runs. `dev` has the newest; `staging` is one
  behind in some, `production` in more. `apps/shop/storefront/env.yaml` is the example of a project's own configuration.
- `sources/<repo>/<project>/`: what the releases are built from, plain Kubernetes manifests. {deployments} Deployments,
  {operators} operators with a CustomResourceDefinition, {resources} custom resources of those, a StatefulSet with a volume, a Job
  and a Deployment behind an Ingress with TLS. No file holds a Secret.

**The releases are made up**: commits and digests of the pointers are derived from names. So is the digest of the sample image,
`{SAMPLE_IMAGE}`.
`crates/forge/tests/runs/releases/platform.rs` builds real ones from `sources/`, with an image that is there, and deploys all of
`dev` from them, on a sandbox.

## The sample workload
Every container is the same small program. What the manifests expect of it:

| setting | what it does |
|---|---|
| `READY_AFTER` | `/healthz` on port 8080 answers 200 once this much time has passed since the start, 503 before; the port is open at once |
| `RUN_ONCE` | it ends with 0 at that moment instead (the Job) |

Custom resources have no pod. Whoever plays their operator fills in `status` when `sample.example.com/ready-after` has
passed: `phase: Ready`, `observedGeneration`, and a condition `Ready` that is `True`. Argo CD takes an Ingress for healthy
once its `status.loadBalancer.ingress` is not empty, so something must play the ingress controller too.

## How it is made
Every file here is written from one table, `crates/forge-testkit/src/example/table.rs`, and a test compares the two byte for
byte. Change the table, then

```
{REFRESH}
```
",
        STACKS.len()
    )
}
