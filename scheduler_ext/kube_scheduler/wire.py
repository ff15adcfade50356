"""kube-scheduler's extender protocol, `k8s.io/kube-scheduler/extender/v1`: JSON with capitalised keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from aliquot.kube.objects import UNREADABLE, Pod
from aliquot.scheduler_ext.kube_scheduler.node_names import OfferedNames

Args = TypeVar("Args")
_NAMES: Final = b',"NodeNames":['
_SPACES: Final = b" \t\r\n"


class WireError(ValueError):
    """A body that is no extender call; the message names what is wrong and what to do."""


class _FilterCall(msgspec.Struct, frozen=True):
    """A filter call as it is written; `Nodes`, where somebody sends them, are not read."""

    Pod: Pod
    NodeNames: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FilterArgs:
    """Which of these nodes may this pod go to?"""

    Pod: Pod
    NodeNames: Sequence[str]


class FilterResult(msgspec.Struct, omit_defaults=True):
    """The nodes it may go to, and why not to the others.

    A non-empty `Error` fails the whole attempt; kube-scheduler tries the pod again with back-off.
    `FailedAndUnresolvableNodes` are those on which evicting other pods would not help.
    """

    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


class BindArgs(msgspec.Struct, frozen=True):
    """Bind this pod to this node."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class BindResult(msgspec.Struct):
    """Whether it is bound; an error makes kube-scheduler try the pod again."""

    Error: str = ""


class MetaPod(msgspec.Struct, frozen=True):
    """A pod by its UID."""

    UID: str


class MetaVictims(msgspec.Struct, frozen=True):
    """The pods that would be evicted from a node; none is written as null."""

    Pods: tuple[MetaPod, ...] | None = None
    NumPDBViolations: int = 0

    @property
    def uids(self) -> tuple[str, ...]:
        """The pods by UID."""
        return tuple(pod.UID for pod in self.Pods or ())


class _Victims(msgspec.Struct, frozen=True):
    """The same with whole pods, as a scheduler sends them that is not told of `nodeCacheCapable`."""

    Pods: tuple[Pod, ...] | None = None


class PreemptArgs(msgspec.Struct, frozen=True):
    """Whom to evict from these nodes, so that this pod finds room on one of them?

    kube-scheduler has chosen victims for what it counts itself; a node where nothing of that is short has none.
    """

    Pod: Pod
    NodeNameToVictims: dict[str, _Victims | None] | None = None
    NodeNameToMetaVictims: dict[str, MetaVictims | None] | None = None

    def victims(self) -> dict[str, tuple[str, ...]]:
        """The UIDs of those that kube-scheduler wants gone, by node."""
        if self.NodeNameToMetaVictims is not None:
            by_uid = self.NodeNameToMetaVictims.items()
            return {node: v.uids if v else () for node, v in by_uid}
        whole = (self.NodeNameToVictims or {}).items()
        return {node: tuple(one.metadata.uid for one in (v and v.Pods) or ()) for node, v in whole}


class PreemptResult(msgspec.Struct):
    """Whom to evict, by node; a node that is missing is of no use. None of the lists may be empty."""

    NodeNameToMetaVictims: dict[str, MetaVictims] = {}


_PREEMPT = msgspec.json.Decoder(PreemptArgs)
_FILTER = msgspec.json.Decoder(_FilterCall)
_BIND = msgspec.json.Decoder(BindArgs)


def decoded(decoder: msgspec.json.Decoder[Args], body: bytes, kind: str, hint: str) -> Args:
    """What a body says.

    Args:
        decoder: Of what it should be,
        body: which this should be,
        kind: what the protocol calls that,
        hint: and what is in it.

    Raises:
        WireError: it is cut short, no JSON, or lacks what it needs.
    """
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise WireError(f"the body is no {kind} ({error}); {hint}") from error


def read_filter(body: bytes) -> FilterArgs:
    """Read a filter call.

    Raises:
        WireError: the body is cut short, no JSON, or lacks what filter needs.
    """
    args = _names_last(body)
    if args is None:
        call = decoded(_FILTER, body, "ExtenderArgs", "kube-scheduler sends Pod and NodeNames")
        if call.NodeNames is None:
            raise WireError("NodeNames is missing; set nodeCacheCapable: true for this extender")
        args = FilterArgs(call.Pod, call.NodeNames)
    if not args.Pod.metadata.uid:
        raise WireError("the pod has no UID; only pods that the API server has accepted can be placed")
    return args


def _names_last(body: bytes) -> FilterArgs | None:
    """A filter call whose names come last, as Go writes it, with the names unread; None for any other.

    What comes before the names is a whole object once it is closed, or they are part of something else.
    """
    at, end = body.find(_NAMES), _end(body)
    names = OfferedNames.read(body, at + len(_NAMES) - 1, end) if 0 <= at < end else None
    if names is None:
        return None
    try:
        call = _before_names(body[:at])
    except UNREADABLE:
        return None
    return FilterArgs(call.Pod, names)


def read_ahead(beginning: bytes) -> tuple[Pod | None, bool]:
    """The pod of a filter call that is coming, and whether more of the call could tell more of it.

    None as long as the pod is not all there, and for a call that is not written as Go writes it.
    """
    at = beginning.find(_NAMES)
    if at < 0:
        return None, True
    try:
        return _before_names(beginning[:at]).Pod, False
    except UNREADABLE:
        return None, False


@lru_cache(maxsize=4)
def _before_names(text: bytes) -> _FilterCall:
    """A call without its names; read once, where it was seen as it came, too."""
    return _FILTER.decode(text + b"}")


def _end(body: bytes) -> int:
    """Where the brace is that ends a body; -1 where none does."""
    last = len(body) - 1
    while last > 0 and body[last] in _SPACES:
        last -= 1
    return last if body[last : last + 1] == b"}" else -1


def read_bind(body: bytes) -> BindArgs:
    """Read a bind call.

    Raises:
        WireError: the body is cut short, no JSON, or lacks what bind needs.
    """
    args = decoded(_BIND, body, "ExtenderBindingArgs", "it has PodName, PodNamespace, PodUID and Node")
    if not (args.PodName and args.PodNamespace and args.PodUID and args.Node):
        raise WireError("PodName, PodNamespace, PodUID and Node must all be set")
    return args


def read_preempt(body: bytes) -> PreemptArgs:
    """Read a preempt call.

    Raises:
        WireError: the body is cut short, no JSON, or lacks what preempt needs.
    """
    args = decoded(
        _PREEMPT, body, "ExtenderPreemptionArgs", "kube-scheduler sends Pod and NodeNameToMetaVictims"
    )
    if not args.Pod.metadata.uid:
        raise WireError("the pod has no UID; only pods that the API server has accepted can be placed")
    return args
