"""Why a pod waits: what the extender answers over HTTP, and what `aliquot why` prints.

No pod but the one asked about is named: pods that would have to move are told by UID, which only those can make a name
of who may read them.
"""

from enum import StrEnum

import msgspec

from aliquot.kube.objects import KubeStruct


class State(StrEnum):
    """How far the pod has come."""

    ABSENT = "Absent"
    FINISHED = "Finished"
    LEAVING = "Leaving"
    BOUND = "Bound"
    INVALID = "Invalid"
    NO_SLICES = "NoSlices"
    NOT_SENT = "NotSent"
    GATED = "Gated"
    RESERVED = "Reserved"
    HELD = "Held"
    WAITING = "Waiting"


class CauseKind(StrEnum):
    """Who keeps the pod from a node: nobody, its cards, a quota, pods whose turn it is, or kube-scheduler."""

    ROOM = "Room"
    CARDS = "Cards"
    QUOTA = "Quota"
    TURN = "Turn"
    NOT_OFFERED = "NotOffered"


class Cause(KubeStruct, frozen=True, kw_only=True):
    """What holds of so many nodes; every node is counted under one cause."""

    kind: CauseKind
    text: str
    nodes: int


class ChangeKind(StrEnum):
    """What would be different."""

    MODEL = "Model"
    MEMORY = "Memory"
    CORES = "Cores"
    CARDS = "Cards"
    PART = "Part"
    MOVES = "Moves"


class Move(KubeStruct, frozen=True, kw_only=True):
    """A pod that would go elsewhere; `memory_mib` is what it holds on all its cards.

    `pod` is its name as NAMESPACE/NAME, filled in by whoever asks, where he may read it.
    """

    uid: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    from_node: str = ""
    to_node: str = ""
    pod: str = ""


class Change(KubeStruct, frozen=True, kw_only=True):
    """One change after which the pod has room.

    Attributes:
        kind: What would be different.
        text: A sentence for people.
        nodes: How many have room then.
        container: Whose limits; empty where the whole pod is meant.
        limits: All of that container's limits of cards, in place of those it has.
        annotations: What to write at the pod; None is to be removed.
        moves: The pods that go elsewhere.
        cost: What it costs, in percent: of what the pod asks for, or as much for other pods; the least comes first.
    """

    kind: ChangeKind
    text: str
    nodes: int
    container: str = ""
    limits: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    cost: int = 0


class Answer(KubeStruct, frozen=True, kw_only=True):
    """Why one pod waits.

    Attributes:
        namespace: The pod's.
        pod: Its name.
        uid: Its UID; empty where there is no such pod.
        state: How far it has come.
        summary: A sentence for people.
        nodes: How many the cluster has.
        causes: What keeps the pod from them; the numbers of nodes add up to `nodes`.
        asked: Whether kube-scheduler has asked for the pod, so that it is known which nodes it offers.
        group: What keeps the group of pods that it belongs to from its places; empty for a pod that goes alone.
        scheduler: What kube-scheduler wrote at the pod.
        changes: What would help, each by itself; the one that costs least first.
    """

    namespace: str
    pod: str
    state: State
    summary: str
    uid: str = ""
    nodes: int = 0
    causes: tuple[Cause, ...] = ()
    asked: bool = False
    group: str = ""
    scheduler: str = ""
    changes: tuple[Change, ...] = ()
