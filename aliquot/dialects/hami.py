"""HAMi's resources: `nvidia.com/gpu`, `gpumem`, `gpumem-percentage`, `gpucores`.

Meanings are those of HAMi 2.10 (`pkg/device/nvidia/device.go` in Project-HAMi/HAMi):

- `gpu` counts distinct cards; 1 where only the others are given.
- `gpumem` is MiB on each card and wins over `gpumem-percentage`; neither means all of the card's memory.
- `gpucores` is a percentage of each card's compute: 0 is unlimited, 100 takes the card
  alone, more counts as 100.
- All the memory and no cores: the card alone, since nobody else would fit.

Where HAMi silently zeroes what it cannot read, the pod is refused here. So is a pod that says something of HAMi's which
is not honoured (`hami_unsupported`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.api.names import ResourceNames
from aliquot.dialects import DialectError, Translation
from aliquot.dialects.hami_unsupported import Unsupported, unsupported
from aliquot.kube.objects import Pod, ResourceRequirements
from aliquot.units import MIB, Quantity, QuantityError, parse_count, parse_percent

_WHOLE = 100
_MOST_MEMORY = (1 << 31) - 1
"""HAMi reads `gpumem` into 32 bits; whoever writes more has written bytes (`6Gi`)."""


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

    def check(self, pod: Pod) -> None:
        """Refuse what a pod with a slice says in HAMi's words beside its amounts, where it is not honoured."""
        found = list(unsupported(pod, self.priority))
        if found:
            others = "".join(f"; and {one.where}: {_said(one)}" for one in found[1:])
            raise DialectError(found[0].where, found[0].value, _said(found[0]) + others)

    def translate(
        self, asked: ResourceRequirements, annotations: Mapping[str, str], names: ResourceNames
    ) -> Translation | None:
        """Say a container's HAMi request in our resources."""
        del annotations  # those of HAMi's that refine the placement are refused: see check()
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
        if memory and memory > _MOST_MEMORY:
            unit = "MiB" if self.memory_factor == 1 else f"{self.memory_factor} MiB"
            meant = -(-memory // (MIB * self.memory_factor))
            given = self._given(asked, self.memory) or memory
            raise DialectError(self.memory, given, f"{given} is too much: it counts {unit}; write {meant}")
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


def _said(one: Unsupported) -> str:
    """What is wrong with it, and the remedy."""
    return f"{one.value!r} is HAMi's and not honoured here; {one.remedy}"
