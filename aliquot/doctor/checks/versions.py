"""Versions of Kubernetes, of container runtimes and of our own parts."""

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version as version_of

from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.objects import Node
from aliquot.doctor.facts.versions import (
    CDI_CONTAINERD,
    NEWEST_KUBERNETES,
    OLDEST_CONTAINERD,
    OLDEST_CRIO,
    OLDEST_KUBERNETES,
    read_version,
    written,
)
from aliquot.doctor.finding import UPGRADE, Told, failure, ok, some, warning

KUBELETS_BEHIND = 3
"""Minor versions that Kubernetes lets a kubelet be older than the API server."""


def kubernetes(cluster: Cluster) -> Iterator[Told]:
    """The API server's version, and its kubelets'."""
    if cluster.unreachable:
        yield failure(
            f"the API server does not answer: {cluster.unreachable}",
            "See that the kubeconfig names the right server, and that it runs (kubectl version).",
        )
        return
    text = cluster.version.get()
    found = read_version(text)
    if found is None:
        yield warning(f"the API server calls its version {text!r}, which cannot be read.", "None is known.")
        return
    if found < OLDEST_KUBERNETES:
        yield failure(
            f"Kubernetes is {text}; before {written(OLDEST_KUBERNETES)} admission policies and webhooks' "
            "matchConditions are not there, on which Aliquot's safety rests.",
            f"Upgrade to {written(OLDEST_KUBERNETES)} or later.",
        )
    elif found[:2] > NEWEST_KUBERNETES[:2]:
        yield warning(
            f"Kubernetes is {text}; Aliquot has been tested up to {written(NEWEST_KUBERNETES)}.",
            "Try it on a cluster that may fail, and look for a newer Aliquot.",
        )
    else:
        yield ok(f"the API server is {text}")
    yield from _scheduler(cluster, found)
    yield from _kubelets(cluster, found)


def _scheduler(cluster: Cluster, server: tuple[int, ...]) -> Iterator[Told]:
    """The chart's own kube-scheduler, which an upgrade of the cluster leaves behind."""
    workload = cluster.workload("aliquot-scheduler")
    containers = workload.spec.template.spec.containers if workload else ()
    for container in containers:
        version = read_version(container.image.rpartition(":")[2]) if "@" not in container.image else None
        if container.name == "kube-scheduler" and version and not 0 <= server[1] - version[1] <= 1:
            yield warning(
                f"kube-scheduler of aliquot-scheduler is {written(version)}; it may be one version older than the API "
                "server, and not newer.",
                f"{UPGRADE}: the chart takes the cluster's version.",
            )


def _kubelets(cluster: Cluster, server: tuple[int, ...]) -> Iterator[Told]:
    versions = {
        node.metadata.name: read_version(node.status.node_info.kubelet_version)
        for node in cluster.nodes.get()
    }
    old = [
        name for name, one in versions.items() if one and one < OLDEST_KUBERNETES and name in cluster.sharing
    ]
    if old:
        yield failure(
            f"kubelets before {written(OLDEST_KUBERNETES)} on nodes with slices: {some(old)}; they may not take CDI "
            "devices from a device plugin.",
            "Upgrade these nodes.",
            sorted(old),
        )
    skewed = [
        name
        for name, one in versions.items()
        if one and name not in old and not server[1] - KUBELETS_BEHIND <= one[1] <= server[1]
    ]
    if skewed:
        yield warning(
            f"kubelets newer than the API server, or more than {KUBELETS_BEHIND} versions older: {some(skewed)}",
            "Bring them to the API server's version (Kubernetes' version skew policy).",
            sorted(skewed),
        )


def runtimes(cluster: Cluster) -> Iterator[Told]:
    """Container runtimes of the nodes with slices: whether they do CDI."""
    by_problem: dict[str, list[str]] = defaultdict(list)
    seen: dict[str, int] = defaultdict(int)
    for node in cluster.nodes.get():
        if node.metadata.name in cluster.sharing:
            seen[node.status.node_info.container_runtime_version or "unknown"] += 1
            by_problem[_problem(node)].append(node.metadata.name)
    if not seen:
        yield ok("no node shares cards yet, so no runtime matters")
        return
    if by_problem["old"]:
        yield failure(
            f"container runtimes without CDI: {some(by_problem['old'])}. Their tenants get no card.",
            f"Use containerd {written(OLDEST_CONTAINERD)} or later, better {written(CDI_CONTAINERD)}, or CRI-O "
            f"{written(OLDEST_CRIO)} or later.",
            by_problem["old"],
        )
    if by_problem["off"]:
        yield warning(
            f"containerd before {written(CDI_CONTAINERD)} has CDI off unless it is told: {some(by_problem['off'])}",
            "Set enable_cdi = true in containerd's CRI section (aliquot doctor --node looks whether it is), or "
            "upgrade.",
            by_problem["off"],
        )
    if by_problem["strange"]:
        yield warning(
            f"container runtimes that Aliquot does not know: {some(by_problem['strange'])}",
            "See that they read CDI specs in /var/run/cdi.",
            by_problem["strange"],
        )
    if by_problem[""] and not (by_problem["old"] or by_problem["off"] or by_problem["strange"]):
        listed = ", ".join(f"{name} on {number}" for name, number in sorted(seen.items()))
        yield ok(f"CDI is there: {listed}")


def _problem(node: Node) -> str:
    """`old`, `off`, `strange`, or nothing."""
    kind, _, text = node.status.node_info.container_runtime_version.partition("://")
    found = read_version(text)
    if kind not in ("containerd", "cri-o") or found is None:
        return "strange"
    if kind == "cri-o":
        return "old" if found < OLDEST_CRIO else ""
    if found < OLDEST_CONTAINERD:
        return "old"
    return "off" if found < CDI_CONTAINERD else ""


def skew(cluster: Cluster) -> Iterator[Told]:
    """Whether all parts of Aliquot, and this command, are of one version."""
    versions: dict[str, str] = {}
    for name in COMPONENTS:
        workload = cluster.workload(name)
        if workload and workload.version:
            versions[name] = workload.version
    for name, fact in cluster.definitions.items():
        definition = fact.get()
        label = definition.metadata.labels.get("app.kubernetes.io/version") if definition else None
        if label:
            versions[name] = label
    running = [
        pod.key
        for pod in cluster.own_pods.get()
        if (owner := _component(pod.metadata.labels))
        and versions.get(owner, "") not in ("", pod.metadata.labels.get("app.kubernetes.io/version"))
        and not pod.finished
    ]
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{name} {one}" for name, one in sorted(versions.items()))
        yield failure(
            f"parts of Aliquot are of different versions: {listed}",
            f"Upgrade the whole chart: {UPGRADE}.",
            sorted(versions),
        )
    if running:
        yield warning(
            f"pods of another version than their workload's: {some(running)}",
            "Wait for the rollout to end, or look why it does not (kubectl rollout status).",
            sorted(running),
        )
    if versions and version_of("aliquot") not in versions.values():
        yield warning(
            f"this command is {version_of('aliquot')}, the cluster has {some(versions.values())}",
            "Use the command of the cluster's version.",
        )
    elif versions and len(set(versions.values())) == 1 and not running:
        yield ok(f"all parts are {version_of('aliquot')}")


def _component(labels: dict[str, str]) -> str:
    known = labels.get("app.kubernetes.io/name") == "aliquot"
    return f"aliquot-{labels.get('app.kubernetes.io/component', '')}" if known else ""
