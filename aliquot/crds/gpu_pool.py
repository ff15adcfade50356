"""How the cards of some nodes are to be shared: the GPUPool object that an admin writes.

A card belongs to the first pool, by name, whose node selector and models match it; a card of no pool is shared as
a pool that says nothing would have it: nothing overcommitted, everything enforced unless the agent is told otherwise.
The schema that the API server enforces is `deploy/crds/gpupools.yaml`.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from aliquot.api.annotations import written_for
from aliquot.api.names import API_GROUP, API_VERSION, ENFORCEMENT_ANNOTATION
from aliquot.kube.objects import KubeObject, KubeStruct
from aliquot.request.core_policy import HIGHEST_PRIORITY, WHOLE, CoreMode, CorePolicy, CoreRules, CoreTerms
from aliquot.request.placement_policy import Policy, Preference
from aliquot.request.topology import Topology

KIND: Final = "GPUPool"
PLURAL: Final = "gpupools"


class Enforcement(StrEnum):
    """What is done about a limit: nothing, count what would have been refused, or refuse. Each is stricter."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class Overflow(StrEnum):
    """Where memory goes that a burst slice may have, but that the card does not hold now."""

    NONE = "None"
    HOST = "Host"


class GroupLeases(StrEnum):
    """How the pods of a group have cards that others share: leased at the same time, or without leases."""

    TOGETHER = "together"
    EXEMPT = "exempt"


class PoolSpec(KubeStruct, frozen=True, kw_only=True):
    """What the admin wants; percentages of what a card has, memory in MiB."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    models: tuple[str, ...] = ()
    memory_percent: int = 100
    core_percent: int = 100
    reserve_mib: int = msgspec.field(default=0, name="reserveMiB")
    enforcement: Enforcement | None = None
    pods_may_weaken_enforcement: bool = False
    overflow: Overflow = Overflow.NONE
    core_mode: CoreMode = CoreMode.CAPPED
    core_limit: int = WHOLE
    priority: int = 0
    max_priority: int = HIGHEST_PRIORITY
    node_policy: Policy | None = None
    card_policy: Policy | None = None
    topology: Topology | None = None
    saving_up: bool = True
    group_leases: GroupLeases = GroupLeases.TOGETHER

    @property
    def preference(self) -> Preference:
        """Which nodes and cards are preferred. A pool sets no least link: only those who need one know which."""
        wish = self.topology if self.topology and not self.topology.demands else None
        return Preference(self.node_policy, self.card_policy, wish)

    def matches(self, labels: Mapping[str, str], model: str) -> bool:
        """Whether a card of this model on a node of these labels is meant."""
        here = all(labels.get(key) == value for key, value in self.node_selector.items())
        return here and (not self.models or model in self.models)

    def enforcement_for(
        self, annotations: Mapping[str, str], container: str, silent: Enforcement = Enforcement.ENFORCE
    ) -> Enforcement:
        """What holds for a container: the pool's word, or the pod's where that is stricter or pods may weaken it.

        `silent` is the word of a pool that says nothing.
        """
        word = self.enforcement or silent
        written = written_for(annotations, ENFORCEMENT_ANNOTATION, container)
        if written is None or written[1] not in list(Enforcement):
            return word
        wish = Enforcement(written[1])
        stricter = STRICTNESS.index(wish) >= STRICTNESS.index(word)
        return wish if stricter or self.pods_may_weaken_enforcement else word

    def core_terms_for(self, asked: CorePolicy, cores: int) -> CoreTerms:
        """What holds for a container that has this guaranteed percentage (0: none) of a card's time."""
        rules = CoreRules(self.core_mode, self.core_limit, self.priority, self.max_priority)
        return rules.terms_for(asked, cores)


STRICTNESS: Final = tuple(Enforcement)
NO_POOL: Final = PoolSpec()


class PooledAs(NamedTuple):
    """The pool of a card: its name, empty for a card of no pool, and what it says."""

    name: str
    spec: PoolSpec


NOT_POOLED: Final = PooledAs("", NO_POOL)


class GPUPool(KubeObject, frozen=True, kw_only=True):
    """One pool."""

    api_version: str = f"{API_GROUP}/{API_VERSION}"
    kind: str = KIND
    spec: PoolSpec = NO_POOL


def pool_of(pools: Iterable[GPUPool], labels: Mapping[str, str], model: str) -> PoolSpec:
    """How a card is to be shared."""
    return pooled_as(pools, labels, model).spec


def pooled_as(pools: Iterable[GPUPool], labels: Mapping[str, str], model: str) -> PooledAs:
    """The pool that a card is in."""
    for pool in sorted(pools, key=lambda pool: pool.metadata.name):
        if pool.spec.matches(labels, model):
            return PooledAs(pool.metadata.name, pool.spec)
    return NOT_POOLED
