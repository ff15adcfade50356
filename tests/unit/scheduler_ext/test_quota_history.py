"""Quotas over random histories, each decision compared with a plain model that adds everything up anew.

The model shares no code with the extender: it reads placements as the JSON of their annotation, keeps quotas as
plain tuples, and goes through all pods for every question.
"""

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aliquot.placement import encode_placement
from aliquot.scheduler_ext.bind import Binder, BindError
from aliquot.scheduler_ext.choose import Placer
from aliquot.scheduler_ext.feed import Feed
from aliquot.scheduler_ext.filter import Filter
from aliquot.scheduler_ext.foreign import ForeignAgents
from aliquot.scheduler_ext.ledger import Ledger
from aliquot.scheduler_ext.quotas import Quotas
from aliquot.scheduler_ext.wire import BindArgs, FilterArgs
from tests.tools.examples import examples
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.teams import native, pod_of, quota
from tests.unit.scheduler_ext.world import World, WorldPod

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod

NODES = {"n0": {"n0-a": 16, "n0-b": 16}, "n1": {"n1-a": 16, "n1-b": 8}, "n2": {"n2-a": 24}}
SLOTS = 4
TEAMS = ("a", "b", "c", "d")
Vector = tuple[int, int, int]


def plus(one: Vector, other: Vector) -> Vector:
    """Sum, part by part."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def most(one: Vector, other: Vector) -> Vector:
    """Maximum, part by part."""
    return (max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2]))


def peak(moments: list[tuple[str, Vector]]) -> Vector:
    """The largest sum at any moment of a pod's life."""
    worst: Vector = (0, 0, 0)
    for now, (kind, own) in enumerate(moments):
        sums = own
        for before, amounts in moments[:now]:
            if before != "init":
                sums = plus(sums, amounts)
        worst = most(worst, sums)
        assert kind in ("init", "sidecar", "regular")
    return worst


@dataclass
class Team:
    """One quota as the model has it; None is no bound."""

    name: str
    namespaces: tuple[str, ...]
    pool: str
    guaranteed: tuple[int | None, ...] = (None, None, None)
    limit: tuple[int | None, ...] = (None, None, None)
    pod_max: tuple[int | None, ...] = (None, None, None)
    parent: str = ""
    reclaim: bool = False

    @property
    def guarantee(self) -> Vector:
        """In MiB, percent and cards."""
        gib, cores, cards = (one or 0 for one in self.guaranteed)
        return (gib * GIB, cores, cards)


@dataclass
class Model:
    """Everything that decides, as plain data."""

    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    quotas: dict[str, Team] = field(default_factory=dict)
    natives: dict[str, int] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)
    sick: set[str] = field(default_factory=set)

    def takes(self, text: str) -> dict[str, Vector]:
        """What a placement takes of all cards and of each pool's."""
        return {pool: self.takes_of(text, pool) for pool in ("", "x", "y")}

    def takes_of(self, text: str, pool: str) -> Vector:
        """What a placement takes of a pool (or of all cards)."""
        containers = json.loads(text)["containers"]
        return peak([(c["kind"], self._shares(c["cards"], pool)) for c in containers])

    def _shares(self, shares: list[dict[str, Any]], pool: str) -> Vector:
        mine = [s for s in shares if pool in ("", self.pools.get(s["uuid"], ""))]
        return (sum(s["memoryMiB"] for s in mine), sum(s["cores"] for s in mine), len(mine))

    def used(self, namespaces: tuple[str, ...], pool: str, without: str = "") -> Vector:
        """What all pods of some namespaces have."""
        total: Vector = (0, 0, 0)
        for uid, (namespace, text) in self.pods.items():
            if namespace in namespaces and uid != without:
                total = plus(total, self.takes_of(text, pool))
        return total

    def mine(self, team: Team) -> tuple[str, ...]:
        """The namespaces of a quota that no earlier one of its pool has."""
        earlier = [t for t in self.quotas.values() if t.pool == team.pool and t.name < team.name]
        return tuple(n for n in team.namespaces if not any(n in t.namespaces for t in earlier))

    def free(self, pool: str) -> Vector:
        """What could still be promised; of cards the parts that are free add up."""
        total: Vector = (0, 0, 0)
        for where in NODES.values():
            for uuid, gib in where.items():
                if uuid not in self.sick and pool in ("", self.pools.get(uuid, "")):
                    total = plus(total, self._left(uuid, gib * GIB))
        return (*total[:2], total[2] // 1000)

    def _left(self, uuid: str, mib: int) -> Vector:
        on_it: Vector = (0, 0, 0)
        for _, text in self.pods.values():
            containers = json.loads(text)["containers"]
            shares = [(c["kind"], [s for s in c["cards"] if s["uuid"] == uuid]) for c in containers]
            if any(s["exclusive"] for _, found in shares for s in found):
                return (0, 0, 0)
            on_it = plus(on_it, peak([(kind, self._shares(found, "")) for kind, found in shares]))
        part = min(1000 * (mib - on_it[0]) // mib, 10 * (100 - on_it[1])) if on_it[2] < SLOTS else 0
        return most((mib - on_it[0], 100 - on_it[1], part), (0, 0, 0))

    def allows(self, namespace: str, wanted: dict[str, Vector], uid: str = "") -> bool:
        """Whether a namespace may have a pod that takes this much of each pool, in place of one it has."""
        return all(
            self._allows(namespace, pool, wanted.get(pool, (0, 0, 0)), uid)
            for pool in {team.pool for team in self.quotas.values()}
        ) and self._allows_natively(namespace, wanted[""], uid)

    def _allows(self, namespace: str, pool: str, wanted: Vector, uid: str) -> bool:
        book = [team for team in self.quotas.values() if team.pool == pool]
        own = next((team for team in book if namespace in self.mine(team)), None)
        now = self.takes_of(self.pods[uid][1], pool) if uid else (0, 0, 0)
        levels = [own, *self.above(own)] if own else []
        beside = [self.used(self.all_of(one), pool, uid) for one in levels]
        siblings = [one for one in self.below(levels[-1]) if one is not own] if levels else []
        kept: Vector = (0, 0, 0)
        for one in siblings:
            if not one.reclaim:
                kept = plus(kept, self.open(one, alone=True))
        owed, in_all = kept, (0, 0, 0)
        for one in book:
            if not self.above(one):
                in_all = plus(in_all, self.kept(one))
                owed = plus(owed, self.kept(one) if one not in levels else (0, 0, 0))
        parent_itself = own is not None and bool(self.below(own))
        free, borrowed = self.free(pool), self.borrowed(pool)
        for i in (one for one in range(3) if wanted[one] > now[one]):
            bounded = zip(levels, beside, strict=True)
            if not all(self._is_bounded(one, i, wanted[i], had[i]) for one, had in bounded):
                return False
            within = bool(levels) and not parent_itself
            within = within and beside[0][i] + wanted[i] <= self.guarantee(levels[0])[i]
            within_all = bool(levels) and beside[-1][i] + wanted[i] + kept[i] <= self.guarantee(levels[-1])[i]
            more = wanted[i] - now[i]
            if within or within_all:
                reclaims = levels[0 if within else -1].reclaim
                if reclaims and in_all[i] and 0 < more + in_all[i] - free[i] <= borrowed[i]:
                    return False
            elif owed[i] and more + owed[i] > free[i]:
                return False
        return True

    def borrowed(self, pool: str) -> Vector:
        """What all have together beyond the guarantees of quotas that have no parent."""
        tops = [one for one in self.quotas.values() if one.pool == pool and not self.above(one)]
        known = {name for one in tops for name in self.all_of(one)}
        total = self.used(tuple(name for name in TEAMS if name not in known), pool)
        for one in tops:
            given, had = self.guarantee(one), self.used(self.all_of(one), pool)
            total = plus(total, most((had[0] - given[0], had[1] - given[1], had[2] - given[2]), (0, 0, 0)))
        return total

    def above(self, team: Team) -> list[Team]:
        """The parent of a quota; nothing where it has none that counts."""
        found = self._named(team)
        return [one for one in found if not self._named(one)]

    def _named(self, team: Team) -> list[Team]:
        others = [one for one in self.quotas.values() if one.pool == team.pool and one is not team]
        return [one for one in others if one.name == team.parent]

    def below(self, team: Team) -> list[Team]:
        """The children of a quota."""
        return [one for one in self.quotas.values() if team in self.above(one)]

    def all_of(self, team: Team) -> tuple[str, ...]:
        """The namespaces that a quota counts."""
        return (*self.mine(team), *(name for one in self.below(team) for name in self.mine(one)))

    def guarantee(self, team: Team) -> Vector:
        """What a quota guarantees, at least what its children do."""
        beneath: Vector = (0, 0, 0)
        for one in self.below(team):
            beneath = plus(beneath, one.guarantee)
        return most(team.guarantee, beneath)

    def open(self, team: Team, *, alone: bool = False) -> Vector:
        """What a quota, or else one of its children, has not come up to of its guarantee."""
        given, had = self.guarantee(team), self.used(self.all_of(team), team.pool)
        mine = most((given[0] - had[0], given[1] - had[1], given[2] - had[2]), (0, 0, 0))
        beneath: Vector = (0, 0, 0)
        for one in () if alone else self.below(team):
            beneath = plus(beneath, self.open(one, alone=True))
        return most(mine, beneath)

    def kept(self, team: Team) -> Vector:
        """The same, without what those that reclaim lend; a parent what it guarantees beyond its children."""
        children = [(one.reclaim, self.open(one, alone=True)) for one in self.below(team)]
        beneath: Vector = (0, 0, 0)
        total: Vector = (0, 0, 0)
        for lends, amounts in children:
            beneath = plus(beneath, amounts)
            total = plus(total, (0, 0, 0) if lends else amounts)
        whole = self.open(team)
        mine = (whole[0] - beneath[0], whole[1] - beneath[1], whole[2] - beneath[2])
        return plus(total, (0, 0, 0) if team.reclaim else mine)

    def _is_bounded(self, team: Team, i: int, wanted: int, beside: int) -> bool:
        """Whether one amount is within a quota's bounds, given what the others have."""
        unit, one, all_of_it = GIB if i == 0 else 1, team.pod_max[i], team.limit[i]
        return (one is None or wanted <= one * unit) and (
            all_of_it is None or beside + wanted <= all_of_it * unit
        )

    def _allows_natively(self, namespace: str, wanted: Vector, uid: str) -> bool:
        if namespace not in self.natives:
            return True
        now = self.takes_of(self.pods[uid][1], "")[0] if uid else 0
        together = self.used((namespace,), "", uid)[0] + wanted[0]
        return wanted[0] <= now or together <= self.natives[namespace] * GIB


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
        foreign = ForeignAgents(())
        self.filter = Filter(self.ledger, foreign, Placer(self.ledger.table), quotas=self.quotas)
        self.binder = Binder(self.world, self.ledger, Placer(self.ledger.table), quotas=self.quotas)
        self.resizer = resizer(self.world, self.ledger, self.quotas)
        self.feed = Feed(None, self.ledger, foreign, self.resizer)  # type: ignore[arg-type] - its reflectors never run
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
