"""What the extender answers to who asks for room: which pods would have to move, and where to."""

from enum import StrEnum

from aliquot.api.why import Move
from aliquot.kube.objects import KubeStruct


class Room(StrEnum):
    """What there is for the request."""

    FREE = "free"
    """Room as it is."""
    MOVES = "moves"
    """Room, once the pods named have moved."""
    NONE = "none"
    """None that moving makes."""


class Defragmentation(KubeStruct, frozen=True, kw_only=True):
    """A plan that nobody carries out.

    Attributes:
        room: What there is.
        nodes: Those that have room: as it is, or after the moves.
        moves: Who would go where, the largest first.
        text: The same for people.
    """

    room: Room
    nodes: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    text: str = ""


class WrongRequestError(ValueError):
    """What is asked for makes no sense; the message says why."""
