"""Answers filter-dryrun: all nodes that have room for a pod, and why the others have none; nothing is reserved.

For autoscalers and for asking what if. The body is filter's, with names of nodes, or with whole nodes, which may be
ones that do not exist yet (`hypothetical_nodes`). A pod needs no UID. It agrees with filter: what filter would choose
is among the nodes, and on each of them filter would place the pod.
"""

from collections.abc import Sequence

import msgspec

from aliquot.kube.objects import UNREADABLE, Node, Pod
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes
from aliquot.scheduler_ext.explain.verdicts import Imagined, Judge
from aliquot.scheduler_ext.handlers.filter import Filter, deleted, only_where_it_is, refusal
from aliquot.scheduler_ext.kube_scheduler.wire import FilterResult, WireError, decoded
from aliquot.scheduler_ext.state.ledger import Stage


class NodeList(msgspec.Struct, frozen=True):
    """Nodes, unread: they are given back as they came."""

    items: tuple[msgspec.Raw, ...] = ()


class DryRunArgs(msgspec.Struct, frozen=True):
    """Which nodes might this pod go to?"""

    Pod: Pod
    NodeNames: tuple[str, ...] | None = None
    Nodes: NodeList | None = None


class DryRunResult(msgspec.Struct, omit_defaults=True):
    """As filter's result, with all nodes that have room; `Nodes` where the call had them."""

    NodeNames: list[str] | None = None
    Nodes: NodeList | None = None
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


_ARGS = msgspec.json.Decoder(DryRunArgs)
_NODE = msgspec.json.Decoder(Node)


def read_dry_run(body: bytes) -> DryRunArgs:
    """Read a call.

    Raises:
        WireError: the body is cut short, no JSON, or lacks what is needed.
    """
    args = decoded(_ARGS, body, "ExtenderArgs", "it has Pod, and NodeNames or Nodes")
    if (args.NodeNames is None) == (args.Nodes is None):
        raise WireError("give either NodeNames, or Nodes with items")
    return args


class DryRun:
    """Says what filter would."""

    def __init__(self, decide: Filter, hypothetical: HypotheticalNodes) -> None:
        """Ask nothing yet.

        Args:
            decide: Who would answer.
            hypothetical: Understands nodes that are not there.
        """
        self._filter = decide
        self._judge = Judge(decide)
        self._hypothetical = hypothetical

    def answer(self, args: DryRunArgs) -> DryRunResult:
        """Answer one call.

        Raises:
            WireError: a node is none.
        """
        raw = args.Nodes.items if args.Nodes else ()
        nodes = [_node(item) for item in raw]
        names = args.NodeNames or tuple(node.metadata.name for node in nodes)
        result = self._result(args.Pod, names, nodes)
        if args.Nodes is not None:
            fits = set(result.NodeNames or ())
            kept = (item for item, node in zip(raw, nodes, strict=True) if node.metadata.name in fits)
            result.Nodes = NodeList(tuple(kept))
        return result

    def _result(self, pod: Pod, names: Sequence[str], nodes: Sequence[Node]) -> DryRunResult:
        try:
            request = self._filter.request_of(pod)
        except RequestError as error:
            return DryRunResult([], FailedAndUnresolvableNodes=dict.fromkeys(names, str(error)))
        imagined = Imagined(self._hypothetical.ledger(nodes, request), nodes)
        if not request.wants_slices:
            free = self._free(request, names, imagined)
            if free:
                return DryRunResult(list(free))
        standing = self._standing(request, names)
        if standing is not None:
            return _as_dry_run(standing)
        own = self._filter.own_place(pod, request, names)
        with self._filter.waiting.trial(), self._filter.ledger.without(request.uid):
            told = self._judge.judge(pod, request, names, imagined)
        if own is not None:
            told = told.with_room([own.node], names)
        result = _as_dry_run(refusal(dict(told.refused), told.cards, {**told.barred, **told.turns}))
        result.NodeNames = list(told.fits)
        return result

    def _standing(self, request: PodRequest, names: Sequence[str]) -> FilterResult | None:
        """What filter says of a pod that has gone, or that may be bound already; None of all others."""
        ledger = self._filter.ledger
        held = ledger.entry(request.uid)
        if ledger.departed(request.uid):
            return deleted(request)
        if held is not None and held.stage not in (Stage.RESERVED, Stage.HELD):
            return only_where_it_is(held, names)
        return None

    def _free(self, request: PodRequest, names: Sequence[str], imagined: Imagined) -> list[str]:
        """The nodes that a pod without slices has the choice of before any is looked at."""
        if request.wants_mig or not self._filter.all_pods:
            return list(names)
        tables = (self._filter.ledger.table, imagined.ledger.table)
        return [name for name in names if not any(name in table for table in tables)]


def _as_dry_run(result: FilterResult) -> DryRunResult:
    return DryRunResult(
        result.NodeNames,
        FailedNodes=result.FailedNodes,
        FailedAndUnresolvableNodes=result.FailedAndUnresolvableNodes,
        Error=result.Error,
    )


def _node(raw: msgspec.Raw) -> Node:
    try:
        return _NODE.decode(raw)
    except UNREADABLE as error:
        raise WireError(f"one of the Nodes is no node: {error}") from error
