"""Quotas in filter and bind: what is counted, who may borrow what, and what people are told."""

import asyncio
import json

import pytest

from aliquot.crds.gpu_quota import Most, QuotaStatus
from aliquot.request.amounts import Amounts
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.controllers.quota_informer import QuotaInformer
from aliquot.scheduler_ext.controllers.quota_status import statuses
from aliquot.scheduler_ext.handlers.bind import BindError
from aliquot.scheduler_ext.handlers.resize import Resizer
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger, Stage
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.teams import Teams, native, pod_of, quota
from tests.unit.scheduler_ext.world import WorldPod


@pytest.fixture
def teams() -> Teams:
    """Two nodes, four cards of 16 GiB, no quota yet."""
    return Teams()


def test_without_quotas_nothing_is_refused(teams: Teams):
    """The cards alone say what is possible."""
    assert [teams.gets("a", 16) for _ in range(5)] == [True] * 4 + [False]


def test_a_limit_holds_for_all_namespaces_of_the_quota_together(teams: Teams):
    """Reservations count, and others are not concerned."""
    teams.quotas.put(quota("q", "a", "b", limit=(12, None, None)))
    assert [teams.gets("a", 5), teams.gets("b", 5), teams.gets("a", 5), teams.gets("b", 2)] == [1, 1, 0, 1]
    assert teams.gets("c", 16)


def test_the_words_name_quota_namespace_asked_used_limit_and_remedy(teams: Teams):
    """They are what the pod's author reads in its condition."""
    teams.quotas.put(quota("q", "a", limit=(12, None, None)))
    teams.gets("a", 10)
    assert teams.refusal("a", {"gpu-mem": "5Gi"}) == (
        "GPUQuota q: namespace a asks for 5Gi of GPU memory, and 10Gi of its limit of 12Gi are in use; "
        "wait for pods to end, ask for less, or have the limit raised"
    )


AMOUNTS = {
    "memory on two cards counts twice": ({"gpu": "2", "gpu-mem": "5Gi"}, (9, None, None), "asks for 10Gi"),
    "cores on two cards count twice": (
        {"gpu": "2", "gpu-mem": "1Gi", "gpu-core": "30"},
        (None, 59, None),
        "60 gpu-core",
    ),
    "every card of a container is one": ({"gpu": "2", "gpu-mem": "1Gi"}, (None, None, 1), "2 cards"),
    "a whole card is all of its memory": ({"gpu": "1"}, (15, None, None), "asks for 16Gi"),
    "a percentage is one of the card": ({"gpu-mem-percent": "50"}, (7, None, None), "asks for 8Gi"),
}


@pytest.mark.parametrize(("limits", "limit", "said"), AMOUNTS.values(), ids=AMOUNTS.keys())
def test_amounts_are_counted_right(
    teams: Teams, limits: dict[str, str], limit: tuple[int | None, ...], said: str
):
    """Just below what the pod asks it is refused; at what it asks it is let in."""
    teams.quotas.put(quota("q", "a", limit=limit))
    assert said in teams.refusal("a", limits)
    enough = tuple(None if one is None else one + 1 for one in limit)
    teams.quotas.put(quota("q", "a", limit=enough))
    assert teams.ask(pod_of("a", limits)).NodeNames


def test_init_containers_and_regular_ones_count_by_the_larger(teams: Teams):
    """As Kubernetes counts them."""
    teams.quotas.put(quota("q", "a", limit=(8, None, None)))
    assert teams.ask(
        pod_of("a", {"gpu-mem": "8Gi"}, {"gpu-mem": "4Gi"}, {"gpu-mem": "4Gi"}, init=1)
    ).NodeNames
    assert teams.ledger.accounts.used("", "a") == Amounts(8 * GIB, 0, 2)
    other = Teams()
    other.quotas.put(quota("q", "a", limit=(8, None, None)))
    assert "asks for 9Gi" in other.refusal("a", {"gpu-mem": "9Gi"}, {"gpu-mem": "4Gi"}, init=1)


def test_a_percentage_is_admitted_where_the_card_is_small_enough(teams: Teams):
    """Nodes with large cards are barred for it, nodes with small ones are not."""
    teams.ledger.put_node("small", node(card("s", gib=8)))
    teams.quotas.put(quota("q", "a", limit=(5, None, None)))
    answer = teams.ask(pod_of("a", {"gpu-mem-percent": "50"}), "n1", "small", "n2", "n9")
    assert answer.NodeNames == ["small"]
    assert teams.ledger.accounts.used("", "a") == Amounts(4 * GIB, 0, 1)


def test_one_that_asks_for_no_compute_is_not_held_up_by_it(teams: Teams):
    """Only what is asked for is looked at, even where the quota was lowered below what is used."""
    teams.gets("a", 1, **{"gpu-core": "50"})
    teams.quotas.put(quota("q", "a", limit=(None, 10, None)))
    assert teams.gets("a", 1)
    assert "asks for 1 gpu-core, and 50 of its limit of 10" in teams.refusal(
        "a", {"gpu-mem": "1Gi", "gpu-core": "1"}
    )


def test_what_goes_makes_room(teams: Teams):
    """A pod that ends, a reservation that expires, a filter that is asked again."""
    teams.quotas.put(quota("q", "a", limit=(10, None, None)))
    pod = pod_of("a", {"gpu-mem": "10Gi"})
    assert teams.ask(pod).NodeNames
    assert teams.ask(pod).NodeNames
    assert not teams.gets("a", 1)
    teams.now = 1000.0
    teams.ledger.expire(660.0)
    assert teams.ask(pod).NodeNames
    teams.ledger.depart(pod.metadata.uid)
    assert teams.gets("a", 10)


# ---- guarantees and borrowing ----


def test_beyond_its_guarantee_a_quota_borrows_what_others_leave(teams: Teams):
    """64 GiB in all: b may have what a's guarantee of 40 leaves, and a has its 40 whenever it comes."""
    teams.quotas.put(quota("a", "a", guaranteed=(40, None, None)))
    teams.quotas.put(quota("b", "b", guaranteed=(8, None, None)))
    assert [teams.gets("b", 8) for _ in range(4)] == [True, True, True, False]
    assert [teams.gets("a", 8) for _ in range(6)] == [True] * 5 + [False]


def test_what_a_quota_has_not_come_up_to_itself_is_not_kept_from_it(teams: Teams):
    """Half of a pod may be guaranteed and the other half borrowed."""
    teams.quotas.put(quota("a", "a", guaranteed=(10, None, None)))
    teams.quotas.put(quota("b", "b", guaranteed=(49, None, None)))
    assert teams.gets("a", 5)
    assert "49Gi are guaranteed to others" in teams.refusal("a", {"gpu-mem": "11Gi"})
    assert teams.gets("a", 10)


def test_the_words_of_what_cannot_be_borrowed(teams: Teams):
    """They say what is free and for whom it is kept."""
    teams.quotas.put(quota("a", "a", guaranteed=(60, None, None)))
    teams.quotas.put(quota("b", "b", guaranteed=(1, None, None)))
    assert teams.gets("b", 1)
    assert teams.refusal("b", {"gpu-mem": "4Gi"}) == (
        "GPUQuota b: namespace b asks for 4Gi of GPU memory beyond the 1Gi guaranteed to it, has 1Gi, and of 63Gi "
        "free in the cluster 60Gi are guaranteed to others; "
        "wait for pods to end, ask for less, or have a guarantee raised"
    )
    assert teams.refusal("c", {"gpu-mem": "4Gi"}).startswith(
        "namespace c has no GPUQuota, asks for 4Gi of GPU memory, has 0, and of 63Gi free in the cluster 60Gi are"
    )


def test_a_namespace_of_no_quota_leaves_guarantees_alone(teams: Teams):
    """It has no limit of its own, and borrows all it has."""
    teams.quotas.put(quota("a", "a", guaranteed=(50, None, None)))
    assert [teams.gets("free", 7), teams.gets("free", 7), teams.gets("free", 7)] == [True, True, False]
    assert not teams.gets("free", 8)


def test_a_guarantee_that_is_used_up_holds_nobody_back(teams: Teams):
    """Nothing is owed any more, so the cards alone say what is possible."""
    teams.quotas.put(quota("a", "a", guaranteed=(16, None, None)))
    assert teams.gets("a", 16)
    assert [teams.gets("b", 16) for _ in range(4)] == [True, True, True, False]


def test_broken_cards_are_nothing_to_borrow(teams: Teams):
    """What is free on them does not back anybody's guarantee."""
    teams.quotas.put(quota("a", "a", guaranteed=(30, None, None)))
    teams.ledger.put_node("n2", node(card("n2-a", healthy=False), card("n2-b", healthy=False)))
    assert [teams.gets("b", 2), teams.gets("b", 1)] == [True, False]
    teams.ledger.drop_node("n2")
    assert not teams.gets("b", 1)
    teams.ledger.put_node("n2", node(card("n2-a"), card("n2-b")))
    assert teams.gets("b", 16)


# ---- pools ----


def pooled(teams: Teams) -> None:
    """n1's cards are in pool x, n2's in none."""
    teams.ledger.put_pools("n1", {"n1-a": "x", "n1-b": "x"})


def test_a_quota_of_a_pool_counts_its_cards_alone(teams: Teams):
    """Where it is exhausted, the other nodes are still open."""
    pooled(teams)
    teams.quotas.put(quota("q", "a", pool="x", limit=(16, None, None)))
    where = [teams.ask(pod_of("a", {"gpu-mem": "10Gi"})).NodeNames for _ in range(3)]
    assert where == [["n1"], ["n2"], ["n2"]]
    assert teams.ledger.accounts.used("x", "a") == Amounts(10 * GIB, 0, 1)
    assert teams.ledger.accounts.used("", "a") == Amounts(30 * GIB, 0, 3)


def test_guarantees_in_a_pool_are_kept_from_everybody(teams: Teams):
    """Also from namespaces whose quota is one of the whole cluster."""
    pooled(teams)
    teams.quotas.put(quota("mine", "a", pool="x", guaranteed=(32, None, None)))
    teams.quotas.put(quota("yours", "b", limit=(60, None, None)))
    where = [teams.ask(pod_of(ns, {"gpu-mem": "16Gi"})).NodeNames for ns in ("b", "c", "b")]
    assert where == [["n2"], ["n2"], []]
    assert teams.ask(pod_of("a", {"gpu": "2"})).NodeNames == ["n1"]


def test_a_card_that_changes_its_pool_takes_its_pods_along(teams: Teams):
    """What they have is counted where the card is now."""
    teams.quotas.put(quota("q", "a", pool="x", limit=(20, None, None)))
    assert teams.ask(pod_of("a", {"gpu-mem": "16Gi"})).NodeNames == ["n1"]
    pooled(teams)
    assert teams.ask(pod_of("a", {"gpu-mem": "8Gi"})).NodeNames == ["n2"]
    teams.ledger.put_pools("n1", {})
    assert teams.ledger.accounts.used("x", "a") == Amounts()


# ---- one pod's most, HAMi's way, who belongs where ----


def test_one_pod_may_have_only_so_much(teams: Teams):
    """The webhook refuses it when it knows; a percentage is known here."""
    teams.quotas.put(quota("q", "a", podMax=(8, None, 2)))
    assert teams.refusal("a", {"gpu-mem-percent": "60"}) == (
        "GPUQuota q: a pod of namespace a asks for 9830Mi of GPU memory, and may have 8Gi at most; "
        "ask for less, or have podMax.memoryMiB raised"
    )
    assert teams.gets("a", 8)
    assert teams.gets("a", 8)


def test_a_resource_quota_is_enforced(teams: Teams):
    """Amounts times cards, which Kubernetes itself would not count."""
    teams.quotas.put_native(native("a", gpu_mem="8Gi", gpu="3"))
    assert "ResourceQuota cards: namespace a asks for 10Gi" in teams.refusal(
        "a", {"gpu": "2", "gpu-mem": "5Gi"}
    )
    assert teams.ask(pod_of("a", {"gpu": "2", "gpu-mem": "4Gi"})).NodeNames
    assert not teams.gets("a", 1)
    assert teams.gets("b", 9)
    teams.quotas.put_native(native("a", gpu="3"))
    assert [teams.gets("a", 1), teams.gets("a", 1)] == [True, False]
    teams.quotas.drop_native("a", "cards")
    assert teams.gets("a", 1)


def test_a_namespace_in_two_quotas_belongs_to_the_first(teams: Teams):
    """Until that one goes."""
    teams.quotas.put(quota("q2", "a", limit=(2, None, None)))
    teams.quotas.put(quota("q1", "a", limit=(4, None, None)))
    assert teams.gets("a", 4)
    teams.quotas.drop("q1")
    assert "GPUQuota q2" in teams.refusal("a", {"gpu-mem": "1Gi"})


# ---- bind, resize and restart ----


def bind(teams: Teams, pod: WorldPod, where: str) -> None:
    """kube-scheduler binds a pod."""
    meta = pod.pod.metadata
    asyncio.run(teams.binder.bind(BindArgs(meta.name, meta.namespace, meta.uid, where)))


def store(teams: Teams, namespace: str, gib: int) -> WorldPod:
    """A pod that the API server has."""
    made = pod_of(namespace, {"gpu-mem": f"{gib}Gi"})
    teams.world.pods[made.metadata.name] = WorldPod(made)
    return teams.world.pods[made.metadata.name]


def test_a_bind_without_a_reservation_is_held_to_the_quota(teams: Teams):
    """After a restart, or when the reservation has expired."""
    teams.quotas.put(quota("q", "a", limit=(10, None, None)))
    bind(teams, store(teams, "a", 8), "n1")
    with pytest.raises(BindError, match="GPUQuota q: namespace a asks for 8Gi"):
        bind(teams, store(teams, "a", 8), "n1")
    assert teams.ledger.accounts.used("", "a").memory_mib == 8 * GIB


def test_bound_pods_count_after_a_restart():
    """The namespace is the pod's own, told by the watch."""
    ledger = Ledger(lambda: 0.0)
    share = CardShare("a", 1024, 10)
    placement = Placement("uid-1", "n1", (ContainerPlacement("main", ContainerKind.REGULAR, (share,)),))
    ledger.confirm("uid-1", placement, namespace="team")
    assert ledger.accounts.used("", "team") == Amounts(1024, 10, 1)
    ledger.move_on("uid-1", Stage.RESERVED)
    ledger.resize("uid-1", placement)
    ledger.depart("uid-1")
    assert ledger.accounts.namespaces() == []


def resized(
    teams: Teams, resizer: Resizer, feed: ClusterInformer, pod: WorldPod, asked: str
) -> dict[str, object]:
    """A bound pod asks for memory, and the extender answers all asks that are due."""
    pod.annotations = {**pod.annotations, "aliquot.dev/resize-gpu-mem": asked}
    teams.world.note("MODIFIED", pod)
    return answered(teams, resizer, feed, pod)


def answered(teams: Teams, resizer: Resizer, feed: ClusterInformer, pod: WorldPod) -> dict[str, object]:
    """What a pod has been told last."""
    for _ in range(2):
        for _, seen in teams.world.events:
            feed.put_pod(seen)
        teams.world.events.clear()
        asyncio.run(resizer.answer())
    status: dict[str, object] = json.loads(pod.annotations["aliquot.dev/resize-status"])
    return status


def test_a_resize_is_held_to_the_quota_and_looked_at_again_when_there_is_leave(teams: Teams):
    """What grows must be within the limit; what shrinks makes room for another's ask; a raised quota does, too."""
    one, other = store(teams, "a", 4), store(teams, "a", 4)
    bind(teams, one, "n1")
    bind(teams, other, "n2")
    asker = resizer(teams.world, teams.ledger, teams.quotas)
    feed = ClusterInformer(None, teams.ledger, ForeignPlugins(()), asker)  # type: ignore[arg-type] - its reflectors never run
    teams.quotas.put(quota("q", "a", limit=(9, None, None), podMax=(8, None, None)))
    told = resized(teams, asker, feed, one, "6Gi")
    assert str(told["why"]).startswith(
        "GPUQuota q: namespace a asks for 2Gi of GPU memory more, and 8Gi of its limit of 9Gi are in use; wait"
    )
    assert resized(teams, asker, feed, other, "3Gi")["approved"]
    assert answered(teams, asker, feed, one)["approved"]
    assert "8Gi at most" in str(resized(teams, asker, feed, one, "9Gi")["why"])
    teams.quotas.put(quota("q", "a", limit=(12, None, None)))
    assert answered(teams, asker, feed, one)["approved"]
    assert teams.ledger.accounts.used("", "a").memory_mib == 12 * GIB


def test_statuses_say_what_is_used_borrowed_and_whose_a_namespace_is(teams: Teams):
    """Borrowed is what is used beyond the guarantee."""
    teams.quotas.put(quota("q1", "a", guaranteed=(4, None, None)))
    teams.quotas.put(quota("q2", "a", "b"))
    teams.gets("a", 10)
    teams.gets("b", 1, **{"gpu-core": "30"})
    found = {each.metadata.name: status for each, status in statuses(teams.quotas)}
    assert found["q1"] == QuotaStatus(
        used=Most(memory_mib=10 * GIB, cores=0, cards=1), borrowed=Most(memory_mib=6 * GIB, cores=0, cards=1)
    )
    assert found["q2"].used == found["q2"].borrowed == Most(memory_mib=GIB, cores=30, cards=1)
    assert found["q2"].shadowed == ("a",)


@pytest.mark.parametrize("pool", ["", "x"])
def test_a_quota_of_a_pool_is_not_known_before_the_pools_are(pool: str):
    """Until then a card seems to be in no pool, and what is promised on it would not count."""

    async def scene() -> list[bool]:
        quotas, pools = Quotas(), asyncio.Event()
        feed = QuotaInformer(None, quotas, pools)  # type: ignore[arg-type] - its reflectors never run
        settling = asyncio.create_task(feed.settle())
        seen = []
        for reflector in (feed._ours, feed._native):
            seen.append(bool(feed.missing()))
            if reflector is feed._ours:
                quotas.put(quota("q", "a", pool=pool))
            reflector.answered.set()
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append(bool(feed.missing()))
        pools.set()
        await settling
        return [*seen, bool(feed.missing())]

    assert asyncio.run(scene()) == [True, True, pool == "x", False]
