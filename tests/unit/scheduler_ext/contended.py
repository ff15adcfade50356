"""Groups on nodes that are full, and the worker that evicts for groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.scheduler_ext.controllers.gang_preemption import GangPreemption
from aliquot.scheduler_ext.controllers.gang_reasons import GangExtenderPreemption, GangReclaim
from aliquot.scheduler_ext.preemption.evictions import Evictions
from aliquot.scheduler_ext.state.ledger import Stage
from tests.unit.scheduler_ext.drill import pod_in
from tests.unit.scheduler_ext.preemption.test_lone_members import Preempting

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod

PATIENCE = 5.0


class Contended(Preempting):
    """Two nodes with four cards each, and groups that have others evicted."""

    def __init__(self) -> None:
        super().__init__()
        self.worker = self.leader()

    def leader(self, reclaim: GangReclaim = GangReclaim()) -> GangPreemption:  # noqa: B008 - it is frozen
        """A process that leads from now on."""
        return GangPreemption(
            self.gangs,
            self.filter,
            self.candidates,
            self.nominations,
            evictions=Evictions(self.world, self.candidates, lambda: self.now),
            grounds=[reclaim, GangExtenderPreemption()],
            clock=lambda: self.now,
            patience_seconds=PATIENCE,
        )

    def waits(
        self, name: str, count: int, priority: int = 100, *, gib: int = 16, needs: int = 0
    ) -> list[Pod]:
        """A group all of whose members kube-scheduler has asked for in vain."""
        pods = [pod_in(name, gib, priority=priority) for _ in range(count)]
        self.needs(name, needs or count)
        self.create(*pods)
        assert not any(self.where(pod) for pod in pods)
        return pods

    def rounds(self, seconds: float = PATIENCE + 1) -> list[str]:
        """Who is evicted in a round, some seconds later."""
        before = len(self.world.evicted)
        self.pass_time(seconds)
        self.holds_reviewed()
        asyncio.run(self.worker.look())
        return sorted(self.world.evicted[before:])

    def holds_reviewed(self) -> None:
        """As the worker for pods without a group does each second."""
        self.nominations.review()

    def node_of(self, pod: Pod) -> str:
        """Where a pod runs."""
        entry = self.ledger.entry(pod.metadata.uid)
        assert entry is not None
        return entry.node

    def held(self, pods: list[Pod]) -> int:
        """For how many of these a place is held."""
        entries = [self.ledger.entry(pod.metadata.uid) for pod in pods]
        return sum(1 for entry in entries if entry and entry.stage is Stage.HELD)

    def leaving(self, pods: list[Pod]) -> list[Pod]:
        """Those of these that were evicted; the watch shows them as leaving."""
        found = [pod for pod in pods if pod.metadata.name in self.world.evicted]
        for pod in found:
            self.show(pod, leaving=True)
        return found
