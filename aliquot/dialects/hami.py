"""HAMi's resources: `nvidia.com/gpu`, `gpumem`, `gpumem-percentage`, `gpucores`.

Meanings are those of HAMi 2.10 (`pkg/device/nvidia/device.go` in Project-HAMi/HAMi):

- `gpu` counts distinct cards; 1 where only the others are given.
- `gpumem` is MiB on each card and wins over `gpumem-percentage`; neither means all of the card's memory.
- `gpucores` is a percentage of each card's compute: 0 is unlimited, 100 takes the card
  alone, more counts as 100.
- All the memory and no cores: the card alone, since nobody else would fit.

Where HAMi silently zeroes what it cannot read, the pod is refused here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.dialects import DialectError, Translation
from aliquot.kube.objects import ResourceRequirements
from aliquot.names import (
    CARD_MODEL_ANNOTATION,
    CARD_POLICY_ANNOTATION,
    CARD_UUID_ANNOTATION,
    NODE_POLICY_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
    TOPOLOGY_ANNOTATION,
    ResourceNames,
)
from aliquot.units import Quantity, QuantityError, parse_count, parse_percent

_WHOLE = 100


@dataclass(frozen=True)
class HamiDialect:
    """HAMi's names, renamable as they are there; `memory_factor` is its unit of `gpumem` in MiB."""

    gpu: str = "nvidia.com/gpu"
    memory: str = "nvidia.com/gpumem"
    memory_percent: str = "nvidia.com/gpumem-percentage"
    core: str = "nvidia.com/gpucores"
    priority: str = "nvidia.com/priority"
    memory_factor: int = 1

    @property
    def name(self) -> str:
        """The word the admin switches it on with."""
        return "hami"

    @property
    def resources(self) -> tuple[str, ...]:
        """Every resource name it reads."""
        return (self.gpu, self.memory, self.memory_percent, self.core, self.priority)

    @property
    def amounts(self) -> Mapping[str, tuple[str, int]]:
        """What a quota of each resource bounds; a percentage is one of different cards and cannot be added up."""
        return {
            self.gpu: ("cards", 1),
            self.memory: ("memory_mib", self.memory_factor),
            self.core: ("cores", 1),
        }

    @property
    def unread(self) -> Mapping[str, str]:
        """Annotations that choose nodes and cards: their words are others than ours."""
        return {
            "nvidia.com/use-gputype": CARD_MODEL_ANNOTATION,
            "nvidia.com/nouse-gputype": NOT_CARD_MODEL_ANNOTATION,
            "nvidia.com/use-gpuuuid": CARD_UUID_ANNOTATION,
            "nvidia.com/nouse-gpuuuid": NOT_CARD_UUID_ANNOTATION,
            "nvidia.com/numa-bind": TOPOLOGY_ANNOTATION,
            "hami.io/node-scheduler-policy": NODE_POLICY_ANNOTATION,
            "hami.io/gpu-scheduler-policy": CARD_POLICY_ANNOTATION,
        }

    def translate(
        self, asked: ResourceRequirements, annotations: Mapping[str, str], names: ResourceNames
    ) -> Translation | None:
        """Say a container's HAMi request in our resources."""
        del annotations  # HAMi's annotations refine the placement, not the amounts
        given = {name: self._number(asked, name) for name in self.resources[:4]}
        if not any(value is not None for value in given.values()):
            return None
        cards = 1 if given[self.gpu] is None else given[self.gpu]
        if not cards:
            return None
        memory = self._memory(asked, given[self.memory], names)
        cores = min(given[self.core] or 0, _WHOLE)
        if memory == {names.memory_percent: str(_WHOLE)} and cores in (0, _WHOLE):
            return Translation({names.gpu: str(cards)})
        limits = {names.gpu: str(cards), **memory} | ({names.core: str(cores)} if cores else {})
        return Translation(limits, exclusive=cores == _WHOLE)

    def _memory(
        self, asked: ResourceRequirements, memory: int | None, names: ResourceNames
    ) -> dict[str, str]:
        """Return memory per card: MiB before percentage, and all of it where neither is given."""
        if memory:
            return {names.memory: f"{memory * self.memory_factor}Mi"}
        percent = self._given(asked, self.memory_percent)
        if percent is None:
            return {names.memory_percent: str(_WHOLE)}
        try:
            return {names.memory_percent: str(parse_percent(percent))}
        except QuantityError as error:
            raise DialectError(self.memory_percent, percent, str(error)) from error

    def _number(self, asked: ResourceRequirements, name: str) -> int | None:
        """Read a whole number; None when it is not given."""
        value = self._given(asked, name)
        if value is None:
            return None
        try:
            return parse_count(value)
        except QuantityError as error:
            raise DialectError(name, value, str(error)) from error

    def _given(self, asked: ResourceRequirements, name: str) -> Quantity | None:
        """Return what a container gives for a resource: limits, else requests."""
        return asked.limits.get(name, asked.requests.get(name))
