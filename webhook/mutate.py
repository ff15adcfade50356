"""What changes in a pod that asks for slices.

- Our resources are written out, in limits and requests: `aliquot.dev/gpu` where it was implied, all of them
  where the pod speaks another project's dialect, whose own resources stay as they are.
- `schedulerName` becomes ours where the pod left the default.
- The interceptor is preloaded, unless `aliquot.dev/inject: file` leaves that to the node.
- A placement that the pod brings along (copied, or forged) is taken off: only the scheduler's counts. An edit of it
  is undone: the node believes it, and so does the scheduler after a restart.

Doing it again to the result changes nothing, which `reinvocationPolicy: IfNeeded` relies on. Pods that ask
for nothing, or for MIG instances alone, stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aliquot.dialects import Dialect
from aliquot.kube.objects import Container, Pod, ResourceRequirements
from aliquot.names import INJECT_ANNOTATION, PLACEMENT_ANNOTATION, SCHEDULER_NAME, ResourceNames
from aliquot.request import RequestError, SliceRequest, read_pod_request
from webhook.inject import inject
from webhook.patch import Patch, Path
from webhook.refusal import Refusal
from webhook.warn import DEFAULT_SCHEDULER, about_container, about_placement, about_scheduler

PRELOAD, FILE = "preload", "file"
KEPT = f"annotation {PLACEMENT_ANNOTATION} stays as it was: only the scheduler writes it"


@dataclass(frozen=True)
class Mutation:
    """What to do to a pod: JSON Patch operations (none: leave it), and what to tell its author."""

    operations: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Mutator:
    """Knows the cluster's resource names and dialects."""

    names: ResourceNames
    dialects: Sequence[Dialect] = ()

    def mutate(self, document: dict[str, Any], pod: Pod) -> Mutation:
        """Work out the changes of one pod.

        Args:
            document: The pod as it came.
            pod: The same pod, read.

        Raises:
            Refusal: the pod asks for something that cannot be honoured.
        """
        slices = self._slices(pod)
        patch, warnings = Patch(document), list(about_placement(pod))
        patch.remove(("metadata", "annotations", PLACEMENT_ANNOTATION))
        if slices:
            _check(pod)
            warnings += about_scheduler(pod)
            warnings += (line for _, container in _among(pod, slices) for line in about_container(container))
            self._apply(patch, pod, slices)
        return Mutation(patch.operations, warnings)

    def _slices(self, pod: Pod) -> dict[str, SliceRequest]:
        """Container name → its slice."""
        try:
            request = read_pod_request(pod, self.names, self.dialects)
        except RequestError as error:
            raise Refusal(str(error)) from error
        return {c.name: c.slice for c in request.containers if c.slice is not None}

    def _apply(self, patch: Patch, pod: Pod, slices: Mapping[str, SliceRequest]) -> None:
        if pod.spec.scheduler_name in ("", DEFAULT_SCHEDULER):
            patch.set(("spec", "schedulerName"), SCHEDULER_NAME)
        preload = pod.metadata.annotations.get(INJECT_ANNOTATION, PRELOAD) == PRELOAD
        for where, container in _among(pod, slices):
            self._write_resources(patch, where, container.resources, slices[container.name])
            if preload:
                inject(patch, where, container)

    def _write_resources(
        self, patch: Patch, where: Path, there: ResourceRequirements, wanted: SliceRequest
    ) -> None:
        """Write our resources out where the container does not give them itself."""
        asked = {**there.requests, **there.limits}
        ours = {name: value for name, value in asked.items() if name in self.names.slices}
        complete = {self.names.gpu: str(wanted.cards), **(ours or wanted.limits(self.names))}
        for name, value in complete.items():
            for kind, given in (("limits", there.limits), ("requests", there.requests)):
                if name not in given:
                    patch.set((*where, "resources", kind, name), value)


def keep_placement(document: dict[str, Any], stored: Pod) -> Mutation:
    """Work out what puts a pod's placement back to what is stored, after an edit.

    Args:
        document: The pod as it was edited.
        stored: The pod as it is.
    """
    patch, where = Patch(document), ("metadata", "annotations", PLACEMENT_ANNOTATION)
    text = stored.metadata.annotations.get(PLACEMENT_ANNOTATION)
    if text is None:
        patch.remove(where)
    else:
        patch.set(where, text)
    return Mutation(patch.operations, [KEPT] if patch.operations else [])


def _check(pod: Pod) -> None:
    """Refuse what could only fail later, on the node."""
    if pod.spec.node_name:
        raise Refusal(
            f"spec.nodeName is {pod.spec.node_name!r}, which passes by the scheduler that hands out cards; "
            "use a nodeSelector or node affinity instead"
        )
    wanted = pod.metadata.annotations.get(INJECT_ANNOTATION, PRELOAD)
    if wanted not in (PRELOAD, FILE):
        raise Refusal(f"annotation {INJECT_ANNOTATION}: {wanted!r} is neither {PRELOAD!r} nor {FILE!r}")


def _among(pod: Pod, slices: Mapping[str, SliceRequest]) -> Iterator[tuple[Path, Container]]:
    """The containers that get a slice, init containers first, each with its place in the document."""
    for kind, containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for n, container in enumerate(containers):
            if container.name in slices:
                yield ("spec", kind, n), container
