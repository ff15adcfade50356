"""Serves Volcano's scheduler: the HTTP protocol of its `extender` plugin, over the same ledger as kube-scheduler's.

| call | body | answer |
|---|---|---|
| `/volcano/predicate` | one task and one node | why the task cannot go there; nothing where it can |
| `/volcano/prioritize` | a task and nodes | 100 for the node that filter would choose, 0 for the others |
| `/volcano/allocateFunc` | a task with its node | the place is reserved, or why not |
| `/volcano/deallocateFunc` | the same | the reservation is given up |

Volcano looks after groups, queues and preemption itself, and binds by itself; the placement is written after that
(`late_placement`). Bodies are Go structs without names for JSON, so their keys are capitalised inside `task` and
`node`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from aliquot.kube.objects import UNREADABLE, Pod
from aliquot.request.placement import Placement
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.gang.gang import ON_ITS_WAY
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.http.forward import VOLCANO_CALLS, ForwardError
from aliquot.scheduler_ext.http.query_api import Elsewhere
from aliquot.scheduler_ext.kube_scheduler.wire import WireError
from aliquot.scheduler_ext.state.ledger import Stage
from aliquot.server.metrics import Timer

BEST: Final = 100.0
PIPELINED: Final = 1 << 2
"""A task that waits for others to end: nothing is free for it yet."""
FITS, UNSCHEDULABLE, UNRESOLVABLE = 0, 2, 3
"""Volcano's status codes; with the last one it does not try preemption."""

_encode = msgspec.json.Encoder().encode


class Task(msgspec.Struct, frozen=True):
    """A pod as Volcano knows it; the node is set once it has chosen one."""

    Pod: Pod
    NodeName: str = ""
    Status: int = 0


class VolcanoNode(msgspec.Struct, frozen=True):
    """A node as Volcano knows it."""

    Name: str


class Predicate(msgspec.Struct, frozen=True):
    """May this task go to this node?"""

    task: Task
    node: VolcanoNode


class Prioritize(msgspec.Struct, frozen=True):
    """Which of these nodes is best?"""

    task: Task
    nodes: tuple[VolcanoNode, ...] = ()


class Event(msgspec.Struct, frozen=True):
    """A task gets its node, or gives it up."""

    task: Task


@dataclass(frozen=True)
class Verdict:
    """Why not, and Volcano's code for it; an empty text where all is well."""

    text: str = ""
    code: int = FITS

    def body(self) -> dict[str, object]:
        """As releases before and after 1.9 read it."""
        return {"errorMessage": self.text, "status": self.text, "code": self.code}


Call = TypeVar("Call", Predicate, Prioritize, Event)


class Volcano:
    """Answers Volcano."""

    def __init__(self, decide: Filter) -> None:
        """Put the parts together.

        Args:
            decide: Says where a pod has room.
        """
        self._filter = decide
        self._ledger = decide.ledger

    # ---- the decisions ----

    def predicate(self, task: Task, node: str) -> Verdict:
        """Whether a task has room on a node; nothing is reserved."""
        try:
            request = self._filter.request_of(task.Pod)
        except RequestError as error:
            return Verdict(str(error), UNRESOLVABLE)
        entry = self._ledger.entry(request.uid)
        if not request.wants_slices or (entry is not None and entry.node == node):
            return Verdict()
        if entry is not None and entry.stage in ON_ITS_WAY:
            return Verdict(f"the pod is on its way to {entry.node}", UNRESOLVABLE)
        return self._room(task.Pod, request, node)[1]

    def prioritize(self, task: Task, nodes: list[str]) -> dict[str, float]:
        """The best node before all others; equal scores for a pod that has no preference."""
        request = self._filter.request_of(task.Pod)
        scores = dict.fromkeys(nodes, 0.0)
        if request.wants_slices:
            entry = self._ledger.entry(request.uid)
            found = entry.placement if entry else self._filter.find(task.Pod, request, nodes)
            if isinstance(found, Placement) and found.node in scores:
                scores[found.node] = BEST
        return scores

    def allocate(self, task: Task) -> str:
        """Reserve a task's place on its node; why that is not possible."""
        request, entry = self._filter.request_of(task.Pod), self._ledger.entry(task.Pod.metadata.uid)
        if not request.wants_slices or task.Status == PIPELINED:
            return ""
        if self._ledger.departed(request.uid):
            return f"pod {request.namespace}/{request.name} has been deleted"
        if entry is not None and entry.node == task.NodeName:
            return ""
        if entry is not None and entry.stage in ON_ITS_WAY:
            return f"the pod is on its way to {entry.node}"
        self._ledger.release(request.uid)
        self._filter.placer.demand.note(request)
        found, verdict = self._room(task.Pod, request, task.NodeName)
        if found is not None:
            self._ledger.reserve(request, found)
        return verdict.text

    def deallocate(self, task: Task) -> str:
        """Give up a reservation; what is on its way to its node stays."""
        entry = self._ledger.entry(task.Pod.metadata.uid)
        if entry is not None and entry.stage is Stage.RESERVED:
            self._ledger.release(entry.uid)
        return ""

    def _room(self, pod: Pod, request: PodRequest, node: str) -> tuple[Placement | None, Verdict]:
        found = self._filter.find(pod, request, [node])
        if isinstance(found, Placement):
            return found, Verdict()
        if node in found.FailedNodes:
            return None, Verdict(found.FailedNodes[node], UNSCHEDULABLE)
        return None, Verdict(found.FailedAndUnresolvableNodes.get(node, "no room"), UNRESOLVABLE)

    # ---- HTTP ----

    def add_routes(self, app: web.Application, timer: Timer, elsewhere: Elsewhere) -> None:
        """Serve the calls, and count them; another replica is asked where it leads."""

        def add(verb: str, kind: type[Call], answer: Callable[[Call], object]) -> None:
            app.router.add_post(VOLCANO_CALLS + verb, _handler(kind, answer, timer, elsewhere))

        add("predicate", Predicate, lambda call: self.predicate(call.task, call.node.Name).body())
        add("prioritize", Prioritize, self._scores)
        add("allocateFunc", Event, lambda call: {"errorMessage": self.allocate(call.task)})
        add("deallocateFunc", Event, lambda call: {"errorMessage": self.deallocate(call.task)})

    def _scores(self, call: Prioritize) -> object:
        scores = self.prioritize(call.task, [node.Name for node in call.nodes])
        return {"nodeScore": scores, "errorMessage": ""}


def _handler(
    kind: type[Call], answer: Callable[[Call], object], timer: Timer, elsewhere: Elsewhere
) -> Callable[[web.Request], Awaitable[web.Response]]:
    decoder = msgspec.json.Decoder(kind)

    async def handle(request: web.Request) -> web.Response:
        with timer.measure() as outcome:
            try:
                call = _read(decoder, await request.read())
                forwarded = await elsewhere(request)
                outcome.word = "ok" if forwarded is None else "forwarded"
                return _body(_encode(answer(call)) if forwarded is None else forwarded)
            except (WireError, RequestError) as error:
                outcome.word = "bad"
                return _body(_encode(Verdict(str(error), UNRESOLVABLE).body()), 400)
            except ForwardError as error:  # Volcano heeds `extender.ignorable` for what is not HTTP 200
                outcome.word = "error"
                return _body(_encode(Verdict(str(error), UNSCHEDULABLE).body()), 503)

    return handle


def _read(decoder: msgspec.json.Decoder[Call], body: bytes) -> Call:
    try:
        call = decoder.decode(body)
    except UNREADABLE as error:
        raise WireError(f"the body is no call of Volcano's extender plugin ({error})") from error
    if not call.task.Pod.metadata.uid:
        raise WireError("the task's pod has no UID")
    return call


def _body(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
