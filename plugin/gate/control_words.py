"""What a container may use, in the words of its control page."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliquot.api.annotations import written_for
from aliquot.api.names import MANAGED_ANNOTATION, OVERFLOW_ANNOTATION
from aliquot.api.pod_groups import group_of
from aliquot.crds.gpu_pool import STRICTNESS, GroupLeases, Overflow
from aliquot.crds.gpu_pool import Enforcement as PoolEnforcement
from aliquot.libshim.control_page import CardLimit, Control, Enforcement
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.kubelet.container_identity import PodName
from aliquot.plugin.sharing.leases import Leases, Membership, lease_name
from aliquot.plugin.state.card_table import CardTable
from aliquot.plugin.state.node_ledger import NodeLedger
from aliquot.request.core_shares import Promised, core_part
from aliquot.request.placement import CardShare, ContainerPlacement
from aliquot.request.pod_request import ManagedMemory
from aliquot.units import MIB

TENANT_NAME_BYTES = 127


@dataclass(frozen=True)
class ControlWords:
    """Knows what is needed to write a control page."""

    cards: CardTable
    pods: Pods
    ledger: NodeLedger
    leases: Leases
    silent: PoolEnforcement = PoolEnforcement.ENFORCE
    """What holds where no pool says whether limits are enforced."""

    def control_of(self, pod: PodName, container: ContainerPlacement) -> Control:
        """The control page of a container with slices."""
        enforcement = self._enforcement(pod, container)
        limits = tuple(self._limit(pod, container, share) for share in container.cards)
        if self.leases.arbiter is not None and enforcement is Enforcement.ENFORCE:
            pairs = zip(limits, container.cards, strict=True)
            doubted = lease_name(pod.uid, container.name) in self.leases.doubts
            limits = tuple(self._timed(limit, container, share, doubted=doubted) for limit, share in pairs)
        return Control(tenant_name(pod, container.name), limits, enforcement)

    def membership_of(self, pod: PodName, container: ContainerPlacement) -> Membership:
        """How a container is leased its cards. It is exempt where the pools of all its cards exempt groups."""
        seen = self.pods.get(pod.uid)
        group = group_of(seen.metadata, seen.spec.scheduling_group) if seen else None
        pools = [self.cards.pool(share.uuid) for share in container.cards]
        return Membership(group, bool(group) and all(one.group_leases is GroupLeases.EXEMPT for one in pools))

    def _enforcement(self, pod: PodName, container: ContainerPlacement) -> Enforcement:
        """What its cards' pools and the pod's annotation make of it; the strictest counts, for a page has one word."""
        annotations = self._annotations(pod)
        pools = (self.cards.pool(share.uuid) for share in container.cards)
        found = [pool.enforcement_for(annotations, container.name, self.silent) for pool in pools]
        return Enforcement(max(found, key=STRICTNESS.index))

    def _limit(self, pod: PodName, container: ContainerPlacement, share: CardShare) -> CardLimit:
        """A share as the interceptor reads it; a card held alone has nobody to be fair to.

        A burst share starts with no grant: the granter raises it at the first wish.
        """
        memory_bytes = share.memory_mib * MIB
        overflows = container.burst and self._overflows(pod, container, share)
        return CardLimit(
            share.uuid,
            memory_bytes,
            0 if share.exclusive else share.cores,
            grant_bytes=0 if container.burst else None,
            overflow_bytes=memory_bytes if overflows else None,
            context_bytes=self.cards.context_bytes(share.uuid, pod.namespace),
            managed_resident=self._asks_for(pod, container, MANAGED_ANNOTATION, ManagedMemory.RESIDENT),
        )

    def _timed(
        self, limit: CardLimit, container: ContainerPlacement, share: CardShare, *, doubted: bool
    ) -> CardLimit:
        """The same limit where an arbiter leases the card to those who share it, and whoever is alone there is free."""
        terms = self.cards.pool(share.uuid).core_terms_for(container.policy, share.cores)
        promised = self.ledger.promised(share.uuid)
        part = core_part(
            terms, share.cores, Promised(promised.cores, promised.uncapped, tenants=promised.slots)
        )
        return replace(
            limit,
            core_percent=part.cap_percent,
            core_share_bp=part.share_bp,
            core_most_percent=part.most_percent,
            priority=part.priority,
            doubted=doubted and bool(part.share_bp),
        )

    def _overflows(self, pod: PodName, container: ContainerPlacement, share: CardShare) -> bool:
        """Whether pod and pool both want host memory for what the card does not hold."""
        asked = self._asks_for(pod, container, OVERFLOW_ANNOTATION, Overflow.HOST)
        return asked and self.cards.pool(share.uuid).overflow is Overflow.HOST

    def _asks_for(self, pod: PodName, container: ContainerPlacement, annotation: str, word: str) -> bool:
        asked = written_for(self._annotations(pod), annotation, container.name)
        return asked is not None and asked[1] == word

    def _annotations(self, pod: PodName) -> Mapping[str, str]:
        seen = self.pods.get(pod.uid)
        return seen.metadata.annotations if seen else {}


def tenant_name(pod: PodName, container: str) -> str:
    """`namespace/pod/container`, as much of it as a page holds."""
    return f"{pod}/{container}"[:TENANT_NAME_BYTES]
