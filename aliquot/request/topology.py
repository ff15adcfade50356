"""How links between cards, and nearness to network cards, count for a container: words of annotations and pools.

    aliquot.dev/topology: nvlink      every two of its cards have NVLink between them
    aliquot.dev/rdma: pcie            its cards hang on PCIe roots that have an RDMA NIC

For all containers, or with a container's name before the annotation for that one. docs/topology.md tells what each
does.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from aliquot.api.annotations import written_for
from aliquot.api.names import RDMA_ANNOTATION, TOPOLOGY_ANNOTATION

RDMA_PREFIX: Final = "rdma/"
"""Resources of the RDMA device plugins: whoever asks for one wants cards near it."""


class Topology(StrEnum):
    """How links between the cards of one container count."""

    NONE = "none"
    """Not at all."""
    BEST_EFFORT = "best-effort"
    """Among cards that are as well taken as each other."""
    BEST_LINKS = "best-links"
    """Before all else."""
    NUMA = "numa"
    """Every two cards are of one NUMA node; as `best-links` among such sets."""
    BRIDGE = "bridge"
    """Every two are below one PCIe host bridge."""
    SWITCH = "switch"
    """Every two reach each other through PCIe switches alone."""
    NVLINK = "nvlink"
    """Every two have NVLink between them."""

    @property
    def demands(self) -> bool:
        """Whether cards that are linked worse are none at all."""
        return self in (Topology.NUMA, Topology.BRIDGE, Topology.SWITCH, Topology.NVLINK)


class Rdma(StrEnum):
    """How near to an RDMA NIC the cards of one container are to be."""

    NONE = "none"
    """That makes no difference."""
    NEAR = "near"
    """As near as can be: on a PCIe root with a NIC, else on a NUMA node with one."""
    NUMA = "numa"
    """On a NUMA node with a NIC, or nowhere."""
    PCIE = "pcie"
    """On a PCIe root with a NIC, or nowhere."""

    @property
    def demands(self) -> bool:
        """Whether cards that are farther away are none at all."""
        return self in (Rdma.NUMA, Rdma.PCIE)


_Words = TypeVar("_Words", bound=StrEnum)


class TopologyError(ValueError):
    """A word that nobody understands, and the annotation that has it."""

    def __init__(self, annotation: str, word: str, words: type[StrEnum]) -> None:
        super().__init__(f"{word!r} is none of {', '.join(words)}")
        self.annotation = annotation
        self.word = word


def read_topology(annotations: Mapping[str, str], container: str) -> Topology | None:
    """Read how links count for a container; None where nothing is said.

    Raises:
        TopologyError: the word is none of these.
    """
    return _read(annotations, TOPOLOGY_ANNOTATION, container, Topology)


def read_rdma(annotations: Mapping[str, str], container: str, silent: Rdma) -> Rdma:
    """Read how near to NICs a container's cards are to be; `silent` where nothing is said.

    Raises:
        TopologyError: the word is none of these.
    """
    return _read(annotations, RDMA_ANNOTATION, container, Rdma) or silent


def _read(
    annotations: Mapping[str, str], annotation: str, container: str, words: type[_Words]
) -> _Words | None:
    written = written_for(annotations, annotation, container)
    if written is None:
        return None
    for word in words:
        if written[1].lower() == word:
            return word
    raise TopologyError(*written, words)
