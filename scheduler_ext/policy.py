"""Which of several cards, and of several nodes, a slice goes to."""

from enum import StrEnum

from scheduler_ext.cards import CardState


class Policy(StrEnum):
    """How slices are laid out; ties always go to the lower card index and the smaller node name."""

    BINPACK = "binpack"
    """The most used card that still fits, so that whole cards stay free for those who need them."""
    FIRST_FIT = "first-fit"
    """The first node by name and its first card that fits."""

    def preference(self, index: int, card: CardState, extra_mib: int) -> tuple[float, int]:
        """Sort key of a card, best first.

        Args:
            index: The card's place on its node.
            card: The card.
            extra_mib: What earlier containers of the same pod will add to it, in MiB.
        """
        if self is Policy.FIRST_FIT or not card.usable_mib:
            return (0.0, index)
        return (-(card.used_mib + extra_mib) / card.usable_mib, index)
