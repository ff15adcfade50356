"""What changes in a pod that asks for slices.

- Our resources are written out, in limits and requests: `aliquot.dev/gpu` where it was implied, all of them
  where the pod speaks another project's dialect, whose own resources stay as they are.
- What a container leaves out is filled in where the quota of its namespace says with what (`aliquot.webhook.quotas`).
- `schedulerName` becomes ours where the pod left the default.
- The interceptor is preloaded, unless `aliquot.dev/inject: file` leaves that to the node.
- Each container with a slice or a MIG instance gets a small volume of its own for its usage page.
- What only the scheduler writes is taken off a new pod that brings it along (copied, or forged): placement, answer to
  a resize, and what it notes of waiting pods (`aliquot.api.names.GRANTS`). An edit of it is undone: the node believes
  the placement, and so does the scheduler after a restart.

Doing it again to the result changes nothing, which `reinvocationPolicy: IfNeeded` relies on. Pods that ask
for nothing stay as they are; those that ask for MIG instances alone get that volume alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aliquot.api.annotations import written_for
from aliquot.api.names import (
    CARD_MODEL_ANNOTATION,
    CARD_POLICY_ANNOTATION,
    CARD_UUID_ANNOTATION,
    CORE_LIMIT_ANNOTATION,
    CORE_MODE_ANNOTATION,
    DEFAULT_SCHEDULER,
    ENFORCEMENT_ANNOTATION,
    GRANTS,
    INJECT_ANNOTATION,
    INJECT_BY_ENV,
    INJECT_BY_FILE,
    MANAGED_ANNOTATION,
    MEMORY_CLASS_ANNOTATION,
    NODE_POLICY_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
    OVERFLOW_ANNOTATION,
    PRIORITY_ANNOTATION,
    RDMA_ANNOTATION,
    RESIZE_CORE_ANNOTATION,
    RESIZE_MEMORY_ANNOTATION,
    SCHEDULER_NAME,
    TOPOLOGY_ANNOTATION,
    ResourceNames,
)
from aliquot.crds.gpu_pool import Enforcement, Overflow
from aliquot.dialects import Dialect
from aliquot.kube.objects import Container, Pod, ResourceRequirements
from aliquot.request.pod_request import (
    ManagedMemory,
    MemoryClass,
    PodRequest,
    RequestError,
    SliceRequest,
    read_pod_request,
)
from aliquot.request.resize import ResizeError, read_asks
from aliquot.webhook.environment import check_environment
from aliquot.webhook.inject import inject
from aliquot.webhook.patch import Patch, Path
from aliquot.webhook.quotas import Filler, QuotaOf, check_pod_max
from aliquot.webhook.refusal import Refusal
from aliquot.webhook.usage_volume import add_usage_volume, check_usage_volumes
from aliquot.webhook.warn import (
    about_container,
    about_grants,
    about_kept,
    about_restarts,
    about_scheduler,
)

WORDS = {
    ENFORCEMENT_ANNOTATION: tuple(Enforcement),
    MEMORY_CLASS_ANNOTATION: tuple(MemoryClass),
    OVERFLOW_ANNOTATION: tuple(Overflow),
    MANAGED_ANNOTATION: tuple(ManagedMemory),
}
"""Annotations with one of a few words."""
RESIZES = (RESIZE_MEMORY_ANNOTATION, RESIZE_CORE_ANNOTATION)
PLACING = (
    NODE_POLICY_ANNOTATION,
    CARD_POLICY_ANNOTATION,
    CARD_MODEL_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    CARD_UUID_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
    TOPOLOGY_ANNOTATION,
    RDMA_ANNOTATION,
)
MIG_REMEDY = "a MIG instance is as large as its profile: make the pod anew with another one"
REFINING = (*RESIZES, *WORDS, CORE_MODE_ANNOTATION, CORE_LIMIT_ANNOTATION, PRIORITY_ANNOTATION, *PLACING)
"""Annotations that are checked when they change, with a container's prefix or without."""


@dataclass(frozen=True)
class Mutation:
    """What to do to a pod: JSON Patch operations (none: leave it), and what to tell its author."""

    operations: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Mutator:
    """Knows the cluster's resource names and dialects, and the quota of each namespace."""

    names: ResourceNames
    dialects: Sequence[Dialect] = ()
    quota_of: QuotaOf = lambda _: None

    def mutate(self, document: dict[str, Any], pod: Pod, namespace: str = "") -> Mutation:
        """Work out the changes of one pod.

        Args:
            document: The pod as it came; it is edited.
            pod: The same pod, read.
            namespace: Where it is to be made, which need not be written in it.

        Raises:
            Refusal: the pod asks for something that cannot be honoured.
        """
        quota = self.quota_of(namespace)
        filled, told = Filler(quota, self.names, self.dialects).fill(pod) if quota else (pod, [])
        request = self._request(filled)
        slices = _slices(request)
        patch, warnings = Patch(document), list(about_grants(pod))
        for grant in GRANTS:
            patch.remove(("metadata", "annotations", grant))
        _check_asks(pod, slices)
        if quota:
            check_pod_max(quota, request, namespace)
        if slices:
            _check(pod)
            check_environment(pod)
            warnings += (*told, *about_scheduler(pod), *about_restarts(pod, slices))
            warnings += (line for _, container in _among(pod, slices) for line in about_container(container))
            self._apply(patch, filled, slices)
        equipped = _equipped(request)
        if equipped:
            check_usage_volumes(document, pod)
        for where, container in _among(pod, equipped):
            add_usage_volume(patch, where, container)
        return Mutation(patch.operations, warnings)

    def review_edit(self, document: dict[str, Any], edited: Pod, stored: Pod) -> Mutation:
        """Put what the scheduler has written back to what is stored, and check what is asked now.

        Args:
            document: The pod as it was edited; it is edited on.
            edited: The same pod, read.
            stored: The pod as it is.

        Raises:
            Refusal: an annotation that was edited asks for something that cannot be honoured.
        """
        before, now = stored.metadata.annotations, edited.metadata.annotations
        if any(before.get(key) != value for key, value in now.items() if key.endswith(REFINING)):
            _check_asks(edited, _slices(self._request(edited)))
        return keep_grants(document, stored)

    def _request(self, pod: Pod) -> PodRequest:
        try:
            return read_pod_request(pod, self.names, self.dialects)
        except RequestError as error:
            raise Refusal(str(error)) from error

    def _apply(self, patch: Patch, pod: Pod, slices: Mapping[str, SliceRequest]) -> None:
        if pod.spec.scheduler_name in ("", DEFAULT_SCHEDULER):
            patch.set(("spec", "schedulerName"), SCHEDULER_NAME)
        preload = pod.metadata.annotations.get(INJECT_ANNOTATION, INJECT_BY_ENV) == INJECT_BY_ENV
        for where, container in _among(pod, slices):
            self._write_resources(patch, where, container.resources, slices[container.name])
            if preload:
                inject(patch, where, container)

    def _write_resources(
        self, patch: Patch, where: Path, there: ResourceRequirements, wanted: SliceRequest
    ) -> None:
        """Write our resources out where the container does not give them itself; what is there already stays."""
        asked = {**there.requests, **there.limits}
        ours = {name: value for name, value in asked.items() if name in self.names.slices}
        complete = {self.names.gpu: str(wanted.cards), **(ours or wanted.limits(self.names))}
        for name, value in complete.items():
            for kind in ("limits", "requests"):
                path = (*where, "resources", kind, name)
                if patch.get(path) is None:
                    patch.set(path, value)


def _slices(request: PodRequest) -> dict[str, SliceRequest]:
    """Container name → its slice."""
    return {c.name: c.slice for c in request.containers if c.slice is not None}


def _equipped(request: PodRequest) -> frozenset[str]:
    """The containers that the node gives pages."""
    return frozenset(c.name for c in request.containers if c.slice is not None or c.mig)


def keep_grants(document: dict[str, Any], stored: Pod) -> Mutation:
    """Work out what puts what the scheduler has written into a pod back to what is stored, after an edit.

    Args:
        document: The pod as it was edited; it is edited on.
        stored: The pod as it is.
    """
    patch, warnings = Patch(document), list[str]()
    for grant in GRANTS:
        where, text = ("metadata", "annotations", grant), stored.metadata.annotations.get(grant)
        before = len(patch.operations)
        if text is None:
            patch.remove(where)
        else:
            patch.set(where, text)
        warnings += [about_kept(grant)] if len(patch.operations) > before else []
    return Mutation(patch.operations, warnings)


def _check(pod: Pod) -> None:
    """Refuse what could only fail later, on the node."""
    if pod.spec.node_name:
        raise Refusal(
            f"spec.nodeName is {pod.spec.node_name!r}, which passes by the scheduler that hands out cards; "
            "use a nodeSelector or node affinity instead"
        )
    wanted = pod.metadata.annotations.get(INJECT_ANNOTATION, INJECT_BY_ENV)
    if wanted not in (INJECT_BY_ENV, INJECT_BY_FILE):
        raise Refusal(
            f"annotation {INJECT_ANNOTATION}: {wanted!r} is neither {INJECT_BY_ENV!r} nor {INJECT_BY_FILE!r}"
        )


def _check_asks(pod: Pod, containers: Collection[str]) -> None:
    """Refuse asks for other limits that no scheduler could approve, and words that nobody understands."""
    annotations = pod.metadata.annotations
    asked = next((key for key in annotations if key.endswith(RESIZES)), "")
    if asked and not containers:
        raise Refusal(f"annotation {asked}: only slices can be resized, and this pod has none; {MIG_REMEDY}")
    try:
        read_asks(annotations, list(containers))
    except ResizeError as error:
        raise Refusal(f"annotation {error}") from error
    for annotation, words in WORDS.items():
        for container in containers:
            key, word = written_for(annotations, annotation, container) or ("", words[0])
            if word not in words:
                raise Refusal(f"annotation {key}: {word!r} is none of {', '.join(words)}")


def _among(pod: Pod, names: Collection[str]) -> Iterator[tuple[Path, Container]]:
    """The containers of these names, init containers first, each with its place in the document."""
    for kind, containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for n, container in enumerate(containers):
            if container.name in names:
                yield ("spec", kind, n), container
