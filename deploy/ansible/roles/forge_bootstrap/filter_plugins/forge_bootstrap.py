"""What the role has to decide itself: which objects are made, when an installation is proven, and which pods keep it from that.

The second is what crates/forge-core/src/install/proof.rs has: every Deployment and StatefulSet of a release runs the images
that its chart names and is available, every definition is established. Helm's word alone is not enough.
"""

import yaml

# That of C is thirty times as fast, and the definitions of Argo are megabytes.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFINITION = "CustomResourceDefinition"
# What of a release is looked at.
KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    DEFINITION: "apiextensions.k8s.io/v1",
}
MANAGED_BY = "app.kubernetes.io/managed-by"
# The digest of what was applied: another one is a change, also where something is only wanted no longer.
APPLIED = "forge.projectcatalyst.io/applied"


def wrong(check):
    """What of the answer to `forge bootstrap --check` is not as it should be.

    What its owner should merge into an Argo that is there is his, and what Git should say of one that manages itself is
    Git's: a bootstrap does not wait for it.
    """
    ours = {"forge"} | {chart["chart"] for chart in check.get("charts", []) if chart["step"] != "managed"}
    findings = check.get("findings", [])
    return [f["what"] for f in findings if f["verdict"] == "missing" and f["part"] in ours]


def places(objects):
    """Where these are: one question to the cluster each."""
    found = []
    for item in objects:
        place = {"api_version": item["apiVersion"], "kind": item["kind"]}
        if "namespace" in item["metadata"]:
            place["namespace"] = item["metadata"]["namespace"]
        if place not in found:
            found.append(place)
    return found


def key(item):
    """What an object is called."""
    return (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])


def is_nothing(value):
    """What Argo CD leaves out when it writes its own objects back."""
    if isinstance(value, dict):
        return all(is_nothing(item) for item in value.values())
    return value is None or value is False or (isinstance(value, (str, list)) and not value)


def agrees(live, wanted):
    """Whether an object is as Git says, as crates/forge-core/src/root.rs has it."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return all(agrees(live[k], v) if k in live else is_nothing(v) for k, v in wanted.items())
    if isinstance(live, list) and isinstance(wanted, list):
        return len(live) == len(wanted) and all(map(agrees, live, wanted))
    return live == wanted


def by_name(results):
    """What is there, by what it is called."""
    return {key(item): item for result in results for item in result.get("resources", [])}


def is_ours(item):
    """Whether Forge made an object."""
    return item["metadata"].get("labels", {}).get(MANAGED_BY) == "forge"


def lacking(objects, way, results):
    """Those of the objects that something is to be done about, by what is there."""
    there = by_name(results)
    tests = {
        "apply": lambda item, live: True,
        "create": lambda item, live: live is None,
        "ours": lambda item, live: live is None or (is_ours(live) and not agrees(live, item)),
        "remove": lambda item, live: live is not None and is_ours(live),
    }
    return [item for item in objects if tests[way](item, there.get(key(item)))]


def foreign(objects, results):
    """Those of the objects that somebody else made and that say something else."""
    there, found = by_name(results), []
    for item in objects:
        live = there.get(key(item))
        if live is None or is_ours(live):
            continue
        metadata = dict(item["metadata"])
        for field in ("labels", "annotations"):
            metadata[field] = {k: v for k, v in metadata.get(field, {}).items() if k not in (MANAGED_BY, APPLIED)}
        if not agrees(live, {**item, "metadata": metadata}):
            found.append("{0} {1}".format(item["kind"], item["metadata"]["name"]))
    return found


def images(workload):
    """The images of a workload's pods."""
    pod = workload.get("spec", {}).get("template", {}).get("spec", {})
    containers = (pod.get("initContainers") or []) + (pod.get("containers") or [])
    return [container["image"] for container in containers if "image" in container]


def workloads(manifest, namespace):
    """The objects of a release that are looked at, in their order, and no more of them than is looked at."""
    found = []
    for document in yaml.load_all(manifest, Loader=LOADER):
        if not isinstance(document, dict):
            continue
        kind = document.get("kind")
        group = str(document.get("apiVersion", "")).split("/", maxsplit=1)[0]
        if kind not in KINDS or group != KINDS[kind].split("/", maxsplit=1)[0]:
            continue
        metadata = {"name": document["metadata"]["name"]}
        if kind != DEFINITION:
            metadata["namespace"] = document["metadata"].get("namespace", namespace)
        found.append({"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata, "images": images(document)})
    return found


def parts(objects):
    """The same as the receipt of an installation has them."""
    found = []
    for item in objects:
        part = {"kind": item["kind"], **item["metadata"]}
        if item["images"]:
            part["images"] = item["images"]
        found.append(part)
    return found


def fault(wanted, live):
    """What is wrong with an object as it is, and whether waiting may help; nothing where it is proven."""
    title = "{0} {1}".format(wanted["kind"], wanted["metadata"]["name"])
    if live is None:
        return ("broken", title + " is gone")
    status = live.get("status") or {}
    if wanted["kind"] == DEFINITION:
        conditions = status.get("conditions") or []
        held = any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
        return None if held else ("waiting", title + " is not established")
    for image in wanted["images"]:
        # Others may be added on the way; what the chart names must be there.
        if image not in images(live):
            return ("broken", "{0} does not run image `{1}`".format(title, image))
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return ("waiting", title + " was not looked at yet")
    replicas = live.get("spec", {}).get("replicas", 1)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < replicas or available < replicas:
        text = "{0}: of {1} pods {2} are the wanted ones, {3} are available"
        return ("waiting", text.format(title, replicas, updated, available))
    return None


def faults(objects, answer, place):
    """What is wrong with those of the objects that are at this place, by what is there."""
    found = {"broken": [], "waiting": []}
    there = {key(item): item for item in answer["resources"]}
    for item in objects:
        if places([item]) == [place]:
            seen = fault(item, there.get(key(item)))
            if seen:
                found[seen[0]].append(seen[1])
    return found


def reasons(objects, results):
    """The same of all places, as one list."""
    found = []
    for result in results:
        # One that could not be asked has no answer.
        if "resources" in result:
            here = faults(objects, result, result["item"])
            found += here["broken"] + here["waiting"]
    return found


def sets_of(sets, release):
    """Those of the StatefulSets that are of a release, and say by which labels their pods are found."""
    wanted = {"meta.helm.sh/release-name": release["chart"], "meta.helm.sh/release-namespace": release["namespace"]}
    found = []
    for item in sets:
        marks = item["metadata"].get("annotations") or {}
        selected = item.get("spec", {}).get("selector", {}).get("matchLabels")
        if selected and all(marks.get(k) == v for k, v in wanted.items()):
            found.append(item)
    return found


def is_unseen(item):
    """Whether Kubernetes has still to look at what this is told to be."""
    return (item.get("status") or {}).get("observedGeneration", 0) < item["metadata"].get("generation", 0)


def unseen(sets, release):
    """The StatefulSets of a release that Kubernetes has still to look at."""
    return [item["metadata"]["name"] for item in sets_of(sets, release) if is_unseen(item)]


def is_in_the_way(item, pod):
    """Whether a StatefulSet waits for this pod in vain: as is_in_the_way of crates/forge-core/src/install/proof.rs has it."""
    strategy = item["spec"].get("updateStrategy") or {}
    # Pods that somebody keeps back are his.
    kept = strategy.get("type") == "OnDelete" or (strategy.get("rollingUpdate") or {}).get("partition", 0) > 0
    metadata = pod["metadata"]
    owned = any(o.get("uid") == item["metadata"]["uid"] for o in metadata.get("ownerReferences") or [])
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    wanted = (item.get("status") or {}).get("updateRevision")
    revision = (metadata.get("labels") or {}).get("controller-revision-hash")
    other = bool(wanted and revision and wanted != revision)
    return not is_unseen(item) and not kept and owned and "deletionTimestamp" not in metadata and not ready and other


def in_the_way(results):
    """The pods that StatefulSets wait for in vain, by name; each result is what was seen of the pods of one of them."""
    found = []
    for result in results:
        found += [pod["metadata"]["name"] for pod in result["resources"] if is_in_the_way(result["item"], pod)]
    return found


class FilterModule:
    """The filters of the role."""

    def filters(self):
        return {
            "forge_bootstrap_wrong": wrong,
            "forge_bootstrap_places": places,
            "forge_bootstrap_lacking": lacking,
            "forge_bootstrap_foreign": foreign,
            "forge_bootstrap_workloads": workloads,
            "forge_bootstrap_parts": parts,
            "forge_bootstrap_faults": faults,
            "forge_bootstrap_reasons": reasons,
            "forge_bootstrap_sets_of": sets_of,
            "forge_bootstrap_unseen": unseen,
            "forge_bootstrap_in_the_way": in_the_way,
        }
