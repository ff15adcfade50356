"""Which card `aliquot run` takes a slice of, and with which words it refuses."""

from dataclasses import replace

import pytest

from aliquot.cli.fit import Wish, fit, room_on
from aliquot.cli.machine import Card
from aliquot.cli.options import Refusal
from aliquot.cli.slices import Slice
from aliquot.units import GIB, MIB

FIRST = Card(uuid="GPU-a", index=0, model="H200", memory_bytes=16 * GIB, used_bytes=0)
SECOND = replace(FIRST, uuid="GPU-b", index=1)
CARDS = (FIRST, SECOND)


def wish(memory: int | None = None, core: int | None = None, card: str | None = None) -> Wish:
    """A wish for bytes and percent."""
    return Wish(memory_bytes=memory, core_percent=core, card=card)


def test_the_fullest_card_with_room_is_taken():
    """Small slices gather on one card, so that the other keeps room for a large one."""
    taken = [Slice("GPU-b", 4 * GIB)]
    assert fit(wish(2 * GIB), CARDS, taken).card == "GPU-b"
    assert fit(wish(13 * GIB), CARDS, taken).card == "GPU-a"


@pytest.mark.parametrize("name", ["1", "GPU-b"])
def test_a_card_is_chosen_by_index_or_uuid(name: str):
    """--card takes either name."""
    assert fit(wish(GIB, card=name), CARDS, []).card == "GPU-b"


def test_a_share_of_time_alone_takes_the_same_share_of_memory():
    """--core 25 alone is a quarter of the memory too, in whole MiB."""
    share = fit(wish(core=25), [replace(FIRST, memory_bytes=16 * GIB + 5)], [])
    assert share == Slice("GPU-a", 4 * GIB, 25)


def test_memory_is_rounded_up_to_a_mebibyte():
    """A tenant gets at least what it asked for."""
    assert fit(wish(GIB + 1), CARDS, []).memory_bytes == GIB + MIB


def test_slices_fill_a_card_to_the_last_byte_and_no_further():
    """The sum of the slices of a card is never more than the card."""
    taken = [Slice("GPU-a", 15 * GIB)]
    assert fit(wish(GIB, card="0"), CARDS, taken).memory_bytes == GIB
    with pytest.raises(Refusal, match=r"card 0 \(GPU-a\) has 1Gi of 16Gi"):
        fit(wish(GIB + MIB, card="0"), CARDS, taken)


def test_shares_of_time_add_up_to_a_hundred():
    """A card's time is not promised twice."""
    taken = [Slice("GPU-a", GIB, 80)]
    assert fit(wish(GIB, 20, card="0"), CARDS, taken).core_percent == 20
    with pytest.raises(Refusal, match="20 % of its time left"):
        fit(wish(GIB, 21, card="0"), CARDS, taken)


def test_an_unknown_card_is_refused_with_those_there_are():
    """The refusal names the cards one can write instead."""
    with pytest.raises(Refusal, match=r"no card '7'; there are 0 = GPU-a, 1 = GPU-b"):
        fit(wish(GIB, card="7"), CARDS, [])


def test_a_card_in_mig_mode_has_no_slices():
    """Such a card is divided by the hardware."""
    with pytest.raises(Refusal, match="is in MIG mode"):
        fit(wish(GIB), [replace(FIRST, mig_enabled=True)], [])


def test_a_machine_without_cards_is_refused():
    """A driver that shows no card is no riddle."""
    with pytest.raises(Refusal, match="shows no card"):
        fit(wish(GIB), [], [])


def test_room_counts_only_the_slices_of_that_card():
    """Another card's slices take nothing."""
    assert room_on(FIRST, [Slice("GPU-b", GIB, 50)]).memory_bytes == 16 * GIB
