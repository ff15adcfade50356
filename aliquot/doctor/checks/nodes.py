"""Nodes with cards and the slices on them, as the API server has them."""

from collections.abc import Iterator, Mapping

from aliquot.api.names import PLACEMENT_ANNOTATION, ResourceNames
from aliquot.crds.gpu_node import GPUNode
from aliquot.doctor.facts.cluster import Cluster, holds
from aliquot.doctor.facts.objects import Workload
from aliquot.doctor.finding import Told, count, failure, not_checked, ok, some, warning
from aliquot.kube.objects import Node, Pod
from aliquot.request.placement import PlacementError, read_placement
from aliquot.units import QuantityError, parse_quantity

ENDING_S = 600
"""So long after its time to end has run out a pod should be gone."""


def inventory(cluster: Cluster) -> Iterator[Told]:
    """Nodes that should share their cards: an agent, a GPUNode that is true, and slices that the kubelet knows."""
    nodes = {node.metadata.name: node for node in cluster.nodes.get()}
    gpu_nodes = {node.metadata.name: node for node in cluster.gpu_nodes.get()}
    agent = cluster.workload("aliquot-agent")
    if agent and agent.removes_files:
        yield not_checked("aliquot-agent removes its files: what the GPUNodes say is from before")
        return
    told = list(_gone(set(gpu_nodes) - set(nodes)))
    told += _without_inventory(cluster, agent, set(gpu_nodes))
    told += _without_agent(cluster, agent, {name for name in gpu_nodes if name in nodes})
    gpu = cluster.names.gpu
    strange = [name for name, node in gpu_nodes.items() if name in nodes and _differs(node, nodes[name], gpu)]
    if strange:
        told.append(
            failure(
                f"the kubelet offers other slices than the node's cards make: {some(strange)}",
                "The agent has not registered with the kubelet, or cards are not well: see its log, and aliquot "
                "doctor --node there.",
                sorted(strange),
            )
        )
    told += _cards(gpu_nodes)
    if not gpu_nodes and not told:
        told.append(
            warning("no node shares its cards yet.", "kubectl label node NODE aliquot.dev/gpu-node=true")
        )
    if agent is None and gpu_nodes and not told:
        told.append(
            not_checked(
                "aliquot-agent is not installed here: whether an agent keeps the GPUNodes true is not known",
                "aliquot doctor --node looks at each node.",
            )
        )
    cards = sum(len(node.status.cards) for node in gpu_nodes.values())
    yield from told or [
        ok(f"{count(cards, 'card')} on {count(len(gpu_nodes), 'node')}, all known to the kubelet")
    ]


def _cards(gpu_nodes: Mapping[str, GPUNode]) -> Iterator[Told]:
    """Cards that are not well, and nodes that have none."""
    sick = [
        f"{name}: card {card.index} {card.reason or card.health}"
        for name, node in gpu_nodes.items()
        for card in node.status.cards
        if not card.healthy
    ]
    if sick:
        yield warning(f"cards that are not healthy: {some(sick)}", "docs/alerts.md says what to do.", sick)
    empty = [name for name, node in gpu_nodes.items() if not node.status.cards]
    if empty:
        yield warning(f"nodes without a card: {some(empty)}", "See the driver: aliquot doctor --node.", empty)


def _gone(names: set[str]) -> Iterator[Told]:
    if names:
        yield warning(
            f"GPUNodes of nodes that are gone: {some(names)}", "kubectl delete gpunode NAME", sorted(names)
        )


def _without_inventory(cluster: Cluster, agent: Workload | None, known: set[str]) -> Iterator[Told]:
    if agent is None:
        return
    silent = [
        node.metadata.name
        for node in cluster.nodes.get()
        if node.metadata.name not in known and node.ready and agent.meant_for(node)
    ]
    if silent:
        yield failure(
            f"nodes meant for agents that have published nothing: {some(silent)}",
            f"See the agent there (kubectl -n {cluster.namespace} get pods -o wide): a taint that it does not "
            "tolerate, or a driver that does not answer.",
            sorted(silent),
        )


def _without_agent(cluster: Cluster, agent: Workload | None, known: set[str]) -> Iterator[Told]:
    """Nodes whose GPUNode nobody keeps true."""
    if agent is None:
        return
    kept = {
        pod.spec.node_name
        for pod in cluster.own_pods.get()
        if pod.metadata.labels.get("app.kubernetes.io/component") == "agent"
        and any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
    }
    if stale := known - kept:
        yield failure(
            f"no agent that is ready keeps the inventory of {some(stale)}: it may be old, and new pods do not start "
            "there.",
            f"kubectl -n {cluster.namespace} get pods -o wide --selector app.kubernetes.io/component=agent; delete the "
            "GPUNode of a node that shares its cards no more.",
            sorted(stale),
        )


def _differs(gpu_node: GPUNode, node: Node, slices: str) -> bool:
    """Whether the kubelet offers other slices than the cards that are well make; ids in use may stay beyond them."""
    status = gpu_node.status
    whole = [card for card in status.cards if not card.mig_enabled]
    least = status.slices_per_card * sum(card.healthy for card in whole)
    try:
        offered = parse_quantity(node.status.allocatable.get(slices, 0))
    except QuantityError:
        return True
    return offered < least or (bool(offered) and not whole)


def slices(cluster: Cluster) -> Iterator[Told]:
    """Pods whose slices lead nowhere: no placement, cards or nodes that are gone, ends that never come."""
    nodes = {node.metadata.name: node for node in cluster.nodes.get()}
    cards = {
        node.metadata.name: {card.uuid for card in node.status.cards} for node in cluster.gpu_nodes.get()
    }
    mig_only = {pod.key for pod in cluster.pods.get().found if not _wants_slices(pod, cluster.names)}
    bound = [
        pod
        for pod in cluster.pods.get().found
        if pod.spec.node_name and not pod.finished and (holds(pod, cluster.names) or _placed(pod))
    ]
    unplaced, wrong, lost, lasting = list[str](), list[str](), list[str](), list[str]()
    for pod in bound:
        node = nodes.get(pod.spec.node_name)
        if node is None or not node.ready:
            lost.append(pod.key)
        if _overdue(cluster, pod):
            lasting.append(pod.key)
        if not _placed(pod):
            unplaced += [] if pod.key in mig_only else [pod.key]
        elif reason := _wrong(pod, cards.get(pod.spec.node_name, set())):
            wrong.append(f"{pod.key} ({reason})")
    told = list(_stranded(unplaced, wrong, lost, lasting))
    yield from cluster.pods.get().conclude(
        told, f"{count(len(bound), 'pod')} with slices, each on cards that are there"
    )


def _stranded(unplaced: list[str], wrong: list[str], lost: list[str], lasting: list[str]) -> Iterator[Told]:
    if unplaced:
        yield failure(
            f"pods that were bound without a placement: {some(unplaced)}. They never start: their node waits for one.",
            "Delete them, and see who binds: spec.nodeName, or a scheduler other than aliquot-scheduler.",
            unplaced,
        )
    if wrong:
        yield failure(
            f"pods with a placement that is not true: {some(wrong)}",
            "Delete them; they are placed anew.",
            wrong,
        )
    if lost:
        yield warning(
            f"pods with slices on nodes that are gone or not ready: {some(lost)}",
            "Their cards stay promised. Mend the node, or delete the pods (kubectl delete pod --force once the node "
            "is surely off).",
            lost,
        )
    if lasting:
        yield warning(
            f"pods that should have ended {ENDING_S // 60} minutes ago and hold their slices: {some(lasting)}",
            "See finalizers (kubectl get pod -o yaml) and processes that do not end on the node.",
            lasting,
        )


def _wants_slices(pod: Pod, names: ResourceNames) -> bool:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return any(name in names.slices for c in containers for name in c.resources.limits)


def _placed(pod: Pod) -> bool:
    return PLACEMENT_ANNOTATION in pod.metadata.annotations


def _wrong(pod: Pod, cards: set[str]) -> str:
    """Why a placement is not true; empty where it is."""
    try:
        placement = read_placement(pod.metadata.annotations, PLACEMENT_ANNOTATION, pod.metadata.uid)
    except PlacementError as error:
        return str(error)
    assert placement is not None  # noqa: S101 - the annotation is there
    if placement.node != pod.spec.node_name:
        return f"it is for node {placement.node}"
    named = {share.uuid for container in placement.containers for share in container.cards}
    return f"the node has no card {some(named - cards)}" if named - cards else ""


def _overdue(cluster: Cluster, pod: Pod) -> bool:
    """The API server sets deletionTimestamp to the moment at which the pod should have ended."""
    return cluster.seconds_since(pod.metadata.deletion_timestamp) > ENDING_S
