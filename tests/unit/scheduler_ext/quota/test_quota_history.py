"""Quotas over random histories, each decision compared with a plain model that adds everything up anew."""

import asyncio
import itertools
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aliquot.request.placement import encode_placement
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.handlers.bind import Binder, BindError
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs, FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.tools.examples import examples
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.quota_model import NODES, SLOTS, TEAMS, Model, Team, Vector, peak
from tests.unit.scheduler_ext.teams import native, pod_of, quota
from tests.unit.scheduler_ext.world import World, WorldPod

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod

LIMITS = st.fixed_dictionaries(
    {"gpu": st.sampled_from(["1", "1", "2"])},
    optional={
        "gpu-mem": st.sampled_from(["1Gi", "2Gi", "3Gi", "5Gi", "8Gi"]),
        "gpu-core": st.sampled_from(["20", "50"]),
    },
)
PERCENT = st.sampled_from([{"gpu-mem-percent": "25"}, {"gpu-mem-percent": "60", "gpu-core": "30"}])
CONTAINERS = st.lists(st.one_of(LIMITS, PERCENT), min_size=1, max_size=3)
AMOUNTS = st.tuples(
    st.sampled_from([None, 4, 8, 16, 30]),
    st.sampled_from([None, None, 60, 150]),
    st.sampled_from([None, None, 2, 5]),
)
GUARANTEES = st.tuples(
    st.sampled_from([None, 8, 40, 70]),
    st.sampled_from([None, 60, 150, 400]),
    st.sampled_from([None, 2, 8, 16]),
)
SMALLER = st.tuples(st.sampled_from([None, None, 4, 10]), st.none(), st.sampled_from([None, 1, 3]))
QUOTAS = st.builds(
    Team,
    name=st.sampled_from(["q1", "q2", "q3"]),
    namespaces=st.lists(st.sampled_from(TEAMS[:3]), min_size=1, max_size=2, unique=True).map(tuple),
    pool=st.sampled_from(["", "", "x"]),
    guaranteed=GUARANTEES,
    limit=AMOUNTS,
    pod_max=SMALLER,
    parent=st.sampled_from(["", "", "q1", "q2", "q3"]),
    reclaim=st.booleans(),
)


def made_at(ledger: Ledger, uid: str) -> str:
    """A pod's placement as its annotation has it."""
    entry = ledger.entry(uid)
    assert entry is not None
    return encode_placement(entry.placement)


class QuotaHistory(RuleBasedStateMachine):
    """Pods, resizes, quotas, pools, cards and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.model, self.now = World(), Model(), 0.0
        self.loop = asyncio.new_event_loop()
        self.count = itertools.count()
        self.waiting: dict[str, tuple[Pod, list[dict[str, str]], int]] = {}

    @initialize(teams=st.lists(QUOTAS, min_size=1, max_size=2))
    def begin(self, teams: list[Team]) -> None:
        """Some quotas are there from the start."""
        self.model.quotas = {team.name: team for team in teams}
        self.start()

    def start(self) -> None:
        """A fresh extender reads the cluster as it is now; what was reserved is forgotten."""
        self.ledger = Ledger(lambda: self.now)
        self.quotas = Quotas(self.ledger.accounts)
        foreign = ForeignPlugins(())
        self.filter = Filter(self.ledger, foreign, Placer(self.ledger.table), quotas=self.quotas)
        self.binder = Binder(self.world, self.ledger, Placer(self.ledger.table), quotas=self.quotas)
        self.resizer = resizer(self.world, self.ledger, self.quotas)
        self.feed = ClusterInformer(None, self.ledger, foreign, self.resizer)  # type: ignore[arg-type] - its reflectors never run
        for name in NODES:
            self.publish(name)
        for team in self.model.quotas.values():
            self.write(team)
        for namespace, gib in self.model.natives.items():
            self.quotas.put_native(native(namespace, gpu_mem=f"{gib}Gi"))
        self.world.events.clear()
        for pod in self.world.pods.values():
            self.world.note("ADDED", pod)
        bound = {pod.pod.metadata.uid for pod in self.world.pods.values() if pod.node}
        self.model.pods = {uid: pod for uid, pod in self.model.pods.items() if uid in bound}
        self.watch()

    def teardown(self) -> None:
        """Nothing is under way."""
        self.loop.close()

    def publish(self, name: str) -> None:
        """A node's agent writes its cards."""
        cards = [
            card(uuid, gib=gib, healthy=uuid not in self.model.sick) for uuid, gib in NODES[name].items()
        ]
        self.ledger.put_node(name, node(*cards, slices=SLOTS))
        self.ledger.put_pools(name, {uuid: self.model.pools.get(uuid, "") for uuid in NODES[name]})

    def watch(self) -> None:
        """The watch catches up."""
        for kind, seen in self.world.events:
            if kind == "DELETED":
                self.feed.drop_pod(seen.metadata.uid)
            else:
                self.feed.put_pod(seen)
        self.world.events.clear()

    def write(self, team: Team) -> None:
        """The admin writes a quota."""
        spec = {"guaranteed": team.guaranteed, "limit": team.limit, "podMax": team.pod_max}
        more = {"pool": team.pool, "parent": team.parent, "reclaim": team.reclaim}
        self.quotas.put(quota(team.name, *team.namespaces, **more, **spec))

    def demand(self, containers: list[dict[str, str]], init: int, name: str) -> dict[str, Vector]:
        """The most that a pod can take on a node: of all cards, and of each pool there."""
        found = {}
        for pool in {"", *(self.model.pools.get(uuid, "") for uuid in NODES[name])}:
            sizes = [gib for uuid, gib in NODES[name].items() if pool in ("", self.model.pools.get(uuid, ""))]
            kinds = ["init" if n < init else "regular" for n in range(len(containers))]
            found[pool] = peak(
                [(k, self.amounts(c, max(sizes) * GIB)) for k, c in zip(kinds, containers, strict=True)]
            )
        return found

    def amounts(self, limits: dict[str, str], mib: int) -> Vector:
        """What one container takes of cards of this size."""
        cards, cores = int(limits.get("gpu", "1")), int(limits.get("gpu-core", "0"))
        if "gpu-mem" in limits:
            mib = int(limits["gpu-mem"].removesuffix("Gi")) * GIB
        elif "gpu-mem-percent" in limits:
            mib = mib * int(limits["gpu-mem-percent"]) // 100
        elif cores:
            mib = mib * cores // 100
        else:
            cores = 100
        return (mib * cards, cores * cards, cards)

    @rule(namespace=st.sampled_from(TEAMS), containers=CONTAINERS, init=st.integers(0, 2), bind=st.booleans())
    def schedule(self, namespace: str, containers: list[dict[str, str]], init: int, bind: bool) -> None:
        """A new pod is filtered: barred are exactly the nodes that the model bars, and a place is within the quota."""
        init = min(init, len(containers) - 1)
        made = pod_of(namespace, *containers, init=init, uid=f"uid-{next(self.count)}")
        self.world.pods[made.metadata.name] = WorldPod(made)
        self.waiting[made.metadata.uid] = (made, containers, init)
        self.filter_again(made.metadata.uid)
        if bind and made.metadata.uid in self.model.pods:
            self.bind(0, None)

    def filter_again(self, uid: str) -> None:
        """One filter call, before which the pod has nothing."""
        made, containers, init = self.waiting[uid]
        self.model.pods.pop(uid, None)
        namespace = made.metadata.namespace
        barred = {n for n in NODES if not self.model.allows(namespace, self.demand(containers, init, n))}
        answer = self.filter.answer(FilterArgs(Pod=made, NodeNames=tuple(NODES)))
        said = {n for n, why in answer.FailedAndUnresolvableNodes.items() if "uota" in why}
        if answer.NodeNames:
            assert barred.isdisjoint(answer.NodeNames)
            self.admit(uid, namespace)
        else:
            assert said == barred

    def admit(self, uid: str, namespace: str) -> None:
        """A pod has got a place: the model must allow it, and counts it from now on."""
        text = made_at(self.ledger, uid)
        assert self.model.allows(namespace, self.model.takes(text))
        self.model.pods[uid] = (namespace, text)

    @rule(namespace=st.sampled_from(TEAMS), gib=st.integers(2, 8), count=st.integers(2, 6))
    def crowd(self, namespace: str, gib: int, count: int) -> None:
        """A namespace takes what it can get."""
        for _ in range(count):
            self.schedule(namespace, [{"gpu-mem": f"{gib}Gi", "gpu-core": "10"}], 0, True)  # noqa: FBT003

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 20))
    def again(self, which: int) -> None:
        """kube-scheduler tries a pod again."""
        self.filter_again(list(self.waiting)[which % len(self.waiting)])

    @precondition(lambda self: self.waiting)
    @rule(back=st.integers(0, 5), elsewhere=st.sampled_from([None, None, *NODES]))
    def bind(self, back: int, elsewhere: str | None) -> None:
        """A pod is bound where it was placed, or elsewhere, with or without a reservation."""
        uid = list(self.waiting)[-1 - back % len(self.waiting)]
        made, _, _ = self.waiting[uid]
        meta, entry = made.metadata, self.ledger.entry(uid)
        where = elsewhere or (entry.node if entry else "n0")
        anew = entry is None or entry.node != where
        if anew:
            self.model.pods.pop(uid, None)
        try:
            self.loop.run_until_complete(self.binder.bind(BindArgs(meta.name, meta.namespace, uid, where)))
        except BindError:
            assert self.ledger.entry(uid) is None
            self.model.pods.pop(uid, None)
            return
        del self.waiting[uid]
        self.watch()
        if anew:
            self.admit(uid, meta.namespace)
        else:
            self.model.pods[uid] = (meta.namespace, made_at(self.ledger, uid))

    @precondition(lambda self: self.world.pods)
    @rule(which=st.integers(0, 20))
    def leave(self, which: int) -> None:
        """A pod is deleted."""
        name = list(self.world.pods)[which % len(self.world.pods)]
        gone = self.world.pods.pop(name)
        self.world.note("DELETED", gone)
        self.watch()
        self.model.pods.pop(gone.pod.metadata.uid, None)
        self.waiting.pop(gone.pod.metadata.uid, None)

    @precondition(lambda self: any(pod.node for pod in self.world.pods.values()))
    @rule(which=st.integers(0, 20), gib=st.integers(1, 12), cores=st.sampled_from([None, "none", "20", "70"]))
    def resize(self, which: int, gib: int, cores: str | None) -> None:
        """A bound pod asks for other limits; what it gets, if it grows, is within the quota."""
        bound = [pod for pod in self.world.pods.values() if pod.node]
        self.ask(bound[which % len(bound)], gib, cores)
        self.settle()

    @rule(namespace=st.sampled_from(TEAMS), gib=st.integers(4, 12))
    def grow(self, namespace: str, gib: int) -> None:
        """All bound pods of a namespace ask at once."""
        for pod in self.world.pods.values():
            if pod.node and pod.pod.metadata.namespace == namespace:
                self.ask(pod, gib, None)
        self.settle()

    def ask(self, pod: WorldPod, gib: int, cores: str | None) -> None:
        """Somebody annotates a pod."""
        asked = {"aliquot.dev/resize-gpu-mem": f"{gib}Gi"}
        asked |= {"aliquot.dev/resize-gpu-core": cores} if cores else {}
        pod.annotations = {**pod.annotations, **asked}
        self.world.note("MODIFIED", pod)

    def settle(self) -> None:
        """Answers the asks that are due; the model must allow each that is approved, in their order."""
        self.watch()
        self.loop.run_until_complete(self.resizer.answer())
        for _, seen in self.world.events:
            uid, namespace = seen.metadata.uid, seen.metadata.namespace
            text = seen.metadata.annotations["aliquot.dev/placement"]
            assert self.model.allows(namespace, self.model.takes(text), uid)
            self.model.pods[uid] = (namespace, text)
        self.watch()

    @rule(team=QUOTAS)
    def put_quota(self, team: Team) -> None:
        """The admin writes a quota, or writes it anew."""
        self.model.quotas[team.name] = team
        self.write(team)

    @precondition(lambda self: self.model.quotas)
    @rule(which=st.integers(0, 5))
    def drop_quota(self, which: int) -> None:
        """The admin deletes a quota."""
        name = list(self.model.quotas)[which % len(self.model.quotas)]
        del self.model.quotas[name]
        self.quotas.drop(name)

    @rule(namespace=st.sampled_from(TEAMS), gib=st.sampled_from([None, 0, 6, 20]))
    def put_native(self, namespace: str, gib: int | None) -> None:
        """A ResourceQuota comes, changes or goes."""
        if gib is None:
            self.model.natives.pop(namespace, None)
            self.quotas.drop_native(namespace, "cards")
        else:
            self.model.natives[namespace] = gib
            self.quotas.put_native(native(namespace, gpu_mem=f"{gib}Gi"))

    @rule(
        name=st.sampled_from(sorted(NODES)),
        pools=st.lists(st.sampled_from(["", "x", "y"]), min_size=2, max_size=2),
    )
    def repool(self, name: str, pools: list[str]) -> None:
        """Labels or pools change."""
        self.model.pools |= dict(zip(NODES[name], pools, strict=False))
        self.publish(name)

    @rule(uuid=st.sampled_from(sorted(itertools.chain(*NODES.values()))))
    def sicken(self, uuid: str) -> None:
        """A card breaks or recovers."""
        self.model.sick ^= {uuid}
        self.publish(uuid.split("-", maxsplit=1)[0])

    @rule(seconds=st.sampled_from([1.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and ends reservations."""
        self.now += seconds
        for uid in self.ledger.expire(660.0):
            self.model.pods.pop(uid, None)

    @rule()
    def kill(self) -> None:
        """The extender is killed and started again."""
        self.start()

    @invariant()
    def the_accounts_add_up(self) -> None:
        """What the extender thinks each namespace has is what its pods have."""
        for namespace in TEAMS:
            for pool in ("", "x", "y"):
                used = self.ledger.accounts.used(pool, namespace)
                assert (used.memory_mib, used.cores, used.cards) == self.model.used((namespace,), pool)
        for pool in ("", "x", "y"):
            free = self.ledger.accounts.free(pool)
            assert (free.memory_mib, free.cores, free.cards) == self.model.free(pool)


QuotaHistory.TestCase.settings = examples(50, stateful_step_count=50)
TestQuotaHistory = QuotaHistory.TestCase
