"""The scheduler for a tenant that several pods make up: entities join it, move and leave while it holds leases."""

import random
from typing import Any

import pytest

from aliquot.arbiter._arbiter import ffi, lib
from tests.unit.arbiter.modelled import MS, US, Card, Entity, Process, S, Work, World, steady, synchronous
from tests.unit.arbiter.scheduler_by_hand import Scheduler

CARDS = tuple(f"GPU-{number}" for number in range(4))
MOST_CARDS = 16


def join(world: World, member: Process, work: Work, card: str, share: int = 50) -> Process:
    """A process of another member of the same tenant, with a card of its own."""
    index = world.join(member.native, (card.encode(), share * 100, share, 0))
    entity = Entity(world.cards.setdefault(card, Card(world)), index)
    entity.told = lib.aq_scheduler_lease(member.native, index)
    process = Process(world, work, [entity], member.native)
    world.processes.append(process)
    world.at(0, process.go)
    return process


# ---- together ----


def contested(*, joined: bool) -> tuple[World, Process]:
    """A tenant of collectives on two cards, each of which has another tenant that always wants it."""
    world = World()
    tenant = world.enter(synchronous(2 * MS, 100 * US), 50, cards=CARDS[:2], joined=joined)
    for number, card in enumerate(CARDS[:2]):
        world.enter(steady(MS), 50, cards=(card,), at=(1 + 4 * number) * MS)
    return world, tenant


def test_entities_that_have_joined_are_leased_as_if_they_had_entered_together() -> None:
    """Ranks in pods of a card each are what a pod with all the cards is."""
    progress = []
    for joined in (False, True):
        world, tenant = contested(joined=joined)
        world.run(5 * S)
        progress.append(len(tenant.waits))
    assert progress[1] == progress[0] > 900


def test_who_joins_under_a_lease_is_let_in_with_the_next_one() -> None:
    """The first has its card alone no longer than until the other asks."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARDS[0])
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    assert scheduler.is_open(tenant, 0)
    scheduler.say(tenant, 0, in_flight=1)
    rival = scheduler.enter(CARDS[1])
    assert scheduler.join(tenant, CARDS[1]) == 1
    scheduler.say(rival, 0, waiting=1)
    scheduler.say(tenant, 1, waiting=1)
    scheduler.step(MS)
    assert not scheduler.is_open(tenant, 0)
    scheduler.say(tenant, 0, waiting=1, used=MS)
    scheduler.step(MS)
    assert scheduler.is_open(tenant, 0) == scheduler.is_open(tenant, 1) != scheduler.is_open(rival, 0)


def test_neither_is_let_in_where_the_other_cannot_be() -> None:
    """One would wait for the other on its card, in others' time."""
    scheduler = Scheduler()
    rival = scheduler.enter(CARDS[1])
    scheduler.say(rival, 0, waiting=1)
    scheduler.step()
    scheduler.say(rival, 0, in_flight=1)
    tenant = scheduler.enter(CARDS[0])
    scheduler.join(tenant, CARDS[1])
    for entity in range(2):
        scheduler.say(tenant, entity, waiting=1)
    scheduler.step(MS)
    assert not scheduler.is_open(tenant, 0)
    assert not scheduler.is_open(tenant, 1)
    scheduler.say(rival, 0, used=MS)
    scheduler.step(MS)
    scheduler.say(rival, 0)
    scheduler.step(US)
    assert scheduler.is_open(tenant, 0)
    assert scheduler.is_open(tenant, 1)


def test_who_was_not_let_in_is_not_asked_whether_its_work_has_ended() -> None:
    """Another's processes may be read much later."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARDS[0])
    scheduler.join(tenant, CARDS[1])
    rival, _ = scheduler.enter(CARDS[0]), scheduler.enter(CARDS[1])
    scheduler.say(tenant, 1)
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    scheduler.say(tenant, 0, in_flight=1)
    scheduler.say(rival, 0, waiting=1)
    scheduler.step(11 * MS)
    scheduler.say(tenant, 0, used=11 * MS)
    scheduler.step(US)
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step(US)
    assert scheduler.is_open(rival, 0)


@pytest.mark.parametrize("cards", [(CARDS[0],), (CARDS[1], CARDS[0])])
def test_no_tenant_has_two_entities_at_a_card(cards: tuple[str, ...]) -> None:
    """Nothing has changed for it then."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARDS[0])
    assert scheduler.join(tenant, *cards) == -1
    assert scheduler.join(tenant, CARDS[2]) == 1


def test_no_tenant_has_more_entities_than_a_page_has_cards() -> None:
    """It keeps those that it has."""
    scheduler = Scheduler()
    tenant = scheduler.enter(*(f"GPU-{number}" for number in range(MOST_CARDS - 1)))
    assert scheduler.join(tenant, "GPU-a", "GPU-b") == -1
    assert scheduler.join(tenant, "GPU-a") == MOST_CARDS - 1


# ---- whose work does not end ----


@pytest.mark.parametrize(("pause", "length"), [(-1, 300 * MS), (100 * US, 1000 * S)])
def test_others_have_their_shares_beside_a_member_whose_work_is_long(pause: int, length: int) -> None:
    """Whatever another member says to have used meanwhile, that work still is on its card."""
    world = World()
    member = world.enter(synchronous(MS, pause), 50, cards=CARDS[:1])
    join(world, member, steady(length), CARDS[1])
    world.enter(steady(MS), 50, cards=CARDS[:1], at=2 * MS)
    rival = world.enter(steady(MS), 50, cards=CARDS[1:2], at=2 * MS)
    world.run(11 * S)
    assert rival.had(S) >= 0.48 * 10 * S


# ---- who leaves ----


def test_entities_behind_one_that_leaves_keep_gate_and_account() -> None:
    """They have moved up."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARDS[0])
    scheduler.join(tenant, CARDS[1])
    scheduler.join(tenant, CARDS[2])
    for entity in range(3):
        scheduler.say(tenant, entity, waiting=1)
    scheduler.step()
    for entity in range(3):
        scheduler.say(tenant, entity, in_flight=1, used=(entity + 1) * US)
    before = [scheduler.used(tenant, entity) for entity in (1, 2)]
    scheduler.leave(tenant, 0)
    assert [scheduler.used(tenant, entity) for entity in range(2)] == before == [2 * US, 3 * US]
    assert scheduler.is_open(tenant, 0)
    assert scheduler.is_open(tenant, 1)
    scheduler.say(tenant, 1, in_flight=1, used=US)
    assert [scheduler.used(tenant, entity) for entity in range(2)] == [2 * US, 4 * US]


@pytest.mark.parametrize("left", [False, True])
def test_the_highest_priority_of_those_that_are_there_counts_for_all(*, left: bool) -> None:
    """And that of one that has left no longer."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARDS[0])
    scheduler.join(tenant, CARDS[1], priority=9)
    rival = scheduler.enter(CARDS[0], priority=5)
    if left:
        scheduler.leave(tenant, 1)
    for one in (rival, tenant):
        scheduler.say(one, 0, waiting=1)
    scheduler.step()
    assert scheduler.is_open(rival, 0) == left
    assert scheduler.is_open(tenant, 0) != left


# ---- who moves ----


@pytest.mark.parametrize("to_others", [False, True])
def test_who_moves_takes_its_debt_along(*, to_others: bool) -> None:
    """So nothing is gained by changing groups."""
    scheduler = Scheduler()
    tenant, others, rival = scheduler.enter(CARDS[0]), scheduler.enter(CARDS[1]), scheduler.enter(CARDS[0])
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    scheduler.say(tenant, 0, used=30 * MS)
    scheduler.step(30 * MS)
    moved, entity = scheduler.move(tenant, 0, 1, others if to_others else ffi.NULL)
    assert entity == int(to_others)
    assert scheduler.used(moved, entity) == 30 * MS
    scheduler.step(MS)
    scheduler.say(moved, entity, waiting=1)
    scheduler.say(rival, 0, waiting=1)
    scheduler.step()
    assert scheduler.is_open(rival, 0)
    assert not scheduler.is_open(moved, entity)


@pytest.mark.parametrize("to_others", [False, True])
def test_who_moves_goes_on_paying_for_work_that_does_not_end(*, to_others: bool) -> None:
    """It is a stray wherever it is: others are let in beside it, and it is charged its part."""
    scheduler = Scheduler()
    tenant, others, rival = scheduler.enter(CARDS[0]), scheduler.enter(CARDS[1]), scheduler.enter(CARDS[0])
    scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    while not scheduler.is_open(rival, 0):
        assert scheduler.now < 1000 * MS
        scheduler.say(tenant, 0, in_flight=1)
        scheduler.say(rival, 0, waiting=1)
        scheduler.step(10 * MS)
    moved, entity = scheduler.move(tenant, 0, 1, others if to_others else ffi.NULL)
    before = scheduler.used(moved, entity)
    scheduler.say(moved, entity, in_flight=1)
    scheduler.step(10 * MS)
    assert scheduler.used(moved, entity) >= before + 5 * MS


def test_who_cannot_move_stays() -> None:
    """With all that it has."""
    scheduler = Scheduler()
    tenant, other = scheduler.enter(*CARDS[:2]), scheduler.enter(*CARDS[1:3])
    scheduler.say(tenant, 1, waiting=1)
    scheduler.step()
    moved, entity = scheduler.move(tenant, 1, 1, other)
    assert moved == ffi.NULL
    assert entity == 1
    assert scheduler.is_open(tenant, 1)


def test_a_move_leaves_the_others_where_they_were() -> None:
    """But for those behind, which have moved up."""
    scheduler = Scheduler()
    tenant = scheduler.enter(*CARDS[:3])
    for entity in range(3):
        scheduler.say(tenant, entity, used=(entity + 1) * US)
    moved, entity = scheduler.move(tenant, 1, 1)
    assert (scheduler.used(moved, entity), scheduler.used(tenant, 0), scheduler.used(tenant, 1)) == (
        2 * US,
        US,
        3 * US,
    )


def test_who_moves_is_lent_nothing_for_what_the_others_were_not_lent() -> None:
    """Its turn is where it was, so nothing is gained by the group of one that has done nothing yet."""
    world = World()
    tenant, rival = (world.enter(steady(MS), 10, 100) for _ in range(2))
    other = world.enter(iter([]), 10, 100, cards=CARDS[1:2])
    world.run(5 * S)
    number = ffi.new("uint32_t *", 0)
    tenant.native = lib.aq_scheduler_move(world.scheduler, tenant.native, number, 1, other.native)
    tenant.entities[0].index = number[0]
    world.run(7 * S)
    assert tenant.had(5 * S) <= 0.55 * 2 * S
    assert rival.had(5 * S) >= 0.45 * 2 * S


# ---- whom nobody believes ----


@pytest.mark.parametrize("length", [20 * MS, 100 * MS])
def test_work_of_others_is_waited_for_beside_one_that_nobody_believes(length: int) -> None:
    """Whoever has their card next has it without it."""
    world = World()
    member = world.enter(steady(length), 50, cards=CARDS[:1])
    other = join(world, member, iter([]), CARDS[1])
    lib.aq_scheduler_trust(member.native, other.entities[0].index, 1, lib.AQ_BLIND)
    rival = world.enter(steady(MS), 50, cards=CARDS[:1], at=2 * MS)
    world.run(11 * S)
    assert rival.had(S) >= 0.48 * 10 * S


def test_the_words_of_others_are_believed_beside_one_whose_are_not() -> None:
    """It is charged for the time that it holds its card, they for what they use."""
    scheduler = Scheduler()
    tenant = scheduler.enter(CARDS[0])
    scheduler.join(tenant, CARDS[1])
    for entity in range(2):
        scheduler.say(tenant, entity, waiting=1)
    scheduler.step()
    lib.aq_scheduler_trust(tenant, 1, 1, lib.AQ_DOUBTED)
    scheduler.now += 4 * MS
    for entity in range(2):
        scheduler.say(tenant, entity, in_flight=1, used=MS)
    assert scheduler.used(tenant, 0) == MS
    assert scheduler.used(tenant, 1) == 4 * MS


# ---- at random ----


def test_no_two_tenants_have_a_card_at_once_whoever_comes_and_goes() -> None:
    """Where all work ends as it should; and in the end whoever is there has its turn."""
    for seed in random.sample(range(10**6), 40):
        print("seed", seed)
        Scene(random.Random(seed)).play()


class Scene:
    """Entities of some tenants that come, work, move and go at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.scheduler = Scheduler()
        self.tenants: list[tuple[Any, list[str]]] = []
        self.served: set[Any] = set()

    def play(self) -> None:
        """A while of it, then all that are there want their cards until each has had its turn."""
        for _ in range(150):
            self.rng.choice([self.come, self.join, self.move, self.go, *[self.work] * 8])()
        for _ in range(400):
            self.work()
        assert self.served >= {tenant for tenant, _ in self.tenants}

    def come(self) -> None:
        """A tenant enters."""
        if len(self.tenants) < 4:
            cards = self.rng.sample(CARDS, self.rng.randint(1, 2))
            self.tenants.append((self.scheduler.enter(*cards, share=25), cards))

    def join(self) -> None:
        """An entity joins a tenant, where it may."""
        if self.tenants:
            (tenant, cards), card = self.rng.choice(self.tenants), self.rng.choice(CARDS)
            place = self.scheduler.join(tenant, card, share=25)
            assert place == (-1 if card in cards else len(cards))
            if place >= 0:
                cards.append(card)

    def move(self) -> None:
        """An entity moves, where it may."""
        if self.tenants:
            self.rest()
            tenant, cards = self.rng.choice(self.tenants)
            to, others = self.rng.choice([*self.tenants, (ffi.NULL, [])])
            entity = self.rng.randrange(len(cards))
            if to == tenant:
                return
            moved, place = self.scheduler.move(tenant, entity, 1, to)
            assert (moved == ffi.NULL) == (cards[entity] in others)
            if moved != ffi.NULL:
                assert place == len(others)
                others.append(cards.pop(entity))
                self.keep((tenant, cards), (moved, others))

    def keep(self, old: tuple[Any, list[str]], new: tuple[Any, list[str]]) -> None:
        """Those that have entities."""
        self.served -= {old[0], new[0]}
        others = [one for one in self.tenants if one[0] not in (old[0], new[0])]
        self.tenants = [*others, *(one for one in (old, new) if one[1])]

    def go(self) -> None:
        """An entity leaves."""
        if self.tenants:
            self.rest()
            tenant, cards = self.rng.choice(self.tenants)
            entity = self.rng.randrange(len(cards))
            self.scheduler.leave(tenant, entity)
            cards.pop(entity)
            if not cards:
                self.tenants.remove((tenant, cards))
                self.served.discard(tenant)

    def rest(self) -> None:
        """All work has ended, so that nothing is in flight of who moves or goes."""
        for tenant, cards in self.tenants:
            for entity in range(len(cards)):
                self.scheduler.say(tenant, entity, waiting=1)

    def work(self) -> None:
        """All want all their cards; who was let in works for a moment, on all of them at once, and says so."""
        self.scheduler.step(self.rng.randrange(MS))
        holders = dict.fromkeys(CARDS, 0)
        for tenant, cards in self.tenants:
            for entity, card in enumerate(cards):
                is_open = self.scheduler.is_open(tenant, entity)
                holders[card] += is_open
                self.scheduler.say(
                    tenant, entity, waiting=not is_open, in_flight=is_open, used=100 * US * is_open
                )
                self.served |= {tenant} if is_open else set()
        assert max(holders.values()) <= 1
