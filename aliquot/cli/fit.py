"""Which card a run gets: the fullest one that still has room, so that large slices find room later."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from aliquot.cli.machine import Card
from aliquot.cli.options import Refusal
from aliquot.cli.slices import Slice
from aliquot.core_policy import NO_POLICY, CorePolicy
from aliquot.units import MIB, format_bytes

WHOLE = 100


@dataclass(frozen=True)
class Wish:
    """What a run asks for: bytes and percent (None: not said), a card by UUID or index (None: any).

    The policy says how its time is held.
    """

    memory_bytes: int | None
    core_percent: int | None
    card: str | None = None
    policy: CorePolicy = NO_POLICY

    def memory_on(self, card: Card) -> int:
        """Bytes of this card: as said, or the same percentage as of its time, in whole MiB."""
        if self.memory_bytes is not None:
            return -(-self.memory_bytes // MIB) * MIB
        return card.memory_bytes * (self.core_percent or WHOLE) // WHOLE // MIB * MIB


@dataclass(frozen=True)
class Room:
    """A card and what is not yet promised of it."""

    card: Card
    memory_bytes: int
    core_percent: int

    def holds(self, wish: Wish) -> bool:
        """Whether the wish fits what is left; a card in MIG mode has no room for slices."""
        fits = (
            wish.memory_on(self.card) <= self.memory_bytes and (wish.core_percent or 0) <= self.core_percent
        )
        return fits and not self.card.mig_enabled

    def __str__(self) -> str:
        if self.card.mig_enabled:
            return f"{self.card} is in MIG mode"
        whole = format_bytes(self.card.memory_bytes)
        left = format_bytes(self.memory_bytes)
        return f"{self.card} has {left} of {whole} and {self.core_percent} % of its time left"


def room_on(card: Card, slices: Sequence[Slice]) -> Room:
    """What the slices leave of a card."""
    own = [share for share in slices if share.card == card.uuid]
    return Room(
        card,
        memory_bytes=card.memory_bytes - sum(share.memory_bytes for share in own),
        core_percent=WHOLE - sum(share.core_percent for share in own),
    )


def fit(wish: Wish, cards: Sequence[Card], slices: Sequence[Slice]) -> Slice:
    """The slice that honours the wish, never more than a card has.

    Raises:
        Refusal: no such card, or no room; it says what is left.
    """
    rooms = [room_on(card, slices) for card in _candidates(wish, cards)]
    fitting = [room for room in rooms if room.holds(wish)]
    if not fitting:
        raise Refusal(_no_room(wish, rooms))
    card = min(fitting, key=lambda room: (room.memory_bytes, room.card.index)).card
    return Slice(card.uuid, wish.memory_on(card), wish.core_percent or 0, wish.policy)


def refit(current: Slice, memory_bytes: int | None, core_percent: int | None, room: Room) -> Slice:
    """The slice with other limits, on the card it has; None leaves a limit as it is.

    Args:
        current: What the run has.
        memory_bytes: What it shall have, rounded up to MiB.
        core_percent: The same of the card's time; 0 lifts the cap.
        room: What the other runs leave of the card. What is not raised always fits.

    Raises:
        Refusal: what is raised does not fit beside the others.
    """
    memory = current.memory_bytes if memory_bytes is None else -(-memory_bytes // MIB) * MIB
    core = current.core_percent if core_percent is None else core_percent
    short = memory > max(current.memory_bytes, room.memory_bytes) or core > max(
        current.core_percent, room.core_percent
    )
    if short:
        most = f"{format_bytes(max(0, room.memory_bytes))} and {max(0, room.core_percent)} % of its time"
        raise Refusal(
            f"no room to grow to {_spell(memory, core)}: on {room.card} this run can have at most {most} beside the "
            "others. Ask for less, or shrink or end another run (see `aliquot cards`)"
        )
    return replace(current, memory_bytes=memory, core_percent=core)


def _spell(memory: int, core: int) -> str:
    return f"{format_bytes(memory)} and {core} %" if core else format_bytes(memory)


def _candidates(wish: Wish, cards: Sequence[Card]) -> Sequence[Card]:
    if not cards:
        raise Refusal("the NVIDIA driver shows no card")
    if wish.card is None:
        return cards
    chosen = [card for card in cards if wish.card in {card.uuid, str(card.index)}]
    if not chosen:
        known = ", ".join(f"{card.index} = {card.uuid}" for card in cards)
        raise Refusal(f"there is no card {wish.card!r}; there are {known}")
    return chosen


def _no_room(wish: Wish, rooms: Sequence[Room]) -> str:
    asked = _spell(wish.memory_on(rooms[0].card), wish.core_percent or 0)
    left = "; ".join(str(room) for room in rooms)
    return f"no room for a slice of {asked}: {left}. Ask for less, or end a run (see `aliquot cards`)"
