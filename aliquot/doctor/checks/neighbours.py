"""Who else is at the cards: other device plugins, and pods that get cards without a slice."""

from collections.abc import Iterator

from aliquot.api.names import ResourceNames
from aliquot.doctor.facts.cluster import Cluster, Pods, has_slice, holds
from aliquot.doctor.facts.gpu_software import CHANGERS, HANDERS, VISIBLE, Neighbour, is_tool
from aliquot.doctor.facts.objects import Node
from aliquot.doctor.finding import Told, count, failure, some, warning
from aliquot.kube.objects import Container, Pod
from aliquot.units import QuantityError, parse_quantity

NO_CARDS = frozenset(("", "void", "none"))
"""Values with which NVIDIA's container runtime brings no card."""


def neighbours(cluster: Cluster) -> Iterator[Told]:
    """Nodes whose cards Aliquot shares, and another hands out, too."""
    sharing = cluster.sharing
    nodes = [node for node in cluster.nodes.get() if node.metadata.name in sharing]
    pods = cluster.pods.get()
    told, known = list[Told](), set[str]()
    for one in HANDERS:
        serving = _nodes_of(pods, one) & sharing
        serving |= {node.metadata.name for node in nodes if one.annotation in node.metadata.annotations}
        if one.name == "NVIDIA's DRA driver":
            serving |= {s.spec.node_name for s in cluster.slices.get() if s.spec.node_name} & sharing
        # HAMi serves nvidia.com/gpu, too: a resource alone says nothing more of a node whose plugin is known.
        serving |= {node.metadata.name for node in nodes if _serves(node, one)} - known
        known |= serving
        if serving:
            where = f"{count(len(serving), 'node')} whose cards Aliquot shares: {some(serving)}"
            seen = f"{one.name} works on {where}. What both hand out is promised twice."
            told.append(failure(seen, one.remedy, sorted(serving)))
    for one in CHANGERS:
        if serving := _nodes_of(pods, one) & sharing:
            seen = f"{one.name} runs on {some(serving)}, where slices are."
            told.append(warning(seen, one.remedy, sorted(serving)))
    operator = " (GPU Operator is installed)" if cluster.operators.get() else ""
    good = f"nobody else hands out the cards of {count(len(sharing), 'node')}{operator}"
    yield from pods.conclude(told, good)


def _serves(node: Node, one: Neighbour) -> bool:
    return any(_some(amount) for name, amount in node.status.allocatable.items() if one.serves(name))


def _some(amount: str | float) -> bool:
    try:
        return parse_quantity(amount) > 0
    except QuantityError:
        return False


def _nodes_of(pods: Pods, one: Neighbour) -> set[str]:
    return {p.spec.node_name for p in pods.found if not p.finished and one.runs_in(p)} - {""}


def bypasses(cluster: Cluster) -> Iterator[Told]:
    """Pods on nodes with slices that NVIDIA's runtime gives cards without one."""
    pods, sharing = cluster.pods.get(), cluster.sharing
    here = [p for p in pods.found if p.spec.node_name in sharing and not p.finished and not _ours(cluster, p)]
    tools = sum(is_tool(pod) for pod in here)
    names, others = cluster.names, [pod for pod in here if not is_tool(pod)]
    taking = [pod.key for pod in others if any(map(_takes, _without_slice(pod, names)))]
    unsure = [
        pod.key for pod in others if pod.key not in taking and any(map(_may_take, _without_slice(pod, names)))
    ]
    by_runtime = [
        pod.key
        for pod in others
        if _by_runtime(pod, names) and pod.key not in taking and pod.key not in unsure
    ]
    beside = f"; {count(tools, 'pod')} of NVIDIA's own may see all cards" if tools else ""
    yield from pods.conclude(
        list(_asking(taking, unsure, by_runtime, names.memory)),
        f"no pod's specification asks for cards without a slice{beside}. Images' own variables are not to be seen "
        "here: aliquot doctor --node looks at the processes",
    )


def _asking(taking: list[str], unsure: list[str], by_runtime: list[str], memory: str) -> Iterator[Told]:
    if taking:
        yield failure(
            f"{count(len(taking), 'pod')} without a slice asks NVIDIA's runtime for cards by {VISIBLE}: {some(taking)}",
            f"Give it a slice (resources.limits: {memory}) and take the variable out; and set "
            "accept-nvidia-visible-devices-envvar-when-unprivileged = false in NVIDIA's container toolkit.",
            sorted(taking),
        )
    if unsure:
        yield warning(
            f"{VISIBLE} of {some(unsure)} comes from elsewhere (valueFrom) and may name cards.",
            "Take the variable out, or give the pod a slice.",
            sorted(unsure),
        )
    if by_runtime:
        yield warning(
            f"{some(by_runtime)} without a slice runs in NVIDIA's runtime: its image may say {VISIBLE}.",
            "Take runtimeClassName out of pods that need no card, or set "
            "accept-nvidia-visible-devices-envvar-when-unprivileged = false in NVIDIA's container toolkit.",
            sorted(by_runtime),
        )


def _ours(cluster: Cluster, pod: Pod) -> bool:
    return pod.metadata.namespace == cluster.namespace and any(
        owner.kind == "DaemonSet" and owner.name == "aliquot-agent" for owner in pod.metadata.owner_references
    )


def _without_slice(pod: Pod, names: ResourceNames) -> list[Container]:
    return [
        container
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        if not has_slice(container, names)
    ]


def _takes(container: Container) -> bool:
    return any(env.name == VISIBLE and (env.value or "") not in NO_CARDS for env in container.env)


def _may_take(container: Container) -> bool:
    return any(env.name == VISIBLE and env.value_from is not None for env in container.env)


def _by_runtime(pod: Pod, names: ResourceNames) -> bool:
    silent = [c for c in _without_slice(pod, names) if all(env.name != VISIBLE for env in c.env)]
    return "nvidia" in (pod.spec.runtime_class_name or "") and bool(silent) and not holds(pod, names)
