"""The scheduler on modelled cards: who gets what, to the same nanosecond on every run."""

import random
from collections.abc import Sequence
from itertools import chain, pairwise

import pytest

from aliquot.arbiter._arbiter import lib
from tests.unit.arbiter.modelled import (
    CARD,
    FOREVER,
    MS,
    US,
    WAKE,
    Kernel,
    Process,
    S,
    World,
    at_random,
    steady,
    synchronous,
)

SHORT, LONG = 100 * US, 20 * MS
BURST = 100


def first_after(process: Process, moment: int) -> int:
    """When a process had its card next."""
    return min(
        start for start, _, who in process.entities[0].card.record if who is process and start >= moment
    )


def switches(world: World) -> int:
    """How often the card went from one process to another."""
    record = world.cards[CARD].record
    return sum(before[2] is not after[2] for before, after in pairwise(record))


# ---- shares ----


@pytest.mark.parametrize("percent", [10, 30, 50, 80])
@pytest.mark.parametrize("length", [SHORT, MS, 5 * MS, LONG, 100 * MS])
def test_a_capped_tenant_alone_gets_its_share(percent: int, length: int):
    """Whatever its kernels take."""
    world = World()
    tenant = world.enter(steady(length), percent)
    world.run(2 * S)
    assert world.shares(4) == [pytest.approx(percent, abs=1)]
    assert tenant.account().lent_ns == 0


@pytest.mark.parametrize("every", [1, 8, 64])
def test_a_capped_tenant_that_waits_for_its_work_gets_its_share(every: int):
    """Also if it pauses now and then."""
    world = World()
    world.enter(synchronous(MS, 2 * MS, every), 30)
    assert world.shares(4) == [pytest.approx(30, abs=1)]


@pytest.mark.parametrize("shares", [(30, 30), (60, 30), (50, 50), (30, 70), (10, 90)])
@pytest.mark.parametrize("lengths", [(MS, MS), (SHORT, LONG), (LONG, SHORT)])
def test_two_capped_tenants_get_their_shares(shares: tuple[int, int], lengths: tuple[int, int]):
    """Whatever the lengths of their kernels."""
    world = World()
    for share, length in zip(shares, lengths, strict=True):
        world.enter(steady(length), share)
    assert world.shares(4) == [pytest.approx(share, abs=1.5) for share in shares]


@pytest.mark.parametrize("shares", [(30, 30), (60, 30), (50, 50), (30, 70), (10, 90)])
def test_two_borrowers_share_all_of_the_card(shares: tuple[int, int]):
    """Nobody has less than its share, but for the handing over, and little is left."""
    world = World()
    for share in shares:
        world.enter(steady(MS), share, BURST)
    got = world.shares(4)
    assert sum(got) >= 97
    assert all(had >= share - 1.5 for had, share in zip(got, shares, strict=True))


def test_kernels_longer_than_leases_are_paid_back():
    """100 ms at a time, beside 1 ms."""
    world = World()
    world.enter(steady(MS), 30)
    world.enter(steady(100 * MS), 60)
    assert world.shares(20) == [pytest.approx(30, abs=1), pytest.approx(60, abs=1)]


def test_eight_tenants_get_their_shares():
    """Of kernels of all lengths, the shares adding up to all there is."""
    world = World()
    shares = (5, 5, 10, 10, 10, 10, 20, 30)
    for share, length in zip(shares, (SHORT, MS, 5 * MS, LONG, 500 * US, MS, 2 * MS, 10 * MS), strict=True):
        world.enter(steady(length), share)
    assert world.shares(4) == [pytest.approx(share, abs=1.5) for share in shares]


@pytest.mark.parametrize("lengths", [(SHORT, LONG, MS, 5 * MS, SHORT, MS, LONG, 5 * MS), (MS,) * 8])
@pytest.mark.parametrize("pause", [0, 200 * US])
def test_what_handing_over_takes_is_missing_to_all_alike(lengths: Sequence[int], pause: int):
    """In proportion to their shares: nobody pays for the others, though the larger holds the card more often."""
    world = World()
    shares = (5, 5, 8, 10, 12, 14, 16, 30)
    for share, length in zip(shares, lengths, strict=True):
        world.enter(synchronous(length, pause, max(1, 8 * MS // length)), share)
    got = world.shares(4)
    missing = (100 - sum(got)) / 100
    assert got == [pytest.approx(share * (1 - missing), abs=0.5) for share in shares]


def test_what_a_borrower_has_is_not_taken_from_a_capped_tenant():
    """The rest goes to whom it may be lent, up to what it may have at most."""
    world = World()
    world.enter(steady(MS), 30, 50)
    world.enter(steady(MS), 30)
    assert world.shares(4) == [pytest.approx(50, abs=1), pytest.approx(30, abs=1)]


def test_the_uncapped_share_what_is_left_alike():
    """As the node agent writes it: equal parts of what the shares of others leave."""
    world = World()
    for most in (BURST, BURST, None):
        world.enter(steady(MS), 35 if most else 30, most)
    uncapped, other, capped = world.shares(4)
    assert uncapped == pytest.approx(other, abs=1)
    assert capped == pytest.approx(30, abs=1)
    assert uncapped + other >= 67


def test_a_tenant_that_leaves_gaps_does_so_at_its_own_cost():
    """Who waits for the card gets what is due to it, though the holder does not use what it holds."""
    world = World()
    world.enter(synchronous(SHORT, 500 * US), 50)
    world.enter(steady(MS), 50)
    gaps, busy = world.shares(4)
    assert busy >= 47
    assert gaps >= 7


def test_gaps_cost_nothing_where_there_is_time_for_all():
    """It is no loss for the others then."""
    world = World()
    world.enter(synchronous(MS, 200 * US), 40)
    world.enter(steady(MS), 45)
    assert world.shares(4) == [pytest.approx(40, abs=1), pytest.approx(45, abs=1)]


def test_a_newcomer_is_not_ahead_of_those_that_were_there():
    """Nor behind them."""
    world = World()
    world.enter(steady(MS), 50)
    world.enter(steady(MS), 40)
    world.enter(steady(MS), 10, at=5 * S)
    world.run(5 * S)
    assert world.shares(4) == [pytest.approx(share, abs=1.5) for share in (50, 40, 10)]


def test_a_newcomer_is_lent_no_more_than_the_others():
    """What they were lent before it came is not made up for."""
    world = World()
    world.enter(steady(MS), 10, BURST)
    world.enter(steady(MS), 20, at=5 * S)
    world.enter(steady(MS), 10, BURST, at=5 * S)
    world.run(6 * S)
    assert world.shares(2) == [
        pytest.approx(39.5, abs=2),
        pytest.approx(20, abs=1),
        pytest.approx(39.5, abs=2),
    ]


def test_more_promised_than_there_is_goes_by_the_ratio():
    """Shares that add up to twice the card are halved, and debt does not pile up."""
    world = World()
    world.enter(steady(MS), 80)
    world.enter(steady(MS), 80)
    world.enter(steady(MS), 40, at=8 * S)
    assert world.shares(8)[:2] == [pytest.approx(50, abs=2)] * 2
    assert world.shares(1)[2] >= 15
    assert world.shares(8) == [pytest.approx(share, abs=2.5) for share in (40, 40, 20)]


def test_what_was_missing_for_long_is_not_made_up_for():
    """A capped tenant that had less than its share for half a minute is soon held to it again."""
    world = World()
    long, short = world.enter(steady(MS), 80), world.enter(steady(MS), 80)
    world.run(30 * S)
    short.kill()
    world.run(36 * S)
    assert long.account().lent_ns == 0
    assert world.shares(4)[0] == pytest.approx(80, abs=1)


# ---- coming and going ----


def test_lent_time_is_taken_back_at_once():
    """Who wakes has the card within a window and a kernel, and makes up for nothing longer than its credit."""
    world = World()
    world.enter(steady(MS), 40, BURST)
    wakes = world.enter(chain([(MS, 3 * S)], steady(MS)), 60)
    world.run(S)
    assert world.shares(2) == [pytest.approx(100, abs=3), 0]
    assert world.shares(0.2)[1] >= 60
    assert wakes.waits[1] <= 12 * MS
    assert world.shares(4)[1] == pytest.approx(60, abs=2)


@pytest.mark.slow
def test_an_idle_tenant_saves_up_little():
    """A minute of idleness is worth a tenth of a second."""
    world = World()
    world.enter(steady(MS), 70)
    world.enter(chain([(MS, 60 * S)], steady(MS)), 30)
    world.run(60 * S)
    assert world.shares(1)[1] <= 30 + 4


def test_a_newcomer_has_saved_up_nothing():
    """What passed before its first work was not its own."""
    world = World()
    world.enter(steady(MS), 30, at=S)
    world.run(S)
    assert world.shares(1)[0] <= 31.5


def test_a_rest_pays_no_debt():
    """A long kernel is paid back though its owner slept meanwhile."""
    world = World()
    world.enter(synchronous(90 * MS, 100 * MS), 25)
    world.enter(steady(MS), 50)
    assert world.shares(20) == [pytest.approx(25, abs=1), pytest.approx(50, abs=1)]


def test_short_bursts_do_not_wait_for_whole_leases():
    """Who is due and works a little at a time is let in before the other's lease is over."""
    rng = random.Random(4)
    world = World()
    world.enter(steady(MS), 50, BURST)
    brief = world.enter(at_random(rng, MS, 40 * MS), 50)
    world.run(20 * S)
    assert sorted(brief.waits)[len(brief.waits) * 9 // 10] <= 6 * MS


# ---- priority ----


def test_a_high_priority_is_let_in_at_once():
    """Kernels of 1 ms at random over a greedy neighbour wait 5 ms and a kernel at the most."""
    world = World()
    world.enter(steady(MS), 50, BURST)
    high = world.enter(at_random(random.Random(3), MS, 20 * MS), 50, priority=5)
    world.run(20 * S)
    assert len(high.waits) > 500
    assert sorted(high.waits)[len(high.waits) * 99 // 100] <= 6 * MS


def test_a_high_priority_starves_nobody():
    """Greedy, it has its share; the others have theirs, the higher first."""
    world = World()
    world.enter(steady(MS), 20, BURST)
    world.enter(steady(MS), 30, priority=3)
    world.enter(steady(MS), 50, BURST, priority=9)
    assert world.shares(4) == [pytest.approx(share, abs=3) for share in (20, 30, 50)]


def test_time_that_nobody_claims_goes_to_the_highest_first():
    """The others have their own shares all the same."""
    world = World()
    world.enter(steady(MS), 30, BURST)
    world.enter(steady(MS), 30, BURST, priority=1)
    low, high = world.shares(4)
    assert low == pytest.approx(30, abs=1)
    assert high >= 66


# ---- those who do not play along ----


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_holder_that_is_stopped_or_killed_is_out(how: str):
    """Within 100 ms another has the card, and from then on all of it."""
    world = World()
    tenants = [world.enter(steady(MS), 50, BURST) for _ in range(2)]
    world.run(S)
    while not any(tenant.entities[0].told.open and tenant.entities[0].in_flight for tenant in tenants):
        world.run(world.now + US)
    victim, other = sorted(tenants, key=lambda tenant: not tenant.entities[0].told.open)
    moment = world.now
    if how == "killed":
        victim.kill()
    else:
        victim.stopped = True
    world.run(moment + 200 * MS)
    assert first_after(other, moment) <= moment + 100 * MS
    assert world.shares(4)[tenants.index(other)] >= 99


def test_a_tenant_that_was_stopped_comes_back():
    """When it goes on it has its share again."""
    world = World()
    tenant = world.enter(steady(MS), 50, BURST)
    world.enter(steady(MS), 50, BURST)
    world.run(S)
    tenant.stopped = True
    world.run(3 * S)
    tenant.stopped = False
    world.at(world.now, tenant.go)
    world.run(3300 * MS)
    assert world.shares(4) == [pytest.approx(50, abs=2)] * 2


def test_a_kernel_without_end_costs_the_others_nothing_that_is_theirs():
    """It has the card in turns with them, and they are let in together."""
    world = World()
    world.enter(iter([(FOREVER, -1)]), 30)
    world.enter(steady(MS), 30)
    world.enter(steady(MS), 30)
    world.run(S)
    assert all(had >= 29 for had in world.shares(4)[1:])


def test_work_that_is_not_on_the_card_takes_no_part_of_others_time():
    """Who only says to have some would have its neighbour charged for half of what that had, and be charged itself."""
    world = World()
    absent = world.enter(iter([(FOREVER, -1)]), 30)
    world.enter(steady(MS), 15)
    world.run(S)
    absent.entities[0].card.drop(absent)
    assert world.shares(4)[1] > 25
    lib.aq_scheduler_absent(absent.native, 0, 1, 1)
    before = absent.account().used_ns
    world.run(6 * S)
    assert world.shares(4)[1] == pytest.approx(15, abs=1)
    assert absent.account().used_ns == before
    lib.aq_scheduler_absent(absent.native, 0, 1, 0)
    world.run(11 * S)
    assert absent.account().used_ns > before


def waiting_for_the_host(world: World, process: Process) -> Kernel:
    """What a process has begun on its card is there no more, and not over."""
    world.run(50 * MS)
    card = process.entities[0].card
    kernel = card.queues[process][0]
    card.drop(process)
    return kernel


def ends(world: World, kernel: Kernel, busy: int) -> None:
    """It is over, and its process says to have used so much of the card for it; from now on that has other work."""
    process, entity = kernel.process, kernel.process.entities[0]
    process.work, process._next, entity.ended = steady(MS), None, world.now
    world.at(world.now + WAKE, process._reap, entity, kernel.length, busy)


def test_time_that_was_not_used_is_no_credit():
    """Who says to have work for a while, and then not to have had the card, pays for what it has after that."""
    world = World()
    liar = world.enter(iter([(FOREVER, -1)]), 20)
    for _ in range(6):
        world.enter(steady(MS), 5, BURST)
    kernel = waiting_for_the_host(world, liar)
    world.run(1500 * MS)
    ends(world, kernel, 0)
    world.run(S * 7 // 4)
    before, had = liar.account().used_ns, liar.had()
    world.run(6 * S)
    assert liar.account().used_ns - before == pytest.approx(liar.had() - had, abs=20 * MS)


def test_work_that_waited_for_the_host_is_not_paid_for_when_it_ends():
    """Its events tell of all the time since it began, which others had."""
    world = World()
    honest = world.enter(iter([(FOREVER, -1)]), 40)
    world.enter(steady(MS), 40)
    kernel = waiting_for_the_host(world, honest)
    world.run(2 * S)
    lib.aq_scheduler_absent(honest.native, 0, 1, 1)
    world.run(8 * S)
    ends(world, kernel, world.now - kernel.began)
    world.at(world.now + S // 4, lib.aq_scheduler_absent, honest.native, 0, 1, 0)
    assert world.shares(2)[0] > 35


def test_who_waits_for_the_host_keeps_nobody_out():
    """Though a process of the same tenant waits for the card meanwhile, and has a lease."""
    world = World()
    absent = world.enter(iter([(FOREVER, -1)]), 50)
    for _ in range(2):
        world.enter(steady(MS), 20, BURST)
    waiting_for_the_host(world, absent)
    world.run(2 * S)
    lib.aq_scheduler_absent(absent.native, 0, 1, 1)
    absent.entities[0].waiting = True
    world.ring(absent)
    assert sum(world.shares(4)[1:]) > 80


@pytest.mark.slow
def test_long_kernels_one_after_the_other_are_no_way_around_a_share():
    """Two seconds each: their owner pays for what they kept of the card."""
    world = World()
    world.enter(steady(2 * S), 30)
    world.enter(steady(MS), 30)
    world.enter(steady(MS), 30)
    world.run(4 * S)
    greedy, *others = world.shares(40)
    assert 28 <= greedy <= 36
    assert all(28 <= had <= 36 for had in others)


def test_who_is_doubted_pays_for_what_it_holds():
    """A tenant that says to have used a third of what it did gains by it only while it is believed."""
    world = World()
    liar = world.enter(steady(MS), 30, BURST)
    liar.reports = 0.3
    world.enter(steady(MS), 60, BURST)
    assert world.shares(4)[0] > 34
    lib.aq_scheduler_trust(liar.native, 0, 1, lib.AQ_DOUBTED)
    world.run(5 * S)
    got = world.shares(4)
    assert got[0] <= 31
    assert got[1] >= 60


def test_who_is_not_believed_at_all_still_has_its_share():
    """Less what its draining takes, of which nothing is known; the other loses nothing."""
    world = World()
    noisy = world.enter(steady(MS), 30, BURST)
    world.enter(steady(MS), 50)
    lib.aq_scheduler_trust(noisy.native, 0, 1, lib.AQ_BLIND)
    world.run(S)
    got, other = world.shares(4)
    assert 15 <= got <= 30
    assert other == pytest.approx(50, abs=1.5)


# ---- long quanta ----


@pytest.mark.slow
def test_long_quanta_change_hands_seldom():
    """Two tenants whose memory does not fit together: each has the card for seconds, and both go on."""
    world = World()
    for share in (40, 60):
        world.enter(steady(MS), share, BURST)
    assert lib.aq_scheduler_quantum(world.scheduler, CARD.encode(), 2 * S)
    got = world.shares(120)
    assert got == [pytest.approx(share, abs=3) for share in (40, 60)]
    assert switches(world) <= 120 / 2
    assert lib.aq_scheduler_quantum(world.scheduler, CARD.encode(), 0)
    before = switches(world)
    world.run(world.now + S)
    assert switches(world) - before >= 20


def test_a_quantum_of_a_card_that_nobody_has_is_not_set():
    """Who calls is told."""
    world = World()
    world.enter(steady(MS), 50)
    assert not lib.aq_scheduler_quantum(world.scheduler, b"GPU-elsewhere", S)


@pytest.mark.parametrize("share", [30, 99])
def test_a_capped_tenant_that_is_alone_pauses_seldom(share: int):
    """Each pause costs what a hand-over does, and nobody has the card meanwhile: it makes few, as long as need be."""
    world = World()
    tenant = world.enter(steady(MS), share)
    world.run(S)
    assert world.shares(4) == [pytest.approx(share, abs=0.7)]
    ran = [span for span in world.cards[CARD].record if span[0] > S]
    pauses = [later[0] - earlier[1] for earlier, later in pairwise(ran) if later[0] - earlier[1] > 100 * US]
    assert len(pauses) <= 4 * 1000 * (100 - share) / 100 / 8
    assert tenant.account().used_ns == pytest.approx(tenant.had(), rel=0.01)
