"""How much of the cluster's cards a pod takes in all: what quotas count.

A container counts what it has of every card: 8 GiB on each of 2 cards are 16 GiB. A pod counts as Kubernetes counts
CPU and memory: its regular containers and sidecars together, or an init container beside the sidecars before it,
whichever is more, each amount for itself.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from aliquot.request.placement import ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind, PodRequest, SliceRequest
from aliquot.units import MIB, format_bytes

WHOLE: Final = 100
"""All of a card, in percent."""


class Amounts(msgspec.Struct, frozen=True, gc=False):
    """Memory in MiB, compute time in percent of a card, and cards: one for each card that a container has a part of."""

    memory_mib: int = 0
    cores: int = 0
    cards: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.memory_mib + other.memory_mib, self.cores + other.cores, self.cards + other.cards)

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.memory_mib - other.memory_mib, self.cores - other.cores, self.cards - other.cards)

    def __or__(self, other: "Amounts") -> "Amounts":
        """The larger of each."""
        return Amounts(
            max(self.memory_mib, other.memory_mib),
            max(self.cores, other.cores),
            max(self.cards, other.cards),
        )

    def of(self, name: str) -> int:
        """One of them, by its name in `NAMES`."""
        amount: int = getattr(self, name)
        return amount

    @property
    def positive(self) -> "Amounts":
        """The same, with nothing where there is less than nothing."""
        return self | NOTHING


NOTHING: Final = Amounts()
NAMES: Final = ("memory_mib", "cores", "cards")
"""The amounts, one by one."""


def spell(name: str, amount: int) -> str:
    """Write one of them as people read it: `16Gi of GPU memory`, `50 gpu-core`, `2 cards`."""
    unit = {"memory_mib": "of GPU memory", "cores": "gpu-core"}.get(name, name)
    return f"{bare(name, amount)} {unit}"


def bare(name: str, amount: int) -> str:
    """Write one of them without saying of what: `16Gi`, `50`."""
    return format_bytes(amount * MIB) if name == "memory_mib" else str(amount)


def placed(placement: Placement, counts: Callable[[str], bool] | None = None) -> Amounts:
    """What a placement takes of the cards that count, told by their UUID; all do where nothing is said."""
    if len(placement.containers) == 1:
        return _held(placement.containers[0], counts)
    return _peak((container.kind, _held(container, counts)) for container in placement.containers)


def asked(request: PodRequest, card_mib: int) -> Amounts:
    """What a pod would take on cards that have this much memory to give, of which a percentage is one."""
    return _peak((c.kind, _wanted(c.slice, card_mib)) for c in request.containers if c.slice)


def _peak(parts: Iterable[tuple[ContainerKind, Amounts]]) -> Amounts:
    """The most at any moment, of containers in the order in which they start."""
    lasting, most = NOTHING, NOTHING
    for kind, amounts in parts:
        if kind is ContainerKind.INIT:
            most |= lasting + amounts
        else:
            lasting += amounts
    return most | lasting


def _held(container: ContainerPlacement, counts: Callable[[str], bool] | None) -> Amounts:
    shares = container.cards
    if counts is not None:
        shares = tuple(share for share in shares if counts(share.uuid))
    if len(shares) == 1:
        return _one(shares[0].memory_mib, shares[0].cores)
    memory_mib = sum([share.memory_mib for share in shares])
    return Amounts(memory_mib, sum([share.cores for share in shares]), len(shares))


@lru_cache(maxsize=4096)
def _one(memory_mib: int, cores: int) -> Amounts:
    """Of one card; one object for all that have as much."""
    return Amounts(memory_mib, cores, 1)


def _wanted(wanted: SliceRequest, card_mib: int) -> Amounts:
    memory_mib = wanted.memory_mib
    if memory_mib is None:
        memory_mib = card_mib * (wanted.memory_percent or 0) // WHOLE
    return Amounts(memory_mib * wanted.cards, wanted.cores * wanted.cards, wanted.cards)
