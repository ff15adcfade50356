"""Tenants of a group, each with pages of its own, have their cards at the same time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.arbiter import Terms
from aliquot.libshim._pages import lib
from tests.unit.arbiter.house import MS, House, Tenant, house, until
from tests.unit.arbiter.player import Player

FIRST, SECOND, THIRD = "GPU-0", "GPU-1", "GPU-2"
FOR_LONG_NS = 3_600_000 * MS


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path) as made:
        yield made


def member(home: House, name: str, card: str, group: str = "train") -> tuple[Tenant, Player]:
    """A tenant of one card, which the caller plays."""
    tenant = home.tenant(name, Terms(card, 4000, 40), group=group)
    return tenant, tenant.player()


def wait_for_lease(player: Player) -> None:
    """As a process does that has found its gate closed."""
    player.say(0, lib.AQ_WORK_WAITING)
    player.ring(0)


def hold(home: House, card: str) -> Player:
    """A tenant that has a card, and has it for as long as it likes."""
    player = home.tenant(f"holder of {card}", Terms(card, 4000, 40)).player()
    home.arbiter.quantum(card, FOR_LONG_NS)
    player.pass_gate(0, FOR_LONG_NS)
    return player


def stays_out(player: Player, holder: Player) -> bool:
    """Whether its gate is closed for a while, as long as the other has its card.

    The arbiter, which was told all, opens gates within a millisecond. When it was kept from running it withdraws every
    lease.
    """
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        if player.is_open(0):
            return not holder.is_open(0)
        time.sleep(0.001)
    return True


def blocked(home: House, group: str, others: str) -> tuple[Tenant, Player, Player]:
    """A tenant that wants its card, which is free, and another that wants one that is not; and who has that."""
    holder = hold(home, SECOND)
    tenant, player = member(home, "a", FIRST, group)
    _, other = member(home, "b", SECOND, others)
    wait_for_lease(other)
    wait_for_lease(player)
    return tenant, player, holder


def test_no_member_is_let_in_before_all_can_be(home: House) -> None:
    """And then all are."""
    _, player, holder = blocked(home, "train", "train")
    assert stays_out(player, holder)
    holder.rest(0)
    until(lambda: player.is_open(0))


@pytest.mark.parametrize(("group", "others"), [("", ""), ("train", "serve"), ("train", "")])
def test_who_is_of_another_group_or_of_none_is_not_waited_for(home: House, group: str, others: str) -> None:
    """Its card is free."""
    _, player, _ = blocked(home, group, others)
    until(lambda: player.is_open(0))


def test_who_is_of_no_group_any_more_is_waited_for_no_longer(home: House) -> None:
    """Its pages are what they were, and it may come back."""
    tenant, player, holder = blocked(home, "train", "train")
    assert stays_out(player, holder)
    home.arbiter.enter("a", tenant.control, tenant.usage, tenant.terms)
    until(lambda: player.is_open(0))
    player.rest(0)
    home.arbiter.enter("a", tenant.control, tenant.usage, tenant.terms, "train")
    wait_for_lease(player)
    assert stays_out(player, holder)


@pytest.mark.parametrize("goes", [True, False])
def test_who_has_the_card_of_a_member_belongs_to_the_group_when_that_has_left(
    home: House, *, goes: bool
) -> None:
    """As a pod that takes the place of another, while that still ends, or now is of another group."""
    holder = hold(home, SECOND)
    (_, other), (first, _), (_, player) = (
        member(home, name, card) for name, card in (("b", SECOND), ("a", FIRST), ("c", FIRST))
    )
    wait_for_lease(other)
    wait_for_lease(player)
    until(lambda: player.is_open(0))
    player.rest(0)
    if goes:
        home.arbiter.leave("a")
    else:
        home.arbiter.enter("a", first.control, first.usage, first.terms, "serve")
    wait_for_lease(player)
    assert stays_out(player, holder)
    holder.rest(0)
    until(lambda: player.is_open(0))


def test_each_member_has_its_own_account_whoever_leaves(home: House) -> None:
    """Of its own card."""
    players = {
        name: member(home, name, card)[1] for name, card in zip("abc", (FIRST, SECOND, THIRD), strict=True)
    }
    expected = dict.fromkeys("abc", 0)

    def work(name: str, kernel_ns: int) -> None:
        begin, end = players[name].run(0, kernel_ns)[1:]
        expected[name] += end - begin
        players[name].rest(0)

    def are_charged() -> bool:
        tenants = home.arbiter.tenants()
        return all(
            card.used_ns == expected[name] for name in tenants for card in tenants[name].cards.values()
        )

    for name, ms in zip("abc", (2, 4, 6), strict=True):
        work(name, ms * MS)
    until(are_charged)
    home.arbiter.leave("a")
    for name in "bc":
        work(name, 3 * MS)
    until(are_charged)
