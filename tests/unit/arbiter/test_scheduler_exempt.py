"""The scheduler for tenants that have no leases: let in beside those of others, and held to what is due to them."""

from itertools import pairwise

import pytest

from aliquot.arbiter._arbiter import lib
from tests.unit.arbiter.modelled import CARD, MS, US, Process, S, World, steady, synchronous
from tests.unit.arbiter.scheduler_by_hand import Scheduler

BURST = 100


def exempt(world: World, process: Process) -> Process:
    """Takes a tenant's leases away."""
    lib.aq_scheduler_exempt(process.native, 1)
    return process


def percent(world: World, process: Process, seconds: int = 8) -> float:
    """Of the card's time, in the coming seconds."""
    since = world.now
    world.run(since + seconds * S)
    return 100 * process.had(since) / (seconds * S)


def test_who_is_exempt_waits_for_nobodys_lease() -> None:
    """Within its share a kernel is on the card at once, where a tenant with leases waits for those of others to end."""
    waits = []
    for is_exempt in (False, True):
        world = World()
        tenant = world.enter(synchronous(MS, 7 * MS), 30)
        world.enter(steady(MS), 60)
        if is_exempt:
            exempt(world, tenant)
        world.run(S)
        before = len(tenant.waits)
        world.run(4 * S)
        waits.append(max(tenant.waits[before:]))
    assert waits[1] <= 100 * US
    assert waits[0] >= MS


@pytest.mark.parametrize("most", [None, BURST])
@pytest.mark.parametrize(("share", "least"), [(10, 9), (30, 28), (50, 48), (70, 67)])
def test_all_have_their_shares_whatever_they_are(share: int, least: int, most: int | None) -> None:
    """Nobody is lent time that the other wants. Slices leave an exempt tenant half of the card beside other work."""
    world = World()
    tenant = exempt(world, world.enter(steady(MS), share, most))
    other = world.enter(steady(MS), 100 - share, at=3 * MS)
    world.run(S)
    had = world.shares(8)
    assert least <= had[0] <= share + 1
    assert had[1] >= 100 - share - 1
    charged = sum(lib.aq_scheduler_account(one.native, 0).used_ns for one in (tenant, other))
    assert charged == pytest.approx(world.now, rel=0.06)


@pytest.mark.parametrize("pause", [100 * US, MS, 7 * MS])
def test_short_work_is_charged_what_it_uses(pause: int) -> None:
    """Its events tell of no slices of others, though they do where it goes on without a pause."""
    world = World()
    tenant = exempt(world, world.enter(synchronous(MS, pause), 40))
    world.enter(steady(MS), 60)
    world.run(5 * S)
    assert lib.aq_scheduler_account(tenant.native, 0).used_ns == pytest.approx(tenant.had(), rel=0.1)
    assert tenant.had() <= 0.41 * world.now


@pytest.mark.parametrize(("most", "expected"), [(None, 30), (80, 80), (BURST, 100)])
def test_who_is_alone_has_what_it_may_have(most: int | None, expected: int) -> None:
    """As with leases."""
    world = World()
    tenant = exempt(world, world.enter(steady(MS), 30, most))
    world.run(S)
    assert percent(world, tenant) == pytest.approx(expected, abs=2)


@pytest.mark.parametrize("others", [((70, BURST),), ((40, 40), (30, BURST))])
def test_nothing_is_subtracted_for_time_that_it_was_lent(others: tuple[tuple[int, int], ...]) -> None:
    """As with leases: who comes back finds it with its share, not in debt for what nobody wanted."""
    world = World()
    exempt(world, world.enter(steady(MS), 30, BURST))
    world.run(10 * S)
    for share, most in others:
        world.enter(steady(MS), share, most)
    assert world.shares(4) == [
        pytest.approx(share, abs=2.5) for share in (30, *(share for share, _ in others))
    ]


def test_two_others_have_their_shares_beside_it() -> None:
    """In slices with it, and each in its turn."""
    world = World()
    exempt(world, world.enter(steady(MS), 50))
    for share in (20, 30):
        world.enter(steady(MS), share)
    world.run(S)
    own, *others = world.shares(8)
    assert own >= 44
    assert [round(had) >= share for had, share in zip(others, (20, 30), strict=True)] == [True, True]


@pytest.mark.parametrize("others", [(40,), (20, 20)])
def test_several_that_are_exempt_are_charged_what_each_of_them_uses(others: tuple[int, ...]) -> None:
    """Though each says to have used the slices of all the others as well."""
    world = World()
    for _ in range(2):
        exempt(world, world.enter(steady(MS), 30))
    for share in others:
        world.enter(steady(MS), share)
    world.run(S)
    assert world.shares(8) == [pytest.approx(share, abs=2.5) for share in (30, 30, *others)]


@pytest.mark.parametrize("pause", [50 * US, 200 * US, 500 * US])
def test_two_others_have_their_shares_beside_short_work(pause: int) -> None:
    """It begins again without a ring, as often as not between two looks."""
    world = World()
    exempt(world, world.enter(synchronous(MS, pause), 30))
    for share in (40, 30):
        world.enter(steady(MS), share)
    world.run(S)
    assert world.shares(8)[1:] == [pytest.approx(share, abs=2.5) for share in (40, 30)]


@pytest.mark.parametrize(
    ("length", "share", "least"),
    [(200 * MS, 70, 66), (2 * S, 70, 57), (1000 * S, 70, 49), (1000 * S, 50, 49)],
)
def test_others_have_the_time_that_slices_leave_them_beside_its_long_work(
    length: int, share: int, least: int
) -> None:
    """And are not charged for its slices, of which it says nothing before they end."""
    world = World()
    exempt(world, world.enter(steady(length), 30))
    world.enter(steady(MS), share)
    world.run(S)
    assert world.shares(10)[1] >= least


def test_who_says_to_have_used_nothing_has_no_more_than_others_leave_it() -> None:
    """Work that is in flight all the time has its turns, whatever is said of it."""
    world = World()
    tenant = exempt(world, world.enter(steady(MS), 30))
    tenant.reports = 0
    world.enter(steady(MS), 70)
    world.run(S)
    assert world.shares(8)[1] >= 49


def test_an_idle_one_costs_nobody_anything() -> None:
    """Others are leased the card as if it were not there."""
    world = World()
    exempt(world, world.enter(iter([]), 50))
    for _ in range(2):
        world.enter(steady(MS), 25, BURST)
    world.run(S)
    assert sum(world.shares(4)) >= 97


@pytest.mark.parametrize("trust", ["AQ_DOUBTED", "AQ_BLIND"])
def test_who_is_not_believed_is_leased_its_cards_again(trust: str) -> None:
    """What it says of its work would be charged to others."""
    world = World()
    tenant = exempt(world, world.enter(steady(MS), 30))
    other = world.enter(steady(MS), 60)
    world.run(S)
    lib.aq_scheduler_trust(tenant.native, 0, 1, getattr(lib, trust))
    world.run(2 * S)
    record = [one for one in world.cards[CARD].record if one[0] > S + 300 * MS]
    turns = sum(one[2] is not following[2] for one, following in pairwise(record))
    assert turns < 2 * 1000 / 8, "contexts that share the card change every 2 ms, leases every 10"
    assert {one[2] for one in record} == {tenant, other}


def test_who_is_exempt_no_longer_is_leased_its_cards_when_it_has_drained() -> None:
    """And the other way round."""
    world = World()
    tenant = world.enter(steady(MS), 40)
    other = world.enter(steady(MS), 40)
    for is_exempt in (1, 0, 1, 0):
        lib.aq_scheduler_exempt(tenant.native, is_exempt)
        world.run(world.now + S)
    since = world.now
    world.run(since + 4 * S)
    assert [100 * one.had(since) / (4 * S) for one in (tenant, other)] == [pytest.approx(40, abs=1)] * 2


def test_its_gate_stays_open_as_long_as_it_likes() -> None:
    """The end that it is told is put off in time."""
    world = World()
    tenant = exempt(world, world.enter(synchronous(MS, 20 * MS), 30))
    world.enter(steady(MS), 50)
    world.run(5 * S)
    assert max(tenant.waits[1:]) <= 100 * US


def test_after_an_interruption_it_is_let_in_under_another_number() -> None:
    """Whatever it was told before holds no longer."""
    world = World()
    tenant = exempt(world, world.enter(synchronous(MS, 5 * MS), 30))
    other = world.enter(steady(MS), 50)
    world.run(S)
    begun = len(tenant.waits)
    before = lib.aq_scheduler_lease(tenant.native, 0)
    lib.aq_scheduler_interrupt(world.scheduler, world.now)
    after = lib.aq_scheduler_lease(tenant.native, 0)
    assert after.serial != before.serial
    world.run(2 * S)
    assert max(tenant.waits[begun:]) <= 100 * US
    assert other.had(S) >= 0.48 * S


def test_work_that_was_in_flight_is_waited_for_when_it_is_exempt_no_longer() -> None:
    """As after a lease."""
    scheduler = Scheduler()
    tenant, other = scheduler.enter(CARD), scheduler.enter(CARD)
    lib.aq_scheduler_exempt(tenant, 1)
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step(MS)
    assert scheduler.is_open(tenant, 0)
    scheduler.say(tenant, 0, in_flight=1)
    lib.aq_scheduler_exempt(tenant, 0)
    scheduler.say(other, 0, waiting=1)
    scheduler.step(US)
    assert not scheduler.is_open(other, 0)
    scheduler.say(tenant, 0)
    scheduler.step(US)
    assert scheduler.is_open(other, 0)


def test_a_gate_that_a_lease_had_opened_is_closed_where_it_is_ahead() -> None:
    """Under another number, or its processes would not hear of it."""
    scheduler = Scheduler()
    tenant, other = scheduler.enter(CARD, share=10), scheduler.enter(CARD)
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    before = lib.aq_scheduler_lease(tenant, 0)
    assert before.open
    scheduler.say(tenant, 0, in_flight=1, used=5 * MS)
    scheduler.say(other, 0, waiting=1)
    lib.aq_scheduler_exempt(tenant, 1)
    scheduler.step(US)
    scheduler.step(US)
    after = lib.aq_scheduler_lease(tenant, 0)
    assert not after.open
    assert after.serial != before.serial


def test_what_should_have_ended_may_be_of_a_process_that_has() -> None:
    """So it is found out."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARD)
    lib.aq_scheduler_exempt(tenant, 1)
    scheduler.step()
    scheduler.say(tenant, 0, in_flight=1)
    assert not lib.aq_scheduler_suspect(scheduler.scheduler, tenant)
    scheduler.step(10 * MS)
    assert lib.aq_scheduler_suspect(scheduler.scheduler, tenant)


def test_who_was_stopped_does_not_make_up_for_all_of_it() -> None:
    """Others would have less than their shares for as long."""
    world = World()
    tenant = exempt(world, world.enter(steady(MS), 30))
    world.enter(steady(MS), 70)
    world.run(S)
    tenant.stopped = True
    world.run(11 * S)
    tenant.stopped = False
    assert percent(world, tenant, 2) <= 40
