"""Small clusters of any kind, for hypothesis: cards, tenants, quotas and pods that want in."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st

from aliquot.crds.gpu_node import HEALTHY, UNHEALTHY, Card, GPUNode, GPUNodeStatus, Nic
from aliquot.crds.gpu_pool import GPUPool, PoolSpec, pooled_as
from aliquot.crds.gpu_quota import GPUQuota
from aliquot.kube.objects import Node, ObjectMeta, Pod
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes, KnownNodes
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import GIB

if TYPE_CHECKING:
    from aliquot.dialects import Dialect

MODELS = ("NVIDIA H200", "Tesla T4")
NUMBERS = itertools.count()
POOL = GPUPool(
    metadata=ObjectMeta(name="loose"),
    spec=PoolSpec(models=MODELS[1:], memory_percent=150, core_percent=200, reserve_mib=512),
)


@dataclass
class Cluster:
    """An extender's parts over some nodes, without an API server.

    Attributes:
        known: What the cluster's objects say.
        offered: Slices that kubelets have to give; of other nodes as many as anybody wants.
    """

    nodes: dict[str, GPUNodeStatus]
    quotas_of: list[GPUQuota] = field(default_factory=list)
    known: KnownNodes = field(default_factory=lambda: KnownNodes({}, {}, {"loose": POOL}))
    dialects: tuple[Dialect, ...] = ()
    offered: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = 0.0
        self.settled: dict[str, Pod] = {}
        self.ledger = Ledger(lambda: self.now)
        self.quotas = Quotas(self.ledger.accounts)
        self.placer = Placer(self.ledger.table)
        foreign = ForeignPlugins(self.dialects)
        self.filter = Filter(self.ledger, foreign, self.placer, dialects=self.dialects, quotas=self.quotas)
        self.dry_run = DryRun(self.filter, HypotheticalNodes(self.known))
        for name, status in self.nodes.items():
            self.put(name, status)
        for name, slices in self.offered.items():
            self.ledger.hosts.put_node(name, HostShare(0, 0, slices))
        for quota in self.quotas_of:
            self.quotas.put(quota)

    def put(self, name: str, status: GPUNodeStatus) -> None:
        """A node's agent publishes its cards."""
        pools = {card.model: pooled_as([POOL], {}, card.model) for card in status.cards}
        self.ledger.put_node(name, status, lambda model: pools[model].spec)
        self.ledger.put_pools(name, {card.uuid: pools[card.model].name for card in status.cards})
        self.known.nodes[name] = Node(metadata=ObjectMeta(name=name))  # type: ignore[index]
        self.known.gpu_nodes[name] = GPUNode(metadata=ObjectMeta(name=name), status=status)  # type: ignore[index]

    def ask(self, pod: Pod, *nodes: str) -> FilterResult:
        """What the real filter says; it reserves."""
        return self.filter.answer(FilterArgs(Pod=pod, NodeNames=nodes or tuple(self.nodes)))

    def takes(self, pod: Pod, *nodes: str) -> str:
        """The node that filter chooses, as if it had not been asked; empty when none has room."""
        twin = renamed(pod)
        chosen = self.ask(twin, *nodes).NodeNames
        self.ledger.release(twin.metadata.uid)
        return chosen[0] if chosen else ""

    def settle(self, pod: Pod, *nodes: str) -> None:
        """A pod is placed and bound, where it has room."""
        self.ask(pod, *nodes)
        entry = self.ledger.entry(pod.metadata.uid)
        if entry is not None:
            self.ledger.confirm(entry.uid, entry.placement, namespace=pod.metadata.namespace)
            self.settled[entry.uid] = pod

    def state(self) -> tuple[object, ...]:
        """All that filter could have changed, but for counters of the table."""
        table, ledger = self.ledger.table, self.ledger
        cards = {name: table.cards(name) for name in sorted(table.nodes())}
        entries = {entry.uid: entry for entry in ledger.entries()}
        used = {name: ledger.accounts.used("", name) for name in ledger.accounts.namespaces()}
        counted = (dict(self.quotas.refusals), list(self.placer.demand.asked()), len(self.filter.waiting))
        return cards, entries, {e.uid for e in ledger.unconfirmed()}, used, counted


def renamed(pod: Pod) -> Pod:
    """The same pod under another UID."""
    meta = msgspec.structs.replace(pod.metadata, uid=f"twin-{next(NUMBERS)}")
    return msgspec.structs.replace(pod, metadata=meta)


def pod_document(
    containers: list[dict[str, str]], namespace: str = "a", init: int = 0, **annotations: str
) -> dict[str, Any]:
    """A pod of containers with these limits; the first `init` are init containers."""
    made = [
        {"name": f"c{n}", "resources": {"limits": {f"aliquot.dev/{key}": v for key, v in c.items()}}}
        for n, c in enumerate(containers)
    ]
    number = next(NUMBERS)
    written = {f"aliquot.dev/{key.replace('_', '-')}": value for key, value in annotations.items() if value}
    meta = {"name": f"pod-{number}", "namespace": namespace, "uid": f"uid-{number}", "annotations": written}
    return {"metadata": meta, "spec": {"initContainers": made[:init], "containers": made[init:]}}


def _container(kind: str, amount: int, cores: int, cards: int) -> dict[str, str]:
    limits = {"gpu": str(cards)}
    if kind == "memory":
        limits["gpu-mem"] = f"{amount}Gi"
    elif kind == "percent":
        limits["gpu-mem-percent"] = str(amount * 4)
    if kind != "whole" and cores:
        limits["gpu-core"] = str(cores)
    return limits


KINDS = st.sampled_from(["memory", "memory", "memory", "percent", "whole"])
CONTAINER = st.builds(
    _container, KINDS, st.integers(1, 25), st.sampled_from([0, 0, 30, 60, 100]), st.sampled_from([1, 1, 1, 2])
)
ONLY = st.sampled_from(
    [{}, {}, {}, {"card_model": MODELS[0]}, {"not_card_model": MODELS[0]}, {"card_uuid": "n1-0"}]
)

WIRING = st.sampled_from([{}, {}, {}, {"topology": "nvlink"}, {"topology": "numa"}, {"rdma": "pcie"}])


@st.composite
def pods(draw: st.DrawFn, most: int = 3) -> dict[str, Any]:
    """A pod that asks for something, as a document."""
    containers = draw(st.lists(CONTAINER, min_size=1, max_size=most))
    init = draw(st.integers(0, len(containers) - 1))
    extra = draw(ONLY) | draw(WIRING) | draw(st.sampled_from([{}, {}, {"memory_class": "burst"}]))
    if "memory_class" in extra and any(len(c) == 1 for c in containers):
        extra.pop("memory_class")
    return pod_document(containers, draw(st.sampled_from(["a", "b"])), init, **extra)


def read(document: dict[str, Any]) -> Pod:
    """A pod as the extender reads it."""
    return msgspec.convert(document, Pod)


@st.composite
def statuses(draw: st.DrawFn, name: str) -> GPUNodeStatus:
    """A node of one to three cards of one model, now and then a sick or divided one."""
    model, count = draw(st.sampled_from(MODELS)), draw(st.integers(1, 3))
    gib = draw(st.sampled_from([8, 16, 24]))
    health = st.sampled_from([HEALTHY, HEALTHY, HEALTHY, HEALTHY, UNHEALTHY])
    mig = st.sampled_from([False, False, False, False, True])
    cards = [
        Card(
            uuid=f"{name}-{n}",
            index=n,
            model=model,
            memory_mib=gib * GIB,
            health=draw(health),
            mig_enabled=draw(mig),
            links=" ".join(draw(st.sampled_from(["SYS", "NODE", "NODE4"])) for _ in range(n)),
            pcie_root=draw(st.sampled_from(["", "pci0000:15"])),
        )
        for n in range(count)
    ]
    nics = draw(st.sampled_from([(), (Nic(name="mlx5_0", pcie_root="pci0000:15"),)]))
    return GPUNodeStatus(slices_per_card=draw(st.sampled_from([2, 10])), cards=tuple(cards), nics=nics)


AMOUNT = st.fixed_dictionaries({}, optional={"memoryMiB": st.integers(0, 60).map(lambda gib: gib * GIB)})


@st.composite
def clusters(draw: st.DrawFn, tenants: int = 8) -> Cluster:
    """Up to five nodes, with tenants that found room, and now and then quotas."""
    names = [f"n{n}" for n in range(draw(st.integers(1, 5)))]
    quotas = []
    for team in draw(st.lists(st.sampled_from(["a", "b"]), unique=True, max_size=2)):
        spec: dict[str, Any] = {"namespaces": [team], "guaranteed": draw(AMOUNT), "limit": draw(AMOUNT)}
        if draw(st.booleans()):
            spec["pool"] = "loose"
        quotas.append(msgspec.convert({"metadata": {"name": team}, "spec": spec}, GPUQuota))
    offered = draw(st.dictionaries(st.sampled_from(names), st.integers(0, 4), max_size=2))
    cluster = Cluster({name: draw(statuses(name)) for name in names}, quotas, offered=offered)
    for document in draw(st.lists(pods(2), max_size=tenants)):
        cluster.settle(read(document))
    return cluster


def tenant(cluster: Cluster, node: str, **limits: str) -> str:
    """A pod that is bound to a node; its UID."""
    pod = read(pod_document([{key.replace("_", "-"): value for key, value in limits.items()}]))
    cluster.settle(pod, node)
    return pod.metadata.uid
