"""Feeds the ledger from the cluster: pods, nodes and the cards their agents publish; and says who asks for a resize.

Nothing is kept of a pod but what the ledger and those beside it keep. One that begins to lead has to know what the
leader before it wrote last. That is so as soon as the watch of pods has come to a resource version which a
consistent read has shown since the election: whatever was written before has an earlier one. Where the watch does not
come that far in the time that reading all pods would take, all pods are read.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from aliquot.api.names import DEFAULT_NAMES, ResourceNames
from aliquot.crds.gpu_node import GPUNode
from aliquot.crds.gpu_pool import PooledAs, pooled_as
from aliquot.crds.resources import GPU_NODES, GPU_POOLS
from aliquot.kube.api import Api
from aliquot.kube.objects import Node, ObjectMeta, version_of
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import NODES, Resource
from aliquot.kube.tracker import Tracker
from aliquot.request.host_resources import read_host
from aliquot.scheduler_ext.controllers.late_placement import LatePlacements
from aliquot.scheduler_ext.explain.hypothetical_nodes import KnownNodes
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.handlers.bind import placement_of
from aliquot.scheduler_ext.handlers.resize import Resizer
from aliquot.scheduler_ext.placement.workload_history import WorkloadHistory
from aliquot.scheduler_ext.placement.workload_model import WorkloadModel
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from aliquot.scheduler_ext.state.pods import PlacedPod, pods_of
from aliquot.scheduler_ext.state.running_pods import RunningPods
from aliquot.scheduler_ext.state.status_rate_limit import StatusRateLimit

if TYPE_CHECKING:
    from aliquot.request.placement import Placement

AGAIN_SECONDS: Final = 10.0
"""Between two attempts to take over the status of nodes that are rate limited."""
READ_PER_SECOND: Final = 20_000
"""Pods, about: so long the watch is waited for instead."""


class ClusterInformer:
    """Keeps the ledger in step with the cluster while `run()` runs."""

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        foreign: ForeignPlugins,
        resizer: Resizer,
        *,
        names: ResourceNames = DEFAULT_NAMES,
        waiting: PendingPods | None = None,
        gangs: Gangs | None = None,
        running_pods: RunningPods | None = None,
        nominations: Nominations | None = None,
        late: LatePlacements | None = None,
        demand: WorkloadModel | None = None,
        statuses: StatusRateLimit | None = None,
    ) -> None:
        self._api = api
        self._doubts: dict[str, tuple[Placement, int]] = {}
        self._experience = WorkloadHistory(demand) if demand is not None else None
        self._gangs = gangs
        self._late = late
        self._ledger = ledger
        self._in_force: dict[str, dict[str, PooledAs]] = {}
        self._latest: dict[str, PooledAs] = {}
        self._pools_due = False
        self._resizer = resizer
        self._slices = names.gpu
        self._waiting = PendingPods() if waiting is None else waiting  # an empty one is false
        self._running_pods = running_pods or RunningPods(ledger)
        self._nominations = nominations
        self._foreign = foreign
        self._statuses = statuses or StatusRateLimit()
        self._cards = Reflector(
            api,
            GPU_NODES,
            on_add=self._put_cards,
            on_update=self._change_cards,
            on_delete=self._drop_cards,
            keep=_with_its_cards,
        )
        self._nodes = Reflector(
            api,
            NODES,
            on_add=self._put_node,
            on_update=self._change_node,
            on_delete=self._drop_node,
            keep=_with_its_labels,
        )
        self._pools = Reflector(
            api,
            GPU_POOLS,
            on_add=lambda _: self._pools_changed(),
            on_update=lambda _, __: self._pools_changed(),
            on_delete=lambda _: self._pools_changed(),
        )
        self._resource = Resource("", "v1", "pods", pods_of(names))
        self._pods = Tracker(
            api, self._resource, on_put=self.put_pod, on_gone=self.drop_pod, others=self._heard_of
        )

    @property
    def pools_known(self) -> asyncio.Event:
        """Set once the server has said which pools there are."""
        return self._pools.answered

    @property
    def known(self) -> KnownNodes:
        """The cluster's nodes, cards and pools, as they are at any time."""
        return KnownNodes(self._nodes.store, self._cards.store, self._pools.store)

    def missing(self) -> str:
        """What has not been read once yet, in words; before that nothing may be promised.

        Pools are not waited for: without them less is promised than with them, never more. Quotas of pools wait.
        """
        waiting = [name for name, reflector in self._all().items() if not reflector.synced.is_set()]
        return f"{', '.join(waiting)} not read yet" if waiting else ""

    async def read(self) -> None:
        """Return once nothing is missing."""
        for reflector in self._all().values():
            await reflector.synced.wait()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gain_experience())
            group.create_task(self._retry_rate_limited())
            group.create_task(self._pools.run())
            for reflector in self._all().values():
                group.create_task(reflector.run())

    async def _gain_experience(self) -> None:
        if self._experience is not None:
            self._experience.begin()
            await self._pods.synced.wait()
            self._experience.end()

    def _all(self) -> dict[str, Reflector[GPUNode] | Reflector[Node] | Tracker[PlacedPod]]:
        return {"gpunodes": self._cards, "nodes": self._nodes, "pods": self._pods}

    def put_pod(self, pod: PlacedPod) -> None:
        """Take over what a pod says of itself."""
        uid = pod.metadata.uid
        if pod.finished:
            self.drop_pod(uid)
        elif pod.spec.node_name:
            self._waiting.forget(uid)
            self._let_go(uid)
            self._confirm(pod)
            self._resizer.see(pod)
        elif self._nominations is not None:
            self._nominations.see(pod)
        if self._gangs is not None:
            self._gangs.see(pod)

    def _confirm(self, pod: PlacedPod) -> None:
        """Have a bound pod in the ledger; what it says that it has of cards."""
        meta, node = pod.metadata, pod.spec.node_name
        uid, version = meta.uid, version_of(meta.resource_version)
        placement = placement_of(meta.annotations, uid, node)
        if self._experience is not None and placement and self._ledger.entry(uid) is None:
            self._experience.note(pod, placement)
        if self._late is None or not self._late.takes(pod, placement):
            self._ledger.confirm(uid, placement, version, meta.namespace)
        self._ledger.hosts.put_pod(uid, node, pod.spec.host)
        entry = self._ledger.entry(uid)
        self._running_pods.put(pod, entry.placement if entry else None)
        if placement is None or entry is None or entry.placement == placement:
            self._doubts.pop(uid, None)
        else:
            self._doubts[uid] = placement, version

    async def catch_up(self) -> None:
        """Take over what all bound pods say at this moment, to the letter.

        For one that begins to lead: the watch may lag behind what the leader before it wrote last, and amounts that
        it made smaller were not believed.

        Raises:
            ApiError: the API server does not say now.
        """
        if not await self._is_current():
            async for page in self._api.pages(self._resource):
                for pod in page.items:
                    self._take_over(pod)
        for uid, (placement, version) in self._doubts.items():
            entry = self._ledger.entry(uid)
            if entry and entry.version <= version and entry.placement.same_place(placement):
                self._ledger.resize(uid, placement, version)
        self._doubts.clear()

    def _take_over(self, pod: PlacedPod) -> None:
        """Confirm a pod of a list, unless the watch was faster: it goes on meanwhile."""
        outdated = self._ledger.departed(pod.metadata.uid) or self._pods.has_later(pod)
        if pod.spec.node_name and not pod.finished and not outdated:
            self._confirm(pod)

    async def _is_current(self) -> bool:
        """Whether the watch of pods has told of all that is true now."""
        version = version_of(await self._api.version(self._resource))
        try:
            async with asyncio.timeout(len(self._pods) / READ_PER_SECOND):
                await self._pods.reach(version)
        except TimeoutError:
            return False
        return version > 0

    def _heard_of(self) -> set[str]:
        """The pods that have something here, or wait: filter and bind may have told of them, and no watch."""
        placed = (entry.uid for entry in self._ledger.entries())
        waiting = (one.request.uid for one in self._waiting.all())
        return {*placed, *waiting, *self._ledger.hosts.pods()}

    def _let_go(self, uid: str) -> None:
        if self._nominations is not None:
            self._nominations.forget(uid)

    def drop_pod(self, uid: str) -> None:
        """Give back all that a pod had, which has finished or is no more."""
        self._let_go(uid)
        self._running_pods.drop(uid)
        self._doubts.pop(uid, None)
        self._ledger.depart(uid)
        self._ledger.hosts.drop_pod(uid)
        self._resizer.forget(uid)
        self._waiting.forget(uid)
        if self._gangs is not None:
            self._gangs.depart(uid)
        if self._late is not None:
            self._late.forget(uid)

    async def _retry_rate_limited(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            self.put_rate_limited()

    def put_rate_limited(self) -> None:
        """Take over the last status of nodes that had changed too often, as far as they may have changed by now."""
        for node in [node for node in map(self._cards.get, self._statuses.over) if node is not None]:
            self._put_cards(node)

    def _put_cards(self, node: GPUNode) -> None:
        name, pools = node.metadata.name, self._pools_of(node)
        if not self._statuses.allows(name, node.status):
            self._ledger.rate_limit_node(name)
            return
        self._in_force[name] = pools
        self._ledger.put_node(name, node.status, lambda model: pools[model].spec)
        self._ledger.put_pools(name, {c.uuid: pools[c.model].name for c in node.status.cards})

    def _change_cards(self, old: GPUNode, new: GPUNode) -> None:
        if old.status != _with_its_cards(new).status:
            self._put_cards(new)

    def _pools_of(self, node: GPUNode) -> dict[str, PooledAs]:
        """The pool of each card model on a node."""
        known = self._nodes.get(node.metadata.name)
        labels = known.metadata.labels if known else {}
        models = {card.model for card in node.status.cards}
        found = {model: pooled_as(self._pools.store.values(), labels, model) for model in models}
        if found != self._latest:  # most nodes are like the one before
            self._latest = found
        return self._latest

    def _pools_changed(self) -> None:
        """Looks at the nodes once for all pools that are told of in one go."""
        if not self._pools_due:
            self._pools_due = True
            asyncio.get_running_loop().call_soon(self.put_pools)

    def put_pools(self) -> None:
        """Take over what the pools say of the nodes for which that has changed."""
        self._pools_due = False
        for node in self._cards.store.values():
            self._heed_pools(node)

    def _heed_pools(self, node: GPUNode) -> None:
        """Write a node's cards anew if other pools have them now."""
        if self._in_force.get(node.metadata.name) != self._pools_of(node):
            self._put_cards(node)

    def _drop_cards(self, node: GPUNode) -> None:
        self._in_force.pop(node.metadata.name, None)
        self._statuses.forget(node.metadata.name)
        self._ledger.drop_node(node.metadata.name)

    def _put_node(self, node: Node) -> None:
        self._foreign.put_node(node)
        self.put_host(node)
        self._put_cards_of(node)

    def _change_node(self, old: Node, new: Node) -> None:
        self._foreign.put_node(new)
        self.put_host(new)
        if old.metadata.labels != new.metadata.labels:
            self._put_cards_of(new)

    def put_host(self, node: Node) -> None:
        """Take over what pods may take of a node, and whether they are sent there.

        A pod may have waited for slices: kube-scheduler, who sees them come too, may have asked before.
        """
        name, whole = node.metadata.name, read_host(node.status.allocatable, self._slices)
        if self._ledger.hosts.put_node(name, whole, closed=_closed(node)):
            self._waiting.something_changed()

    def _put_cards_of(self, node: Node) -> None:
        """A node's labels say which pool its cards are in."""
        cards = self._cards.get(node.metadata.name)
        if cards:
            self._heed_pools(cards)

    def _drop_node(self, node: Node) -> None:
        self._foreign.drop_node(node.metadata.name)
        self._ledger.hosts.drop_node(node.metadata.name)


def _closed(node: Node) -> bool:
    """Whether no pod is sent to a node: it is cordoned, or its kubelet is not ready."""
    conditions = node.status.conditions
    return node.spec.unschedulable or any(one.type == "Ready" and one.status != "True" for one in conditions)


def _with_its_labels(node: Node) -> Node:
    """What is asked for of a node later: which pool its cards are in."""
    return Node(metadata=_lean(node.metadata, node.metadata.labels))


def _with_its_cards(node: GPUNode) -> GPUNode:
    """What is asked for later of what an agent has published: its cards.

    The summary is left out: it changes with every pod, and the extender knows more of them than the agent.
    """
    status = msgspec.structs.replace(node.status, summary=None) if node.status.summary else node.status
    return GPUNode(metadata=_lean(node.metadata, _NOTHING), status=status)


def _lean(meta: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    """Metadata with a name that all who speak of the node have in common, and no annotations."""
    return ObjectMeta(
        name=sys.intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=labels,
        annotations=_NOTHING,
    )


_NOTHING: Final[dict[str, str]] = {}
