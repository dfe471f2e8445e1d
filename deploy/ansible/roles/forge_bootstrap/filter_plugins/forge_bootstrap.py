"""What the role has to decide itself: which objects are made, and when an installation is proven.

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


def wrong(check):
    """What of the answer to `forge bootstrap --check` is not as it should be.

    What its owner should merge into an Argo that is there is his: a bootstrap does not wait for it.
    """
    findings = check.get("findings", [])
    return [f["what"] for f in findings if f["verdict"] == "missing" and f["about"] != "existing"]


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


def lacking(objects, way, results):
    """Those of the objects that something is to be done about, by what is there."""
    there = {key(item): item for result in results for item in result.get("resources", [])}
    ours = {name for name, item in there.items() if item["metadata"].get("labels", {}).get(MANAGED_BY) == "forge"}
    tests = {
        "apply": lambda name: True,
        "create": lambda name: name not in there,
        "ours": lambda name: name not in there or name in ours,
        "remove": lambda name: name in ours,
    }
    return [item for item in objects if tests[way](key(item))]


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


class FilterModule:
    """The filters of the role."""

    def filters(self):
        return {
            "forge_bootstrap_wrong": wrong,
            "forge_bootstrap_places": places,
            "forge_bootstrap_lacking": lacking,
            "forge_bootstrap_workloads": workloads,
            "forge_bootstrap_parts": parts,
            "forge_bootstrap_faults": faults,
            "forge_bootstrap_reasons": reasons,
        }
