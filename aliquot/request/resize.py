"""Other limits for a running pod: what its annotations ask, and what was said to it.

    aliquot.dev/resize-gpu-mem: 12Gi        for all containers with a slice
    main.aliquot.dev/resize-gpu-core: "50"  for one; "none" lifts the cap

The scheduler extender checks the ask against its ledger and writes the placement with the new amounts and the
status in one patch; the node agent then follows the placement. Cards never change.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from aliquot.api.annotations import names_nobody, written_for
from aliquot.api.names import RESIZE_CORE_ANNOTATION, RESIZE_MEMORY_ANNOTATION
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.units import QuantityError, parse_bytes, parse_percent, to_mib

NO_CAP: Final = "none"
VERSION: Final = 1


class ResizeError(ValueError):
    """An ask that cannot be honoured; the message names the annotation, or the container, and the remedy."""


@dataclass(frozen=True)
class Ask:
    """What one container shall have of each of its cards; None: as it is."""

    memory_mib: int | None = None
    cores: int | None = None


class ResizeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of an ask: the value of `aliquot.dev/resize-status`, for people and controllers to read."""

    version: int = VERSION
    approved: bool
    asked: dict[str, dict[str, int]] = {}
    why: str = ""


def read_asks(annotations: Mapping[str, str], containers: Collection[str]) -> dict[str, Ask]:
    """Read what a pod's annotations ask, by container; containers of which nothing is asked are left out.

    Args:
        annotations: The pod's.
        containers: Its containers with a slice.

    Raises:
        ResizeError: a value makes no sense, or a key names a container that has no slice.
    """
    for annotation in (RESIZE_MEMORY_ANNOTATION, RESIZE_CORE_ANNOTATION):
        stray = names_nobody(annotations, annotation, containers)
        if stray:
            known = ", ".join(containers) or "none"
            raise ResizeError(f"{stray[0]}: no container {stray[1]!r} has a slice; there are: {known}")
    asks = {name: Ask(_memory(annotations, name), _cores(annotations, name)) for name in containers}
    return {name: ask for name, ask in asks.items() if ask != Ask()}


def _memory(annotations: Mapping[str, str], container: str) -> int | None:
    written = written_for(annotations, RESIZE_MEMORY_ANNOTATION, container)
    if written is None:
        return None
    try:
        size = parse_bytes(written[1])
    except QuantityError as error:
        raise ResizeError(f"{written[0]}: {error}") from error
    if not size:
        raise ResizeError(f"{written[0]}: 0 is no memory at all; give at least 1Mi, or delete the pod")
    return to_mib(size)


def _cores(annotations: Mapping[str, str], container: str) -> int | None:
    written = written_for(annotations, RESIZE_CORE_ANNOTATION, container)
    if written is None:
        return None
    if written[1] == NO_CAP:
        return 0
    try:
        return parse_percent(written[1])
    except QuantityError as error:
        raise ResizeError(f"{written[0]}: {error}, or {NO_CAP} for no cap") from error


def resized(placement: Placement, asks: Mapping[str, Ask]) -> Placement:
    """The placement with other amounts, in the same place; the same one where nothing changes.

    Raises:
        ResizeError: a container that holds its cards alone is asked to change.
    """
    containers = tuple(_resized(one, asks.get(one.name, Ask())) for one in placement.containers)
    return msgspec.structs.replace(placement, containers=containers)


def _resized(container: ContainerPlacement, ask: Ask) -> ContainerPlacement:
    cards = tuple(_share(share, ask) for share in container.cards)
    if cards == container.cards:
        return container
    if any(share.exclusive for share in container.cards):
        raise ResizeError(
            f"container {container.name!r} holds its cards alone and whole; make it anew to change that"
        )
    return msgspec.structs.replace(container, cards=cards, resized=True)


def _share(share: CardShare, ask: Ask) -> CardShare:
    memory_mib = share.memory_mib if ask.memory_mib is None else ask.memory_mib
    cores = share.cores if ask.cores is None else ask.cores
    return msgspec.structs.replace(share, memory_mib=memory_mib, cores=cores)


def encode_status(asks: Mapping[str, Ask], why: str = "") -> str:
    """Write what became of an ask; `why` says why it was refused, and is empty where it was approved."""
    asked = {name: _spell(ask) for name, ask in asks.items()}
    return msgspec.json.encode(ResizeStatus(approved=not why, asked=asked, why=why)).decode()


def _spell(ask: Ask) -> dict[str, int]:
    amounts = {"memoryMiB": ask.memory_mib, "cores": ask.cores}
    return {name: amount for name, amount in amounts.items() if amount is not None}
