"""Answers filter: reads what the pod asks for, picks its place and reserves it.

The only effect is the reservation in the ledger; nothing is written to the cluster. The answer names one
node, so that kube-scheduler has nothing left to choose, or gives the cause for each node.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache

from aliquot.api.names import ResourceNames
from aliquot.dialects import Dialect
from aliquot.kube.objects import Pod
from aliquot.request.host_resources import HostShare
from aliquot.request.placement import Placement
from aliquot.request.pod_request import PodRequest, RequestError, read_pod_request
from aliquot.scheduler_ext.cards.fit import still_fits
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.gang.empty_cluster import beyond_quotas
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.closed_nodes import ClosedNodes
from aliquot.scheduler_ext.placement.placer import Choice, Placer
from aliquot.scheduler_ext.placement.reasons import QUOTA, TURN, Reason
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.quota.fair_share import FairShare
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Entry, Ledger, Stage
from aliquot.scheduler_ext.state.namespace_usage import NO_RELIEF, NamespaceUsage
from aliquot.scheduler_ext.state.node_backoff import NodeBackoff
from aliquot.scheduler_ext.state.pending_pods import PendingPod, PendingPods


@dataclass(frozen=True)
class Filter:
    """Picks a node and cards for one pod at a time.

    Attributes:
        ledger: What is promised already; gets the reservation.
        foreign: The nodes on which another device plugin serves a dialect's resources.
        placer: Chooses nodes and cards.
        names: The resources' names.
        dialects: Other projects' resources that are understood.
        node_backoff: The nodes to which a pod has just been in vain.
        quotas: What each namespace may have.
        waiting: Is told whom no place was found for.
        gangs: Pods that get their places together; None where no groups are heeded.
        nominations: Whose places are held while others leave them.
        all_pods: Pods without slices get a node, too: one without cards, else where they cost others least.
        turns: Who goes first of those that wait.
    """

    ledger: Ledger
    foreign: ForeignPlugins
    placer: Placer
    names: ResourceNames = field(default_factory=ResourceNames)
    dialects: Sequence[Dialect] = ()
    node_backoff: NodeBackoff = field(default_factory=NodeBackoff)
    quotas: Quotas = field(default_factory=Quotas)
    waiting: PendingPods = field(default_factory=PendingPods)
    gangs: Gangs | None = None
    nominations: Nominations | None = None
    all_pods: bool = False
    turns: FairShare = field(default_factory=FairShare)
    _ready: list[tuple[Pod, PodRequest]] = field(default_factory=list, init=False)

    def prepare(self, pod: Pod) -> None:
        """Get ready for the call of a pod that is on its way; the answer is the same without."""
        with contextlib.suppress(RequestError):
            request = self.request_of(pod)
            self._ready[:] = ((pod, request),)
            if request.wants_slices:
                self.placer.prepare(request)

    def answer(self, args: FilterArgs) -> FilterResult:
        """Answer one call."""
        nodes = args.NodeNames
        try:
            request = self.request_of(args.Pod)
        except RequestError as error:
            return FilterResult([], FailedAndUnresolvableNodes=dict.fromkeys(nodes, str(error)))
        if not request.wants_slices:
            free = nodes if request.wants_mig or not self.all_pods else self._without_cards(nodes)
            if free:
                return FilterResult(list(free))
        if self.ledger.departed(request.uid):
            return deleted(request)
        held = self.ledger.entry(request.uid)
        if held is not None and held.stage not in (Stage.RESERVED, Stage.HELD):
            return only_where_it_is(held, nodes)
        together = self.gangs.answer(self, args.Pod, request, nodes) if self.gangs else None
        if together is not None:
            return together
        if held is not None and held.stage is Stage.RESERVED:
            # Asked again, so nothing has come of the place it had.
            self.node_backoff.note(held.uid, held.node)
        return self._place(request, args, nodes)

    def _without_cards(self, nodes: Sequence[str]) -> list[str]:
        return [node for node in nodes if node not in self.ledger.table]

    def request_of(self, pod: Pod) -> PodRequest:
        """What a pod asks for.

        Raises:
            RequestError: it makes no sense.
        """
        for known, request in self._ready:
            if known is pod:  # this very object, of which nothing changes
                return request
        return read_pod_request(pod, self.names, self.dialects)

    def nodes(self) -> Sequence[str]:
        """All nodes with cards."""
        return tuple(self.ledger.table.nodes())

    def would_place(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> bool:
        """Whether a pod without a place would get one now; nothing is reserved."""
        if not self.has_room(pod, request, nodes):
            return False
        theirs = self.turns.ahead(self, pod, request)
        return not theirs or self.has_room(pod, request, [node for node in nodes if node not in theirs])

    def has_room(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> bool:
        """The same, were it no other pod's turn."""
        together = self.gangs.would_place(self, pod, request, nodes) if self.gangs else None
        if together is not None:
            return together
        held = self.ledger.entry(request.uid)
        if held is not None and held.stage is Stage.HELD:
            return self.own_place(pod, request, nodes) is not None
        ours = self.closed_to(pod, request).open_of(nodes)
        if not ours or self.placer.place(request, ours) is not None:
            return bool(ours)
        with self._saved_aside(pod) as saved:
            return bool(saved) and self.placer.place(request, ours) is not None

    def own_place(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> Placement | None:
        """The place that is held for a pod, if it is free by now; None where it is not, or none is held.

        It has to fit beside the pods that are there, and beside places that were held earlier or are held for pods of a
        higher priority. A node that is kept free for a larger pod is not closed to it, as it is not to pods that run.
        """
        held = self.ledger.entry(request.uid)
        if self.nominations is None or held is None or held.stage is not Stage.HELD or held.node not in nodes:
            return None
        if held.node in self.closed_for_good(pod) or self._barred_from_held(request, held, self.nominations):
            return None
        with self.waiting.trial(), self.ledger.without(*self.nominations.held_later(request.uid)):
            there = self.ledger.cards_without(held.node, request.uid)
            fits = still_fits(held.placement, there) and self.ledger.hosts.slices_left(held.node) >= 0
        return held.placement if fits else None

    def closed_to(
        self, pod: Pod, request: PodRequest, barred: Mapping[str, str] | None = None
    ) -> ClosedNodes:
        """The nodes that something else than a lack of room keeps a pod from; `barred`: those that quotas close."""
        return ClosedNodes(
            foreign=self.foreign.nodes_serving(pod),
            barred=self.barred(request) if barred is None else barred,
            full=self.nominations.full_nodes(request, pod.spec.priority or 0)
            if self.nominations
            else frozenset(),
            kept=self._kept_from(pod),
        )

    def barred(self, request: PodRequest, imagined: NamespaceUsage | None = None) -> dict[str, str]:
        """The nodes that quotas close to a pod, each with the reason.

        The room that others left for a pod stays its own, whatever happens to what others are guaranteed: there it is
        held to its own limits alone.
        """
        barred = self.quotas.barred(request, imagined)
        own = self.nominations.kept_on(request.uid) if self.nominations else ""
        if own in barred and not self.quotas.beyond_limit(request, own):
            del barred[own]
        return barred

    def _barred_from_held(self, request: PodRequest, held: Entry, nominations: Nominations) -> str:
        """Why quotas would not let a pod have the place that is held for it; empty when they would."""
        if nominations.kept_on(request.uid) == held.node:
            relief = self.quotas.accounts.relief([request.uid])
            return self.quotas.beyond_limit(request, held.node, relief)
        return self.quotas.refusal(request.namespace, held.placement, anew=True)

    # ---- whose turn it is ----

    def open_nodes(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> list[str]:
        """Those of these nodes that are not closed to a pod and have not just failed it, whatever room they have."""
        failed = self.node_backoff.nodes(request.uid)
        alone = len(nodes) == 1  # of one the quotas say it sooner
        there = self.closed_to(pod, request, {} if alone else None).open_of(nodes)
        ours = [node for node in there if node not in failed]
        return [] if alone and ours and self.quotas.barred_after(request, ours[0], NO_RELIEF) else ours

    def has_claim(self, uid: str) -> bool:
        """Whether room was made for a pod."""
        return self.nominations is not None and bool(self.nominations.node_of(uid))

    def turns_against(self, pod: Pod, request: PodRequest) -> dict[str, str]:
        """The nodes that a pod without a place has to leave to others now, each with the reason."""
        return {node: one.text for node, one in self.turns.ahead(self, pod, request).items()}

    def by_share(self, waiters: Iterable[PendingPod]) -> list[PendingPod]:
        """Pods that wait, those of the highest priority first, and of equal ones those of the lowest share."""
        order = lru_cache(maxsize=None)(self.quotas.standing)
        return sorted(waiters, key=lambda one: (-(one.pod.spec.priority or 0), *order(one.request.namespace)))

    def turn_seconds(self) -> float | None:
        """Until somebody need no longer wait for the turn of others; None where nobody does."""
        return self.turns.seconds_left()

    def group_waits(self, uid: str) -> str:
        """What keeps the group of a pod waiting, in words; empty for a pod that goes alone, or has its place."""
        return self.gangs.why(uid) if self.gangs else ""

    def host_kept_from(self, pod: Pod) -> Mapping[str, HostShare]:
        """What kube-scheduler keeps of nodes for others than this pod, without the extender's doing."""
        return (
            self.nominations.nominated_hosts(pod.metadata.uid, pod.spec.priority or 0)
            if self.nominations
            else {}
        )

    def offered_to(self, pod: Pod, nodes: Sequence[str], share: HostShare) -> list[str]:
        """Those of these nodes that kube-scheduler would offer a pod, by cordons, CPU and memory."""
        kept, hosts = self.host_kept_from(pod), self.ledger.hosts
        there = hosts.open_to(nodes, share)
        return [name for name in there if name not in kept or hosts.with_room([name], kept[name] + share)]

    def shut_to(self, pod: Pod) -> AbstractSet[str]:
        """The nodes that a pod cannot have whoever leaves: another plugin serves them, or they are kept for a pod."""
        kept = self._kept_from(pod)
        return self.closed_for_good(pod) | ({kept} if kept else set())

    def closed_for_good(self, pod: Pod) -> AbstractSet[str]:
        """The nodes that a pod may never have: another device plugin serves them."""
        return self.foreign.nodes_serving(pod)

    def quota_against(self, request: PodRequest, nodes: Sequence[str]) -> str:
        """The quota that keeps a pod from each of these nodes with cards; empty where there is none."""
        barred = self.barred(request)
        whys = [barred.get(name, "") for name in nodes if name in self.ledger.table] if barred else []
        return whys[0].partition(":")[0] if whys and all(whys) else ""

    def as_one(self) -> contextlib.AbstractContextManager[None]:
        """Quotas judge places that are taken meanwhile as those of one pod."""
        return self.quotas.as_one()

    def beyond_quotas(self, requests: Sequence[PodRequest]) -> str:
        """The quota that these pods of one namespace exceed even if it is not used; empty where there is none."""
        return beyond_quotas(self.quotas, requests) if requests else ""

    def is_special(self, uid: str) -> bool:
        """Whether a pod may get a place where others of its kind get none: it has one that is its own."""
        return self.ledger.entry(uid) is not None or (self.gangs is not None and self.gangs.differs(uid))

    def _place(self, request: PodRequest, args: FilterArgs, nodes: Sequence[str]) -> FilterResult:
        own = self.own_place(args.Pod, request, nodes)
        self.ledger.release(request.uid)
        if own is not None:
            return self._reserve(request, own)
        self.placer.demand.note(request)
        looked = self._look_in_turn(args.Pod, request, nodes)
        if looked.choice.placement is not None:
            return self._reserve(request, looked.choice.placement)
        placed = None if looked.turns else self._place_over(args, request)
        if placed is not None:
            return placed
        self.waiting.refused(args.Pod, request, nodes, looked.reason)
        if self.barred(request):
            self.quotas.note_refusal(request.namespace)
        return looked.refusal()

    def find(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> Placement | FilterResult:
        """The place of a pod without one, or why it gets none; nothing is reserved or learned."""
        looked = self._look(pod, request, nodes)
        return looked.choice.placement or looked.refusal()

    def reason_against(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> str:
        """What keeps a pod without a place from the nodes that come nearest to having room, in a word for counting."""
        return self._look(pod, request, nodes).reason

    def waits_for_others(self, pod: Pod) -> bool:
        """Whether room for this pod alone would be of no use: its group lacks others besides."""
        return self.gangs is not None and self.gangs.waits_for_others(pod)

    def _look_in_turn(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> "_Looked":
        """The place of a pod, unless it is the turn of others there; those are woken."""
        looked = self._look(pod, request, nodes)
        best = looked.choice.placement
        if best is None or not self.turns.ahead(self, pod, request, best.node):
            return looked
        ahead = self.turns.ahead(self, pod, request)
        self.turns.begin(self.waiting, ahead)
        theirs = {node: one.text for node, one in ahead.items()}
        looked = self._look(pod, request, [node for node in nodes if node not in theirs])
        return replace(looked, nodes=nodes, turns=theirs)

    def _look(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> "_Looked":
        closed = self.closed_to(pod, request)
        return _Looked(nodes, self._choose(request, closed.open_of(nodes)), closed)

    def _kept_from(self, pod: Pod) -> str:
        """The node that is kept free for a larger pod; empty where there is none."""
        return self.gangs.kept_from(pod.metadata.uid, pod.spec.priority or 0) if self.gangs else ""

    def _choose(self, request: PodRequest, nodes: Sequence[str]) -> Choice:
        """The best node of those that have not just failed this pod, else of all."""
        failed = self.node_backoff.nodes(request.uid)
        if failed:
            others = [node for node in nodes if node not in failed]
            placement = self.placer.place(request, others)
            if placement is not None:
                return Choice(placement)
        return self.placer.look(request, nodes)

    def _place_over(self, args: FilterArgs, request: PodRequest) -> FilterResult | None:
        """The pod's place, were nothing kept for lower priorities, unless it is the turn of others there."""
        priority = args.Pod.spec.priority or 0
        with (
            self.nominations.aside(priority) if self.nominations else contextlib.nullcontext() as held,
            self._saved_aside(args.Pod) as saved,
        ):
            if not (held or saved):
                return None
            found = self._look_in_turn(args.Pod, request, args.NodeNames).choice.placement
            return self._reserve(request, found) if found is not None else None

    def kept_for_lower(self, pod: Pod) -> list[str]:
        """The UIDs of pods of lower priority whose places are kept from others, and not from this pod."""
        priority = pod.spec.priority or 0
        held = self.nominations.below(priority) if self.nominations else []
        return [*held, *(self.gangs.saved_below(priority) if self.gangs else ())]

    def _saved_aside(self, pod: Pod) -> contextlib.AbstractContextManager[bool | None]:
        """What a group of a lower priority than this pod's has saved up is free meanwhile; whether there is any."""
        return self.gangs.saved_aside(pod.spec.priority or 0) if self.gangs else contextlib.nullcontext()

    def _reserve(self, request: PodRequest, placement: Placement) -> FilterResult:
        self.waiting.forget(request.uid)
        self.turns.placed(request.namespace, placement.node)
        self.ledger.reserve(request, placement)
        return FilterResult([placement.node])


@dataclass(frozen=True)
class _Looked:
    """What came of looking for a place.

    Attributes:
        nodes: Where.
        choice: The place, or why there is none on nodes that were open to the pod.
        closed: Nodes, not only of these, that are closed to it.
        turns: Nodes that are left to pods whose turn it is, with the reason.
    """

    nodes: Sequence[str]
    choice: Choice
    closed: ClosedNodes
    turns: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """What keeps the pod from the nodes that come nearest to having room, in a word for counting."""
        if self.turns:
            return TURN
        nearest = self.choice.nearest
        if self.closed.barred and not (nearest and nearest.curable):
            return QUOTA
        return (nearest or self.closed.nearest(self.nodes)).name.lower()

    def refusal(self) -> FilterResult:
        """Why not, node by node."""
        refused = {**self.choice.refused, **self.closed.reasons(self.nodes)}
        barred = {n: why for n in self.nodes if (why := self.closed.barred.get(n))}
        return refusal(refused, self.choice.cards, self.turns | barred)


def deleted(request: PodRequest) -> FilterResult:
    """A pod that has been seen to go is asked about late."""
    return FilterResult(Error=f"pod {request.namespace}/{request.name} has been deleted")


def only_where_it_is(held: Entry, nodes: Sequence[str]) -> FilterResult:
    """A pod whose binding may have been written already can go nowhere else."""
    if held.node in nodes:
        return FilterResult([held.node])
    return FilterResult(Error=f"the pod is being bound to {held.node}, which is not among the nodes offered")


def refusal(refused: dict[str, Reason], cards: int, barred: dict[str, str]) -> FilterResult:
    """Say why not, node by node; no pod of other namespaces shall be evicted for a quota."""
    texts = {reason: reason.text(cards) for reason in Reason}
    return FilterResult(
        NodeNames=[],
        FailedNodes={node: texts[why] for node, why in refused.items() if why.curable},
        FailedAndUnresolvableNodes={n: texts[why] for n, why in refused.items() if not why.curable} | barred,
    )
