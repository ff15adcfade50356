"""How much of the cards a group of namespaces may have: the GPUQuota object that an admin writes.

A namespace belongs to the first quota, by name, that lists it; quotas of a pool count that pool's cards alone, and
stand beside those of the whole cluster. The schema that the API server enforces is `deploy/crds/gpuquotas.yaml`.

HAMi's way is understood too: a ResourceQuota with `limits.<resource>`, which Kubernetes itself stores and ignores.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from aliquot.api.names import API_GROUP, API_VERSION, ResourceNames
from aliquot.dialects import Dialect
from aliquot.kube.objects import KubeObject, KubeStruct
from aliquot.request.amounts import NAMES, Amounts, bare, spell
from aliquot.units import MIB, Quantity, QuantityError, parse_quantity

KIND: Final = "GPUQuota"
PLURAL: Final = "gpuquotas"
FIELDS: Final = {"memory_mib": "memoryMiB", "cores": "cores", "cards": "cards"}
"""The amounts as a GPUQuota writes them."""
NATIVE_PREFIX: Final = "limits."

_log = logging.getLogger(__name__)


class Most(KubeStruct, frozen=True, kw_only=True):
    """An upper bound of each amount; None is no bound."""

    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")
    cores: int | None = None
    cards: int | None = None

    def of(self, name: str) -> int | None:
        """One of them, by its name in `aliquot.request.amounts.NAMES`."""
        bound: int | None = getattr(self, name)
        return bound

    def amounts(self) -> Amounts:
        """The same as amounts, nothing where nothing is said."""
        return Amounts(self.memory_mib or 0, self.cores or 0, self.cards or 0)


class GpuAlone(KubeStruct, frozen=True, kw_only=True):
    """What a container gets of each card that asks for cards and says no more."""

    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")
    cores: int | None = None


class Defaults(KubeStruct, frozen=True, kw_only=True):
    """What the webhook writes where a container is silent.

    Attributes:
        gpu_alone: In place of whole cards, for a container that asks for `aliquot.dev/gpu` and nothing else.
        cores: The share of compute time of a container that asks for memory and none.
    """

    gpu_alone: GpuAlone | None = None
    cores: int | None = None


NO_BOUND: Final = Most()
NO_DEFAULTS: Final = Defaults()


class QuotaSpec(KubeStruct, frozen=True, kw_only=True):
    """What the admin wants.

    Attributes:
        namespaces: Those that share the quota.
        pool: The GPUPool whose cards are counted; empty for all cards of the cluster.
        guaranteed: What others leave for them; None is nothing.
        limit: What they have at most together.
        pod_max: What one pod has at most.
        defaults: What the webhook writes where a container is silent.
        reclaim: What is guaranteed here and not used is lent; borrowers are evicted when a pod within it waits.
        min_run_seconds: How long a pod of these namespaces is not evicted for another after its start.
        weight: How much of what is left beyond all guarantees is theirs, in proportion to others' weights.
        parent: The GPUQuota of the same pool that these namespaces are held to, too; it has no parent itself.
    """

    namespaces: tuple[str, ...] = ()
    pool: str = ""
    guaranteed: Most = NO_BOUND
    limit: Most = NO_BOUND
    pod_max: Most = NO_BOUND
    defaults: Defaults = NO_DEFAULTS
    reclaim: bool = False
    min_run_seconds: int = 0
    weight: int = 1
    parent: str = ""


class QuotaStatus(KubeStruct, frozen=True, kw_only=True):
    """What the extender says.

    Attributes:
        used: What its namespaces have, and those of quotas below it.
        borrowed: What of it is beyond the guarantee.
        shadowed: Namespaces that are another quota's.
        parent_ignored: Why the parent does not count; empty where it does, or there is none.
    """

    used: Most = NO_BOUND
    borrowed: Most = NO_BOUND
    shadowed: tuple[str, ...] = ()
    parent_ignored: str = ""


class GPUQuota(KubeObject, frozen=True, kw_only=True):
    """One quota."""

    api_version: str = f"{API_GROUP}/{API_VERSION}"
    kind: str = KIND
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def quota_of(quotas: Iterable[GPUQuota], namespace: str, pool: str = "") -> GPUQuota | None:
    """The quota that a namespace belongs to, of those that count a pool's cards (or all); None where there is none."""
    listing = (q for q in quotas if q.spec.pool == pool and namespace in q.spec.namespaces)
    return min(listing, key=lambda quota: quota.metadata.name, default=None)


def above_pod_max(title: str, namespace: str, name: str, wanted: int, most: int) -> str:
    """What the author of a pod is told that wants more than one pod may have."""
    return (
        f"{title}: a pod of namespace {namespace} asks for {spell(name, wanted)}, and may have "
        f"{bare(name, most)} at most; ask for less, or have podMax.{FIELDS[name]} raised"
    )


class _HardSpec(KubeStruct, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = msgspec.field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, Any] | None = None


class ResourceQuota(KubeObject, frozen=True, kw_only=True):
    """Kubernetes' own quota of one namespace, as far as it is about cards."""

    spec: _HardSpec = _HardSpec()


def hard_limits(quota: ResourceQuota, names: ResourceNames, dialects: Sequence[Dialect]) -> Most:
    """What a ResourceQuota allows of cards, by `limits.<resource>` in our names and the dialects'; the least counts.

    Names of the default domain count also where the admin has chosen another: no bound ends unnoticed.
    One with scopes is about some pods only, which is not told apart here: it bounds nothing, and the log says so.
    """
    known: dict[str, tuple[str, int]] = {names.gpu: ("cards", 1), names.core: ("cores", 1)}
    for dialect in dialects:
        known |= dialect.amounts
    bounds: dict[str, int] = {}
    for resource, value in _about(quota.spec.hard).items():
        counted = _read(names.own(resource), value, names, known)
        if counted is not None:
            bounds[counted[0]] = min(counted[1], bounds.get(*counted))
    if bounds and (quota.spec.scopes or quota.spec.scope_selector):
        _log.warning("ResourceQuota %s has scopes: its limits of cards are not enforced", quota.key)
        return NO_BOUND
    return Most(**bounds)


def _about(hard: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Resource → what is allowed, for keys that begin with `limits.`."""
    return {k.removeprefix(NATIVE_PREFIX): v for k, v in hard.items() if k.startswith(NATIVE_PREFIX)}


def _read(
    resource: str, value: Quantity, names: ResourceNames, known: Mapping[str, tuple[str, int]]
) -> tuple[str, int] | None:
    """The amount that a resource stands for and how much of it is allowed; None for what is none of ours."""
    try:
        if resource == names.memory:
            return NAMES[0], int(parse_quantity(value) // MIB)
        if resource in known:
            name, unit = known[resource]
            return name, int(parse_quantity(value) * unit)
    except QuantityError as error:
        _log.warning("ResourceQuota: %s%s bounds nothing: %s", NATIVE_PREFIX, resource, error)
    return None
