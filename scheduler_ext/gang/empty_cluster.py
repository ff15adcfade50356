"""Whether pods could be placed together if no other pod were in the cluster: what can never fit waits for nothing.

The nodes are taken as they are, without their pods, and quotas as if nobody used anything. The answer errs towards yes:
the pods of a node's own services count as gone, too, and a quota of a pool counts only where every card is in it.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aliquot.request.amounts import NAMES, NOTHING, Amounts, asked
from aliquot.request.host_resources import NO_HOST, HostShare
from aliquot.request.placement import Placement
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.pool_quotas import Bound
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.namespace_usage import ALL, Kind
from aliquot.scheduler_ext.state.node_resources import with_room


@dataclass(frozen=True)
class Candidate:
    """A pod that waits.

    Attributes:
        request: What it asks for.
        nodes: Where it may go, as far as kube-scheduler has said.
        closed: Where it may never go.
    """

    request: PodRequest
    nodes: Sequence[str]
    closed: AbstractSet[str] = frozenset()


@dataclass(frozen=True)
class Taken:
    """Where a pod was placed, and what it takes of the node's CPU and memory."""

    placement: Placement
    host: HostShare


class EmptyCluster:
    """The cluster's nodes without their pods, for placing some at will."""

    def __init__(self, table: CardTable) -> None:
        self._now = table
        self._table = table.emptied()
        self._placer = Placer(self._table)

    def place(self, pod: Candidate, nodes: Sequence[str] = ()) -> "Taken | None":
        """Where a pod would go beside those placed before; on one of these nodes, where any are given."""
        request = pod.request
        possible = [name for name in nodes or self._possible(pod) if name not in pod.closed]
        placement = self._placer.place(request, with_room(self._table, possible, request.host))
        if placement is None:
            return None
        self.keep(placement, request.host)
        return Taken(placement, request.host)

    def keep(self, placement: Placement, host: HostShare) -> None:
        """A pod is where it is."""
        self._charge(placement, host, 1)

    def remove(self, taken: "Taken") -> None:
        """Take back what was placed."""
        self._charge(taken.placement, NO_HOST - taken.host, -1)

    def _possible(self, pod: Candidate) -> Iterable[str]:
        """The nodes that it was offered, and those that it was not because pods have their CPU or memory now."""
        if pod.request.host == NO_HOST:
            return pod.nodes
        every = tuple(self._now.nodes())
        roomy = set(with_room(self._now, every, pod.request.host))
        offered = set(pod.nodes)
        return [name for name in every if name in offered or name not in roomy]

    def _charge(self, placement: Placement, host: HostShare, sign: int) -> None:
        for uuid, charge in placement.charges().items():
            self._table.charge(placement.node, uuid, charge, sign)
        self._table.charge_host(placement.node, host)


def beyond_quotas(quotas: Quotas, requests: Sequence[PodRequest]) -> str:
    """The quota that these pods of one namespace exceed together even if it is not used; empty where there is none."""
    kinds, namespace = list(quotas.accounts.kinds()), requests[0].namespace
    for bound, _ in quotas.report():
        if namespace in bound.namespaces:
            each = [_least(kinds, request, bound.pool) for request in requests]
            wanted = sum(each, NOTHING)
            if _beyond_bounds(bound, each) or _beyond_lendable(quotas, bound.pool, namespace, wanted):
                return bound.title
    return ""


def _beyond_bounds(bound: Bound, each: Sequence[Amounts]) -> bool:
    """Whether pods that ask for so much pass what the quota allows all together, or one."""
    wanted = sum(each, NOTHING)
    for name in NAMES:
        limit, most = bound.limit.of(name), bound.pod_max.of(name)
        if limit is not None and wanted.of(name) > limit:
            return True
        if most is not None and any(one.of(name) > most for one in each):
            return True
    return False


def _beyond_lendable(quotas: Quotas, pool: str, namespace: str, wanted: Amounts) -> bool:
    """Whether so much is more than the guarantee, and than what all cards have beside the others' guarantees."""
    (guaranteed, owed), accounts = quotas.lendable(pool, namespace), quotas.accounts
    used = (accounts.used(pool, one) for one in accounts.namespaces())
    total = accounts.free(pool) + sum(used, NOTHING)
    return any(
        owed.of(name) and wanted.of(name) > max(guaranteed.of(name), total.of(name) - owed.of(name))
        for name in (
            "memory_mib",
            "cores",
        )  # a card that is held alone has no free slices, so they do not add up
    )


def _least(kinds: Sequence[Kind], request: PodRequest, pool: str) -> Amounts:
    """What a pod takes of a pool's cards at least, wherever it goes."""
    found = [_on(kind, request, pool) for kind in kinds]
    return Amounts(*(min((one.of(name) for one in found), default=0) for name in NAMES))


def _on(kind: Kind, request: PodRequest, pool: str) -> Amounts:
    """What it takes of them on a node of this kind; nothing where it can have other cards there."""
    if pool != ALL and {name for name, _ in kind} != {pool}:
        return NOTHING
    return asked(request, min(mib for _, mib in kind))
