"""Whom preempt has evicted: the fewest and least, never an equal; and room that was made is kept for its pod."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.api.pod_groups import PLUGINS, GroupKey
from aliquot.kube.objects import Pod
from aliquot.request.placement import Placement
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun, DryRunArgs
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes, KnownNodes
from aliquot.scheduler_ext.gang.pod_groups import Terms
from aliquot.scheduler_ext.kube_scheduler.wire import WireError, read_preempt
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS, Departure
from aliquot.scheduler_ext.preemption.victims import Victim, place_after
from aliquot.scheduler_ext.state.ledger import Stage
from tests.tools.examples import examples
from tests.unit.scheduler_ext.neighbours import BEGUN, Neighbours, budget, waiter
from tests.unit.scheduler_ext.placing import GIB
from tests.unit.scheduler_ext.teams import quota

WIRE = Path(__file__).parents[3] / "data/wire"


def test_victims_are_found_where_kube_scheduler_names_none() -> None:
    """It counts slices, of which there are plenty."""
    here = Neighbours()
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16, priority=5)
    assert here.victims(waiter(8)) == {"n1": {"a"}}


def test_whoever_kube_scheduler_wants_gone_goes_and_counts() -> None:
    """Its victim frees the card already; nobody else has to leave."""
    here = Neighbours()
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16, priority=5)
    assert here.victims(waiter(8), n1=["b"]) == {"n1": {"b"}}
    assert here.victims(waiter(8), n1=["no-cards"]) == {"n1": {"no-cards", "a"}}


def test_the_victim_of_the_highest_priority_is_first() -> None:
    """kube-scheduler compares nodes by the first; pods without cards keep their place before those it named later."""
    here = Neighbours()
    here.runs("low", "n1-a", 8, priority=1)
    here.runs("high", "n1-a", 8, priority=7)
    here.runs("middle", "n1-b", 16, priority=5)
    assert here.ordered_victims(waiter(16), n1=["low"]) == {"n1": ("middle", "low")}
    given = ["plain", "middle", "last"]
    assert here.ordered_victims(waiter(16), n1=given) == {"n1": ("plain", "middle", "last")}
    two = waiter(16, **{"aliquot.dev/gpu": "2"})
    assert here.ordered_victims(two, n1=given) == {"n1": ("high", "plain", "middle", "low", "last")}


def test_nobody_is_evicted_for_a_member_that_comes_before_the_watch_has_shown_its_group() -> None:
    """kube-scheduler may be faster, and may ask for victims at once where a node lacks CPU."""
    here = Neighbours()
    preempted(here)
    body = msgspec.to_builtins(waiter(8))
    body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    assert here.victims(msgspec.convert(body, Pod)) == {}


def test_nobody_is_evicted_for_a_part_of_a_group() -> None:
    """Room for one would be of no use; once its group is small enough it is a pod like others."""
    here = Neighbours()
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16, priority=5)
    body = msgspec.to_builtins(waiter(8))
    body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    member = msgspec.convert(body, Pod)
    for needs, victims in ((2, {}), (0, {"n1": {"a"}})):
        here.gangs.put_terms(GroupKey("default", "train", PLUGINS), Terms(needs))
        assert here.victims(member) == victims


def test_nobody_of_the_same_or_a_higher_priority_goes() -> None:
    """Nor is a node answered where only they stand in the way."""
    here = Neighbours("n1", "n2")
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, priority=100)
    here.runs("c", "n2-a", 16, priority=99)
    here.runs("d", "n2-b", 16, priority=101)
    assert here.victims(waiter(8)) == {"n2": {"c"}}
    assert here.victims(waiter(8), n2=["d"]) == {}


def test_burst_goes_before_guaranteed_on_every_node() -> None:
    """kube-scheduler, which cannot tell them apart, is not given the choice."""
    here = Neighbours("n1", "n2")
    here.runs("firm", "n1-a", 16, priority=0)
    here.runs("firm2", "n1-b", 16, priority=0)
    here.runs("loose", "n2-a", 16, priority=50, burst=True)
    here.runs("firm3", "n2-b", 16, priority=0)
    assert here.victims(waiter(8)) == {"n2": {"loose"}}


def test_namespaces_beyond_their_guarantee_go_first() -> None:
    """Whatever the priorities."""
    here = Neighbours()
    here.quotas.put(quota("modest", "modest", guaranteed=(32, None, None)))
    here.quotas.put(quota("greedy", "greedy", guaranteed=(4, None, None)))
    here.runs("m", "n1-a", 16, namespace="modest", priority=1)
    here.runs("g", "n1-b", 16, namespace="greedy", priority=2)
    assert here.victims(waiter(8, namespace="modest")) == {"n1": {"g"}}


def test_one_that_holds_a_place_that_was_borrowed_borrows() -> None:
    """A place is held for it on one node; on another kube-scheduler would evict one within its guarantee for CPU."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.runs("owned", "n2-a", 8, namespace="owner")
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, namespace="guest", leaving=where == "n1-a")
    borrower = waiter(16, namespace="guest")
    here.nominations.claim(borrower, here.filter.request_of(borrower))
    here.nominations.expect(borrower.metadata.uid, "n1")
    assert here.ledger.entry(borrower.metadata.uid) is not None
    assert here.victims(borrower, n2=["owned"]) == {}


def test_a_pod_is_left_alone_for_its_minimum_run_time() -> None:
    """By the flag, and by its namespace's quota; afterwards it goes."""
    here = Neighbours(min_run_seconds=60)
    here.quotas.put(quota("q", "patient", minRunSeconds=600))
    here.runs("young", "n1-a", 16, second=30)
    here.runs("spared", "n1-b", 16, namespace="patient")
    here.now = BEGUN + 89
    assert here.victims(waiter(8)) == {}
    assert here.victims(waiter(8), n1=["young"]) == {}
    here.now = BEGUN + 90
    assert here.victims(waiter(8)) == {"n1": {"young"}}
    here.ends("young")
    here.runs("firm", "n1-a", 16, priority=200)
    assert here.victims(waiter(8)) == {}
    here.now = BEGUN + 600
    assert here.victims(waiter(8)) == {"n1": {"spared"}}


def test_a_disruption_budget_is_violated_only_where_nothing_else_helps() -> None:
    """And then the answer says how often."""
    here = Neighbours()
    here.budgets.put(budget("default", 1, app="web"))
    here.runs("web1", "n1-a", 8, labels={"app": "web"})
    here.runs("web2", "n1-a", 8, labels={"app": "web"})
    here.runs("batch", "n1-b", 16, priority=50)
    assert here.victims(waiter(8)) == {"n1": {"web1"}} or here.victims(waiter(8)) == {"n1": {"web2"}}
    assert here.violations == {"n1": 0}
    assert here.victims(waiter(16)) == {"n1": {"batch"}}
    here.runs("batch", "n1-b", 16, priority=50)
    here.ends("batch")
    here.runs("high", "n1-b", 16, priority=500)
    assert here.victims(waiter(16)) == {"n1": {"web1", "web2"}}
    assert here.violations == {"n1": 1}


def test_nobody_is_evicted_where_pods_that_are_leaving_make_room() -> None:
    """On any of the nodes: the pod waits for that one."""
    here = Neighbours("n1", "n2")
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16)
    here.runs("c", "n2-a", 16, leaving=True)
    here.runs("d", "n2-b", 16)
    assert here.victims(waiter(8)) == {}
    assert here.victims(waiter(8), n1=None) in ({"n1": {"a"}}, {"n1": {"b"}})


def test_nodes_that_no_departure_opens_are_left_out() -> None:
    """Unknown ones, and those that a quota closes."""
    here = Neighbours("n1")
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16)
    assert here.victims(waiter(8), n1=None, elsewhere=None).keys() == {"n1"}
    assert here.victims(waiter(17)) == {}
    here.quotas.put(quota("q", "default", limit=(4, None, None)))
    assert here.victims(waiter(8)) == {}


def test_a_pod_without_slices_keeps_what_kube_scheduler_chose() -> None:
    """It is none of ours; nodes without victims would be an error."""
    here = Neighbours()
    pod = waiter(8)
    bare = json.loads('{"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c"}]}}')
    assert here.victims(bare, n1=["x"], n2=None) == {"n1": {"x"}}
    assert pod.metadata.uid


def test_the_captured_call_is_read() -> None:
    """As kube-scheduler 1.36 sends it; and as one sends it that is not told of nodeCacheCapable."""
    args = read_preempt((WIRE / "extender-preempt.json").read_bytes())
    assert args.victims() == {
        "fake1": ("2ed99c6b-ecd1-4c30-905c-242e365b9916",),
        "fake2": ("1f5f5f76-7d1f-4d95-8c4e-5118a2fbcd0e",),
    }
    whole = {
        "Pod": {"metadata": {"uid": "u"}},
        "NodeNameToVictims": {"n": {"Pods": [{"metadata": {"uid": "v"}}]}},
    }
    assert read_preempt(json.dumps(whole).encode()).victims() == {"n": ("v",)}
    assert read_preempt(
        b'{"Pod": {"metadata": {"uid": "u"}}, "NodeNameToMetaVictims": {"n": null}}'
    ).victims() == {"n": ()}
    for body in (
        b"{",
        b"[]",
        b'{"Pod": {}}',
        b'{"Pod": {"metadata": {"uid": "u"}}, "NodeNameToMetaVictims": [1]}',
    ):
        with pytest.raises(WireError):
            read_preempt(body)


def preempted(here: Neighbours) -> tuple[str, ...]:
    """Two cards full of others' pods; a waiting pod of priority 100 has the one on the first card evicted."""
    here.runs("low", "n1-a", 16)
    here.runs("high", "n1-b", 16, priority=500)
    return ("low",)


def test_room_that_was_made_is_kept_for_whom_it_was_made() -> None:
    """Against pods of the same and of lower priority, from the nomination until it is bound."""
    here = Neighbours()
    preempted(here)
    first = waiter(8)
    assert here.place_of(first) == []
    assert here.victims(first) == {"n1": {"low"}}
    here.nominate(first, "n1")
    here.ends("low")
    assert here.place_of(waiter(9, priority=100)) == []
    assert here.place_of(waiter(9, priority=0)) == []
    assert here.place_of(waiter(8, priority=0)) == ["n1"], "what it does not need is free"
    assert here.place_of(first) == ["n1"]


def test_a_pod_of_higher_priority_gets_room_that_is_held() -> None:
    """If there is no other; what is left of it is still held."""
    here = Neighbours()
    preempted(here)
    first = waiter(8)
    here.victims(first)
    here.nominate(first, "n1")
    here.ends("low")
    assert here.place_of(waiter(9, priority=200)) == ["n1"]
    assert here.ledger.entry(first.metadata.uid) is None
    assert here.place_of(first) == []


def test_a_dry_run_counts_room_that_is_held_for_lower_priorities_as_filter_does() -> None:
    """It has room on each node where filter would place it, and the hold stays as it was."""
    here = Neighbours("n1", "n2")
    preempted(here)
    first = waiter(8)
    here.victims(first)
    here.nominate(first, "n1")
    here.ends("low")
    held = here.ledger.entry(first.metadata.uid)
    assert held is not None
    dry_run = DryRun(here.filter, HypotheticalNodes(KnownNodes()))
    for priority, nodes in ((200, ["n1", "n2"]), (100, ["n2"])):
        args = DryRunArgs(Pod=waiter(9, priority=priority), NodeNames=("n1", "n2"))
        changes = here.waiting.changes
        told = dry_run.answer(args)
        assert (told.NodeNames, list(told.FailedNodes)) == (
            nodes,
            [n for n in ("n1", "n2") if n not in nodes],
        )
        assert (here.ledger.entry(first.metadata.uid), here.waiting.changes) == (held, changes)


def test_a_nominated_pod_that_is_refused_keeps_its_hold() -> None:
    """kube-scheduler tries it again and again while its victims end."""
    here = Neighbours()
    preempted(here)
    first = waiter(8)
    here.victims(first)
    here.nominate(first, "n1")
    assert here.place_of(first) == []
    entry = here.ledger.entry(first.metadata.uid)
    assert entry is not None
    assert entry.stage is Stage.HELD
    assert not here.filter.would_place(first, here.filter.request_of(first), ["n1"])
    here.ends("low")
    assert here.filter.would_place(first, here.filter.request_of(first), ["n1"])
    assert here.place_of(waiter(16, priority=1)) == []


@pytest.mark.parametrize("end", ["nomination", "pod"])
def test_a_hold_ends_with_its_nomination_and_with_its_pod(end: str) -> None:
    """Then others get the room: at once, or, of a nomination that is lost when all have left for it, a while later.

    kube-scheduler takes it away where filter has refused the pod, which may be a moment behind: it has seen that the
    victims have gone, and the extender has not.
    """
    here = Neighbours()
    preempted(here)
    first = waiter(8)
    here.victims(first)
    here.nominate(first, "n1")
    here.ends("low")
    assert here.place_of(waiter(16, priority=0)) == []
    if end == "pod":
        here.ends(first.metadata.uid)
    else:
        here.nominate(first, "")
        here.now += OVERDUE_SECONDS - 1.0
        here.nominations.review()
        assert here.place_of(waiter(16, priority=0)) == []
        here.now += 1.0
        here.nominations.review()
    assert here.place_of(waiter(16, priority=0)) == ["n1"]


def test_a_fresh_extender_holds_for_pods_that_are_nominated_already() -> None:
    """It learns of the nomination from the watch, and of what the pod asks when the pod is tried."""
    here = Neighbours()
    here.runs("low", "n1-a", 16, leaving=True)
    here.runs("high", "n1-b", 16, priority=500)
    first = waiter(8)
    here.nominate(first, "n1")
    assert here.place_of(first) == []
    here.ends("low")
    assert here.place_of(waiter(16, priority=0)) == []


def test_no_room_is_held_for_a_pod_that_has_gone() -> None:
    """kube-scheduler asks on behalf of one whose end the watch has told of already, and will not tell of again."""
    here = Neighbours()
    first = waiter(8)
    here.ends(first.metadata.uid)
    here.nominations.claim(first, here.filter.request_of(first))
    here.nominations.grant(first.metadata.uid, "n1")
    assert here.ledger.entry(first.metadata.uid) is None


def test_room_that_is_granted_here_is_held_as_for_a_nomination() -> None:
    """Reclaim makes room without kube-scheduler's knowing."""
    here = Neighbours()
    preempted(here)
    first = waiter(8)
    assert here.place_of(first) == []
    here.nominations.grant(first.metadata.uid, "n1")
    here.ends("low")
    assert here.place_of(waiter(16, priority=0)) == []
    assert here.place_of(first) == ["n1"]


def test_a_place_that_is_held_on_the_granted_node_stays_the_very_same() -> None:
    """That of a group's member was found together with the others'."""
    here = Neighbours()
    pod = waiter(8)
    request = here.filter.request_of(pod)
    here.runs("low", "n1-a", 8)
    found = here.filter.find(pod, request, ["n1"])
    assert isinstance(found, Placement)
    here.ledger.hold(request, found)
    here.runs("more", "n1-a" if "n1-b" in found.charges() else "n1-b", 4)
    here.ends("low")
    here.nominations.claim(pod, request)
    here.nominations.grant(request.uid, "n1")
    entry = here.ledger.entry(request.uid)
    assert entry is not None
    assert entry.placement is found


def test_reclaim_would_rather_evict_nobody_than_violate_a_budget() -> None:
    """Neither by one pod, nor by the second of two."""
    here = Neighbours()
    here.budgets.put(budget("default", 1, app="web"))
    for uid, where in (("a", "n1-a"), ("b", "n1-a"), ("c", "n1-b"), ("d", "n1-b")):
        here.runs(uid, where, 8, labels={"app": "web"})
    found = [departs(here, gib) for gib in (8, 16)]
    assert [departure is not None and departure.violations == 0 for departure in found] == [True, False]
    assert found[1] is None
    here.budgets.put(budget("default", 0, app="web"))
    assert departs(here, 8) is None


def departs(here: Neighbours, gib: int) -> Departure | None:
    """Who leaves the only node for a pod, within budgets."""
    request = here.filter.request_of(waiter(gib))
    candidates = here.candidates
    return candidates.departure(request, "n1", candidates.borrowing(), lambda _: True, within_budgets=True)


pods = st.lists(
    st.tuples(
        st.sampled_from(("n1-a", "n1-b", "n2-a", "n2-b")),
        st.sampled_from((2, 4, 8, 16)),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from(("web", "db", "")),
        st.integers(0, 3),
    ),
    max_size=12,
)


@given(pods, st.sampled_from((4, 8, 16)), st.integers(0, 4), st.integers(0, 2))
@examples(150)
def test_victims_are_enough_and_lower_and_none_too_many(
    drawn: list[tuple[str, int, int, bool, str, int]], gib: int, priority: int, allowed: int
) -> None:
    """Asked of the placing code; violations are counted pod by pod."""
    here = Neighbours("n1", "n2")
    here.budgets.put(budget("default", allowed, app="web"))
    labels: dict[str, str] = {}
    priorities: dict[str, int] = {}
    for number, (where, size, rank, burst, app, second) in enumerate(drawn):
        uid = f"p{number}"
        (spot,) = [c for c in here.ledger.table.cards(where.split("-")[0]) if c.uuid == where]
        if spot.used_mib + size * GIB <= spot.usable_mib:
            here.runs(uid, where, size, priority=rank, burst=burst, labels={"app": app}, second=second)
            labels[uid], priorities[uid] = app, rank
    pod = waiter(gib, priority=priority)
    request = here.filter.request_of(pod)
    for node, uids in here.victims(pod).items():
        there = [entry for resident, entry in here.running_pods.on(node) if resident.uid in uids]
        leavers = [Victim(entry.uid, entry.charges) for entry in there]
        assert {leaver.uid for leaver in leavers} == uids
        assert all(priorities[uid] < priority for uid in uids)
        cards, policy = here.ledger.table.cards(node), here.candidates.card_policy
        assert place_after(request, node, cards, leavers, policy) is not None
        for one in leavers:
            others = [leaver for leaver in leavers if leaver is not one]
            assert place_after(request, node, cards, others, policy) is None
        web = sum(labels[uid] == "web" for uid in uids)
        assert here.violations[node] == max(web - allowed, 0)


def test_a_pod_that_holds_a_place_is_not_in_its_own_way():
    """What a waiting pod has reserved counts as free for it, wherever cards were read; others' places do not."""
    here = Neighbours("n1", "n2")
    here.runs("old", "n1-a", 16)
    here.runs("big", "n1-b", 16)
    table, pod = here.ledger.table, waiter(12)
    assert here.place_of(pod) == ["n2"]
    assert table.cards_of(("n2", "nowhere", "n1")) == {name: table.cards(name) for name in ("n2", "n1")}
    assert here.victims(pod) == {}
    here.runs("new", "n2-b", 16)
    assert here.victims(waiter(12))["n2"] == {"new"}
    assert here.victims(pod) == {}
