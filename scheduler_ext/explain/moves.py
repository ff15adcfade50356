"""Which pods, moved elsewhere, would make room for a pod: the fewest, then those with the least memory.

Told, never done. Each of the pods, as the API server has it, has been found a place on another node, beside the others
and within its namespace's quotas: with cards, CPU and memory for it, where its affinity, its tolerations and its
neighbours let it be (`node_constraints`; volumes are not looked at). Pods that a disruption budget lets nobody evict
stay.

Looked at are the `MOST_NODES` nodes that lack least, and `MOST_SETS` sets of pods of theirs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aliquot.api.why import Change, ChangeKind, Move
from aliquot.request.host_resources import NO_HOST, HostShare
from aliquot.request.placement import Charge, Placement
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import PodRequest, RequestError, SliceRequest
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.cards.feasibility import Feasibility, memory_needed
from aliquot.scheduler_ext.cards.fit import fit
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.placement.node_survey import roomy
from aliquot.scheduler_ext.placement.placer import slices_of
from aliquot.scheduler_ext.placement.reasons import Reason
from aliquot.scheduler_ext.preemption.victims import Victim, least
from aliquot.scheduler_ext.state.ledger import Stage
from aliquot.scheduler_ext.state.node_constraints import NodeConstraints, Reader, Tenant
from aliquot.units import MIB, format_bytes

MOST_NODES: Final = 64
MOST_SETS: Final = 8
MOST_TRIES: Final = 24
"""Nodes on which a pod that would move is tried, of those with room; each is read from the API server, once."""
COST_OF_FIRST: Final = 20
COST_OF_MORE: Final = 10
"""What moving a pod weighs against taking less, in percent of what is asked for."""


def evict_any(_uid: str) -> bool:
    """Where nothing is known of disruption budgets, they keep nobody."""
    return False


@dataclass(frozen=True)
class Leaving:
    """Pods that would have to leave a node, and what they hold in all."""

    memory_mib: int
    node: str
    leavers: tuple[Victim, ...]

    @property
    def key(self) -> tuple[int, int, str]:
        """Fewest first, then those that hold least."""
        return len(self.leavers), self.memory_mib, self.node


@dataclass(frozen=True)
class Mover:
    """A pod that would move.

    Attributes:
        pod: As the API server has it.
        request: What it asks for.
        held_mib: What it holds now.
        nodes: Where it may go to, as far as its cards, CPU and memory are concerned.
    """

    pod: Tenant
    request: PodRequest
    held_mib: int
    nodes: tuple[str, ...]


class Moves:
    """Looks for pods to move."""

    def __init__(self, api: Reader, decide: Filter, kept: Callable[[str], bool]) -> None:
        """Look for nothing yet.

        Args:
            api: The cluster.
            decide: Who would answer.
            kept: Whether the pod of a UID may not be evicted.
        """
        self._api = api
        self._filter = decide
        self._ledger = decide.ledger
        self._kept = kept

    async def find(self, request: PodRequest, refused: Mapping[str, Reason]) -> Change | None:
        """What would have to move so that a pod has room, if that can be; other work goes on between two nodes.

        Args:
            request: What the pod asks for, which has no room.
            refused: Why each of the nodes to which it may go has none.

        Raises:
            ApiError: the API server does not say what the pods are that would move.
        """
        sets = []
        for node in self._nearest(request, [node for node, why in refused.items() if why.curable]):
            await asyncio.sleep(0)
            leaving = self._leaving(request, node)
            if leaving is not None:
                sets.append(leaving)
        node_constraints = NodeConstraints(self._api)
        for leaving in await self._willing(
            request, sorted(sets, key=lambda one: one.key)[:MOST_SETS], node_constraints
        ):
            movers = await self._movers(leaving, node_constraints)
            places = movers and self._places(movers, node_constraints)
            if places and self._lets_in(request, leaving.node, movers, places):
                return _change(leaving, movers, places)
        return None

    async def _willing(
        self, request: PodRequest, sets: Sequence[Leaving], node_constraints: NodeConstraints
    ) -> list[Leaving]:
        """The sets on the same nodes without the pods that are to stay where they are."""
        found = []
        for leaving in sets:
            await node_constraints.visit(leaving.node)
            staying = {pod.metadata.uid for pod in node_constraints.on(leaving.node) if pod.stays}
            others = self._leaving(request, leaving.node, staying)
            if others is not None:
                found.append(others)
        return sorted(found, key=lambda one: one.key)

    async def _movers(self, leaving: Leaving, node_constraints: NodeConstraints) -> list[Mover]:
        """Each of the pods, the largest first, once the nodes with room for it have been read; none if one has gone."""
        pods = {pod.metadata.uid: pod for pod in node_constraints.on(leaving.node)}
        movers = []
        for leaver in leaving.leavers:
            mover = self._mover(pods.get(leaver.uid), _memory(leaver.charges), leaving.node)
            if mover is None:
                return []
            movers.append(mover)
        for name in dict.fromkeys(name for mover in movers for name in mover.nodes):
            await node_constraints.visit(name)
        return sorted(movers, key=lambda one: (-one.held_mib, one.request.uid))

    def _mover(self, pod: Tenant | None, held_mib: int, left: str) -> Mover | None:
        """A pod, and the nodes with room for it; None when it has gone."""
        if pod is None:
            return None
        try:
            request = self._filter.request_of(pod)
        except RequestError:
            return None  # it would not be let in again
        table = self._ledger.table
        shut = self._filter.shut_to(pod) | {left}
        names = self._filter.offered_to(pod, sorted(n for n in table.nodes() if n not in shut), request.host)
        return Mover(pod, request, held_mib, tuple(roomy(table, request, names)[:MOST_TRIES]))

    def _nearest(self, request: PodRequest, nodes: Sequence[str]) -> list[str]:
        """The nodes that lack least of what the largest container asks for."""
        if len(nodes) <= MOST_NODES:
            return list(nodes)
        wanted = max(slices_of(request), key=lambda one: (one.cards, one.memory_mib or 0))
        lacking = _lacking(self._ledger.table.at(self._ledger.table.rows_of(nodes)), wanted)
        order = np.argsort(lacking, kind="stable")[:MOST_NODES]
        return [nodes[n] for n in order.tolist() if np.isfinite(lacking[n])]

    def _leaving(
        self, request: PodRequest, node: str, staying: Container[str] = frozenset()
    ) -> Leaving | None:
        """The fewest pods that have to leave a node, and of those the ones that hold least; some stay in any case."""
        bound = [
            e
            for e in self._ledger.on(node)
            if e.stage is Stage.BOUND and e.uid not in staying and not self._kept(e.uid)
        ]
        leavers = [
            Victim(e.uid, e.charges, since=-_memory(e.charges)) for e in sorted(bound, key=lambda e: e.uid)
        ]
        found = least(request, node, self._ledger.table.cards(node), leavers, Policy.BINPACK)
        hosts = self._ledger.hosts
        freed = sum(hosts.of(one.uid).slices for one in found or ())
        if hosts.slices_left(node) + freed < request.host.slices:
            return None
        return Leaving(int(-sum(one.since for one in found)), node, found) if found else None

    def _places(self, movers: Sequence[Mover], node_constraints: NodeConstraints) -> list[Placement]:
        """Where each of them would go; nothing where one has nowhere to go."""
        table, places = self._ledger.table.twin(), list[Placement]()
        taken = defaultdict[str, HostShare](HostShare)
        for mover in movers:
            there = self._place(mover, table, taken, node_constraints)
            if there is None:
                return []
            for uuid, charge in there.charges().items():
                table.charge(there.node, uuid, charge, 1)
            taken[there.node] += mover.request.host
            places.append(there)
        return places

    def _lets_in(
        self, request: PodRequest, node: str, movers: Sequence[Mover], places: Sequence[Placement]
    ) -> bool:
        """Whether quotas let in the pod and those that move for it, each as the last one to come.

        They may take the last CPU or slice of a node, and what others are guaranteed is no longer to be had there.
        """
        ledger, uids = self._ledger, [mover.request.uid for mover in movers]
        with self._filter.waiting.trial(), ledger.without(*uids, request.uid):
            own = fit(request, node, ledger.table.cards(node), Policy.BINPACK)
            if own is None:
                return False
            come = [
                (request, own),
                *((mover.request, there) for mover, there in zip(movers, places, strict=True)),
            ]
            for one, there in come:
                ledger.reserve(one, there)
            lets_in = all(self._lets_in_last(one, there.node) for one, there in come)
            ledger.release(request.uid)
        return lets_in

    def _lets_in_last(self, request: PodRequest, node: str) -> bool:
        """Whether quotas let a pod into a node where it has a place, had it none."""
        with self._ledger.without(request.uid):
            return node not in self._filter.barred(request)

    def _place(
        self,
        mover: Mover,
        table: CardTable,
        taken: Mapping[str, HostShare],
        node_constraints: NodeConstraints,
    ) -> Placement | None:
        """A place for a pod on another node, where it takes no more than it has.

        Those that move with it are no neighbours that it would mind, for it has been beside them; `taken` is their CPU
        and memory on each node.
        """
        request, kept = mover.request, self._filter.host_kept_from(mover.pod)
        for name in mover.nodes:
            beside = taken[name] + kept.get(name, NO_HOST)
            if not self._ledger.hosts.with_room([name], beside + request.host):
                continue
            if not node_constraints.admit(mover.pod, name):
                continue
            found = fit(request, name, table.cards(name), Policy.BINPACK)
            if found is None or _memory(found.charges()) > mover.held_mib:
                continue  # a percentage of a larger card, or a pod that was made smaller
            if not self._filter.quotas.refusal(request.namespace, found, anew=True):
                return found
        return None


def _lacking(part: CardTable, wanted: SliceRequest) -> np.ndarray:
    """How much is missing on the best cards of each node, in cards; infinite where no leaving helps."""
    need, room = memory_needed(part, wanted), Feasibility(part, wanted)
    memory = np.maximum(need - part.left(wanted.burst), 0) / np.maximum(part.usable, 1)
    cores = np.maximum(wanted.cores - (part.usable_cores - part.cores), 0) / np.maximum(part.usable_cores, 1)
    alone = part.slots * (wanted.exclusive | (part.holders > 0))
    each = np.where(room.big_enough, memory + cores + alone, np.inf)
    missing: np.ndarray = np.sort(each, axis=0)[: wanted.cards].sum(axis=0)
    return missing


def _memory(charges: Mapping[str, Charge]) -> int:
    """What a pod holds of all its cards, in MiB."""
    return sum(charge.memory_mib for charge in charges.values())


def _change(leaving: Leaving, movers: Sequence[Mover], places: Sequence[Placement]) -> Change:
    count = len(places)
    pods = "1 pod" if count == 1 else f"{count} pods"
    return Change(
        kind=ChangeKind.MOVES,
        text=f"move {pods} ({format_bytes(leaving.memory_mib * MIB)} in all) off node {leaving.node}, for "
        f"{'which' if count == 1 else 'each of which'} there is room elsewhere",
        nodes=1,
        moves=tuple(
            Move(
                uid=mover.request.uid,
                memory_mib=mover.held_mib,
                from_node=leaving.node,
                to_node=there.node,
            )
            for mover, there in zip(movers, places, strict=True)
        ),
        cost=COST_OF_FIRST + (count - 1) * COST_OF_MORE,
    )
