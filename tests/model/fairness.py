"""What share of the cards' time namespaces get that always have pods waiting, over an hour of virtual time.

The extender is its own composition; kube-scheduler, kubelets and API server are stand-ins. Each namespace has 40 pods
waiting at every moment: whenever one of them is bound, another of its size is created. Pods differ in size and in how
long they run. An hour is measured, after a quarter of one in which the cluster fills.

A pod uses of a card the part of its memory or of its compute time, whichever is more, from its binding to its end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tests.model.api_server import ApiServer, Change, Obj, key_of, merged
from tests.model.kube_scheduler import KubeScheduler
from tests.model.kubelets import Kubelets
from tests.model.objects import CARD_GIB, Machine, Wish, gpu_node_of, node_of, pod_of, pool_of, quota_of
from tests.model.replicas import Replica
from tests.model.virtual_time import CLOCK, Loop

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN_SECONDS: Final = 15.0
WARM_UP_SECONDS: Final = 900.0
MEASURED_SECONDS: Final = 3600.0
WAITING: Final = 40
NODES: Final = 3


@dataclass(frozen=True)
class Crowd:
    """One namespace's pods.

    Attributes:
        sizes: What its pods ask for, as many of each.
        seconds: How long they run, at least and at most.
    """

    sizes: tuple[Wish, ...]
    seconds: tuple[float, float]


@dataclass(frozen=True)
class Contest:
    """Namespaces that compete.

    Attributes:
        crowds: Their pods.
        quotas: By name, as `GPUQuota.spec` has them.
        cards: How many each node has.
    """

    crowds: Mapping[str, Crowd]
    quotas: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    cards: int = 4


MIXED: Final = (Wish(gib=8, never=True), Wish(gib=6, cores=50, never=True), Wish(gib=16, never=True))
SMALL: Final = (Wish(gib=4, never=True), Wish(gib=4, cores=25, never=True))
LARGE: Final = (Wish(gib=0, cards=2, never=True),)
LONG: Final = Crowd(MIXED, (600.0, 1200.0))
SHORT: Final = Crowd(MIXED, (200.0, 400.0))


def _weights(a: int, b: int) -> dict[str, dict[str, Any]]:
    return {"a": {"namespaces": ["a"], "weight": a}, "b": {"namespaces": ["b"], "weight": b}}


CONTESTS: Final = {
    "equal": Contest({"a": LONG, "b": SHORT}, _weights(1, 1)),
    "three-to-one": Contest({"a": SHORT, "b": LONG}, _weights(3, 1), cards=8),
    "no-quotas": Contest({"a": LONG, "b": SHORT}),
    "small-against-large": Contest({"a": Crowd(SMALL, (300.0, 900.0)), "b": Crowd(LARGE, (300.0, 900.0))}),
}


class Meter:
    """Adds up the cards' time that each namespace uses, from a moment on."""

    def __init__(self, cards: int) -> None:
        self._cards = cards
        self._since: dict[str, tuple[str, float, float]] = {}
        self.used: defaultdict[str, float] = defaultdict(float)
        self.begin = 0.0

    def starts(self, uid: str, namespace: str, cards: float) -> None:
        """A pod is bound."""
        self._since[uid] = namespace, cards, CLOCK.now

    def ends(self, uid: str) -> None:
        """A pod has ended."""
        namespace, cards, since = self._since.pop(uid)
        self.used[namespace] += cards * max(0.0, CLOCK.now - max(since, self.begin))

    def shares(self) -> dict[str, float]:
        """Each namespace's part of the cards' time, in percent, and `idle` what nobody used."""
        for uid in list(self._since):
            self.ends(uid)
        whole = (CLOCK.now - self.begin) * self._cards
        shares = {name: 100.0 * used / whole for name, used in sorted(self.used.items())}
        return {**shares, "idle": 100.0 - sum(shares.values())}


class Match:
    """A contest on its cluster."""

    def __init__(self, contest: Contest, seed: int = 0) -> None:
        self._contest = contest
        self._random = random.Random(seed)
        self._wishes: dict[str, Wish] = {}
        self.meter = Meter(NODES * contest.cards)
        self.server = ApiServer()
        self.kubelets = Kubelets(self.server)
        self.replica = Replica("r0", self.server, [])
        self.replica.replicas = [self.replica]
        self.scheduler = KubeScheduler(self.server, [self.replica], offers_empty=True)
        self.server.listeners.append(self._heed)

    async def play(self) -> dict[str, float]:
        """Each namespace's part of the hour, in percent, and `idle`."""
        machine = Machine(self._contest.cards, cpu=256)
        for n in range(NODES):
            self.server.put("nodes", node_of(f"n{n}", machine))
            self.server.put("gpunodes", gpu_node_of(f"n{n}", machine))
        self.server.put("gpupools", pool_of(100))
        for name, spec in self._contest.quotas.items():
            self.server.put("gpuquotas", quota_of(name, spec))
        self.replica.start()
        await asyncio.sleep(BEGIN_SECONDS)
        for n in range(WAITING):
            for namespace, crowd in self._contest.crowds.items():
                self._create(replace(crowd.sizes[n % len(crowd.sizes)], namespace=namespace))
        running = asyncio.create_task(self.scheduler.run())
        try:
            await asyncio.sleep(WARM_UP_SECONDS)
            self.meter.begin = CLOCK.now
            self.meter.used.clear()
            await asyncio.sleep(MEASURED_SECONDS)
            return self.meter.shares()
        finally:
            running.cancel()
            await self.replica.kill()

    def _create(self, wish: Wish) -> None:
        name = f"p{len(self._wishes)}"
        self._wishes[name] = wish
        self.server.put("pods", pod_of(name, wish, CLOCK.stamp()))

    def _heed(self, change: Change) -> None:
        pod, before = change.after, change.before
        bound = change.plural == "pods" and pod is not None and pod["spec"].get("nodeName")
        if not bound or (before and before["spec"].get("nodeName")):
            return
        assert pod is not None
        meta = pod["metadata"]
        wish = self._wishes[meta["name"]]
        part = max(wish.gib / CARD_GIB, wish.cores / 100) if wish.gib else 1.0
        self.meter.starts(meta["uid"], meta["namespace"], wish.cards * part)
        seconds = self._random.uniform(*self._contest.crowds[meta["namespace"]].seconds)
        loop = asyncio.get_running_loop()
        loop.call_soon(self._create, wish)
        loop.call_later(seconds, self._end, pod)

    def _end(self, pod: Obj) -> None:
        self.meter.ends(pod["metadata"]["uid"])
        now = self.server.objects["pods"][key_of(pod)]
        self.server.put("pods", merged(now, {"status": {"phase": "Succeeded"}}))
        self.server.remove("pods", key_of(pod))


def print_shares(name: str) -> None:
    """Play a contest, and print what each namespace got, as JSON."""
    logging.getLogger("aliquot").setLevel(logging.CRITICAL)
    gc.freeze()
    loop = Loop()
    match = Match(CONTESTS[name])
    shares = loop.run(match.play())
    print(json.dumps({"contest": name, **{who: round(share, 1) for who, share in shares.items()}}))
