"""The scheduler on modelled cards for tenants that have several: together, in turn, and against each other."""

import random
from collections.abc import Sequence

import pytest

from aliquot.arbiter._arbiter import ffi, lib
from tests.unit.arbiter.modelled import FOREVER, MS, US, Process, S, World, steady, synchronous

BURST = 100
TWO = ("GPU-0", "GPU-1")


def percent(world: World, process: Process, card: str, since: int) -> float:
    """Of a card's time from a moment on."""
    return 100 * world.cards[card].had(process, since) / (world.now - since)


def progress(world: World, processes: Sequence[Process], seconds: int) -> list[int]:
    """How many pieces of work each submits in the coming seconds."""
    before = [len(process.waits) for process in processes]
    world.run(world.now + seconds * S)
    return [len(process.waits) - begun for process, begun in zip(processes, before, strict=True)]


# ---- together ----


def collectives(world: World, *tenants: tuple[float, Sequence[str]]) -> list[Process]:
    """Tenants of a share and its cards, all of whose kernels wait for each other on all cards."""
    return [world.enter(steady(MS), share, cards=cards) for share, cards in tenants]


@pytest.mark.parametrize(("skew", "least"), [(50 * US, 1800), (300 * US, 1200), (3 * MS, 560)])
def test_collectives_of_two_tenants_do_not_wait_for_each_other(skew: int, least: int):
    """Each begins its collectives on another card first, and a lease may end before they have begun on the second."""
    world = World()
    tenants = []
    for cards in (("GPU-0", "GPU-1"), ("GPU-1", "GPU-0")):
        tenants.append(world.enter(synchronous(MS, 100 * US), 40, cards=cards))
        tenants[-1].skew = skew
    world.run(S)
    assert min(progress(world, tenants, 5)) >= least


def test_a_tenant_of_two_cards_is_not_overtaken_for_ever():
    """Each of its cards has another tenant, who would always have it."""
    world = World()
    collectives(world, (40, ("GPU-0", "GPU-1")))
    world.enter(steady(3 * MS), 50, BURST, cards=("GPU-0",), at=3 * MS)
    world.enter(steady(7 * MS), 60, BURST, cards=("GPU-1",), at=11 * MS)
    world.run(S)
    assert world.shares(4)[0] >= 36


def test_tenants_in_a_ring_get_their_shares():
    """Of three cards each tenant has two."""
    world = World()
    collectives(world, (30, ("GPU-0", "GPU-1")), (30, ("GPU-1", "GPU-2")), (30, ("GPU-2", "GPU-0")))
    world.run(S)
    assert world.shares(4) == [pytest.approx(30, abs=2)] * 3


# ---- in turn ----


def in_turn(world: World, share: float, stage: int, most: float | None = None) -> Process:
    """A tenant that does so many kernels of 1 ms on one card, then on the other."""
    process = world.enter(synchronous(MS, 100 * US), share, most, cards=TWO)
    process.stage = stage
    return process


@pytest.mark.parametrize(("share", "stage", "least"), [(10, 5, 9), (20, 5, 19), (20, 20, 19), (40, 5, 30)])
def test_cards_that_are_used_in_turn_are_leased_one_by_one(share: int, stage: int, least: int):
    """So a tenant gets its share of each, as far as it can be on one at a time, and others get what it leaves."""
    world = World()
    tenant = in_turn(world, share, stage)
    others = [world.enter(steady(MS), 60, BURST, cards=(card,)) for card in TWO]
    world.run(S)
    world.run(9 * S)
    for card, other in zip(TWO, others, strict=True):
        own = percent(world, tenant, card, S)
        assert least <= own <= share + 0.5
        assert own + percent(world, other, card, S) >= 93


def test_who_waits_for_one_card_does_not_rest_on_the_other():
    """So it is not thought to have had enough of the one when it comes from the other, where all lack something."""
    world = World()
    world.enter(steady(5 * MS), 45, cards=TWO)
    late = world.enter(synchronous(MS, 100 * US), 45, cards=TWO)
    late.skew = 3 * MS
    tenant = in_turn(world, 10, 5)
    world.run(S)
    world.run(6 * S)
    assert all(percent(world, tenant, card, S) >= 6.5 for card in TWO)


def test_cards_that_nobody_else_wants_stay_leased_together():
    """Whoever uses them in turn then waits for nothing."""
    world = World()
    tenant = in_turn(world, 50, 5, BURST)
    world.enter(iter([(MS, -1)]), 50, cards=TWO)
    world.run(S)
    before = len(tenant.waits)
    world.run(3 * S)
    assert max(tenant.waits[before:]) <= 100 * US


@pytest.mark.slow
def test_collectives_that_came_late_once_are_leased_together_again():
    """A card that was leased to others too soon costs a few milliseconds, and soon seldom."""
    world = World()
    late = world.enter(synchronous(MS, 100 * US), 40, cards=TWO)
    late.skew = 3 * MS
    for card in TWO:
        world.enter(steady(MS), 50, BURST, cards=(card,))
    world.run(3 * S)
    kept = World(apart_ns=FOREVER)
    same = kept.enter(synchronous(MS, 100 * US), 40, cards=TWO)
    same.skew = 3 * MS
    for card in TWO:
        kept.enter(steady(MS), 50, BURST, cards=(card,))
    kept.run(3 * S)
    assert progress(world, [late], 8)[0] >= 0.95 * progress(kept, [same], 8)[0]


def told(
    scheduler: object, tenant: object, entity: int, *, waiting: int = 0, in_flight: int = 0, now: int
) -> None:
    """Reports what a tenant says of one of its cards."""
    said = ffi.new(
        "aq_report *", {"waiting": waiting, "in_flight": in_flight, "moving": in_flight, "ends_ns": now + MS}
    )
    lib.aq_scheduler_report(scheduler, tenant, entity, said, now)


def test_a_card_on_which_work_had_begun_is_not_leased_to_others():
    """When the gate closes the tenant may just have looked at it: then it has its card back, under another number."""
    scheduler = ffi.gc(
        lib.aq_scheduler_new(ffi.new("aq_rules *", lib.aq_scheduler_rules()), 0), lib.aq_scheduler_free
    )
    terms = ffi.new("aq_terms[]", [(card.encode(), 4000, 40, 0) for card in TWO])
    tenant, other = (
        lib.aq_scheduler_enter(scheduler, terms, 2),
        lib.aq_scheduler_enter(scheduler, terms + 1, 1),
    )
    for entity in range(2):
        told(scheduler, tenant, entity, waiting=1, now=MS)
    lib.aq_scheduler_step(scheduler, MS)
    told(scheduler, tenant, 0, in_flight=1, now=MS)
    told(scheduler, tenant, 1, now=MS)
    told(scheduler, other, 0, waiting=1, now=MS)
    told(scheduler, tenant, 0, in_flight=1, now=5 * MS)
    lib.aq_scheduler_step(scheduler, 5 * MS)
    closed = lib.aq_scheduler_lease(tenant, 1)
    assert not closed.open
    assert not lib.aq_scheduler_lease(other, 0).open
    told(scheduler, tenant, 1, in_flight=1, now=5 * MS)
    lib.aq_scheduler_step(scheduler, 5 * MS)
    again = lib.aq_scheduler_lease(tenant, 1)
    assert again.open
    assert again.serial != closed.serial
    assert not lib.aq_scheduler_lease(other, 0).open
    told(scheduler, tenant, 1, now=7 * MS)
    told(scheduler, tenant, 0, in_flight=1, now=9 * MS)
    lib.aq_scheduler_step(scheduler, 9 * MS)
    assert not lib.aq_scheduler_lease(tenant, 1).open
    told(scheduler, tenant, 1, now=9 * MS)
    lib.aq_scheduler_step(scheduler, 9 * MS)
    assert lib.aq_scheduler_lease(other, 0).open
    assert lib.aq_scheduler_lease(tenant, 0).open


# ---- at random ----


def throng(seed: int, *, turns: bool, **rules: int) -> tuple[World, list[Process]]:
    """Tenants of two or three cards with collectives, perhaps another that takes turns, and some of one card."""
    rng = random.Random(seed)
    world = World(**rules)
    cards = [f"GPU-{number}" for number in range(rng.choice((2, 3)))]
    several = []
    for share in rng.choice(((30, 30), (40, 40), (15, 25, 30))):
        work = synchronous(
            rng.choice((200 * US, MS, 5 * MS)), rng.choice((0, 100 * US, MS, 3 * MS)), rng.choice((1, 4))
        )
        own, most = rng.sample(cards, rng.randint(2, len(cards))), rng.choice((None, BURST))
        several.append(world.enter(work, share, most, cards=own, at=rng.randrange(20 * MS)))
        several[-1].skew = rng.choice((0, 50 * US, 300 * US, 1200 * US, 3 * MS))
    if turns:
        several.append(world.enter(synchronous(MS, 100 * US), 10, cards=rng.sample(cards, 2)))
        several[-1].stage = rng.choice((1, 5, 20))
    for card in cards:
        if rng.random() < 0.4:
            world.enter(steady(rng.choice((MS, 5 * MS))), 10, rng.choice((None, BURST)), cards=(card,))
    return world, several


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "part"), [(False, 0.8), (True, 0.55)])
def test_whatever_tenants_do_with_several_cards_all_of_them_go_on(*, turns: bool, part: float):
    """Nearly as fast as if each had all its cards at once, less what one has now that uses them in turn."""
    for seed in random.sample(range(10**6), 4):
        print("seed", seed)
        (world, several), (kept, same) = (
            throng(seed, turns=turns),
            throng(seed, turns=turns, apart_ns=FOREVER),
        )
        done, before = progress(world, several, 4), progress(kept, same, 4)
        assert all(now >= part * then - 5 for now, then in zip(done, before, strict=True))
        assert all(max(process.waits) < S for process in several)
