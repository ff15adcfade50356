"""Which pods, moved elsewhere, would make room for a pod: the fewest, then those with the least memory.

Told, never done. Each of the pods, as the API server has it, has been found a place on another node, beside the others
and within its namespace's quotas. What else binds a pod to its node (affinity, taints, volumes, CPU) is not looked at
here; pods of DaemonSets and of the node itself stay.

Looked at are the `MOST_NODES` nodes that lack least, and `MOST_SETS` sets of pods of theirs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from aliquot.kube.listing import Listing
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.placement import Charge, Placement
from aliquot.policy import Policy
from aliquot.request import PodRequest, RequestError, SliceRequest
from aliquot.units import MIB, format_bytes
from aliquot.why import Change, ChangeKind, Move
from scheduler_ext.choose import slices_of
from scheduler_ext.filter import Filter
from scheduler_ext.fit import fit
from scheduler_ext.ledger import Stage
from scheduler_ext.reasons import Reason
from scheduler_ext.survey import roomy
from scheduler_ext.table import CardTable, memory_needed
from scheduler_ext.victims import Leaver, least

MOST_NODES: Final = 64
MOST_SETS: Final = 8
MOST_TRIES: Final = 8
"""Nodes on which a pod that would move is tried, of those with room on their cards."""
COST_OF_FIRST: Final = 20
COST_OF_MORE: Final = 10
"""What moving a pod weighs against taking less, in percent of what is asked for."""


BOUND_TO_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Owners whose pods are made again where they were."""


class PodLister(Protocol):
    """What is needed of the API server; `aliquot.kube.api.Api` has it."""

    async def list(
        self, resource: Resource[Pod], namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[Pod]:
        """Read all pods that a selector picks; ApiError when that fails."""


@dataclass(frozen=True)
class Leaving:
    """Pods that would have to leave a node, and what they hold in all."""

    memory_mib: int
    node: str
    leavers: tuple[Leaver, ...]

    @property
    def key(self) -> tuple[int, int, str]:
        """Fewest first, then those that hold least."""
        return len(self.leavers), self.memory_mib, self.node


class Moves:
    """Looks for pods to move."""

    def __init__(self, api: PodLister, decide: Filter) -> None:
        """Look for nothing yet.

        Args:
            api: The cluster.
            decide: Who would answer.
        """
        self._api = api
        self._filter = decide
        self._ledger = decide.ledger

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
        for leaving in sorted(sets, key=lambda one: one.key)[:MOST_SETS]:
            requests = await self._requests(leaving)
            moves = requests and self._places(leaving, requests)
            if moves:
                return _change(leaving, moves)
        return None

    async def _requests(self, leaving: Leaving) -> list[PodRequest]:
        """What each of the pods asks for; nothing where one of them would not go elsewhere."""
        listed = await self._api.list(PODS, field_selector=f"spec.nodeName={leaving.node}")
        pods = {pod.metadata.uid: pod for pod in listed.items}
        found = []
        for leaver in leaving.leavers:
            pod = pods.get(leaver.uid)
            if pod is None or any(owner.kind in BOUND_TO_NODE for owner in pod.metadata.owner_references):
                return []
            try:
                found.append(self._filter.request_of(pod))
            except RequestError:
                return []  # it would not be let in again
        return found

    def _nearest(self, request: PodRequest, nodes: Sequence[str]) -> list[str]:
        """The nodes that lack least of what the largest container asks for."""
        if len(nodes) <= MOST_NODES:
            return list(nodes)
        wanted = max(slices_of(request), key=lambda one: (one.cards, one.memory_mib or 0))
        lacking = _lacking(self._ledger.table.at(self._ledger.table.rows_of(nodes)), wanted)
        order = np.argsort(lacking, kind="stable")[:MOST_NODES]
        return [nodes[n] for n in order.tolist() if np.isfinite(lacking[n])]

    def _leaving(self, request: PodRequest, node: str) -> Leaving | None:
        """The fewest pods that have to leave a node, and of those the ones that hold least."""
        bound = [e for e in self._ledger.on(node) if e.stage is Stage.BOUND]
        leavers = [
            Leaver(e.uid, e.charges, since=-_memory(e.charges)) for e in sorted(bound, key=lambda e: e.uid)
        ]
        found = least(request, node, self._ledger.table.cards(node), leavers, Policy.BINPACK)
        return Leaving(int(-sum(one.since for one in found)), node, found) if found else None

    def _places(self, leaving: Leaving, requests: Sequence[PodRequest]) -> list[Move]:
        """Where each of them would go, the largest first; nothing where one has nowhere to go."""
        table = self._ledger.table.twin()
        held = {one.uid: _memory(one.charges) for one in leaving.leavers}
        moves = []
        for request in sorted(requests, key=lambda one: (-held[one.uid], one.uid)):
            there = self._place(request, held[request.uid], table, leaving.node)
            if there is None:
                return []
            for uuid, charge in there.charges().items():
                table.charge(there.node, uuid, charge, 1)
            moves.append(
                Move(
                    uid=request.uid,
                    memory_mib=held[request.uid],
                    from_node=leaving.node,
                    to_node=there.node,
                )
            )
        return moves

    def _place(self, request: PodRequest, held_mib: int, table: CardTable, left: str) -> Placement | None:
        """A place for a pod on any node but the one that it leaves, where it takes no more than it has."""
        names = sorted(name for name in table.nodes() if name != left)
        for name in roomy(table, request, names)[:MOST_TRIES]:
            found = fit(request, name, table.cards(name), Policy.BINPACK)
            if found is None or _memory(found.charges()) > held_mib:
                continue  # a percentage of a larger card, or a pod that was made smaller
            if not self._filter.quotas.refusal(request.namespace, found, anew=True):
                return found
        return None


def _lacking(part: CardTable, wanted: SliceRequest) -> np.ndarray:
    """How much is missing on the best cards of each node, in cards; infinite where no leaving helps."""
    need, room = memory_needed(part, wanted), part.room(wanted)
    memory = np.maximum(need - part.left(wanted.burst), 0) / np.maximum(part.usable, 1)
    cores = np.maximum(wanted.cores - (part.usable_cores - part.cores), 0) / np.maximum(part.usable_cores, 1)
    alone = part.slots * (wanted.exclusive | (part.holders > 0))
    each = np.where(room.big_enough, memory + cores + alone, np.inf)
    missing: np.ndarray = np.sort(each, axis=0)[: wanted.cards].sum(axis=0)
    return missing


def _memory(charges: Mapping[str, Charge]) -> int:
    """What a pod holds of all its cards, in MiB."""
    return sum(charge.memory_mib for charge in charges.values())


def _change(leaving: Leaving, moves: Sequence[Move]) -> Change:
    count = len(moves)
    pods = "1 pod" if count == 1 else f"{count} pods"
    return Change(
        kind=ChangeKind.MOVES,
        text=f"move {pods} ({format_bytes(leaving.memory_mib * MIB)} in all) off node {leaving.node}, for "
        f"{'which' if count == 1 else 'each of which'} there is room elsewhere",
        nodes=1,
        moves=tuple(moves),
        cost=COST_OF_FIRST + (count - 1) * COST_OF_MORE,
    )
