"""Which card a run gets: the fullest one that still has room, so that large slices find room later."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from aliquot.cli.display.amounts import WHOLE, CoreAmount, MemoryAmount
from aliquot.cli.display.wording import size
from aliquot.cli.options import Refusal
from aliquot.cli.runs.machine import Card
from aliquot.cli.runs.slices import Slice
from aliquot.request.core_policy import NO_POLICY, CorePolicy
from aliquot.request.pod_request import ManagedMemory
from aliquot.units import MIB


@dataclass(frozen=True)
class Wish:
    """What a run asks for: memory and percent of the time (None: not said), a card by UUID or index (None: any).

    The policy says how its time is held, and `managed` how its managed memory counts.
    """

    memory: MemoryAmount | None
    core_percent: int | None
    card: str | None = None
    policy: CorePolicy = NO_POLICY
    managed: ManagedMemory = ManagedMemory.RESERVE

    def memory_on(self, card: Card) -> int:
        """Bytes of this card: as said, or the same percentage as of its time, in whole MiB."""
        if self.memory is not None:
            return self.memory.on(card.memory_bytes)
        return card.memory_bytes * (self.core_percent or WHOLE) // WHOLE // MIB * MIB


@dataclass(frozen=True)
class Room:
    """A card and what is left of it: neither promised to a run nor in use by other programs."""

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
        left, whole = size(self.memory_bytes), size(self.card.memory_bytes)
        words = f"{self.card} has {left} of {whole} and {max(0, self.core_percent)} % of its time left"
        if self.card.outside_bytes < MIB:
            return words
        return f"{words} ({size(self.card.outside_bytes)} are used by programs without a slice)"


def room_on(card: Card, slices: Sequence[Slice]) -> Room:
    """What the slices, and programs without one, leave of a card."""
    own = [share for share in slices if share.card == card.uuid]
    return Room(
        card,
        memory_bytes=card.memory_bytes - card.outside_bytes - sum(share.memory_bytes for share in own),
        core_percent=WHOLE - sum(share.core_percent for share in own),
    )


def fit(wish: Wish, cards: Sequence[Card], slices: Sequence[Slice]) -> Slice:
    """The slice that honours the wish, never more than is left of a card.

    Raises:
        Refusal: no such card, or no room; it says what is left.
    """
    rooms = [room_on(card, slices) for card in _candidates(wish, cards)]
    fitting = [room for room in rooms if room.holds(wish)]
    if not fitting:
        raise Refusal(_no_room(wish, rooms))
    card = min(fitting, key=lambda room: (room.memory_bytes, room.card.index)).card
    return Slice(card.uuid, wish.memory_on(card), wish.core_percent or 0, wish.policy, wish.managed)


def refit(current: Slice, memory: MemoryAmount | None, core: CoreAmount | None, room: Room) -> Slice:
    """The slice with other limits, on the card it has; None leaves a limit as it is.

    Args:
        current: What the run has.
        memory: What it shall have, or how much more or less.
        core: The same of the card's time; 0 gives up the share.
        room: What the others leave of the card. What is not raised always fits.

    Raises:
        Refusal: what is raised does not fit beside the others, or nothing would be left.
    """
    wanted = memory.after(current.memory_bytes, room.card.memory_bytes) if memory else current.memory_bytes
    percent = core.after(current.core_percent) if core else current.core_percent
    if wanted <= 0:
        raise Refusal(
            f"the run has {size(current.memory_bytes)}, and so much less is nothing; end it instead"
        )
    if percent < 0 or (percent == 0 and core and core.sign):
        raise Refusal(
            f"the run has {current.core_percent} % of the card's time; to give up its share, write --core none"
        )
    short = wanted > max(current.memory_bytes, room.memory_bytes) or percent > max(
        current.core_percent, room.core_percent
    )
    if short:
        most = f"{size(room.memory_bytes)} and {max(0, room.core_percent)} % of its time"
        raise Refusal(
            f"no room to grow to {_spell(wanted, percent)}: on {room.card} this run can have at most {most} beside the "
            f"others; {_remedy(wanted, percent, [room.card], 'shrink or end another run')}"
        )
    return replace(current, memory_bytes=wanted, core_percent=percent)


def _spell(memory: int, core: int) -> str:
    return f"{size(memory)} and {core} %" if core else size(memory)


def _candidates(wish: Wish, cards: Sequence[Card]) -> Sequence[Card]:
    if not cards:
        raise Refusal("the NVIDIA driver shows no card")
    if wish.card is None:
        return cards
    chosen = [card for card in cards if card.has_name(wish.card)]
    if len(chosen) != 1:
        known = ", ".join(f"{card.index} = {card.uuid}" for card in cards)
        which = "several cards begin with" if chosen else "there is no card"
        raise Refusal(f"{which} {wish.card!r}; there are {known}")
    return chosen


def _no_room(wish: Wish, rooms: Sequence[Room]) -> str:
    memory, core = wish.memory_on(rooms[0].card), wish.core_percent or 0
    left = ", ".join(str(room) for room in rooms)
    remedy = _remedy(memory, core, [room.card for room in rooms], "end a run")
    return f"no room for a slice of {_spell(memory, core)}: {left}; {remedy}"


def _remedy(memory: int, core: int, cards: Sequence[Card], otherwise: str) -> str:
    """What helps: ending other runs does not, where more is asked for than a whole card has."""
    largest = max(card.memory_bytes for card in cards)
    if memory > largest:
        return f"ask for less: a whole card has {size(largest)}"
    if core > WHOLE:
        return f"ask for less: the whole of a card's time is {WHOLE} %"
    return f"ask for less, or {otherwise} (see `aliquot cards`)"
