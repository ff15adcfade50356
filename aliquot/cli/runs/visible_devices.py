"""CUDA_VISIBLE_DEVICES of the caller: which cards a batch system, or the user, has chosen for the command."""

from collections.abc import Mapping, Sequence

from aliquot.cli.options import Refusal
from aliquot.cli.runs.machine import Card

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
BUS_ORDER = "PCI_BUS_ID"


def visible(cards: Sequence[Card], environment: Mapping[str, str]) -> tuple[Card, ...]:
    """Those of the cards that the environment leaves, in its order; all of them where it says nothing.

    Raises:
        Refusal: it hides every card, names one that is not there, or counts in an order that is not known here.
    """
    chosen = environment.get(VARIABLE)
    if chosen is None:
        return tuple(cards)
    entries = [entry.strip() for entry in chosen.split(",")]
    if not any(entries) or entries[0] == "-1":
        raise Refusal(
            f"{VARIABLE}={chosen} hides every card from the command; unset it, or name a card in it"
        )
    return tuple(_named(entry, cards, environment) for entry in dict.fromkeys(entries))


def _named(entry: str, cards: Sequence[Card], environment: Mapping[str, str]) -> Card:
    """The card that an entry names as CUDA reads it: an index, or as much of a UUID as is unique."""
    found = [card for card in cards if card.has_name(entry)]
    if len(found) != 1:
        known = ", ".join(f"{card.index} = {card.uuid}" for card in cards)
        what = "several cards" if found else "no card"
        raise Refusal(f"{VARIABLE} names {entry!r}, which is {what} here; there are {known}")
    if entry.isdigit():
        _refuse_unknown_order(entry, cards, environment)
    return found[0]


def _refuse_unknown_order(entry: str, cards: Sequence[Card], environment: Mapping[str, str]) -> None:
    """CUDA counts faster models first unless it is told otherwise; cards of one model keep the order of the bus."""
    if environment.get(ORDER) != BUS_ORDER and len({card.model for card in cards}) > 1:
        raise Refusal(
            f"{VARIABLE} counts {entry} in CUDA's own order, which puts faster models first; set {ORDER}={BUS_ORDER} "
            "to count as nvidia-smi does, or name the card by its UUID"
        )


def refuse_hidden(wanted: str | None, cards: Sequence[Card], left: Sequence[Card]) -> None:
    """Refuses a card that is asked for by name and hidden by the environment.

    Args:
        wanted: Index, UUID or the beginning of one; None: any.
        cards: All cards.
        left: Those that the environment leaves.
    """
    named = [card for card in cards if wanted is not None and card.has_name(wanted)]
    hidden = [card for card in named if card not in left]
    if hidden and hidden == named:
        raise Refusal(f"{hidden[0]} is not among those of {VARIABLE}; unset it, or leave --card out")
