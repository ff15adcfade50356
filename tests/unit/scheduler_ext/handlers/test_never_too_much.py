"""Memory promised on a card never exceeds what it has: random histories against an independent judge.

A small world stands for the API server: it stores pods, applies Bindings, loses answers, and delivers what
happened to the extender later, in order. The judge reads the annotations of the world's bound pods as plain
JSON and adds up what runs at the same time; it shares no code with the ledger.
"""

import asyncio
import contextlib
import itertools
import json
from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aliquot.kube.answers import ApiError
from aliquot.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.controllers.ledger_cleanup import LedgerCleanup
from aliquot.scheduler_ext.handlers.bind import Binder, BindError
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs, FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.tools.examples import examples
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.world import World, WorldPod

NODES = {"n0": ["n0-a", "n0-b"], "n1": ["n1-a"], "n2": ["n2-a", "n2-b"]}
CARD_GIB, SLICES_PER_CARD, LONG = 16, 3, 1000.0
OFFERED = {"n0": 4, "n1": 3, "n2": 6}
"""Slices that kubelets have: the first has fewer than its cards' agent says."""


def judge(world: World) -> dict[str, tuple[int, int, int]]:
    """Card → MiB, percent and slices that the world's running pods may hold at the same time."""
    held: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for pod in world.pods.values():
        if not pod.node or pod.phase != "Pending":
            continue
        document = json.loads(pod.annotations["aliquot.dev/placement"])
        for uuid, worst in _worst(document["containers"]).items():
            held[uuid] = [a + b for a, b in zip(held[uuid], worst, strict=True)]
    return {uuid: (mib, cores, slices) for uuid, (mib, cores, slices) in held.items()}


def slices_of(spec: PodSpec) -> int:
    """Device ids that a kubelet gives to a pod: an init container's go to those after it, a sidecar keeps its own."""
    lasting = most = 0
    for container in spec.init_containers:
        asked = int(container.resources.limits["aliquot.dev/gpu"])
        most = max(most, lasting + asked)
        lasting += asked if container.restart_policy == "Always" else 0
    return max(most, lasting + sum(int(c.resources.limits["aliquot.dev/gpu"]) for c in spec.containers))


def _worst(containers: list[dict]) -> dict[str, list[int]]:
    """One pod's greatest hold on each card over all moments of its life."""
    worst: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for moment in range(len(containers)):
        starting = containers[moment]
        now = [c for c in containers[:moment] if c["kind"] != "init"] + [starting]
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for share in itertools.chain.from_iterable(c["cards"] for c in now):
            one = (share["memoryMiB"], share["cores"], 1)
            sums[share["uuid"]] = [a + b for a, b in zip(sums[share["uuid"]], one, strict=True)]
        for uuid, total in sums.items():
            worst[uuid] = [max(a, b) for a, b in zip(worst[uuid], total, strict=True)]
    return worst


def resources(gib: int, cores: int, cards: int) -> ResourceRequirements:
    """A container's request; 0 GiB and 0 cores is a whole card."""
    limits = {"aliquot.dev/gpu": str(cards)}
    if gib:
        limits["aliquot.dev/gpu-mem"] = f"{gib}Gi"
    if cores:
        limits["aliquot.dev/gpu-core"] = str(cores)
    return ResourceRequirements(limits=limits)


CONTAINER = st.tuples(
    st.builds(resources, st.integers(1, 11), st.sampled_from([0, 0, 30, 60]), st.sampled_from([1, 1, 2])),
    st.sampled_from(["regular", "regular", "init", "sidecar"]),
)

CONTAINERS = st.lists(CONTAINER, min_size=1, max_size=3)
KEYS = st.sampled_from([f"p{n}" for n in range(8)])
OFFERS = [tuple(NODES), tuple(NODES), ("n0",), ("n1",), ("n1", "n2")]


class History(RuleBasedStateMachine):
    """Everything that can happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.now = 0.0
        self.count = itertools.count()
        self.told: dict[str, tuple[str, str]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.answering = asyncio.Lock()

    @initialize()
    def start(self) -> None:
        """A fresh extender reads the cluster as it is now."""
        self.ledger = Ledger(lambda: self.now)
        foreign = ForeignPlugins(())
        self.filter = Filter(self.ledger, foreign, Placer(self.ledger.table))
        self.binder = Binder(self.world, self.ledger, Placer(self.ledger.table))
        self.keeper = LedgerCleanup(self.ledger, self.binder, lambda: self.now)
        self.resizer = resizer(self.world, self.ledger)
        self.feed = ClusterInformer(None, self.ledger, foreign, self.resizer)  # type: ignore[arg-type] - its reflectors never run
        self.sick: set[str] = set()
        for name, slices in OFFERED.items():
            self.publish(name)
            self.ledger.hosts.put_node(name, HostShare(1 << 20, 1 << 20, slices))
        self.world.events.clear()
        for pod in self.world.pods.values():
            self.world.note("ADDED", pod)
        self.deliver(len(self.world.events))

    def teardown(self) -> None:
        """End what is still under way."""
        self.flush()
        self.loop.close()

    def publish(self, name: str) -> None:
        """The agent of a node writes its GPUNode."""
        cards = [card(uuid, gib=CARD_GIB, healthy=uuid not in self.sick) for uuid in NODES[name]]
        self.ledger.put_node(name, node(*cards, slices=SLICES_PER_CARD))

    def run(self, *, rounds: int = 5) -> None:
        """Let everything go on that can."""
        for _ in range(rounds):
            self.loop.run_until_complete(asyncio.sleep(0))

    def flush(self) -> None:
        """Let everything that is under way arrive, and what follows from it."""
        while self.world.held:
            self.world.held.pop(0).set()
            self.run(rounds=50)
        assert all(task.done() for task in self.tasks)
        for task in self.tasks:
            task.result()
        self.tasks.clear()

    def deliver(self, count: int) -> None:
        """Show the extender what happened longest ago."""
        for kind, seen in self.world.events[:count]:
            if kind == "DELETED":
                self.feed.drop_pod(seen.metadata.uid)
            else:
                self.feed.put_pod(seen)
        del self.world.events[:count]

    def create(self, key: str, containers: list[tuple[ResourceRequirements, str]]) -> None:
        """A pod is created, perhaps under a name that was used before."""
        made = [
            (Container(name=f"c{n}", resources=r, restart_policy="Always" if k == "sidecar" else ""), k)
            for n, (r, k) in enumerate(containers)
        ]
        spec = PodSpec(
            containers=tuple(c for c, kind in made if kind == "regular"),
            init_containers=tuple(c for c, kind in made if kind != "regular"),
        )
        meta = ObjectMeta(name=key, namespace="default", uid=f"uid-{next(self.count)}")
        self.world.pods[key] = WorldPod(Pod(metadata=meta, spec=spec))
        self.world.note("ADDED", self.world.pods[key])

    @rule(key=KEYS, containers=CONTAINERS, offered=st.sampled_from(OFFERS))
    def schedule(
        self, key: str, containers: list[tuple[ResourceRequirements, str]], offered: tuple[str, ...]
    ) -> None:
        """kube-scheduler asks where a new or a waiting pod may go, perhaps on stale knowledge."""
        if key not in self.world.pods:
            self.create(key, containers)
        pod = self.world.pods[key].pod
        answer = self.filter.answer(FilterArgs(Pod=pod, NodeNames=offered))
        if answer.NodeNames:
            (where,) = answer.NodeNames
            assert where in offered
            self.told[pod.metadata.uid] = (key, where)

    @rule(sizes=st.lists(st.sampled_from([1, 2, 4, 6, 9]), min_size=3, max_size=8))
    def crowd(self, sizes: list[int]) -> None:
        """Small pods fill the cluster; all goes well for them."""
        for gib in sizes:
            key = f"crowd-{next(self.count)}"
            self.schedule(key, [(resources(gib, 0, 1), "regular")], tuple(NODES))
            if key in {told for told, _ in self.told.values()}:
                self.bind(0, None, "good")

    @precondition(lambda self: self.told)
    @rule(
        back=st.integers(0, 5),
        elsewhere=st.sampled_from([None, None, None, *NODES]),
        line=st.sampled_from(["good", "good", "good", "slow", "lost before", "lost after", "down"]),
    )
    def bind(self, back: int, elsewhere: str | None, line: str) -> None:
        """kube-scheduler binds a pod to a node it was told of at some time, or to another."""
        uid, (key, where) = list(self.told.items())[-1 - back % len(self.told)]
        args = BindArgs(PodName=key, PodNamespace="default", PodUID=uid, Node=elsewhere or where)
        self.world.line = line
        self.tasks.append(self.loop.create_task(self.attempt(args)))
        self.run()
        self.world.line = "good"

    async def attempt(self, args: BindArgs) -> None:
        """One bind call; a success must be true."""
        try:
            await self.binder.bind(args)
        except BindError:
            return
        pod = self.world.pods.get(args.PodName)
        if pod is not None and pod.pod.metadata.uid == args.PodUID:
            assert pod.node == args.Node

    @rule()
    def arrive(self) -> None:
        """Slow Bindings arrive."""
        self.flush()

    @precondition(lambda self: self.world.events)
    @rule(count=st.integers(1, 4))
    def watch(self, count: int) -> None:
        """The watch catches up a little."""
        self.deliver(count)

    @precondition(lambda self: self.world.pods)
    @rule(which=st.integers(0, 20), how=st.sampled_from(["deleted", "finished"]))
    def leave(self, which: int, how: str) -> None:
        """A pod goes."""
        key = list(self.world.pods)[which % len(self.world.pods)]
        pod = self.world.pods[key]
        if how == "deleted":
            del self.world.pods[key]
            self.world.note("DELETED", pod)
        else:
            pod.phase = "Succeeded"
            self.world.note("MODIFIED", pod)

    @precondition(lambda self: self.world.pods)
    @rule(which=st.integers(0, 20), gib=st.integers(1, 14), cores=st.sampled_from([None, "none", "20", "70"]))
    def ask(self, which: int, gib: int, cores: str | None) -> None:
        """Somebody asks for other limits of a pod."""
        pod = self.world.pods[list(self.world.pods)[which % len(self.world.pods)]]
        asked = {"aliquot.dev/resize-gpu-mem": f"{gib}Gi"}
        asked |= {"aliquot.dev/resize-gpu-core": cores} if cores else {}
        pod.annotations = {**pod.annotations, **asked}
        self.world.note("MODIFIED", pod)

    @rule(line=st.sampled_from(["good", "good", "slow", "lost before", "lost after", "down"]))
    def resize(self, line: str) -> None:
        """The extender answers the asks it has seen."""
        self.world.line = line
        self.tasks.append(self.loop.create_task(self.answer()))
        self.run()
        self.world.line = "good"

    async def answer(self) -> None:
        """One round of answers, which the API server's absence may cut short; only one goes on at a time."""
        async with self.answering:
            with contextlib.suppress(ApiError):
                await self.resizer.answer()

    @rule()
    def kill(self) -> None:
        """The extender is killed and started again."""
        self.flush()
        self.start()

    @rule(seconds=st.sampled_from([1.0, 6.0, LONG]), line=st.sampled_from(["good", "down"]))
    def wait(self, seconds: float, line: str) -> None:
        """Time passes."""
        self.now += seconds
        self.world.line = line
        self.loop.run_until_complete(self.keeper.tidy())
        self.world.line = "good"

    @rule(uuid=st.sampled_from(sorted(itertools.chain(*NODES.values()))))
    def sicken(self, uuid: str) -> None:
        """A card breaks or recovers."""
        self.sick ^= {uuid}
        self.publish(uuid.split("-", maxsplit=1)[0])

    @invariant()
    def no_card_is_promised_twice(self) -> None:
        """What the judge counts fits every card, whatever happened."""
        for uuid, (mib, cores, slices) in judge(self.world).items():
            assert mib <= CARD_GIB * GIB, f"{uuid}: {mib} MiB promised"
            assert cores <= 100, f"{uuid}: {cores} percent promised"
            assert slices <= SLICES_PER_CARD, f"{uuid}: {slices} slices promised"

    @invariant()
    def no_kubelet_is_asked_for_more_than_it_has(self) -> None:
        """It would fail the pod for good."""
        held = dict.fromkeys(OFFERED, 0)
        for stored in self.world.pods.values():
            if stored.node and stored.phase == "Pending":
                held[stored.node] += slices_of(stored.pod.spec)
        assert all(held[name] <= slices for name, slices in OFFERED.items()), held

    @invariant()
    def the_ledger_adds_up(self) -> None:
        """The table is the sum of the entries."""
        for name in NODES:
            on_node = [e.charges for e in self.ledger.entries() if e.node == name]
            for state in self.ledger.table.cards(name):
                mine = [charges[state.uuid] for charges in on_node if state.uuid in charges]
                assert state.used_mib == sum(charge.memory_mib for charge in mine)
                assert state.used_slots == sum(charge.slots for charge in mine)


History.TestCase.settings = examples(50, stateful_step_count=60)
TestHistory = History.TestCase
