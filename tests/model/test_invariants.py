"""What the model expects, on clusters written down by hand: it finds what an administrator would, and nothing else."""

import asyncio
import copy
import json
from typing import Any

import pytest

from tests.model.api_server import ApiServer
from tests.model.expectations import Served, unserved
from tests.model.features import FEATURES
from tests.model.invariants import Evictions, Finding, Safety
from tests.model.kubelets import Kubelets
from tests.model.objects import GIB, PLAN, Machine, Wish, gpu_node_of, node_of, pod_of, pool_of, quota_of
from tests.model.snapshot import Snapshot
from tests.model.virtual_time import CLOCK, Loop

ALL = Served(features=frozenset(FEATURES))


class Desktop:
    """A cluster of one node with two cards of 16 GiB."""

    def __init__(self, **machine: int) -> None:
        self.server = ApiServer()
        self.findings: list[Finding] = []
        self.safety = Safety(self.server, self.findings.append)
        self.evictions = Evictions(self.server, self.findings.append)
        own = Machine(**{"cards": 2, **machine})
        self.server.put("nodes", node_of("n0", own))
        self.server.put("gpunodes", gpu_node_of("n0", own))
        self.server.put("gpupools", pool_of(100))

    def quota(self, name: str, **spec: Any) -> None:
        """A GPUQuota of the namespace of its name; amounts in GiB."""
        given = spec.items() & {key: spec.get(key) for key in ("guaranteed", "limit")}.items()
        amounts = {key: {"memoryMiB": gib * GIB} for key, gib in given}
        self.server.put("gpuquotas", quota_of(name, {"namespaces": [name], **spec, **amounts}))
        self.safety.quiet()

    def waits(self, name: str, group: str = "", members: int = 0, **wish: Any) -> None:
        """A pod without a node."""
        self.server.put("pods", pod_of(name, Wish(**wish), "", group, members))

    def runs(self, name: str, *cards: int, group: str = "", members: int = 0, **wish: Any) -> None:
        """A pod on these cards."""
        asked = Wish(**{"cards": len(cards), **wish})
        pod = pod_of(name, asked, "", group, members)
        self.server.put("pods", pod)
        bound = copy.deepcopy(pod)
        memory, cores = (asked.gib * GIB, asked.cores) if asked.gib else (16 * GIB, 100)
        shares = [{"uuid": f"n0-{card}", "memoryMiB": memory, "cores": cores} for card in cards]
        placement = json.dumps({"containers": [{"name": "main", "kind": "regular", "cards": shares}]})
        bound["metadata"]["annotations"]["aliquot.dev/placement"] = placement
        bound["spec"]["nodeName"] = "n0"
        self.server.put("pods", bound)

    def leaves(self, name: str, namespace: str = "a") -> None:
        """A pod is being deleted, and has not ended."""
        self.server.change(
            "pods", f"{namespace}/{name}", lambda pod: pod["metadata"].update(deletionTimestamp=CLOCK.stamp())
        )

    def nominate(self, name: str) -> None:
        """kube-scheduler has nominated the node for a pod."""
        self.server.change("pods", f"a/{name}", lambda pod: pod["status"].update(nominatedNodeName="n0"))

    def plan(self, name: str, plan: dict[str, Any]) -> None:
        """The extender has written into a pod that waits who is to leave for it."""
        written = {PLAN: json.dumps(plan)}
        self.server.change("pods", f"a/{name}", lambda pod: pod["metadata"]["annotations"].update(written))

    def evict(self, name: str) -> None:
        """A pod is evicted through the Eviction API."""
        body: dict[str, Any] = {"deleteOptions": {"preconditions": {"uid": f"uid-{name}"}}}
        self.server.handle("POST", f"/api/v1/namespaces/a/pods/{name}/eviction", {}, body)

    def tell(self, name: str) -> None:
        """The extender writes an event on a pod."""
        event = {"involvedObject": {"namespace": "a", "name": name}}
        self.server.handle("POST", "/api/v1/namespaces/a/events", {}, event)

    def waits_in_vain(self) -> dict[str, str]:
        """Who waits and should not, with the kind of the finding."""
        return {one.name: one.kind for one in unserved(Snapshot.of(self.server), ALL)}


def test_a_full_cluster_is_no_fault() -> None:
    """Two pods of 10 GiB fill two cards of 16 GiB for a third one."""
    desktop = Desktop()
    desktop.runs("p0", 0, gib=10)
    desktop.runs("p1", 1, gib=10)
    desktop.waits("p2", gib=10)
    assert desktop.waits_in_vain() == {}
    assert desktop.findings == []


def test_a_pod_beside_room_starves() -> None:
    """It would fit beside the other."""
    desktop = Desktop()
    desktop.runs("p0", 0, gib=10)
    desktop.waits("p1", gib=6)
    assert desktop.waits_in_vain() == {"p1": "starved"}


@pytest.mark.parametrize("machine", [{"cpu": 1}, {"slices": 1, "cards": 1}])
def test_room_on_cards_alone_is_none(machine: dict[str, int]) -> None:
    """CPU and slices of the node count."""
    desktop = Desktop(**machine)
    desktop.runs("p0", 0, gib=4)
    desktop.waits("p1", gib=4)
    assert desktop.waits_in_vain() == {}


def test_a_cordoned_node_is_none() -> None:
    """Nothing may come to it."""
    desktop = Desktop()
    desktop.server.change("nodes", "n0", lambda node: node["spec"].update(unschedulable=True))
    desktop.waits("p0")
    assert desktop.waits_in_vain() == {}


def test_lower_priorities_make_room() -> None:
    """Not for a pod that never preempts, and not of the same priority."""
    desktop = Desktop()
    desktop.runs("p0", 0, gib=16)
    desktop.runs("p1", 1, gib=16, priority=10)
    desktop.waits("high", gib=16, priority=10)
    desktop.waits("never", gib=16, priority=10, never=True)
    desktop.waits("low", gib=16)
    assert desktop.waits_in_vain() == {"high": "not preempted for"}


@pytest.mark.parametrize("leaves", [True, False])
def test_who_leaves_and_does_not_end_makes_no_room(*, leaves: bool) -> None:
    """It has been told to leave; nobody can do more, neither for a higher priority nor for an owner."""
    desktop = Desktop(cards=1)
    desktop.quota("owner", guaranteed=10, reclaim=True)
    desktop.runs("stuck", 0, gib=10, namespace="a")
    if leaves:
        desktop.leaves("stuck")
    desktop.waits("high", gib=10, priority=10)
    desktop.waits("owned", gib=10, namespace="owner")
    found = {} if leaves else {"high": "not preempted for", "owned": "not reclaimed for"}
    assert desktop.waits_in_vain() == found


@pytest.mark.parametrize("stuck", [True, False])
def test_cpu_is_kept_for_a_nominated_pod_while_its_victims_leave(*, stuck: bool) -> None:
    """kube-scheduler keeps it, and takes no nomination back before they have ended."""
    desktop = Desktop(cards=1, cpu=4)
    desktop.runs("p0", 0, gib=4, cpu=1)
    if stuck:
        desktop.leaves("p0")
    desktop.waits("high", gib=14, cpu=3, priority=10, never=True)
    desktop.nominate("high")
    desktop.waits("low", gib=4, cpu=1)
    assert desktop.waits_in_vain() == ({} if stuck else {"low": "starved"})


@pytest.mark.parametrize("nominated", [True, False])
def test_for_cpu_nobody_leaves_a_node_that_a_victim_does_not_leave(*, nominated: bool) -> None:
    """kube-scheduler waits for the victim; the extender evicts for cards alone."""
    desktop = Desktop(cards=2, cpu=4)
    desktop.runs("stuck", 0, gib=10, cpu=1)
    desktop.leaves("stuck")
    desktop.runs("low", 1, gib=10, cpu=3)
    desktop.waits("high", gib=10, cpu=2, priority=10)
    if nominated:
        desktop.nominate("high")
    assert desktop.waits_in_vain() == ({} if nominated else {"high": "not preempted for"})


@pytest.mark.parametrize(("stuck", "low"), [(0, 1), (1, 0)])
def test_for_cpu_those_leave_whom_kube_scheduler_names(stuck: int, low: int) -> None:
    """It keeps the highest that fit, and knows of no pod that it does not end."""
    desktop = Desktop(cards=2, cpu=4)
    desktop.runs("stuck", 0, gib=10, cpu=2, priority=stuck)
    desktop.leaves("stuck")
    desktop.runs("low", 1, gib=10, cpu=1, priority=low)
    desktop.waits("high", gib=10, cpu=2, priority=10)
    assert desktop.waits_in_vain() == ({} if stuck < low else {"high": "not preempted for"})


def test_departures_that_open_a_guarantee_make_no_room() -> None:
    """What a pod within its guarantee leaves is kept for its namespace."""
    desktop = Desktop(cards=1)
    desktop.quota("a", guaranteed=16)
    desktop.runs("p0", 0, gib=16, namespace="a")
    desktop.waits("p1", gib=16, namespace="b", priority=100)
    assert desktop.waits_in_vain() == {}


def test_what_is_guaranteed_to_others_is_not_lent() -> None:
    """24 of 32 GiB are kept for namespace a, which has none."""
    desktop = Desktop()
    desktop.quota("a", guaranteed=24)
    desktop.waits("p0", gib=12, namespace="b")
    desktop.waits("p1", gib=8, namespace="b")
    assert desktop.waits_in_vain() == {"p1": "starved"}


@pytest.mark.parametrize("gib", [8, 9])
def test_borrowers_give_back_what_is_guaranteed(gib: int) -> None:
    """A pod within its guarantee has them leave, one beyond it does not."""
    desktop = Desktop(cards=1)
    desktop.quota("a", guaranteed=8, reclaim=True)
    desktop.runs("p0", 0, gib=16, namespace="b")
    desktop.waits("p1", gib=gib, namespace="a")
    assert desktop.waits_in_vain() == ({"p1": "not reclaimed for"} if gib == 8 else {})


@pytest.mark.parametrize("reclaim", [True, False])
def test_borrowers_give_back_what_a_parent_guarantees_beyond_its_children(*, reclaim: bool) -> None:
    """Where the parent reclaims; a sibling has the same right to it and stays."""
    desktop = Desktop()
    desktop.quota("top", guaranteed=32, reclaim=reclaim, namespaces=[])
    desktop.quota("a", guaranteed=4, parent="top")
    desktop.quota("b", guaranteed=4, parent="top")
    desktop.runs("sibling", 0, gib=16, namespace="b")
    desktop.runs("borrower", 1, gib=16, namespace="c")
    desktop.waits("p", gib=12, namespace="a")
    assert desktop.waits_in_vain() == ({"p": "not reclaimed for"} if reclaim else {})
    desktop.quota("top", guaranteed=16, reclaim=reclaim, namespaces=[])
    assert desktop.waits_in_vain() == {}


@pytest.mark.parametrize("reclaim", [True, False])
def test_owners_that_can_reclaim_leave_free_what_is_kept_for_others(*, reclaim: bool) -> None:
    """They have a borrower evicted instead, whatever cards are free."""
    desktop = Desktop(cards=4)
    desktop.quota("a", guaranteed=32, reclaim=reclaim)
    desktop.quota("b", guaranteed=32)
    for card in (0, 1):
        desktop.runs(f"borrower-{card}", card, gib=16, namespace="c")
    desktop.waits("p", gib=16, namespace="a")
    assert desktop.waits_in_vain() == {"p": "not reclaimed for" if reclaim else "starved"}


def test_what_is_lent_is_no_reason_to_wait() -> None:
    """What an eviction would open is not lent."""
    desktop = Desktop()
    desktop.quota("a", guaranteed=24, reclaim=True)
    desktop.runs("p0", 0, gib=16, namespace="a")
    desktop.waits("p1", gib=16, namespace="b", priority=100)
    assert desktop.waits_in_vain() == {"p1": "starved"}
    desktop.runs("p2", 1, gib=16, namespace="b", priority=100)
    assert desktop.waits_in_vain() == {}


def test_a_group_starves_only_where_all_of_it_fits() -> None:
    """Of three members of 12 GiB two fit; of another group's both."""
    desktop = Desktop()
    for n in range(3):
        desktop.waits(f"large-{n}", "large", 3, gib=12)
    for n in range(2):
        desktop.waits(f"small-{n}", "small", 2, gib=12)
    assert desktop.waits_in_vain() == {"small": "group starved"}


def test_what_is_promised_twice_is_found() -> None:
    """By memory, by compute, and of a card that is one pod's alone."""
    for first, second in (
        ({"gib": 10}, {"gib": 10}),
        ({"cores": 60}, {"cores": 60}),
        ({"gib": 0}, {"gib": 1}),
    ):
        desktop = Desktop()
        desktop.runs("p0", 0, **first)
        assert desktop.findings == []
        desktop.runs("p1", 0, **second)
        assert {finding.kind for finding in desktop.findings} == {"unsafe"}


def test_a_pod_that_is_bound_to_a_node_that_has_just_gone_ends() -> None:
    """The API server takes the binding; Kubernetes' garbage collector removes the pod."""
    desktop, there = Desktop(), []

    async def play() -> None:
        Kubelets(desktop.server)
        desktop.server.remove("nodes", "n0")
        desktop.runs("p0", 0)
        there.append(bool(desktop.server.pods()))
        await asyncio.sleep(5.0)

    Loop().run(play())
    assert there == [True]
    assert desktop.server.pods() == []
    assert desktop.findings == []


def test_a_limit_that_is_passed_is_found() -> None:
    """The limit of 16 GiB holds one pod of 10."""
    desktop = Desktop()
    desktop.quota("a", limit=16)
    desktop.runs("p0", 0, gib=10)
    assert desktop.findings == []
    desktop.runs("p1", 1, gib=10)
    assert [finding.kind for finding in desktop.findings] == ["unsafe"]


def test_an_eviction_without_a_plan_is_found() -> None:
    """The extender evicts only for a pod that has the plan in it."""
    desktop = Desktop()
    desktop.runs("p0", 0)
    desktop.evict("p0")
    assert [finding.kind for finding in desktop.findings] == ["eviction for no pod"]


def test_an_eviction_that_serves_no_pod_is_found_unless_something_has_come_between() -> None:
    """The pod that it was for waits yet."""
    desktop = Desktop()
    desktop.runs("p0", 0)
    desktop.waits("p1", priority=10)
    waiter, victim = (desktop.server.objects["pods"][f"a/{name}"] for name in ("p1", "p0"))
    desktop.evictions.by_kube_scheduler(waiter, [victim])
    assert len(desktop.evictions.in_vain()) == 1
    desktop.evictions.disturbances += 1
    assert desktop.evictions.in_vain() == []


def test_an_eviction_in_vain_is_excused_by_what_could_not_be_seen_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node is cordoned while a leader's watches lag, and it evicts a pod from there."""
    desktop = Desktop(cards=3)
    for name, at in (("p0", 0), ("p1", 1), ("p2", 2)):
        desktop.runs(name, at)
    desktop.waits("p3", priority=10)
    waiter, *victims = (desktop.server.objects["pods"][f"a/{name}"] for name in ("p3", "p0", "p1", "p2"))
    found = []
    for now, victim in zip((1.0, 2.0, 30.0), victims, strict=True):
        monkeypatch.setattr(CLOCK, "now", now)
        desktop.evictions.by_kube_scheduler(waiter, [victim])
        found.append(len(desktop.evictions.in_vain()))
        desktop.evictions.blind(20.0)
        desktop.evictions.disturbances += now < 2.0
    assert found == [1, 0, 1]


@pytest.mark.parametrize(("later", "found"), [(0.0, []), (1.0, ["evicted within its guarantee"])])
def test_an_eviction_is_judged_by_what_was_before_an_event_of_the_same_moment(
    later: float, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota has borrowed until another of its pods ends."""
    desktop = Desktop()
    desktop.quota("a", guaranteed=8)
    desktop.runs("p0", 0, gib=8)
    desktop.runs("p1", 1, gib=8)
    desktop.waits("p2", namespace="b", priority=10)
    waiter, victim = (desktop.server.objects["pods"][name] for name in ("b/p2", "a/p0"))
    desktop.evictions.note_event()
    desktop.server.remove("pods", "a/p1")
    monkeypatch.setattr(CLOCK, "now", CLOCK.now + later)
    desktop.evictions.by_kube_scheduler(waiter, [victim])
    assert [finding.kind for finding in desktop.findings] == found


@pytest.mark.parametrize(
    ("priority", "card", "later", "found"),
    [(20, 0, 0.0, 0), (20, 0, 0.1, 0), (20, 0, 60.0, 1), (10, 0, 0.0, 2), (20, 1, 0.0, 2)],
)
def test_an_eviction_serves_a_pod_of_higher_priority_that_comes_first(
    priority: int, card: int, later: float, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is held against the same and lower priorities; on other cards it is no use of that room.

    Evictions for one pod that follow each other closely are one.
    """
    desktop = Desktop(cards=3)
    desktop.runs("p0", 0)
    desktop.runs("p1", 2)
    desktop.waits("p2", priority=10)
    waiter, *victims = (desktop.server.objects["pods"][f"a/{name}"] for name in ("p2", "p0", "p1"))
    desktop.evictions.by_kube_scheduler(waiter, victims[:1])
    monkeypatch.setattr(CLOCK, "now", later)
    desktop.evictions.by_kube_scheduler(waiter, victims[1:])
    desktop.server.remove("pods", "a/p0")
    desktop.server.remove("pods", "a/p1")
    desktop.runs("p3", card, priority=priority)
    assert len(desktop.evictions.in_vain()) == found


@pytest.mark.parametrize(("cpu", "found"), [(1, 0), (0, 1)])
def test_an_eviction_serves_a_pod_of_higher_priority_that_takes_the_last_cpu(cpu: int, found: int) -> None:
    """On another card."""
    desktop = Desktop(cards=3, cpu=4)
    desktop.runs("p0", 0, cpu=2)
    desktop.runs("p1", 1, cpu=2)
    desktop.waits("p2", priority=10, cpu=2)
    waiter, victim = (desktop.server.objects["pods"][f"a/{name}"] for name in ("p2", "p0"))
    desktop.evictions.by_kube_scheduler(waiter, [victim])
    desktop.server.remove("pods", "a/p0")
    desktop.runs("p3", 2, priority=20, cpu=cpu)
    assert len(desktop.evictions.in_vain()) == found


def test_an_eviction_serves_a_pod_of_higher_priority_that_takes_what_the_quota_had_left() -> None:
    """Wherever its cards are."""
    desktop = Desktop(cards=3)
    desktop.quota("a", limit=32)
    desktop.runs("p0", 0)
    desktop.waits("p2", priority=10)
    waiter, victim = (desktop.server.objects["pods"][f"a/{name}"] for name in ("p2", "p0"))
    desktop.evictions.by_kube_scheduler(waiter, [victim])
    desktop.server.remove("pods", "a/p0")
    desktop.runs("p3", 1, priority=20, namespace="b")
    assert len(desktop.evictions.in_vain()) == 1
    desktop.runs("p4", 2, priority=20)
    assert desktop.evictions.in_vain() == []


@pytest.mark.parametrize("ends", [True, False])
def test_an_eviction_beside_a_pod_that_does_not_end_is_excused(
    *, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can know that before it should have ended; who is evicted later is not excused by it."""
    desktop = Desktop(cards=3)
    names = ("p0", "p1", "p2")
    for card, name in enumerate(names):
        desktop.runs(name, card)
    desktop.waits("p3", priority=10)
    waiter, *victims = (desktop.server.objects["pods"][f"a/{name}"] for name in ("p3", *names))
    desktop.evictions.by_kube_scheduler(waiter, victims[:2])
    desktop.server.remove("pods", "a/p0")
    if ends:
        desktop.server.remove("pods", "a/p1")
    monkeypatch.setattr(CLOCK, "now", 100.0)
    desktop.evictions.by_kube_scheduler(waiter, victims[2:])
    desktop.server.remove("pods", "a/p2")
    found = [text.partition(" ")[0] for text in desktop.evictions.in_vain()]
    assert found == (["p0", "p1", "p2"] if ends else ["p2"])


@pytest.mark.parametrize(("since", "found"), [(0.0, ["evicted within its guarantee"]), (100.0, [])])
def test_what_is_promised_where_a_pod_does_not_end_counts_for_a_while(
    since: float, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it the pod that others are evicted for would borrow, without it its quota has enough for it."""
    desktop = Desktop()
    for namespace in ("a", "c"):
        desktop.quota(namespace, guaranteed=8)
    desktop.runs("victim", 0, gib=8, namespace="c")
    desktop.runs("stays", 1, gib=8, namespace="b")
    desktop.leaves("stays", namespace="b")
    desktop.waits("first", gib=4, namespace="a", priority=10)
    desktop.plan("first", {"node": "n0", "pods": []})
    desktop.waits("second", gib=8, namespace="a", priority=10)
    monkeypatch.setattr(CLOCK, "now", CLOCK.now + since)
    waiter, victim = (desktop.server.objects["pods"][key] for key in ("a/second", "c/victim"))
    desktop.evictions.by_kube_scheduler(waiter, [victim])
    assert [finding.kind for finding in desktop.findings] == found


@pytest.mark.parametrize("members", [2, 3])
def test_places_may_be_promised_to_a_group_that_has_room(members: int) -> None:
    """With them a quota has more than its guarantee, and a pod of it may be evicted for one that borrows."""
    desktop = Desktop(cards=3)
    desktop.quota("a", guaranteed=16)
    desktop.runs("p0", 0, gib=16, namespace="a")
    for number in range(members):
        desktop.waits(f"g{number}", "g", members, gib=16, namespace="a", priority=10)
    desktop.waits("high", gib=16, namespace="b", priority=10)
    waiter, victim = (desktop.server.objects["pods"][key] for key in ("b/high", "a/p0"))
    desktop.evictions.by_kube_scheduler(waiter, [victim])
    assert [one.kind for one in desktop.findings] == (["evicted within its guarantee"] if members > 2 else [])


@pytest.mark.parametrize("told", [True, False])
def test_for_which_group_a_pod_is_evicted_is_told_by_an_event(*, told: bool) -> None:
    """Where that is lost, it was for the one of the highest priority."""
    desktop = Desktop()
    desktop.runs("p0", 0)
    for group, priority in (("large", 100), ("small", 10)):
        desktop.waits(f"{group}-0", group, 2, priority=priority)
    desktop.evict("p0")
    for name in ("p0", "small-0") if told else ():
        desktop.tell(name)
    (text,) = desktop.evictions.in_vain()
    group = "small" if told else "large"
    assert f"for {group}-0 (group)" in text
    desktop.runs(f"{group}-1", 1, group=group, members=1)
    assert desktop.evictions.in_vain() == []


@pytest.mark.parametrize("plan", [True, False])
def test_for_which_group_a_pod_is_evicted_is_told_after_evictions_for_others(*, plan: bool) -> None:
    """By a plan, or from a group below its minimum: the extender evicts for several at once, and tells of it later."""
    desktop = Desktop()
    desktop.runs("p0", 0)
    desktop.runs("p1", 1, group="" if plan else "stale", members=2)
    for group, priority in (("large", 100), ("small", 10), ("last", 0)):
        desktop.waits(f"{group}-0", group, 2, priority=priority)
    if plan:
        victim = {"namespace": "a", "name": "p1", "uid": "uid-p1"}
        desktop.plan("last-0", {"node": "n0", "pods": [victim], "ground": "preemption"})
    for name in ("p0", "p1"):
        desktop.evict(name)
    for name in ("p0", "p1", "last-0", "small-0") if plan else ("p0", "p1", "small-0"):
        desktop.tell(name)
    (text,) = (text for text in desktop.evictions.in_vain() if text.startswith("p0 "))
    assert "for small-0 (group)" in text
