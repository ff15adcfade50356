"""Which cards were chosen for a pod: the annotation that travels in the Binding, and what it costs each card.

The annotation is one versioned JSON object that names the pod by UID and every container by name, so that it
can be read alone, years later, and never be taken for another pod's. Names are interned: in a large cluster each
card, node and pod is named by many objects.

What is kept of tens of thousands of pods are structs that the garbage collector does not follow (`gc=False`): half as
large, and made in a tenth of the time. None of them can refer to itself.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from aliquot.request.core_policy import HIGHEST_PRIORITY, NO_POLICY, CoreMode, CorePolicy
from aliquot.request.pod_request import MAX_CARDS, ContainerKind, MemoryClass

VERSION: Final = 1


class PlacementError(ValueError):
    """An annotation that is no placement; the message says where and why."""


class CardShare(msgspec.Struct, frozen=True, gc=False):
    """A container's part of one card: memory in MiB, percent of compute time, whether it is there alone."""

    uuid: str
    memory_mib: int
    cores: int
    exclusive: bool = False

    def __or__(self, other: "CardShare") -> "CardShare":
        """The larger amounts of two shares of the same card."""
        memory_mib, cores = max(self.memory_mib, other.memory_mib), max(self.cores, other.cores)
        return msgspec.structs.replace(self, memory_mib=memory_mib, cores=cores)


class ContainerPlacement(msgspec.Struct, frozen=True, gc=False):
    """The cards of one container.

    Attributes:
        name: The container's.
        kind: When it runs.
        cards: Its part of each.
        resized: The amounts are no longer those of its request.
        burst: Its memory may be overcommitted and is granted when it is needed.
        policy: How its time is held.
    """

    name: str
    kind: ContainerKind
    cards: tuple[CardShare, ...]
    resized: bool = False
    burst: bool = False
    policy: CorePolicy = NO_POLICY

    @property
    def place(self) -> tuple[object, ...]:
        """What a resize leaves alone: everything but the amounts."""
        return (
            self.name,
            self.kind,
            self.burst,
            tuple((share.uuid, share.exclusive) for share in self.cards),
        )

    def __or__(self, other: "ContainerPlacement") -> "ContainerPlacement":
        """The larger amounts of two placements in the same place."""
        cards = tuple(one | another for one, another in zip(self.cards, other.cards, strict=True))
        return msgspec.structs.replace(self, cards=cards, resized=self.resized or other.resized)


@dataclass(frozen=True, slots=True)
class Charge:
    """What a pod takes of one card at its peak; `slots` counts containers that hold a slice at once.

    `burst_mib` is what of the memory need not be there at all times, `uncapped` how many slots have no cores of
    their own and divide what is left of the card's time.
    """

    memory_mib: int = 0
    cores: int = 0
    slots: int = 0
    exclusive: bool = False
    burst_mib: int = 0
    uncapped: int = 0

    @property
    def guaranteed_mib(self) -> int:
        """What of the memory must be there at all times."""
        return self.memory_mib - self.burst_mib

    def __add__(self, other: "Charge") -> "Charge":
        """Charge for two that run at the same time."""
        return Charge(
            self.memory_mib + other.memory_mib,
            self.cores + other.cores,
            self.slots + other.slots,
            self.exclusive or other.exclusive,
            self.burst_mib + other.burst_mib,
            self.uncapped + other.uncapped,
        )

    def __or__(self, other: "Charge") -> "Charge":
        """Charge for two that never run at the same time: the most of all memory, and the most that is guaranteed."""
        memory_mib = max(self.memory_mib, other.memory_mib)
        return Charge(
            memory_mib,
            max(self.cores, other.cores),
            max(self.slots, other.slots),
            self.exclusive or other.exclusive,
            memory_mib - max(self.guaranteed_mib, other.guaranteed_mib),
            max(self.uncapped, other.uncapped),
        )


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod's cards on one node; containers in the order in which they start."""

    pod_uid: str
    node: str
    containers: tuple[ContainerPlacement, ...]

    def same_place(self, other: "Placement") -> bool:
        """Whether the two differ in amounts alone."""
        return (self.pod_uid, self.node) == (other.pod_uid, other.node) and [
            one.place for one in self.containers
        ] == [one.place for one in other.containers]

    def __or__(self, other: "Placement") -> "Placement":
        """The larger amounts of two placements in the same place."""
        assert self.same_place(other)  # noqa: S101 - amounts of other cards cannot be compared
        pairs = zip(self.containers, other.containers, strict=True)
        return msgspec.structs.replace(self, containers=tuple(one | another for one, another in pairs))

    def charges(self) -> dict[str, Charge]:
        """Charge every card, by UUID, for the moment at which the pod takes most of it.

        Kubernetes' rule: each init container runs with the sidecars started before it; after them, all
        sidecars and all regular containers run together. A card held alone at any moment is held alone all
        the time.
        """
        if len(self.containers) == 1:
            (one,) = self.containers
            if len(one.cards) == 1:
                (share,) = one.cards
                return {share.uuid: _charge_for(share.memory_mib, share.cores, share.exclusive, one.burst)}
            return {share.uuid: _charge_of_share(share, one.burst) for share in sorted(one.cards, key=_uuid)}
        uuids = {share.uuid for container in self.containers for share in container.cards}
        return {uuid: self._charge(uuid) for uuid in sorted(uuids)}

    def _charge(self, uuid: str) -> Charge:
        lasting, peak = Charge(), Charge()
        for container in self.containers:
            share = _charge_of(container, uuid)
            if container.kind is ContainerKind.INIT:
                peak |= lasting + share
            else:
                lasting += share
        return peak | lasting


def _charge_of(container: ContainerPlacement, uuid: str) -> Charge:
    """Charge one card for one container."""
    shares = (share for share in container.cards if share.uuid == uuid)
    return sum((_charge_of_share(share, container.burst) for share in shares), Charge())


def _uuid(share: CardShare) -> str:
    return share.uuid


def _charge_of_share(share: CardShare, burst: bool) -> Charge:
    return _charge_for(share.memory_mib, share.cores, share.exclusive, burst)


@lru_cache(maxsize=4096)
def _charge_for(memory_mib: int, cores: int, exclusive: bool, burst: bool) -> Charge:
    """One object for all shares that are alike: of tens of thousands of pods most are of few classes."""
    burst_mib, uncapped = memory_mib if burst else 0, 0 if cores else 1
    return Charge(memory_mib, cores, 1, exclusive, burst_mib=burst_mib, uncapped=uncapped)


_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the annotation's parts: nothing missing, nothing more."""


class _WireShare(_Wire, frozen=True, kw_only=True):
    uuid: _Text
    memory_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = msgspec.field(name="memoryMiB")
    cores: Annotated[int, msgspec.Meta(ge=0, le=100)]
    exclusive: bool


class _WireContainer(_Wire, frozen=True, kw_only=True):
    name: _Text
    kind: ContainerKind
    cards: Annotated[tuple[_WireShare, ...], msgspec.Meta(min_length=1, max_length=MAX_CARDS)]
    resized: bool = False
    memory_class: MemoryClass = msgspec.field(default=MemoryClass.GUARANTEED, name="memoryClass")
    core_mode: CoreMode | None = msgspec.field(default=None, name="coreMode")
    core_limit: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = msgspec.field(
        default=None, name="coreLimit"
    )
    priority: Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_PRIORITY)] | None = None


class _WirePlacement(_Wire, frozen=True, kw_only=True):
    version: int
    pod_uid: _Text = msgspec.field(name="podUID")
    node: _Text
    containers: Annotated[tuple[_WireContainer, ...], msgspec.Meta(min_length=1)]


class _WireVersion(msgspec.Struct, frozen=True):
    version: int


def encode_placement(placement: Placement) -> str:
    """Write a placement as the value of its annotation.

    Raises:
        PlacementError: it could not be read back: a name is empty, or an amount out of range.
    """
    wire = {
        "version": VERSION,
        "podUID": placement.pod_uid,
        "node": placement.node,
        "containers": [
            {
                "name": container.name,
                "kind": str(container.kind),
                "cards": [
                    {
                        "uuid": share.uuid,
                        "memoryMiB": share.memory_mib,
                        "cores": share.cores,
                        "exclusive": share.exclusive,
                    }
                    for share in container.cards
                ],
                # Written only where it says something, so that a reader from before it understands all others.
                **({"resized": True} if container.resized else {}),
                **({"memoryClass": str(MemoryClass.BURST)} if container.burst else {}),
                **_policy_fields(container.policy),
            }
            for container in placement.containers
        ],
    }
    text = msgspec.json.encode(wire).decode()
    decode_placement(text)
    return text


def _policy_fields(policy: CorePolicy) -> dict[str, object]:
    """What is asked; silence is left out."""
    fields = {"coreMode": policy.mode, "coreLimit": policy.limit_percent, "priority": policy.priority}
    return {name: value for name, value in fields.items() if value is not None}


def decode_placement(text: str) -> Placement:
    """Read the value of a placement annotation.

    Raises:
        PlacementError: it is no placement, of another version, or contradicts itself.
    """
    try:
        wire = _decode(text)
    except _UNREADABLE as error:
        raise _refusal(text, error) from error
    if wire.version != VERSION:
        raise _of_version(wire.version)
    uid, node = sys.intern(wire.pod_uid), sys.intern(wire.node)
    placement = Placement(uid, node, tuple([_container(c) for c in wire.containers]))
    _check(placement)
    return placement


_decode: Final = msgspec.json.Decoder(_WirePlacement).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def _refusal(text: str, error: Exception) -> PlacementError:
    """Why a text is no placement: first of all because it is of another version, whatever else that means."""
    try:
        version = msgspec.json.decode(text, type=_WireVersion).version
    except _UNREADABLE as first:
        return PlacementError(f"no placement: {first}")
    return PlacementError(f"no placement: {error}") if version == VERSION else _of_version(version)


def _of_version(version: int) -> PlacementError:
    return PlacementError(f"placement has version {version}; this program reads version {VERSION}")


def _container(wire: _WireContainer) -> ContainerPlacement:
    shares = tuple([CardShare(sys.intern(s.uuid), s.memory_mib, s.cores, s.exclusive) for s in wire.cards])
    burst = wire.memory_class is MemoryClass.BURST
    policy = _policy(wire.core_mode, wire.core_limit, wire.priority)
    return ContainerPlacement(sys.intern(wire.name), wire.kind, shares, wire.resized, burst, policy)


@lru_cache(maxsize=1024)
def _policy(mode: CoreMode | None, limit_percent: int | None, priority: int | None) -> CorePolicy:
    """One object for all that ask for the same."""
    policy = CorePolicy(mode, limit_percent, priority)
    return NO_POLICY if policy == NO_POLICY else policy


def _check(placement: Placement) -> None:
    """Refuse what a schema cannot: things named twice, and containers out of order."""
    containers = placement.containers
    for container in containers:
        if len(container.cards) > 1:
            _refuse_twice(f"card of container {container.name!r}", [share.uuid for share in container.cards])
    if len(containers) == 1:
        return
    _refuse_twice("container", [container.name for container in containers])
    regular = [container.kind is ContainerKind.REGULAR for container in containers]
    if regular != sorted(regular):
        raise PlacementError("containers are out of order: init containers and sidecars come first")


def _refuse_twice(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PlacementError(f"{what} {name!r} is named twice")


def read_placement(annotations: Mapping[str, str], annotation: str, pod_uid: str) -> Placement | None:
    """Read a pod's own placement; None when it has none yet.

    Raises:
        PlacementError: the annotation is no placement, or it is another pod's.
    """
    text = annotations.get(annotation)
    if text is None:
        return None
    placement = decode_placement(text)
    if placement.pod_uid != pod_uid:
        raise PlacementError(f"placement is for pod {placement.pod_uid}, not for {pod_uid}")
    return placement
