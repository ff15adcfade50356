"""What a pod asks for, read from its containers' resources.

Extended resources follow Kubernetes' rules: limits speak, requests stand in where limits are silent, and the
two must agree. A count of 0 is the same as not asking. Where a dialect is switched on, another project's
resources are translated to ours first; a container that carries both (our webhook adds ours and keeps theirs)
must mean the same in both.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from aliquot.api.annotations import written_for
from aliquot.api.names import DEFAULT_NAMES, DOMAIN, MEMORY_CLASS_ANNOTATION, ResourceNames
from aliquot.dialects import Dialect, DialectError, Translation
from aliquot.kube.objects import Container, Pod, ResourceRequirements
from aliquot.request.card_filter import ANY_CARD, CardFilter, CardFilterError, read_card_filter
from aliquot.request.core_policy import NO_POLICY, CorePolicy, CorePolicyError, read_core_policy
from aliquot.request.host_resources import NO_HOST, HostShare, host_share
from aliquot.request.placement_policy import SILENT, PolicyError, Preference, read_preference
from aliquot.request.topology import RDMA_PREFIX, Rdma, Topology, TopologyError, read_rdma, read_topology
from aliquot.units import (
    MIB,
    Quantity,
    QuantityError,
    format_bytes,
    parse_bytes,
    parse_count,
    parse_percent,
    parse_quantity,
    to_mib,
)

WHOLE = 100
"""All of a card, in percent."""

MAX_CARDS = 16
"""How many cards a container can hold: as many as its control page has room for."""


class ContainerKind(StrEnum):
    """When a container runs: before the others, beside them from the start, or with them."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"


class MemoryClass(StrEnum):
    """Whether a slice's memory is there at all times, or granted when it is needed."""

    GUARANTEED = "guaranteed"
    BURST = "burst"


class ManagedMemory(StrEnum):
    """Whether managed memory is charged in full, or what of it may come to the card."""

    RESERVE = "reserve"
    RESIDENT = "resident"


class RequestError(ValueError):
    """A request that cannot be honoured; the message names container, resource and remedy.

    `container` is empty where all of the pod is meant.
    """

    def __init__(self, container: str, resource: str, value: object, problem: str) -> None:
        whose = f"container {container!r}: " if container else ""
        super().__init__(f"{whose}{resource}: {problem}")
        self.container = container
        self.resource = resource
        self.value = value


@dataclass(frozen=True)
class SliceRequest:
    """A part of each of `cards` distinct cards; exactly one of the two memory fields is set.

    `memory_mib` and `memory_percent` are per card. `cores` is the guaranteed percentage of each card's
    compute time, 0 for none (uncapped, shares what is left). `exclusive`: no other tenant on these cards. `burst`: the
    memory may be overcommitted and is granted when it is needed. `policy`: how the time is held. `only`: which
    cards are allowed. `topology`: how links between them count, None where the pod does not say. `rdma`: how near to
    network cards they are to be.
    """

    cards: int
    memory_mib: int | None
    memory_percent: int | None
    cores: int
    exclusive: bool = False
    burst: bool = False
    policy: CorePolicy = NO_POLICY
    only: CardFilter = ANY_CARD
    topology: Topology | None = None
    rdma: Rdma = Rdma.NONE

    def __hash__(self) -> int:
        """Worked out once: every look at what is kept of a class of pods asks for it."""
        return self._hashed

    @cached_property
    def _hashed(self) -> int:
        return hash(tuple(getattr(self, one.name) for one in fields(self)))

    def limits(self, names: ResourceNames) -> dict[str, str]:
        """Write the request as resources that :func:`read_pod_request` reads back as the same request."""
        limits = {names.gpu: str(self.cards)}
        if self.exclusive and self.memory_percent == WHOLE and self.cores == WHOLE:
            return limits
        if self.memory_mib is not None:
            limits[names.memory] = format_bytes(self.memory_mib * MIB)
        else:
            limits[names.memory_percent] = str(self.memory_percent)
        if self.cores:
            limits[names.core] = str(self.cores)
        return limits


@dataclass(frozen=True)
class ContainerRequest:
    """What one container asks for: a slice, or MIG instances by profile (`1g.10gb` → count)."""

    name: str
    kind: ContainerKind
    slice: SliceRequest | None = None
    mig: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PodRequest:
    """What a pod asks for: the containers that ask for something, in the order in which they start.

    `host` is what it takes of its node's CPU and memory, `preference` what it says of nodes and cards to prefer.
    """

    namespace: str
    name: str
    uid: str
    containers: tuple[ContainerRequest, ...] = ()
    host: HostShare = NO_HOST
    preference: Preference = SILENT

    @property
    def wants_slices(self) -> bool:
        """Whether any container asks for a slice."""
        return any(container.slice for container in self.containers)

    @property
    def wants_mig(self) -> bool:
        """Whether any container asks for a MIG instance."""
        return any(container.mig for container in self.containers)


def read_pod_request(
    pod: Pod, names: ResourceNames = DEFAULT_NAMES, dialects: Sequence[Dialect] = ()
) -> PodRequest:
    """Read what a pod asks for.

    Raises:
        RequestError: a container asks for something that cannot be honoured.
    """
    containers, meta = [], pod.metadata
    ours = {key: value for key, value in meta.annotations.items() if DOMAIN in key}
    for container, kind in _in_start_order(pod):
        if dialects:
            request = _Reader(container, names).read(kind, meta.annotations, dialects)
        else:
            resources = container.resources
            asked = tuple(resources.limits.items()), tuple(resources.requests.items())
            request = _read_alike(container.name, kind, names, asked, tuple(ours.items()))
        if request.slice or request.mig:
            containers.append(request)
    if any(container.slice for container in containers):
        _check_dialects(pod, dialects)
    preference = _preference(meta.annotations) if containers else SILENT
    return PodRequest(
        meta.namespace, meta.name, meta.uid, tuple(containers), host_share(pod.spec, names.gpu), preference
    )


@lru_cache(maxsize=1024)
def _read_alike(
    name: str,
    kind: ContainerKind,
    names: ResourceNames,
    asked: tuple[tuple[tuple[str, Quantity], ...], tuple[tuple[str, Quantity], ...]],
    annotations: tuple[tuple[str, str], ...],
) -> ContainerRequest:
    """Read a container with these limits and requests; of thousands of pods most are of few templates."""
    limits, requests = map(dict, asked)
    resources = ResourceRequirements(limits=limits, requests=requests)
    reader = _Reader(Container(name=name, resources=resources), names)
    return reader.read(kind, dict(annotations), ())


def _check_dialects(pod: Pod, dialects: Sequence[Dialect]) -> None:
    """Refuse what the pod says in another project's words, and what is not honoured."""
    for dialect in dialects:
        try:
            dialect.check(pod)
        except DialectError as error:
            raise RequestError("", error.resource, error.value, str(error)) from error


def _preference(annotations: Mapping[str, str]) -> Preference:
    try:
        return read_preference(annotations)
    except PolicyError as error:
        word = annotations.get(error.annotation)
        raise RequestError("", f"annotation {error.annotation}", word, str(error)) from error


def _in_start_order(pod: Pod) -> Iterator[tuple[Container, ContainerKind]]:
    """List a pod's containers as the kubelet starts them."""
    for container in pod.spec.init_containers:
        yield container, ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
    for container in pod.spec.containers:
        yield container, ContainerKind.REGULAR


@dataclass(frozen=True)
class _Reader:
    """Reads one container, so that every error can name it."""

    container: Container
    names: ResourceNames

    def read(
        self, kind: ContainerKind, annotations: Mapping[str, str], dialects: Sequence[Dialect]
    ) -> ContainerRequest:
        """Read slice and MIG instances."""
        ours = self._asked()
        self._refuse_unknown(ours)
        part = self._slice(ours)
        mig = self._mig(ours)
        for dialect in dialects:
            part = self._with_dialect(part, dialect, annotations)
        part = part and self._refined(part, annotations)
        if part and mig:
            resource = self.names.mig_resource(next(iter(mig)))
            raise self._error(
                resource,
                mig,
                "a container gets either a slice or MIG instances; ask for the other in a second container",
            )
        return ContainerRequest(self.container.name, kind, part, mig)

    def _refined(self, part: SliceRequest, annotations: Mapping[str, str]) -> SliceRequest:
        """Read what annotations say of it."""
        part = self._timed(self._classed(part, annotations), annotations)
        return self._linked(self._narrowed(part, annotations), annotations)

    def _classed(self, part: SliceRequest, annotations: Mapping[str, str]) -> SliceRequest:
        """Read the memory class."""
        written = written_for(annotations, MEMORY_CLASS_ANNOTATION, self.container.name)
        if written is None or written[1] == MemoryClass.GUARANTEED:
            return part
        if written[1] != MemoryClass.BURST:
            words = " nor ".join(map(repr, map(str, MemoryClass)))
            raise self._error(written[0], written[1], f"{written[1]!r} is neither {words}")
        if part.exclusive:
            raise self._error(
                written[0], written[1], "a card of one's own has nobody to share its memory with"
            )
        return replace(part, burst=True)

    def _timed(self, part: SliceRequest, annotations: Mapping[str, str]) -> SliceRequest:
        """Read how its time is held."""
        try:
            policy = read_core_policy(annotations, self.container.name, part.cores, exclusive=part.exclusive)
        except CorePolicyError as error:
            raise self._error(error.annotation, error.value, str(error)) from error
        return replace(part, policy=policy)

    def _narrowed(self, part: SliceRequest, annotations: Mapping[str, str]) -> SliceRequest:
        """Read which cards are allowed."""
        try:
            only = read_card_filter(annotations, self.container.name)
        except CardFilterError as error:
            raise self._error(error.annotation, error.value, str(error)) from error
        return replace(part, only=only) if only else part

    def _linked(self, part: SliceRequest, annotations: Mapping[str, str]) -> SliceRequest:
        """Read how its cards are to be linked, and how near to network cards they are to be."""
        silent = Rdma.NEAR if self._asks_rdma() else Rdma.NONE
        try:
            topology = read_topology(annotations, self.container.name)
            rdma = read_rdma(annotations, self.container.name, silent)
        except TopologyError as error:
            raise self._error(error.annotation, error.word, str(error)) from error
        return replace(part, topology=topology, rdma=rdma) if topology or rdma is not Rdma.NONE else part

    def _asks_rdma(self) -> bool:
        """Whether it asks for a resource of an RDMA device plugin."""
        resources = self.container.resources
        return any(
            name.startswith(RDMA_PREFIX) and str(count) != "0"
            for asked in (resources.limits, resources.requests)
            for name, count in asked.items()
        )

    def _error(self, resource: str, value: object, problem: str) -> RequestError:
        return RequestError(self.container.name, resource, value, problem)

    def _asked(self) -> dict[str, Quantity]:
        """Return limits, and requests where there is no limit; ours must agree where both are given."""
        resources = self.container.resources
        for name in resources.limits.keys() & resources.requests.keys():
            if self.names.owns(name):
                self._check_equal(name, resources.limits[name], resources.requests[name])
        return {**resources.requests, **resources.limits}

    def _check_equal(self, name: str, limit: Quantity, request: Quantity) -> None:
        try:
            equal = parse_quantity(limit) == parse_quantity(request)
        except QuantityError as error:
            raise self._error(name, limit, str(error)) from error
        if not equal:
            raise self._error(
                name, limit, f"limit {limit} and request {request} differ; give the limit alone"
            )

    def _refuse_unknown(self, asked: Mapping[str, Quantity]) -> None:
        """Refuse a resource that no node has; the pod would wait for ever."""
        for name, value in asked.items():
            if self.names.misnamed(name):
                raise self._error(name, value, f"here this resource is called {self.names.own(name)}")
            if name.startswith(f"{self.names.domain}/") and not self.names.owns(name):
                close = difflib.get_close_matches(name, self.names.slices, n=1, cutoff=0)
                raise self._error(name, value, f"no such resource; did you mean {close[0]}?")

    def _slice(self, asked: Mapping[str, Quantity]) -> SliceRequest | None:
        """Read the slice that a set of our resources describes."""
        names = self.names
        parts = {name: asked[name] for name in names.slices[1:] if name in asked}
        cards = self._count(names.gpu, asked[names.gpu]) if names.gpu in asked else None
        if not cards and not parts:
            return None
        if cards == 0:
            name = next(iter(parts))
            raise self._error(
                names.gpu, asked[names.gpu], f"0 cards, but {name} is given; remove one of the two"
            )
        if cards is not None and cards > MAX_CARDS:
            raise self._error(names.gpu, cards, f"{cards} cards; a container gets at most {MAX_CARDS}")
        if not parts:
            return SliceRequest(cards or 1, None, WHOLE, WHOLE, exclusive=True)
        cores = self._percent(names.core, parts[names.core]) if names.core in parts else 0
        memory_mib, percent = self._memory(parts, cores)
        return SliceRequest(cards or 1, memory_mib, percent, cores)

    def _memory(self, parts: Mapping[str, Quantity], cores: int) -> tuple[int | None, int | None]:
        """Return memory per card as (MiB, None) or (None, percent); cores alone mean the same percentage."""
        names = self.names
        if names.memory in parts and names.memory_percent in parts:
            raise self._error(
                names.memory, parts[names.memory], f"{names.memory_percent} is given too; give one of the two"
            )
        if names.memory in parts:
            return self._mib(names.memory, parts[names.memory]), None
        if names.memory_percent in parts:
            return None, self._percent(names.memory_percent, parts[names.memory_percent])
        return None, cores

    def _mig(self, asked: Mapping[str, Quantity]) -> dict[str, int]:
        """Read MIG instances; a count of 0 asks for none."""
        counts = {
            profile: self._count(name, value)
            for name, value in asked.items()
            if (profile := self.names.mig_profile(name)) is not None
        }
        return {profile: count for profile, count in counts.items() if count}

    def _with_dialect(
        self, ours: SliceRequest | None, dialect: Dialect, annotations: Mapping[str, str]
    ) -> SliceRequest | None:
        """Add what the container says in a dialect; said twice, it must be the same."""
        try:
            translation = dialect.translate(self.container.resources, annotations, self.names)
        except DialectError as error:
            raise self._error(error.resource, error.value, str(error)) from error
        theirs = self._translated(translation)
        if theirs is None:
            return ours
        if ours is not None and ours.limits(self.names) != theirs.limits(self.names):
            raise self._error(
                self.names.gpu,
                dict(self.container.resources.limits),
                f"says {_spell(ours, self.names)} in our names and {_spell(theirs, self.names)} in those of "
                f"{dialect.name}; keep one of the two",
            )
        return theirs

    def _translated(self, translation: Translation | None) -> SliceRequest | None:
        if translation is None:
            return None
        part = self._slice(translation.limits)
        return part and replace(part, exclusive=part.exclusive or translation.exclusive)

    def _count(self, resource: str, value: Quantity) -> int:
        try:
            return parse_count(value)
        except QuantityError as error:
            remedy = f"; for a part of a card give {self.names.memory} or {self.names.core}"
            raise self._error(resource, value, f"{error}{remedy}") from error

    def _percent(self, resource: str, value: Quantity) -> int:
        try:
            return parse_percent(value)
        except QuantityError as error:
            raise self._error(resource, value, str(error)) from error

    def _mib(self, resource: str, value: Quantity) -> int:
        try:
            size = parse_bytes(value)
        except QuantityError as error:
            raise self._error(resource, value, str(error)) from error
        if not size:
            raise self._error(
                resource, value, f"{value} is no memory at all; give at least 1Mi or leave it out"
            )
        return to_mib(size)


def _spell(part: SliceRequest, names: ResourceNames) -> str:
    """Write a slice as people would in YAML, on one line."""
    return ", ".join(f"{name}: {value}" for name, value in part.limits(names).items())
