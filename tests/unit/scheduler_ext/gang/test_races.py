"""Groups and single pods race for too few cards, with late and lost writes, restarts and pods that go.

Every history comes from a seed, which a failure prints. After every step: no card is promised beyond what it has, and a
group holds places for as many as it needs, or none. At every write: as many of the group have places as it needs. In
the end, with nothing going wrong any more, every group and every pod has had its turn.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from aliquot.scheduler_ext.handlers.bind import placement_of
from tests.unit.scheduler_ext.drill import LABEL, NODES, Drill, pod_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aliquot.kube.objects import Pod

STEPS = 150
LONGEST_END = 3000


class Race:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.drill = Drill(patience=0.002, saving=30.0)
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, int] = {}
        self.served: set[str] = set()
        self.tasks: set[asyncio.Task[str]] = set()
        self._watch_writes()

    def _watch_writes(self) -> None:
        write = self.drill.world.bind_pod

        async def bind_pod(
            namespace: str, name: str, uid: str, where: str, annotations: Mapping[str, str]
        ) -> None:
            self.check_write(uid)
            await write(namespace, name, uid, where, annotations)

        self.drill.world.bind_pod = bind_pod  # type: ignore[method-assign]

    def members(self, group: str) -> list[Pod]:
        """A group's pods."""
        return [pod for pod in self.pods.values() if pod.metadata.labels.get(LABEL) == group]

    def create(self, group: str = "") -> None:
        """Another pod."""
        pod = pod_in(group, self.random.choice([4, 8, 12, 16]))
        self.pods[pod.metadata.uid] = pod
        self.drill.create(pod)

    def create_group(self) -> None:
        """Another group, some of which are larger than they need to be, or are not all there yet."""
        name, needs = f"g{len(self.groups)}", self.random.randint(2, 4)
        self.groups[name] = needs
        self.drill.needs(name, needs)
        for _ in range(needs + self.random.choice([-1, 0, 0, 1])):
            self.create(name)

    def schedule(self) -> None:
        """kube-scheduler takes up a pod, and binds it while it goes on."""
        waiting = [p for uid, p in self.pods.items() if not self.on_its_way(uid)]
        if not waiting:
            return
        pod = self.random.choice(waiting)
        nodes = self.random.choice([NODES, NODES, NODES[:1], NODES[1:]])
        where = self.drill.where(pod, nodes)
        if where and self.random.random() < 0.9:
            self.tasks.add(asyncio.create_task(self.drill.bind(pod, where)))

    def on_its_way(self, uid: str) -> bool:
        """Whether kube-scheduler has nothing to do for it."""
        entry = self.drill.ledger.entry(uid)
        return self.drill.bound(self.pods[uid]) == 1 or (entry is not None and entry.stage.value == "binding")

    def leave(self, pod: Pod) -> None:
        """A pod is deleted, or done."""
        del self.pods[pod.metadata.uid]
        self.drill.leave(pod)

    def finish(self) -> None:
        """The pods that are bound, and groups of which enough are, have done their work."""
        for name, needs in self.groups.items():
            members = self.members(name)
            if members and self.drill.bound(*members) >= needs:
                self.served.add(name)
                for pod in members:
                    self.leave(pod)
        for pod in [p for p in self.pods.values() if not p.metadata.labels and self.drill.bound(p)]:
            self.leave(pod)

    def restart(self) -> None:
        """The extender is killed; a fresh one reads what is bound."""
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()
        old, self.drill = self.drill, Drill(patience=0.002, saving=30.0)
        self.drill.now = old.now
        self.drill.world.pods = old.world.pods
        self._watch_writes()
        for name, needs in self.groups.items():
            self.drill.needs(name, needs)
        for uid, pod in self.pods.items():
            made = old.world.pods[pod.metadata.name]
            placement = placement_of(made.annotations, uid, made.node) if made.node else None
            self.drill.ledger.confirm(uid, placement, namespace="default")
            self.drill.see(pod)

    def check(self) -> None:
        """What must hold at all times."""
        for name in NODES:
            for card in self.drill.ledger.table.cards(name):
                assert card.used_mib <= card.usable_mib
        for gang in self.drill.gangs.all():
            if gang.since is not None:
                assert gang.whole, gang.key
            elif gang is not self.drill.gangs.saver:
                assert not (gang.held and gang.needed), gang.key

    def check_write(self, uid: str) -> None:
        """What must hold when a pod is bound."""
        group = self.pods[uid].metadata.labels.get(LABEL)
        if group:
            assert self.drill.holds(*self.members(group)) >= self.groups[group], group

    async def run(self) -> None:
        """Something happens; something else does; in the end all is well."""
        actions = [self.schedule] * 12 + [self.create_group, self.create, self.finish]
        for _ in range(STEPS):
            await self.step(self.random.choice(actions))
            if self.random.random() < 0.02:
                await self.step(self.restart)
            if self.pods and self.random.random() < 0.02:
                await self.step(lambda: self.leave(self.random.choice(list(self.pods.values()))))
        await self.end()

    async def step(self, action: object) -> None:
        """One action, on a line that may be bad, and a little time."""
        assert callable(action)
        self.drill.world.line = self.random.choice(["good"] * 8 + ["conflict", "lost before", "lost after"])
        action()
        await asyncio.sleep(self.random.choice([0.0, 0.0, 0.003]))
        self.drill.pass_time(self.random.choice([0.0, 1.0, 5.0]))
        self.check()
        await self.settle()

    async def settle(self) -> None:
        """The keeper asks what became of writes without an answer; the calls that are over are forgotten."""
        for entry in self.drill.ledger.unconfirmed():
            if entry.stage.value == "uncertain" and self.drill.world.line == "good":
                await self.drill.binder.settle(entry)
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            task.result()

    async def end(self) -> None:
        """Nothing goes wrong any more: whoever lacks members gets them, and all have their turn."""
        for name, needs in self.groups.items():
            if name not in self.served:
                for _ in range(needs - len(self.members(name))):
                    self.create(name)
        for _ in range(LONGEST_END):
            if not self.pods:
                break
            self.drill.world.line = "good"
            self.finish()
            self.schedule_all()
            await asyncio.sleep(0.0)
            self.drill.pass_time(3.0)
            self.check()
            await self.settle()
        assert [(p.metadata.name, p.metadata.labels) for p in self.pods.values()] == []
        await asyncio.gather(*self.tasks)

    def schedule_all(self) -> None:
        """Each pod that waits is asked for once, in any order, on all nodes."""
        waiting = [pod for uid, pod in self.pods.items() if not self.on_its_way(uid)]
        self.random.shuffle(waiting)
        for pod in waiting:
            where = self.drill.where(pod)
            if where:
                self.tasks.add(asyncio.create_task(self.drill.bind(pod, where)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_groups_race_for_too_few_cards(number: int):
    """All that must hold holds, and nobody waits for ever."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    asyncio.run(Race(seed).run())
