"""The arbiter's thread, on real pages with processes that play a tenant's side."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.arbiter import ArbiterError, CardState, Terms
from aliquot.libshim._pages import lib
from aliquot.libshim.control_page import read_times
from tests.unit.arbiter.house import MS, House, are_apart, house, kernels, spans, time_in, until

CARD = "GPU-0"


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path) as made:
        yield made


@pytest.mark.parametrize("polls", [False, True])
def test_tenants_have_the_card_in_turn(tmp_path: Path, polls: bool):
    """Two tenants never have it at the same time."""
    with house(tmp_path, polls=polls) as home:
        tenants = [home.tenant(name, Terms(CARD, 3000, 100)) for name in "ab"]
        players = [home.play(tenant, MS) for tenant in tenants]
        until(lambda: all(card.held_ns > 300 * MS for card in accounts(home)))
        assert are_apart([kernel for player in players for kernel in kernels(player)])


def accounts(home: House) -> list[CardState]:
    """Of all tenants on all their cards."""
    return [account for tenant in home.arbiter.tenants().values() for account in tenant.cards.values()]


@pytest.mark.timing
@pytest.mark.parametrize("polls", [False, True])
def test_tenants_have_the_card_by_their_shares(tmp_path: Path, polls: bool):
    """Two capped tenants get what they bought."""
    with house(tmp_path, polls=polls) as home:
        shares = {"a": 3000, "b": 4500}
        players = [
            home.play(home.tenant(name, Terms(CARD, bp, bp // 100)), MS) for name, bp in shares.items()
        ]
        begin = time.monotonic_ns()
        time.sleep(2)
        end = time.monotonic_ns()
        had = [spans(player) for player in players]
    for found, bp in zip(had, shares.values(), strict=True):
        assert time_in(found, begin, end) / (end - begin) == pytest.approx(bp / 10_000, abs=0.06)


def test_cards_that_are_used_in_turn_are_nobody_elses_meanwhile(home: House):
    """One tenant goes from one card to the other, and others have what it leaves, never at the same time."""
    cards = ("GPU-0", "GPU-1")
    both = home.tenant("both", *(Terms(card, 3000, 30) for card in cards))
    alone = [home.tenant(card, Terms(card, 6000, 100)) for card in cards]
    turning, *single = home.play(both, 3 * MS, (0, 1)), *(home.play(tenant, MS) for tenant in alone)
    until(lambda: all(card.held_ns > 200 * MS for card in home.arbiter.tenants()["both"].cards.values()))
    turns = kernels(turning)
    for index, process in enumerate(single):
        assert are_apart(turns[index::2] + kernels(process))


def test_work_that_begins_again_without_a_bell_is_seen_when_the_gate_is_closed(home: House):
    """A process that has said that nothing is in flight, and goes on within its lease, need not ring."""
    first = home.tenant("first", Terms(CARD, 5000, 50)).player()
    second = home.tenant("second", Terms(CARD, 4000, 40)).player()
    for _ in range(20):
        first.run(0, MS)
        first.rest(0)
        time.sleep(0.0005)  # for the arbiter to read it; the test holds without, and shows less
        first.pass_gate(0, 100 * MS)
        began = time.monotonic_ns()
        second.say(0, lib.AQ_WORK_WAITING)
        second.ring(0)
        while time.monotonic_ns() < began + 30 * MS:
            is_open = second.is_open(0)
            assert not is_open or time.monotonic_ns() > began + 100 * MS
        first.rest(0)
        until(lambda: second.is_open(0))
        second.rest(0)


def test_a_tenant_sees_that_somebody_leases(home: House):
    """The heartbeat goes on while the arbiter runs, and no longer."""
    player = home.tenant("a", Terms(CARD, 5000, 50)).player()
    first = player.control.heartbeat_ns
    assert abs(time.monotonic_ns() - first) < 10_000 * MS
    until(lambda: player.control.heartbeat_ns > first)
    home.arbiter.stop()
    last = player.control.heartbeat_ns
    time.sleep(0.05)
    assert player.control.heartbeat_ns == last


def test_who_leaves_is_leased_nothing_and_told_so(home: House):
    """Neither a gate nor a heartbeat holds any more, so its share is a hard cap at once."""
    tenant = home.tenant("a", Terms(CARD, 5000, 50))
    player = tenant.player()
    player.run(0, MS)
    home.arbiter.leave("a")
    assert (player.control.cards[0].gate, player.control.heartbeat_ns) == (0, 0)
    assert home.arbiter.tenants() == {}


def test_accounts_are_shown_in_the_page_and_go_on_after_a_restart(home: House):
    """Who comes back to the same page counts on from there."""
    tenant = home.tenant("a", Terms(CARD, 5000, 50))
    player = tenant.player()
    player.run(0, 5 * MS)
    until(lambda: read_times(tenant.control)[0].used_ns >= 5 * MS)
    assert read_times(tenant.control)[0].guaranteed_ns > 0
    used = read_times(tenant.control)[0].used_ns
    home.arbiter.leave("a")
    home.arbiter.enter("a", tenant.control, tenant.usage, tenant.terms)
    player.run(0, 5 * MS)
    until(lambda: read_times(tenant.control)[0].used_ns >= used + 5 * MS)


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [Terms(CARD, 1000, 10)] * 2,
        [Terms("", 1000, 10)],
        [Terms("x" * 64, 1000, 10)],
        [Terms(CARD, 0, 10)],
        [Terms(CARD, 10_001, 100)],
        [Terms(CARD, 1000, 101)],
        [Terms(CARD, 1000, 10, priority=10)],
        [Terms("GPU-another", 1000, 10)],
    ],
)
def test_terms_that_make_no_sense_are_refused(home: House, terms: list[Terms]):
    """By name and reason, and nothing is changed."""
    tenant = home.tenant("a", Terms(CARD, 5000, 50))
    before = home.arbiter.tenants()["a"].cards.keys()
    with pytest.raises(ArbiterError, match="b: "):
        home.arbiter.enter("b", tenant.control, tenant.usage, terms)
    assert home.arbiter.tenants()["a"].cards.keys() == before


def test_a_link_in_the_place_of_a_page_is_not_followed(home: House):
    """Not even to ask whether it is the page as before: it may lead to a file system that does not answer."""
    tenant = home.tenant("a", Terms(CARD, 5000, 50))
    aside = tenant.usage.rename(tenant.usage.with_name("aside"))
    tenant.usage.symlink_to(aside)
    with pytest.raises(ArbiterError, match="a: its files are no pages"):
        home.arbiter.enter("a", tenant.control, tenant.usage, [Terms(CARD, 2000, 20)])


def test_files_that_are_no_pages_are_refused(home: House):
    """Neither garbage, nor what is missing, nor a usage page from before there were leases."""
    tenant = home.tenant("a", Terms(CARD, 5000, 50))
    other = home.directory / "other"
    other.write_bytes(bytes(lib.AQ_USAGE_FILE_SIZE))
    with pytest.raises(ArbiterError, match="b: its files are no pages"):
        home.arbiter.enter("b", other, tenant.usage, tenant.terms)
    with pytest.raises(FileNotFoundError):
        home.arbiter.enter("b", home.directory / "missing", tenant.usage, tenant.terms)
    page = bytearray(tenant.usage.read_bytes()[: lib.AQ_USAGE_SIZE])
    page[12:16] = lib.AQ_USAGE_SIZE.to_bytes(4, "little")
    other.write_bytes(page)
    with pytest.raises(ArbiterError, match="b: its usage page has no room"):
        home.arbiter.enter("b", tenant.control, other, tenant.terms)
