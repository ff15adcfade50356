"""A tenant's pages, as the node agent writes them, and an arbiter over several tenants'."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.arbiter import Arbiter, Terms
from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.library import library_path
from aliquot.libshim.usage_page import create_usage


@dataclass(frozen=True)
class Place:
    """Where a tenant's pages are, what it may have of each card, and with whom it has them."""

    name: str
    directory: Path
    limits: tuple[CardLimit, ...]
    group: str = ""
    exempt: bool = False

    @property
    def control(self) -> Path:
        """The control page."""
        return self.directory / "control"

    @property
    def usage(self) -> Path:
        """The usage page."""
        return self.directory / "usage"

    def environment(self) -> dict[str, str]:
        """What a container's processes have of us."""
        return {
            "LD_PRELOAD": str(library_path()),
            "ALIQUOT_CONTROL_PAGE": str(self.control),
            "ALIQUOT_USAGE_PAGE": str(self.usage),
        }


def settle(
    root: Path, index: int, limits: Sequence[CardLimit], group: str = "", *, exempt: bool = False
) -> Place:
    """Writes the pages of a machine's tenant of that number, below `<root>/tenants`."""
    directory = root / "tenants" / f"tenant{index}" / "main"
    place = Place(f"bench/compute/{index}", directory, tuple(limits), group, exempt)
    place.directory.mkdir(parents=True)
    create_control(place.control, Control(place.name, place.limits))
    create_usage(place.usage)
    return place


@contextlib.contextmanager
def leased(places: Sequence[Place]) -> Iterator[Arbiter]:
    """An arbiter with the priority of the node agent's, which leases the cards by the shares of the tenants' limits."""
    arbiter = Arbiter()
    for place in places:
        terms = [
            Terms(one.uuid, one.core_share_bp, one.core_most_percent, one.priority) for one in place.limits
        ]
        arbiter.enter(place.name, place.control, place.usage, terms, place.group, exempt=place.exempt)
    arbiter.start(real_time=True)
    try:
        yield arbiter
    finally:
        arbiter.stop()
