"""Which card `aliquot run` takes a slice of, and with which words it refuses."""

from dataclasses import replace

import pytest

from aliquot.cli.display.amounts import CoreAmount, MemoryAmount
from aliquot.cli.options import Refusal
from aliquot.cli.runs.card_choice import Wish, fit, refit, room_on
from aliquot.cli.runs.machine import Card
from aliquot.cli.runs.slices import Slice
from aliquot.units import GIB, MIB

FIRST = Card(uuid="GPU-a", index=0, model="H200", memory_bytes=16 * GIB, used_bytes=0)
SECOND = replace(FIRST, uuid="GPU-b", index=1)
CARDS = (FIRST, SECOND)


def wish(memory: int | None = None, core: int | None = None, card: str | None = None) -> Wish:
    """A wish for bytes and percent."""
    return Wish(None if memory is None else MemoryAmount(memory), core, card)


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


def test_the_beginning_of_a_uuid_is_a_name_while_it_is_unique():
    """As in CUDA_VISIBLE_DEVICES; of two cards none is guessed."""
    cards = [replace(FIRST, uuid="GPU-8d7a"), replace(SECOND, uuid="GPU-8e11")]
    assert fit(wish(GIB, card="GPU-8e"), cards, []).card == "GPU-8e11"
    with pytest.raises(
        Refusal, match=r"several cards begin with 'GPU-8'; there are 0 = GPU-8d7a, 1 = GPU-8e11"
    ):
        fit(wish(GIB, card="GPU-8"), cards, [])


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


def test_memory_that_programs_without_a_slice_use_is_not_given_out():
    """The card that seems empty by its slices alone is passed over; the refusal says why it is full."""
    used = replace(FIRST, outside_bytes=10 * GIB)
    assert fit(wish(12 * GIB), [used, SECOND], []).card == "GPU-b"
    assert fit(wish(6 * GIB), [used, SECOND], []).card == "GPU-a"
    words = r"card 0 \(GPU-a\) has 6Gi of 16Gi and 100 % of its time left \(10Gi are used by programs without a slice\)"
    with pytest.raises(Refusal, match=words):
        fit(wish(12 * GIB), [used], [])


def test_a_percentage_of_memory_is_of_the_card():
    """50% of a card of 16 GiB is 8 GiB, in whole MiB."""
    half = Wish(MemoryAmount(50, of_card=True), None)
    assert fit(half, CARDS, []).memory_bytes == 8 * GIB


@pytest.mark.parametrize(
    ("memory", "core", "now"),
    [
        (MemoryAmount(GIB, sign=1), None, (3 * GIB, 30)),
        (MemoryAmount(GIB, sign=-1), None, (GIB, 30)),
        (MemoryAmount(25, of_card=True), None, (4 * GIB, 30)),
        (MemoryAmount(25, of_card=True, sign=1), None, (6 * GIB, 30)),
        (None, CoreAmount(10, 1), (2 * GIB, 40)),
        (None, CoreAmount(10, -1), (2 * GIB, 20)),
        (None, CoreAmount(0), (2 * GIB, 0)),
    ],
)
def test_a_resize_may_say_how_much_more_or_less(
    memory: MemoryAmount | None, core: CoreAmount | None, now: tuple[int, int]
):
    """A sign changes what there is; without one it is replaced."""
    share = refit(Slice("GPU-a", 2 * GIB, 30), memory, core, room_on(FIRST, []))
    assert (share.memory_bytes, share.core_percent) == now


def test_a_resize_that_leaves_nothing_is_refused():
    """A slice of nothing is none, and a share is given up by a word."""
    current, room = Slice("GPU-a", 2 * GIB, 30), room_on(FIRST, [])
    with pytest.raises(Refusal, match="the run has 2Gi, and so much less is nothing; end it instead"):
        refit(current, MemoryAmount(2 * GIB, sign=-1), None, room)
    with pytest.raises(
        Refusal, match="the run has 30 % of the card's time; to give up its share, write --core none"
    ):
        refit(current, None, CoreAmount(30, -1), room)
    with pytest.raises(Refusal, match="at most 16Gi and 100 % of its time"):
        refit(current, None, CoreAmount(71, 1), room)


def test_more_than_a_whole_card_is_not_had_by_ending_runs():
    """The remedy is what helps, and names what there could be at most."""
    with pytest.raises(Refusal, match=r"left; ask for less: a whole card has 16Gi$"):
        fit(wish(17 * GIB), CARDS, [Slice("GPU-a", GIB)])
    room = room_on(FIRST, [])
    with pytest.raises(Refusal, match=r"; ask for less: a whole card has 16Gi$"):
        refit(Slice("GPU-a", GIB), MemoryAmount(16 * GIB, sign=1), None, room)
    with pytest.raises(Refusal, match=r"; ask for less: the whole of a card's time is 100 %$"):
        refit(Slice("GPU-a", GIB, 30), None, CoreAmount(90, 1), room)
    with pytest.raises(Refusal, match=r"; ask for less, or end a run \(see `aliquot cards`\)$"):
        fit(wish(16 * GIB, card="0"), CARDS, [Slice("GPU-a", GIB)])
