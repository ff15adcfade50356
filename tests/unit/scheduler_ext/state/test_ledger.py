"""Who was promised what."""

from dataclasses import replace

import pytest

from aliquot.request.host_resources import HostShare
from aliquot.request.placement import Placement
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.fit import fit
from aliquot.scheduler_ext.state.ledger import REMEMBERED_DEPARTURES, Ledger, Stage
from tests.unit.scheduler_ext.placing import GIB, INIT, asks, card, node, part, pod, whole


class Clock:
    """A clock that stands still until told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Now, in seconds."""
        return self.now


@pytest.fixture(name="clock")
def make_clock() -> Clock:
    """Time, under the test's control."""
    return Clock()


@pytest.fixture(name="ledger")
def make_ledger(clock: Clock) -> Ledger:
    """A cluster of two nodes with three cards of 16 GiB."""
    ledger = Ledger(clock)
    ledger.put_node("n1", node(card("a"), card("b")))
    ledger.put_node("n2", node(card("c")))
    return ledger


def place(ledger: Ledger, request: PodRequest, where: str = "n1") -> Placement:
    """A placement of this pod on this node."""
    placement = fit(request, where, ledger.table.cards(where), Policy.BINPACK)
    assert placement is not None
    return placement


def promised(ledger: Ledger) -> dict[str, float]:
    """UUID → GiB promised, of the cards of both nodes."""
    cards = ledger.table.cards("n1") + ledger.table.cards("n2")
    return {c.uuid: c.used_mib / GIB for c in cards if c.used_mib}


def test_a_reservation_is_charged_once_and_replaced(ledger: Ledger):
    """A pod that is filtered again has one place, the last one."""
    request = pod(part(4))
    ledger.reserve(request, place(ledger, request, "n1"))
    ledger.reserve(request, place(ledger, request, "n2"))
    assert promised(ledger) == {"c": 4}


def test_bound_pods_are_charged_without_a_reservation(ledger: Ledger):
    """What a pod says of itself counts, as after a restart."""
    request = pod(part(4), asks(part(2)))
    ledger.confirm(request.uid, place(ledger, request))
    assert promised(ledger) == {"a": 6}


def test_a_pod_that_goes_frees_its_cards(ledger: Ledger):
    """Deleted or finished, its memory is there for others, and its late calls are recognised."""
    request = pod(part(4))
    ledger.reserve(request, place(ledger, request))
    ledger.depart(request.uid)
    assert (promised(ledger), ledger.departed(request.uid), len(ledger)) == ({}, True, 0)


def test_reservations_end_with_time_and_bindings_do_not(ledger: Ledger, clock: Clock):
    """Only what cannot be in the API server yet may be given away."""
    for uid, stage in [("r", None), ("b", Stage.BINDING), ("u", Stage.UNCERTAIN), ("a", Stage.ASSUMED)]:
        request = pod(part(1), uid=uid)
        ledger.reserve(request, place(ledger, request))
        if stage:
            ledger.move_on(uid, stage)
    clock.now += 660
    assert ledger.expire(660) == ["r"]
    assert promised(ledger) == {"a": 3}


def test_what_the_watch_has_confirmed_is_not_moved_back(ledger: Ledger):
    """The watch may be faster than the answer to our own write."""
    request = pod(part(1))
    ledger.reserve(request, place(ledger, request))
    ledger.confirm(request.uid, place(ledger, request))
    ledger.move_on(request.uid, Stage.UNCERTAIN)
    assert ledger.entry(request.uid).stage is Stage.BOUND
    assert list(ledger.unconfirmed()) == []


def test_an_annotation_changed_later_frees_nothing(ledger: Ledger):
    """Whoever may edit a running pod cannot make room by editing its placement."""
    big, small = pod(part(8)), pod(part(1))
    ledger.confirm("uid-1", place(ledger, big))
    ledger.confirm("uid-1", place(ledger, small))
    ledger.confirm("uid-1", None)
    assert promised(ledger) == {"a": 8}


def test_a_pod_bound_without_a_placement_holds_nothing(ledger: Ledger):
    """Somebody else bound it; our reservation was in vain."""
    request = pod(part(4))
    ledger.reserve(request, place(ledger, request))
    ledger.confirm(request.uid, None)
    assert promised(ledger) == {}


def test_promises_outlive_the_description_of_their_node(ledger: Ledger):
    """An agent that withdraws and publishes its node again finds its tenants in the ledger."""
    request = pod(part(4))
    ledger.confirm(request.uid, place(ledger, request))
    ledger.drop_node("n1")
    assert promised(ledger) == {}
    ledger.put_node("n1", node(card("a", gib=3), card("b")))
    assert promised(ledger) == {"a": 4}


def test_a_pod_bound_before_its_node_is_known_is_charged_then(ledger: Ledger):
    """The order in which watches speak does not matter."""
    request = pod(part(4))
    placement = place(ledger, request)
    fresh = Ledger(Clock())
    fresh.confirm(request.uid, placement)
    fresh.put_node("n1", node(card("a"), card("b")))
    assert promised(fresh) == {"a": 4}


def test_init_containers_cost_the_greater_of_both(ledger: Ledger):
    """The pod's charge follows Kubernetes' rule."""
    request = pod(asks(part(10), INIT), part(4))
    ledger.confirm(request.uid, place(ledger, request))
    assert promised(ledger) == {"a": 10}


def test_a_card_held_alone_is_free_again_when_its_holder_goes(ledger: Ledger):
    """Exclusiveness is counted like memory."""
    request = pod(whole())
    ledger.reserve(request, place(ledger, request))
    assert fit(pod(part(17 - 1), uid="x"), "n1", ledger.table.cards("n1")[:1], Policy.BINPACK) is None
    ledger.release(request.uid)
    assert ledger.table.cards("n1")[0].empty


def test_cards_without_a_pod_leave_its_own_charge_out(ledger: Ledger):
    """A pod does not stand in its own way when its place is checked again."""
    request = pod(part(16))
    ledger.reserve(request, place(ledger, request))
    assert ledger.cards_without("n1", request.uid)[0].empty
    assert not ledger.cards_without("n1", "other")[0].empty


def test_memory_of_departures_is_bounded(ledger: Ledger):
    """Years of pods do not fill the process."""
    for n in range(REMEMBERED_DEPARTURES + 10):
        ledger.depart(f"uid-{n}")
    assert not ledger.departed("uid-0")
    assert ledger.departed(f"uid-{REMEMBERED_DEPARTURES + 9}")


def test_rows_of_nodes_that_went_are_used_again(ledger: Ledger):
    """A cluster that scales up and down all day does not grow the arrays."""
    rows = ledger.table.used.shape[1]
    for n in range(10 * rows):
        ledger.put_node(f"spot-{n}", node(card(f"s{n}")))
        ledger.drop_node(f"spot-{n}")
    assert ledger.table.used.shape[1] == rows


def test_the_table_grows_in_both_directions(ledger: Ledger):
    """More nodes and more cards per node than foreseen keep what was there."""
    request = pod(part(4))
    ledger.confirm(request.uid, place(ledger, request))
    for n in range(200):
        ledger.put_node(f"big-{n}", node(*[card(f"{n}-{i}") for i in range(20)]))
    assert promised(ledger) == {"a": 4}
    assert len(ledger.table.cards("big-199")) == 20


def test_a_binding_that_is_confirmed_changes_nothing_that_is_counted(ledger: Ledger):
    """The watch tells of every Binding; what it confirms to the letter has no node looked at again."""
    request = replace(pod(part(4)), host=HostShare(1000, 64))
    ledger.hosts.put_node("n1", HostShare(8000, 4096))
    ledger.reserve(request, place(ledger, request))
    ledger.move_on(request.uid, Stage.ASSUMED)
    tick = ledger.table.tick
    ledger.confirm(request.uid, place(ledger, request), version=7)
    assert not ledger.table.changed_since(tick).size
    entry = ledger.entry(request.uid)
    assert (entry.stage, entry.version, entry.namespace) == (Stage.BOUND, 7, request.namespace)
    assert promised(ledger) == {"a": 4}
    assert list(ledger.unconfirmed()) == []


def test_cpu_stays_counted_when_a_place_changes(ledger: Ledger):
    """A resize, and a look at what would be without a pod, leave its CPU and memory as they are."""
    ledger.hosts.put_node("n1", HostShare(8000, 4096))
    ledger.confirm("uid-1", place(ledger, pod(part(4))))
    ledger.hosts.put_pod("uid-1", "n1", HostShare(1000, 64))
    ledger.resize("uid-1", place(ledger, pod(part(2))))
    with ledger.without("uid-1"):
        assert ledger.table.host_cpu[ledger.table.rows_of(["n1"])[0]] == 8000
    assert ledger.table.host_cpu[ledger.table.rows_of(["n1"])[0]] == 7000
    assert promised(ledger) == {"a": 2}
