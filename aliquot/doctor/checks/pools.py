"""GPUPools that no card is in, and cards of which more is promised than pools let them give."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.crds.gpu_node import Card
from aliquot.crds.gpu_pool import GPUPool, PooledAs, PoolSpec, pooled_as
from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.finding import Told, count, failure, some, warning
from aliquot.kube.objects import Pod
from aliquot.request.core_policy import WHOLE
from aliquot.request.placement import Charge, PlacementError, read_placement
from aliquot.units import MIB, format_bytes


def pools(cluster: Cluster) -> Iterator[Told]:
    """Pools by the cards that are in them, and cards by what is promised of them."""
    labels = {node.metadata.name: node.metadata.labels for node in cluster.nodes.get()}
    every, cards, pooled = cluster.pools.get(), list[Card](), dict[str, PooledAs]()
    where = dict[str, str]()
    for node in cluster.gpu_nodes.get():
        here = labels.get(node.metadata.name, {})
        cards += node.status.cards
        where |= {card.uuid: node.metadata.name for card in node.status.cards}
        pooled |= {card.uuid: pooled_as(every, here, card.model) for card in node.status.cards}
    told = list(_empty(cluster, every, {pool.name for pool in pooled.values()})) if cards else []
    promised = _promised(cluster.pods.get().found)
    told += _over_promised({card.uuid: card for card in cards}, pooled, promised, where)
    yield from cluster.pods.get().conclude(
        told, f"{count(len(every), 'GPUPool')}, and nowhere more is promised than may be"
    )


def _empty(cluster: Cluster, every: tuple[GPUPool, ...], used: set[str]) -> Iterator[Told]:
    """Pools that say something of no card; a name or a label is misspelt more often than not."""
    empty = [pool for pool in every if pool.metadata.name not in used]
    if empty:
        yield warning(
            "GPUPools that no card is in: "
            + some(f"{pool.metadata.name} ({_why_empty(cluster, pool)})" for pool in empty),
            "kubectl edit gpupool NAME: spec.nodeSelector as the nodes are labelled, spec.models as kubectl get "
            "gpunodes shows them; or delete it.",
            sorted(pool.metadata.name for pool in empty),
        )


def _why_empty(cluster: Cluster, pool: GPUPool) -> str:
    """What of a pool matches nothing: the first pool by name that matches a card has it."""
    labels = {node.metadata.name: node.metadata.labels for node in cluster.nodes.get()}
    nodes = cluster.gpu_nodes.get()
    selected = PoolSpec(node_selector=pool.spec.node_selector)
    here = [node for node in nodes if selected.matches(labels.get(node.metadata.name, {}), "")]
    if not here:
        wanted = ",".join(f"{key}={value}" for key, value in sorted(pool.spec.node_selector.items()))
        return f"no node with cards has the labels {wanted}"
    models = {card.model for node in here for card in node.status.cards}
    if pool.spec.models and not models & set(pool.spec.models):
        return f"its nodes have {some(repr(model) for model in models) or 'no cards'}"
    return "pools before it by name have all its cards"


def _promised(pods: tuple[Pod, ...]) -> Mapping[str, Charge]:
    """What the placements of pods that have not ended take of each card."""
    taken: dict[str, Charge] = defaultdict(Charge)
    for pod in pods:
        if pod.finished or not pod.spec.node_name:
            continue
        try:
            placement = read_placement(pod.metadata.annotations, PLACEMENT_ANNOTATION, pod.metadata.uid)
        except PlacementError:  # the check of slices tells it
            continue
        for uuid, charge in placement.charges().items() if placement else ():
            taken[uuid] += charge
    return taken


def _over_promised(
    cards: Mapping[str, Card],
    pooled: Mapping[str, PooledAs],
    promised: Mapping[str, Charge],
    where: Mapping[str, str],
) -> Iterator[Told]:
    """Guarantees that the card cannot keep, and overcommitment that no pool allows (any more)."""
    known = promised.keys() & cards.keys()
    over = {
        uuid: f"{where[uuid]}: {uuid} {words}"
        for uuid in known
        if (words := _excess(cards[uuid], pooled[uuid].spec, promised[uuid]))
    }
    broken = sorted(uuid for uuid in over if promised[uuid].guaranteed_mib > cards[uuid].usable_mib)
    if broken:
        yield failure(
            f"cards that cannot keep what they guarantee: {some(over[uuid] for uuid in broken)}",
            "Delete pods there until it fits, or lower the reserve; until then the driver may refuse memory that a "
            "slice has.",
            broken,
        )
    if rest := sorted(over.keys() - set(broken)):
        yield warning(
            f"cards of which more is promised than their GPUPool allows: {some(over[uuid] for uuid in rest)}",
            "A pool that let them give more is gone or says less now. Put it back (memoryPercent, corePercent), or "
            "delete pods there; no new pod gets such a card, and none is stopped.",
            rest,
        )


def _excess(card: Card, pool: PoolSpec, taken: Charge) -> str:
    """What is too much, in words; empty where nothing is."""
    allowed = card.usable_mib * pool.memory_percent // WHOLE
    if taken.memory_mib > allowed or taken.guaranteed_mib > card.usable_mib:
        most = allowed if taken.memory_mib > allowed else card.usable_mib
        much = taken.memory_mib if taken.memory_mib > allowed else taken.guaranteed_mib
        return f"({format_bytes(much * MIB)} of {format_bytes(most * MIB)})"
    return (
        f"({taken.cores} % of {pool.core_percent} % of its time)" if taken.cores > pool.core_percent else ""
    )
