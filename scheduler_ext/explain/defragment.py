"""Answers defragment: which pods to move where, so that a request has room that is free, but in parts too small.

Asking changes nothing, and nothing is ever moved from here: the plan is for people, and for their tools. A request is
one container's, in the words of a pod's limits. The moves are looked for as for a pod that waits (`moves`).
"""

from collections.abc import Callable, Mapping

import msgspec

from aliquot.api.defragment import Defragmentation, Room, WrongRequestError
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.explain.moves import Moves, evict_any
from aliquot.scheduler_ext.explain.verdicts import Judge
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.state.node_constraints import Reader

AMOUNTS = ("gpu", "gpu-mem", "gpu-mem-percent", "gpu-core")


class Defragmenter:
    """Makes plans."""

    def __init__(self, api: Reader, decide: Filter, kept: Callable[[str], bool] = evict_any) -> None:
        """Make none yet.

        Args:
            api: The cluster.
            decide: Who would answer for such a pod.
            kept: Whether the pod of a UID may not be evicted.
        """
        self._filter = decide
        self._judge = Judge(decide)
        self._moves = Moves(api, decide, kept)

    async def answer(self, question: Mapping[str, str]) -> Defragmentation:
        """The plan for one request.

        Args:
            question: `namespace`, and limits without their domain: `gpu-mem` → `40Gi`.

        Raises:
            WrongRequestError: that is no request for a slice.
            ApiError: the API server does not say what the pods are that would move.
        """
        pod = _pod(question, self._filter.names.domain)
        request = self._read(pod)
        told = self._judge.judge(pod, request, self._filter.nodes())
        if told.fits:
            return Defragmentation(room=Room.FREE, nodes=told.fits, text="there is room as it is")
        change = await self._moves.find(request, told.refused)
        if change is None:
            return Defragmentation(room=Room.NONE, text="no moving of pods makes room for it")
        nodes = tuple({move.from_node: None for move in change.moves})
        return Defragmentation(room=Room.MOVES, nodes=nodes, moves=change.moves, text=change.text)

    def _read(self, pod: Pod) -> PodRequest:
        try:
            request = self._filter.request_of(pod)
        except RequestError as error:
            raise WrongRequestError(str(error)) from error
        if not request.wants_slices:
            raise WrongRequestError(f"say for what: at least one of {', '.join(AMOUNTS)}")
        return request


def _pod(question: Mapping[str, str], domain: str) -> Pod:
    """A pod that asks for just that."""
    limits = {f"{domain}/{name}": question[name] for name in AMOUNTS if question.get(name)}
    meta = {"name": "defragment", "namespace": question.get("namespace") or "default"}
    container = {"name": "main", "resources": {"limits": limits}}
    return msgspec.convert({"metadata": meta, "spec": {"containers": [container]}}, Pod)
