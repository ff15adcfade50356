"""How the cards of this node are linked, read from NVML.

Two cards have in common what NVML calls their common ancestor, and NVLinks in one of two ways: links from one that end
at the other, or links of both that end at NVSwitches, which connect every card with every other. What a driver cannot
tell is unknown; a card that does not answer keeps the links that it had.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aliquot.api.links import MOST_NVLINKS, UNKNOWN, Level, Link

_SWITCH: Final = "switch"
"""In the place of a bus id: the other end of a link is an NVSwitch."""


@dataclass(frozen=True)
class _Ends:
    """A card, and how many of its NVLinks end where."""

    handle: Any
    bus_id: str
    links: Counter[str]


class LinkReader:
    """Asks NVML for links, and remembers them by pairs of UUIDs."""

    def __init__(self, nvml: Any) -> None:
        """`nvml`: NVIDIA's Python client, initialised."""
        self._nvml = nvml
        self._known: dict[frozenset[str], Link] = {}
        self._levels = {
            nvml.NVML_TOPOLOGY_INTERNAL: Level.INT,
            nvml.NVML_TOPOLOGY_SINGLE: Level.PIX,
            nvml.NVML_TOPOLOGY_MULTIPLE: Level.PXB,
            nvml.NVML_TOPOLOGY_HOSTBRIDGE: Level.PHB,
            nvml.NVML_TOPOLOGY_NODE: Level.NODE,
            nvml.NVML_TOPOLOGY_SYSTEM: Level.SYS,
        }

    def read(self, uuids: Sequence[str]) -> list[list[Link]]:
        """For each card its links to those before it, asked anew."""
        ends = [self._ends(uuid) for uuid in uuids]
        for number, uuid in enumerate(uuids):
            for before, other in enumerate(uuids[:number]):
                one, another = ends[number], ends[before]
                if one is not None and another is not None:
                    level = self._level(one.handle, another.handle)
                    self._known[frozenset((uuid, other))] = Link(
                        level, min(_between(one, another), MOST_NVLINKS)
                    )
        return self.known(uuids)

    def known(self, uuids: Sequence[str]) -> list[list[Link]]:
        """The same as it was when it was last asked."""
        return [
            [self._known.get(frozenset((uuid, other)), UNKNOWN) for other in uuids[:number]]
            for number, uuid in enumerate(uuids)
        ]

    def _ends(self, uuid: str) -> "_Ends | None":
        """A card and where its NVLinks end; None when it does not answer."""
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            bus_id = self._nvml.nvmlDeviceGetPciInfo(handle).busId.lower()
        except self._nvml.NVMLError:
            return None
        ends = (self._end(handle, link) for link in range(MOST_NVLINKS))
        return _Ends(handle, bus_id, Counter(end for end in ends if end))

    def _end(self, handle: Any, link: int) -> str:
        """The bus id at the other end of a link that is up; nothing where there is none."""
        nvml = self._nvml
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                return ""
            if self._is_switch(handle, link):
                return _SWITCH
            return str(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId.lower())
        except nvml.NVMLError:
            return ""

    def _is_switch(self, handle: Any, link: int) -> bool:
        """Whether a link ends at a switch; drivers that cannot say are older than switches."""
        try:
            kind = self._nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        except (self._nvml.NVMLError_FunctionNotFound, self._nvml.NVMLError_NotSupported):
            return False
        return bool(kind == self._nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)

    def _level(self, one: Any, other: Any) -> Level:
        try:
            found = self._nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
        except self._nvml.NVMLError:
            return Level.UNKNOWN
        return self._levels.get(found, Level.UNKNOWN)


def _between(one: _Ends, other: _Ends) -> int:
    """NVLinks between two cards: those from one to the other, and as many as both have to switches."""
    return one.links[other.bus_id] + min(one.links[_SWITCH], other.links[_SWITCH])
