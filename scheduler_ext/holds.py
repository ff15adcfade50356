"""Keeps the room that others had to leave for the pod that they left for.

kube-scheduler evicts a pod's victims, writes the node into the pod's `status.nominatedNodeName` and tries the pod again
when they have gone. In between it keeps what it counts itself free for it, and cards it does not count. So a nominated
pod's place is held in the ledger, at the expense of those that are still leaving: nobody of the same or a lower
priority gets it. A pod of higher priority does, if it finds no other place.

A hold ends when the pod gets its place, loses its nomination, or goes. A fresh extender learns of nominations from the
pods themselves. What grows: an entry for each waiting pod that was nominated or whose preemption was asked for.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from aliquot.kube.objects import Pod
from aliquot.placement import Placement
from aliquot.request import PodRequest
from scheduler_ext.evictable import Evictable
from scheduler_ext.ledger import Ledger, Stage
from scheduler_ext.pods import PlacedPod
from scheduler_ext.waiting import Waiting


@dataclass(frozen=True)
class Claim:
    """A waiting pod that room is made for.

    Attributes:
        request: What it asks for.
        priority: Its priority.
        leaving: Who was to leave which node for it, by UID, as far as that was asked here.
    """

    request: PodRequest
    priority: int
    leaving: Mapping[str, tuple[str, ...]]


class Holds:
    """The places that are held."""

    def __init__(self, ledger: Ledger, waiting: Waiting, evictable: Evictable) -> None:
        """Hold nothing yet.

        Args:
            ledger: Where the places are held.
            waiting: Says whom filter refuses.
            evictable: Who may be asked to leave.
        """
        self._ledger = ledger
        self._evictable = evictable
        self._claims: dict[str, Claim] = {}
        self._nominated: dict[str, str] = {}
        self._granted: dict[str, str] = {}
        waiting.on_refusal(self.claim)

    def claim(
        self, pod: Pod, request: PodRequest, leaving: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        """A pod waits for room; `leaving`: by node, who is about to leave for it."""
        known = self._claims.get(request.uid)
        plan = leaving or (known.leaving if known else {})
        self._claims[request.uid] = Claim(request, pod.spec.priority or 0, plan)
        self._keep(request.uid)

    def see(self, pod: PlacedPod) -> None:
        """A waiting pod as the cluster has it: nominated or not."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        if node == self._nominated.get(uid, ""):
            return
        self._let_go(uid)
        if node:
            self._nominated[uid] = node
        else:
            self._nominated.pop(uid, None)
        self._keep(uid)

    def grant(self, uid: str, node: str) -> None:
        """Somebody here has others leave this node for a pod that waits: as good as a nomination."""
        self._granted[uid] = node
        self._keep(uid)

    def granted(self, uid: str) -> str:
        """The node that others leave for a pod by somebody here's doing; empty where there is none."""
        return self._granted.get(uid, "")

    def revoke(self, uid: str) -> None:
        """Nobody leaves a node for this pod any more; what kube-scheduler has nominated stands."""
        self._granted.pop(uid, None)
        self._let_go(uid)
        self._keep(uid)

    def forget(self, uid: str) -> None:
        """A pod has got its place, or is gone."""
        self._nominated.pop(uid, None)
        self._granted.pop(uid, None)
        if self._claims.pop(uid, None) is not None:  # without a claim nothing is held
            self._let_go(uid)

    def node_of(self, uid: str) -> str:
        """The node that a waiting pod is about to get; empty where there is none."""
        return self._granted.get(uid) or self._nominated.get(uid, "")

    def step_aside(self, priority: int) -> list[str]:
        """Give up what is held for pods of lower priority; theirs are the UIDs to hold for again afterwards."""
        lower = [
            uid
            for uid in {**self._nominated, **self._granted}  # few of those that wait
            if (claim := self._claims.get(uid)) and claim.priority < priority and self._held(uid)
        ]
        for uid in lower:
            self._let_go(uid)
        return lower

    @contextmanager
    def aside(self, priority: int) -> Iterator[None]:
        """Nothing is held for pods of lower priority meanwhile."""
        lower = self.step_aside(priority)
        try:
            yield
        finally:
            self.resume(lower)

    def resume(self, uids: Collection[str]) -> None:
        """Hold again what can be held yet for those that have stepped aside."""
        for uid in uids:
            self._keep(uid)

    def _held(self, uid: str) -> bool:
        entry = self._ledger.entry(uid)
        return entry is not None and entry.stage is Stage.HELD

    def _let_go(self, uid: str) -> None:
        if self._held(uid):
            self._ledger.release(uid)

    def _keep(self, uid: str) -> None:
        """Hold the pod's place, if it is known where and what, and it has none."""
        node, claim = self.node_of(uid), self._claims.get(uid)
        if node and claim is not None and self._ledger.entry(uid) is None:
            placement = self._place(claim, node)
            if placement is not None:
                self._ledger.hold(claim.request, placement)

    def _place(self, claim: Claim, node: str) -> Placement | None:
        return self._evictable.place(
            claim.request,
            node,
            lambda pod: pod.priority < claim.priority,
            frozenset(claim.leaving.get(node, ())),
        )
