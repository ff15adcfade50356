"""What a namespace's quota has to say before a pod is made: what a silent container gets, and what one pod may have.

Only quotas of the whole cluster speak here: which pool a pod's cards are in is known once it has some. A percentage,
and a whole card, is memory of a size not known yet; the scheduler extender looks at it again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from aliquot.api.annotations import written_for
from aliquot.api.names import CORE_MODE_ANNOTATION, ResourceNames
from aliquot.crds.gpu_quota import GPUQuota, above_pod_max
from aliquot.dialects import Dialect
from aliquot.kube.objects import Container, Pod
from aliquot.request.amounts import NAMES, asked
from aliquot.request.core_policy import CoreMode
from aliquot.request.pod_request import PodRequest
from aliquot.units import MIB, Quantity, QuantityError, format_bytes, parse_quantity
from aliquot.webhook.refusal import Refusal

QuotaOf = Callable[[str], GPUQuota | None]
"""The quota of a namespace."""


@dataclass(frozen=True)
class Filler:
    """Writes a quota's defaults into a pod.

    Attributes:
        quota: The pod's.
        names: Our resources.
        dialects: Other projects' resources: a container that speaks one says all it wants in it.
    """

    quota: GPUQuota
    names: ResourceNames
    dialects: Sequence[Dialect] = ()

    def fill(self, pod: Pod) -> tuple[Pod, list[str]]:
        """The pod with what its containers leave out, and a sentence for each."""
        added = {
            c.name: found for c in _containers(pod) if (found := self._missing(c, pod.metadata.annotations))
        }
        if not added:
            return pod, []
        spec = msgspec.structs.replace(
            pod.spec,
            containers=tuple(_with(c, added.get(c.name, {})) for c in pod.spec.containers),
            init_containers=tuple(_with(c, added.get(c.name, {})) for c in pod.spec.init_containers),
        )
        return msgspec.structs.replace(pod, spec=spec), [self._told(*one) for one in added.items()]

    def _missing(self, container: Container, annotations: Mapping[str, str]) -> dict[str, str]:
        """What the quota adds to a container."""
        resources, names = container.resources, self.names
        given = {
            name for name, value in {**resources.requests, **resources.limits}.items() if not _zero(value)
        }
        foreign = {name for dialect in self.dialects for name in dialect.resources}
        if given & foreign or not given & set(names.slices):
            return {}
        found = self._alone() if given & set(names.slices) == {names.gpu} else self._share(given)
        mode = written_for(annotations, CORE_MODE_ANNOTATION, container.name)
        if mode and mode[1] == CoreMode.UNCAPPED:
            found.pop(names.core, None)
        return found

    def _alone(self) -> dict[str, str]:
        """What stands in place of whole cards."""
        alone, found = self.quota.spec.defaults.gpu_alone, dict[str, str]()
        if alone and alone.memory_mib:
            found[self.names.memory] = format_bytes(alone.memory_mib * MIB)
        if alone and alone.cores:
            found[self.names.core] = str(alone.cores)
        return found

    def _share(self, given: set[str]) -> dict[str, str]:
        """The compute time of a container that asks for memory and none."""
        cores = self.quota.spec.defaults.cores
        return {self.names.core: str(cores)} if cores and self.names.core not in given else {}

    def _told(self, container: str, added: Mapping[str, str]) -> str:
        written = ", ".join(f"{name}: {value}" for name, value in added.items())
        return f"container {container!r}: gets {written} by default of GPUQuota {self.quota.metadata.name}"


def check_pod_max(quota: GPUQuota, request: PodRequest, namespace: str) -> None:
    """Refuse a pod that asks for more than one pod of its namespace may have.

    Raises:
        Refusal: it does.
    """
    wanted = asked(request, card_mib=0)
    for name in NAMES:
        most = quota.spec.pod_max.of(name)
        if most is not None and wanted.of(name) > most:
            title = f"GPUQuota {quota.metadata.name}"
            raise Refusal(above_pod_max(title, namespace, name, wanted.of(name), most))


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers


def _with(container: Container, added: Mapping[str, str]) -> Container:
    """The container as if it had written these limits itself."""
    if not added:
        return container
    limits: dict[str, Quantity] = {**container.resources.limits, **added}
    requests: dict[str, Quantity] = {**container.resources.requests, **added}
    resources = msgspec.structs.replace(container.resources, limits=limits, requests=requests)
    return msgspec.structs.replace(container, resources=resources)


def _zero(value: Quantity) -> bool:
    """Whether a resource is named without asking for any of it; what cannot be read is refused elsewhere."""
    try:
        return not parse_quantity(value)
    except QuantityError:
        return False
