"""Says why a pod waits: what keeps it from each node, and which single change would help.

Every node of the cluster is counted once. Those that kube-scheduler did not offer, when it asked for the pod last, or
that have lost the CPU or have been cordoned since, are its own business; the others get filter's reasons. Nothing is
reserved, and nobody but the pod asked about is named.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from aliquot.api.names import DEFAULT_SCHEDULER, ResourceNames
from aliquot.api.why import Answer, Cause, CauseKind, Change, State
from aliquot.dialects.projects import not_read
from aliquot.kube.answers import ApiError
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.explain.hypothetical_nodes import KnownNodes
from aliquot.scheduler_ext.explain.moves import Moves, evict_any
from aliquot.scheduler_ext.explain.remedies import Remedies, count_nodes
from aliquot.scheduler_ext.explain.verdicts import Judge, Judgement
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.state.ledger import Stage
from aliquot.scheduler_ext.state.node_constraints import Reader
from aliquot.scheduler_ext.state.pending_pods import PendingPod

ROOM: Final = "has room"
GATED: Final = "SchedulingGated"
NOT_OFFERED: Final = "not offered by kube-scheduler (taints, affinity, CPU, memory or volumes)"


class PodReader(Reader, Protocol):
    """What is needed of the API server; `aliquot.kube.api.Api` has it."""

    async def get(self, resource: Resource[Pod], name: str, namespace: str = "", /) -> Pod:
        """Read a pod; ApiError when that fails."""


class Why:
    """Answers for one pod at a time."""

    def __init__(
        self, api: PodReader, decide: Filter, known: KnownNodes, kept: Callable[[str], bool] = evict_any
    ) -> None:
        """Ask nothing yet.

        Args:
            api: The cluster.
            decide: Who would answer.
            known: The nodes there are.
            kept: Whether the pod of a UID may not be evicted.
        """
        self._api = api
        self._filter = decide
        self._known = known
        self._judge = Judge(decide)
        self._changes = Remedies(decide)
        self._moves = Moves(api, decide, kept)

    async def answer(self, namespace: str, name: str) -> Answer:
        """Why this pod waits, or that it does not.

        Raises:
            ApiError: the API server does not say what the pod is, or what others are that would move.
        """
        try:
            pod = await self._api.get(PODS, name, namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            return Answer(namespace=namespace, pod=name, state=State.ABSENT, summary="there is no such pod")
        try:
            request = self._filter.request_of(pod)
        except RequestError as error:
            return _settled(pod) or _answer(pod, State.INVALID, f"its request cannot be honoured: {error}")
        other = self._not_waiting(pod, request)
        return other or await self._waiting(pod, request)

    def _not_waiting(self, pod: Pod, request: PodRequest) -> Answer | None:
        """What is said of pods that wait for nothing of ours."""
        held = self._filter.ledger.entry(request.uid)
        what = "MIG instances, which kube-scheduler counts" if request.wants_mig else "no part of a card"
        names = self._filter.names
        foreign = "" if request.wants_slices else not_read(pod, self._filter.foreign.resources, names)
        bind = "its bind waits for kube-scheduler, its volumes, or the others of its group"
        states = (
            (bool(pod.metadata.deletion_timestamp), State.LEAVING, "it is being deleted"),
            (
                _scheduled(pod)[0] == GATED,
                State.GATED,
                "its scheduling gates hold it: kube-scheduler does not look yet",
            ),
            (bool(foreign), State.NO_SLICES, foreign),
            (not request.wants_slices, State.NO_SLICES, f"it asks for {what}: nothing here keeps it waiting"),
            (self._not_sent(pod), State.NOT_SENT, _not_sent_words(pod, names)),
            (
                held is not None and held.stage is Stage.HELD,
                State.HELD,
                f"a place on node {held.node if held else ''} is held for it, which others are leaving",
            ),
            (held is not None, State.RESERVED, f"it has a place on node {held.node if held else ''}; {bind}"),
        )
        told = (_answer(pod, state, text) for holds, state, text in states if holds)
        return _settled(pod) or next(told, None)

    def _not_sent(self, pod: Pod) -> bool:
        """Whether its scheduler never asks for it: the webhook would have named another one."""
        return pod.spec.scheduler_name == DEFAULT_SCHEDULER and (
            self._filter.waiting.get(pod.metadata.uid) is None
            and self._filter.ledger.entry(pod.metadata.uid) is None
        )

    async def _waiting(self, pod: Pod, request: PodRequest) -> Answer:
        waiter = self._filter.waiting.get(request.uid)
        nodes = sorted({*self._known.nodes, *self._filter.ledger.table.nodes()})
        offered = self._open_now(nodes, pod, request, waiter)
        told = self._judge.judge(pod, request, offered)
        causes = _causes(told, len(nodes) - len(offered))
        group = self._filter.group_waits(request.uid)
        changes = () if told.fits or told.turns else await self._helpful(pod, request, offered, told)
        return _answer(
            pod,
            State.WAITING,
            _summary(len(nodes), causes, group),
            group=group,
            nodes=len(nodes),
            causes=causes,
            asked=waiter is not None,
            changes=changes,
        )

    def _open_now(
        self, nodes: Sequence[str], pod: Pod, request: PodRequest, waiter: PendingPod | None
    ) -> list[str]:
        """The nodes that kube-scheduler would offer, by its last call for the pod and by CPU and cordons as they are.

        Hours may lie between that call and the question.
        """
        last = nodes if waiter is None else sorted(set(nodes).intersection(waiter.nodes))
        host = HostShare(request.host.cpu_milli, request.host.memory_mib)
        return self._filter.offered_to(pod, last, host)

    async def _helpful(
        self, pod: Pod, request: PodRequest, offered: Sequence[str], told: Judgement
    ) -> tuple[Change, ...]:
        """What would help, by its cost."""
        foreign = self._filter.foreign.nodes_serving(pod)
        found = await self._changes.find(request, [name for name in offered if name not in foreign])
        moves = await self._moves.find(request, told.refused)
        return tuple(sorted([*found, *([moves] if moves else [])], key=lambda change: change.cost))


def _settled(pod: Pod) -> Answer | None:
    """What is said of pods that no scheduler looks at any more."""
    node = pod.spec.node_name
    if pod.finished:
        return _answer(pod, State.FINISHED, f"it has finished: {pod.status.phase}")
    return _answer(pod, State.BOUND, f"it waits no more: it is bound to node {node}") if node else None


def _answer(pod: Pod, state: State, summary: str, **more: object) -> Answer:
    meta = pod.metadata
    return Answer(
        namespace=meta.namespace,
        pod=meta.name,
        uid=meta.uid,
        state=state,
        summary=summary,
        scheduler=_scheduled(pod)[1],
        **more,  # type: ignore[arg-type]
    )


def _not_sent_words(pod: Pod, names: ResourceNames) -> str:
    """Why such a pod waits for ever, and what to do."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    ours = any(names.owns(name) for one in containers for name in one.resources.limits)
    where = "" if ours else ", or in a namespace for which the dialect is not switched on (dialectNamespaces)"
    return (
        f"its schedulerName is {DEFAULT_SCHEDULER}, which does not ask Aliquot: it was made while the webhook was "
        f"away{where}; delete it and make it anew"
    )


def _scheduled(pod: Pod) -> tuple[str, str]:
    """What kube-scheduler has said of the pod: a reason and a message."""
    for condition in pod.status.conditions:
        if (condition.type, condition.status) == ("PodScheduled", "False"):
            return condition.reason, condition.message
    return "", ""


def _causes(told: Judgement, not_offered: int) -> tuple[Cause, ...]:
    """What holds of how many nodes; room first, then by the number of nodes."""
    counts: Counter[tuple[CauseKind, str]] = Counter()
    counts[CauseKind.ROOM, ROOM] = len(told.fits)
    counts.update((CauseKind.CARDS, why.text(told.cards)) for why in told.refused.values())
    counts.update((CauseKind.QUOTA, why) for why in told.barred.values())
    counts.update((CauseKind.TURN, why) for why in told.turns.values())
    counts[CauseKind.NOT_OFFERED, NOT_OFFERED] = not_offered
    order = sorted(counts.items(), key=lambda item: (item[0][0] is not CauseKind.ROOM, -item[1], item[0][1]))
    return tuple(Cause(kind=kind, text=text, nodes=count) for (kind, text), count in order if count)


def _summary(nodes: int, causes: Sequence[Cause], group: str) -> str:
    room = next((cause.nodes for cause in causes if cause.kind is CauseKind.ROOM), 0)
    if room:
        have = f"{room} of {count_nodes(nodes)} {'has' if room == 1 else 'have'} room"
        if group:
            return f"{have} for it alone, but its group has to wait: {group}"
        return f"{have} now: it gets one when kube-scheduler asks again"
    turn = next((cause.text for cause in causes if cause.kind is CauseKind.TURN), "")
    if turn:
        return f"its turn comes later: {turn}"
    return f"none of {count_nodes(nodes)} has room for it" if nodes else "the cluster has no nodes"
