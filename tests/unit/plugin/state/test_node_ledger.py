"""The node's ledger."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.plugin.state.node_ledger import Capacity, LedgerError, NodeLedger
from aliquot.request.placement import Charge


def ledger() -> NodeLedger:
    """Two cards of 16 GiB, and one divided by MIG."""
    return NodeLedger({"a": Capacity(16384), "b": Capacity(16384), "mig": Capacity(16384, divided=True)})


REFUSALS = {
    "a MiB too much": ({"a": Charge(6385, 0, 1)}, "card a: 6385 MiB asked, 6384 MiB left"),
    "a percent too much": ({"a": Charge(1, 41, 1)}, "41 % of its time asked, 40 % left"),
    "alone beside somebody": ({"a": Charge(1, 0, 1, exclusive=True)}, "would not be held alone"),
    "a card of another node": ({"elsewhere": Charge(1, 0, 1)}, "not on this node"),
    "a card divided by MIG": ({"mig": Charge(1, 0, 1)}, "divided by MIG"),
    "one of two cards is full": ({"b": Charge(1, 0, 1), "a": Charge(9999, 0, 1)}, "card a: 9999 MiB asked"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_does_not_fit_is_refused_and_changes_nothing(case: str):
    """Beside a pod with 10000 MiB and 60 percent on card a."""
    charges, message = REFUSALS[case]
    book = ledger()
    book.admit("first", {"a": Charge(10000, 60, 1)})
    with pytest.raises(LedgerError, match=message):
        book.admit("second", charges)
    assert book.pod_uids() == {"first"}
    assert book.promised("a") == Charge(10000, 60, 1)


def test_to_the_last_mib_and_percent():
    """A card can be given away whole."""
    book = ledger()
    book.admit("first", {"a": Charge(10000, 60, 1)})
    book.admit("second", {"a": Charge(6384, 40, 1)})
    assert book.promised("a") == Charge(16384, 100, 2)


def test_nobody_joins_a_pod_that_holds_a_card_alone():
    """However little it takes."""
    book = ledger()
    book.admit("alone", {"a": Charge(16384, 100, 1, exclusive=True)})
    with pytest.raises(LedgerError, match="held alone"):
        book.admit("second", {"a": Charge(0, 0, 1)})


def test_a_pod_that_is_in_stays_in():
    """A restart of a container asks again; also when the card has shrunk meanwhile."""
    book = ledger()
    book.admit("first", {"a": Charge(10000, 0, 1)})
    book.set_capacities({"a": Capacity(8192)})
    book.admit("first", {"a": Charge(10000, 0, 1)})
    assert book.overcommitted() == ("a",)


def test_a_pod_that_takes_less_of_an_overcommitted_card_is_charged_less():
    """Only what grows needs room: a resize that gives memory back must not fail for want of it."""
    book = ledger()
    book.admit("first", {"a": Charge(10000, 0, 1)})
    book.admit("second", {"a": Charge(6000, 0, 1)})
    book.set_capacities({"a": Capacity(8192)})
    book.admit("first", {"a": Charge(9000, 50, 1)})
    assert book.promised("a") == Charge(15000, 50, 2)
    with pytest.raises(LedgerError, match="9001 MiB asked, 2192 MiB left"):
        book.admit("first", {"a": Charge(9001, 0, 1)})


def test_adopted_pods_count_though_they_do_not_fit():
    """What is used is used; the next one is refused."""
    book = ledger()
    book.adopt("first", {"a": Charge(12000, 0, 1)})
    book.adopt("second", {"a": Charge(12000, 0, 1)})
    assert book.overcommitted() == ("a",)
    with pytest.raises(LedgerError, match="0 MiB left"):
        book.admit("third", {"a": Charge(1, 0, 1)})
    book.release("first")
    assert book.overcommitted() == ()


CHARGES = st.builds(Charge, st.integers(0, 9000), st.integers(0, 60), st.just(1), st.booleans())


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.dictionaries(st.sampled_from("ab"), CHARGES))))
def test_no_order_of_comings_and_goings_promises_more_than_a_card_has(moves: list):
    """Whatever is asked for by whomever."""
    book = ledger()
    for pod, leaves, charges in moves:
        with contextlib.suppress(LedgerError):
            book.release(str(pod)) if leaves else book.admit(str(pod), charges)
        for uuid in "ab":
            promised = book.promised(uuid)
            assert promised.memory_mib <= 16384
            assert promised.cores <= 100
            assert promised.slots <= 1 or not promised.exclusive


def test_burst_memory_may_be_promised_beyond_the_card_and_guaranteed_may_not():
    """What burst pods are promised takes nothing from what can be guaranteed, within what may be promised in all."""
    ledger = NodeLedger({"GPU-a": Capacity(1000, extra_mib=500)})
    ledger.admit("burst", {"GPU-a": Charge(900, burst_mib=900)})
    ledger.admit("guaranteed", {"GPU-a": Charge(600)})
    assert ledger.grantable_mib("GPU-a") == 400
    with pytest.raises(LedgerError, match="1 MiB asked, 0 MiB left"):
        ledger.admit("late", {"GPU-a": Charge(1, burst_mib=1)})
    ledger.release("burst")
    with pytest.raises(LedgerError, match="401 MiB asked, 400 MiB left"):
        ledger.admit("late", {"GPU-a": Charge(401)})
    ledger.admit("late", {"GPU-a": Charge(900, burst_mib=900)})
