"""Answers bind: one write that gives the pod its node and its cards together, or nothing.

The placement travels in the Binding's annotations, guarded by the pod's UID, so that node and placement land
in the pod by the same write (`pods/binding`). Bind may be called twice, late, or after a restart:

- a pod that is bound to that node with a placement already is a success;
- without a reservation (restart, or it expired) the pod is placed on that node now;
- a reservation whose cards have changed meanwhile (unhealthy, gone, smaller) is placed again on that node;
- where the node has come to offer fewer slices than are taken of it the pod is refused: its kubelet would fail it;
- when no answer comes the place stays taken until the API server has said what became of the write.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

from aliquot.api.names import PLACEMENT_ANNOTATION, ResourceNames
from aliquot.dialects import Dialect
from aliquot.kube.answers import ApiError
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.request.placement import Placement, PlacementError, encode_placement, read_placement
from aliquot.request.pod_request import PodRequest, RequestError, read_pod_request
from aliquot.scheduler_ext.cards.fit import still_fits
from aliquot.scheduler_ext.gang.coscheduling import GangError, Gangs
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.ledger import Entry, Ledger, Stage

_log = logging.getLogger(__name__)


class PodApi(Protocol):
    """What binding needs of the API server; `aliquot.kube.api.Api` has it."""

    async def get(self, resource: Resource[Pod], name: str, namespace: str = "", /) -> Pod:
        """Read a pod; ApiError when that fails."""

    async def bind_pod(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str], /
    ) -> None:
        """Write a Binding; ApiError when that fails."""


class BindError(Exception):
    """The pod is not bound; the message is what kube-scheduler shows and retries on."""


class Binder:
    """Binds pods to the nodes and cards they were placed on."""

    def __init__(
        self,
        api: PodApi,
        ledger: Ledger,
        placer: Placer,
        *,
        names: ResourceNames | None = None,
        dialects: Sequence[Dialect] = (),
        quotas: Quotas | None = None,
        gangs: Gangs | None = None,
    ) -> None:
        """Wait for pods to bind.

        Args:
            api: The cluster.
            ledger: Where the pods' places are.
            placer: Chooses cards when a pod must be placed again.
            names: Our resources.
            dialects: Other projects' resources that are understood.
            quotas: What each namespace may have.
            gangs: Who is bound only with others.
        """
        self._api = api
        self._ledger = ledger
        self._placer = placer
        self._names = names or ResourceNames()
        self._dialects = dialects
        self._quotas = quotas or Quotas()
        self._gangs = gangs
        self._busy: set[str] = set()

    async def bind(self, args: BindArgs) -> None:
        """Bind a pod; returning means that it is bound to that node.

        Raises:
            BindError: it is not, or nobody knows yet.
        """
        if args.PodUID in self._busy:
            raise BindError(f"pod {_key(args)} is being bound already")
        self._busy.add(args.PodUID)
        try:
            await self._bind(args)
        finally:
            self._busy.remove(args.PodUID)

    async def _bind(self, args: BindArgs) -> None:
        entry = self._ledger.entry(args.PodUID)
        if entry and entry.stage is Stage.UNCERTAIN and self._gangs and self._gangs.holds_up(entry.uid):
            # The places of the others may be gone by now: without them it may only be bound if it is already.
            self._learn(entry.uid, await self._read(args))
            entry = self._ledger.entry(args.PodUID)
        if entry is not None and entry.stage in (Stage.ASSUMED, Stage.BOUND):
            _expect_node(entry.node, args)
            return
        if entry is not None and entry.stage is Stage.UNCERTAIN:
            _expect_node(entry.node, args)
        else:
            await self._admit(args)
            if not await self._prepare(self._ledger.entry(args.PodUID), args):
                return
        await self._write(args)

    async def settle(self, entry: Entry) -> None:
        """Ask the API server what became of a binding that nobody has confirmed.

        Raises:
            ApiError: it does not say now.
        """
        if entry.request is None:
            return
        try:
            pod = await self._api.get(PODS, entry.request.name, entry.request.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            self._ledger.depart(entry.uid)
            return
        if self._ledger.entry(entry.uid) is entry:
            self._learn(entry.uid, pod)

    async def _admit(self, args: BindArgs) -> None:
        """Wait for the others of the pod's group."""
        if self._gangs is None:
            return
        try:
            await self._gangs.admit(args.PodUID, args.Node)
        except GangError as error:
            raise BindError(f"pod {_key(args)}: {error}") from error

    async def _prepare(self, entry: Entry | None, args: BindArgs) -> bool:
        """See to it that the pod has a valid place on the node; False when it is bound there already."""
        if entry is not None and entry.request is not None and entry.node == args.Node:
            if not self._is_valid(entry):
                self._place(entry.request, args)
            return True
        pod = await self._read(args)
        if pod.spec.node_name:
            self._accept_bound(pod, args)
            return False
        request = self._request(pod, args)
        if request.wants_slices:
            self._place(request, args)
        return True

    def _is_valid(self, entry: Entry) -> bool:
        """Whether a place is as good as it was when it was reserved, beside all that are there.

        What is held for other pods that wait does not count: some of it may be what others have yet to leave.
        """
        if self._fits(entry):
            return True
        if entry.stage is Stage.HELD:
            return False
        others = (one.uid for one in self._ledger.unconfirmed() if one.stage is Stage.HELD)
        with self._ledger.without(*others):
            return self._fits(entry)

    def _fits(self, entry: Entry) -> bool:
        fits = still_fits(entry.placement, self._ledger.cards_of(entry))
        return fits and self._ledger.hosts.slices_left(entry.node) >= 0

    def _place(self, request: PodRequest, args: BindArgs) -> None:
        """Place the pod on this node, instead of anywhere else."""
        self._ledger.release(args.PodUID)
        placement = self._placer.choose(request, [args.Node]).placement
        if placement is None:
            raise BindError(f"pod {_key(args)} has no room on {args.Node} any more")
        barred = self._quotas.refusal(request.namespace, placement)
        if barred:
            raise BindError(f"pod {_key(args)}: {barred}")
        self._ledger.reserve(request, placement)

    async def _write(self, args: BindArgs) -> None:
        entry = self._ledger.entry(args.PodUID)
        annotations = {PLACEMENT_ANNOTATION: encode_placement(entry.placement)} if _has_cards(entry) else {}
        # Once an earlier write may have landed, a refusal of this one says nothing of that one.
        written = entry is not None and entry.stage is Stage.UNCERTAIN
        self._ledger.move_on(args.PodUID, Stage.BINDING)
        stage = Stage.UNCERTAIN
        try:
            await self._api.bind_pod(args.PodNamespace, args.PodName, args.PodUID, args.Node, annotations)
            stage = Stage.ASSUMED
        except ApiError as error:
            if not (written or error.transient or error.conflict):
                stage = Stage.RESERVED
            refused = error
        finally:
            self._ledger.move_on(args.PodUID, stage)
        if stage is not Stage.ASSUMED:
            await self._after_refusal(refused, args)

    async def _after_refusal(self, error: ApiError, args: BindArgs) -> None:
        """Make the best of a write that failed: it may be that an earlier one of ours succeeded."""
        if error.conflict:
            pod = await self._read(args)
            if pod.spec.node_name:
                self._accept_bound(pod, args)
                return
            self._ledger.move_on(args.PodUID, Stage.RESERVED)
        elif error.not_found:
            self._ledger.release(args.PodUID)
        raise BindError(f"pod {_key(args)} could not be bound to {args.Node}: {error}") from error

    async def _read(self, args: BindArgs) -> Pod:
        """The pod as it is now, if it still is the same pod."""
        try:
            pod = await self._api.get(PODS, args.PodName, args.PodNamespace)
        except ApiError as error:
            if error.not_found:
                self._ledger.depart(args.PodUID)
            raise BindError(f"pod {_key(args)} cannot be read: {error}") from error
        if pod.metadata.uid != args.PodUID:
            self._ledger.depart(args.PodUID)
            raise BindError(f"pod {_key(args)} was replaced by another of the same name")
        if self._ledger.departed(args.PodUID):  # the watch was faster, and will not tell again
            raise BindError(f"pod {_key(args)} was deleted")
        return pod

    def _accept_bound(self, pod: Pod, args: BindArgs) -> None:
        """Take note of a pod that is bound already, and refuse if that is not what was asked."""
        self._learn(args.PodUID, pod)
        _expect_node(pod.spec.node_name, args)
        if self._ledger.entry(args.PodUID) is None:
            raise BindError(f"pod {_key(args)} was bound to {args.Node} by somebody else, without cards")

    def _learn(self, uid: str, pod: Pod) -> None:
        """Bring the ledger to what the pod says of itself."""
        if pod.metadata.uid != uid or pod.finished:
            self._ledger.depart(uid)
            return
        if not pod.spec.node_name:
            self._ledger.move_on(uid, Stage.RESERVED)
            return
        placement = placement_of(pod.metadata.annotations, uid, pod.spec.node_name)
        self._ledger.confirm(uid, placement, namespace=pod.metadata.namespace)

    def _request(self, pod: Pod, args: BindArgs) -> PodRequest:
        try:
            return read_pod_request(pod, self._names, self._dialects)
        except RequestError as error:
            raise BindError(f"pod {_key(args)}: {error}") from error


def placement_of(annotations: dict[str, str], uid: str, node: str) -> Placement | None:
    """The placement of a bound pod; None, and a line in the log, when it is not for this pod and node."""
    try:
        placement = read_placement(annotations, PLACEMENT_ANNOTATION, uid)
    except PlacementError as error:
        _log.warning("pod %s: its placement is ignored: %s", uid, error)
        return None
    if placement is not None and placement.node != node:
        _log.warning("pod %s: its placement is for %s, but it is bound to %s", uid, placement.node, node)
        return None
    return placement


def _has_cards(entry: Entry | None) -> TypeGuard[Entry]:
    return entry is not None and bool(entry.placement.containers)


def _expect_node(node: str, args: BindArgs) -> None:
    if node != args.Node:
        raise BindError(f"pod {_key(args)} is bound to {node} already, not to {args.Node}")


def _key(args: BindArgs) -> str:
    return f"{args.PodNamespace}/{args.PodName}"
