"""The extender's HTTP side: `/filter`, `/preempt` and `/bind` for kube-scheduler, health for everybody.

kube-scheduler's calls are answered as they come (`aliquot.server.fast_http`), filter and preempt at once where this
replica leads.

Where there are several replicas, only the leader answers; the others pass the calls on to it. Until the ledger has
been read from the cluster, all calls answer an error, which makes kube-scheduler try the pod again; a guess could
promise memory twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec
from aiohttp import web

from aliquot.scheduler_ext.handlers.bind import Binder, BindError
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.handlers.preempt import Preemption
from aliquot.scheduler_ext.http.forward import (
    FORWARDED_HEADER,
    Asked,
    Forwarder,
    ForwardError,
    is_peer,
    only_peers,
    right_of,
)
from aliquot.scheduler_ext.http.metrics import ExtenderMetrics
from aliquot.scheduler_ext.http.query_api import QueryApi
from aliquot.scheduler_ext.http.volcano import Volcano
from aliquot.scheduler_ext.kube_scheduler.health import PATH as KUBE_SCHEDULER_HEALTH
from aliquot.scheduler_ext.kube_scheduler.health import KubeSchedulerHealth
from aliquot.scheduler_ext.kube_scheduler.wire import (
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    PreemptArgs,
    PreemptResult,
    WireError,
    read_ahead,
    read_bind,
    read_filter,
    read_preempt,
)
from aliquot.scheduler_ext.placement.model_updates import Quiet
from aliquot.server import service
from aliquot.server.authn import OPEN, Guard, Right
from aliquot.server.fast_http import Answer, Call, FastHttp, Reply, by_aiohttp
from aliquot.server.metrics import Outcome, Timer, add_routes

LARGEST_BODY = 32 << 20
"""In bytes: 100,000 node names and the largest pod that etcd takes."""

_encode = msgspec.json.Encoder().encode
Args = TypeVar("Args")


@dataclass(frozen=True)
class _Kind(Generic[Args]):
    """One of kube-scheduler's calls.

    Attributes:
        timer: Counts it.
        read: What a body says; WireError where it is none.
        answer: What to say to that.
        refuse: Says why there is no answer, with this status.
        meanwhile: Entered while it is answered.
        lost: The status where nobody can answer now.
    """

    timer: Timer
    read: Callable[[bytes], Args]
    answer: Callable[[Args, Outcome], Reply | Awaitable[Reply]]
    refuse: Callable[[str, int], Reply]
    meanwhile: AbstractContextManager[object]
    lost: int = HTTPStatus.OK


class Extender:
    """Answers kube-scheduler's calls."""

    def __init__(
        self,
        decide: Filter,
        binder: Binder,
        metrics: ExtenderMetrics,
        missing: Callable[[], str],
        *,
        preemption: Preemption,
        forwarder: Forwarder | None = None,
        queries: QueryApi | None = None,
        volcano: Volcano | None = None,
        quiet: Quiet | None = None,
        guard: Guard = OPEN,
        kube_scheduler: KubeSchedulerHealth | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            decide: Answers filter.
            binder: Answers bind.
            metrics: Where calls are counted.
            missing: What has not been read from the cluster yet, in words; empty when all has been.
            preemption: Answers preempt.
            forwarder: Passes calls on while another replica leads; None where this is the only one.
            queries: Answers what changes nothing; None where nobody asks.
            volcano: Answers Volcano's scheduler; None where there is none.
            quiet: Is told while kube-scheduler waits.
            guard: Who may call.
            kube_scheduler: Tells of the kube-scheduler in the same pod; None where there is none.
        """
        self._filter = decide
        self._binder = binder
        self._metrics = metrics
        self._missing = missing
        self._forwarder = forwarder
        self._queries = queries
        self._preemption = preemption
        self._volcano = volcano
        self._guard = guard
        self._kube_scheduler = kube_scheduler
        self._quiet = quiet = quiet or Quiet()
        self._filters = _Kind(metrics.filter, read_filter, self._filtered, _no_filter, quiet)
        self._preempts = _Kind(
            metrics.preempt, read_preempt, self._preempted, _no_preempt, quiet, HTTPStatus.SERVICE_UNAVAILABLE
        )
        self._binds = _Kind(metrics.bind, read_bind, self._bound, _no_bind, nullcontext())

    @property
    def answers(self) -> dict[str, Answer]:
        """kube-scheduler's calls, by path."""
        return {"/filter": self.filter, "/preempt": self.preempt, "/bind": self.bind}

    def desk(self) -> FastHttp:
        """Who answers kube-scheduler's calls as they come."""
        heeded = frozenset((FORWARDED_HEADER.lower(),))
        return FastHttp(self.answers, self._admits, self._quiet, heeded, {"/filter": self._foresee})

    def app(self) -> web.Application:
        """The web application, which answers everything."""
        app = service.application(LARGEST_BODY, self._guard, right_of)
        if self._forwarder:
            app.middlewares.insert(0, only_peers)
        for path, answer in self.answers.items():
            app.router.add_post(path, by_aiohttp(answer))
        if self._queries is not None:
            self._queries.add_routes(app, self._ask_elsewhere)
        if self._volcano is not None:
            self._volcano.add_routes(app, self._metrics.volcano, self._ask_elsewhere)
        if self._kube_scheduler is not None:
            app.router.add_get(KUBE_SCHEDULER_HEALTH, self._kube_scheduler.answer)
        add_routes(app, self._metrics.registry, self._missing, more=self._metrics.cards)
        return app

    def _admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a connection may bring kube-scheduler's calls; asked once a connection."""
        if self._guard.rights is not None:
            return self._guard.shows(transport, Right.SCHEDULE)
        return not self._forwarder or is_peer(transport)

    def filter(self, call: Call) -> Reply | Awaitable[Reply]:
        """Say which node this pod goes to."""
        return self._now_or_later(self._filters, call)

    def preempt(self, call: Call) -> Reply | Awaitable[Reply]:
        """Say who has to leave which node for this pod; the protocol has no word for an error but the status."""
        return self._now_or_later(self._preempts, call)

    def bind(self, call: Call) -> Awaitable[Reply]:
        """Bind this pod to this node."""
        return self._later(self._binds, call)

    def _filtered(self, args: FilterArgs, outcome: Outcome) -> Reply:
        result = self._filter.answer(args)
        outcome.word = "error" if result.Error else "placed" if result.NodeNames else "refused"
        return _json(result)

    def _preempted(self, args: PreemptArgs, outcome: Outcome) -> Reply:
        result = self._preemption.answer(args)
        outcome.word = "found" if result.NodeNameToMetaVictims else "none"
        return _json(result)

    async def _bound(self, args: BindArgs, outcome: Outcome) -> Reply:
        try:
            await self._binder.bind(args)
        except BindError as error:
            outcome.word = "refused"
            return _json(BindResult(str(error)))
        return _json(BindResult())

    def _foresee(self, beginning: bytes) -> bool:
        """Get ready for a filter call while its names are on their way, which takes as long as answering it.

        False: what has come is too little.
        """
        if self._elsewhere_or_nowhere():
            return True
        pod, more = read_ahead(beginning)
        if pod is not None:
            self._filter.prepare(pod)
        return not more

    def _elsewhere_or_nowhere(self) -> bool:
        """Whether calls cannot be answered here now."""
        return bool(self._missing()) or (self._forwarder is not None and bool(self._forwarder.closed()))

    def _now_or_later(self, kind: _Kind[Any], call: Call) -> Reply | Awaitable[Reply]:
        """Answer at once, unless another replica has to be asked or that cannot be known."""
        if self._elsewhere_or_nowhere():
            return self._later(kind, call)
        with kind.meanwhile, kind.timer.measure() as outcome:
            try:
                args = kind.read(call.body)
            except WireError as error:
                outcome.word = "bad"
                return kind.refuse(str(error), HTTPStatus.BAD_REQUEST)
            return kind.answer(args, outcome)

    async def _later(self, kind: _Kind[Any], call: Call) -> Reply:
        with kind.meanwhile, kind.timer.measure() as outcome:
            try:
                args = kind.read(call.body)
                forwarded = await self._elsewhere(call, call.body)
            except WireError as error:
                outcome.word = "bad"
                return kind.refuse(str(error), HTTPStatus.BAD_REQUEST)
            except ForwardError as error:
                outcome.word = "error"
                return kind.refuse(str(error), kind.lost)
            if forwarded is not None:
                outcome.word = "forwarded"
                return Reply(forwarded)
            reply = kind.answer(args, outcome)
            return reply if isinstance(reply, Reply) else await reply

    async def _ask_elsewhere(self, request: web.Request) -> bytes | None:
        return await self._elsewhere(request, await request.read())

    async def _elsewhere(self, asked: Asked, body: bytes) -> bytes | None:
        """The answer of the replica that leads; None where this one is to answer.

        Raises:
            ForwardError: neither can.
        """
        if self._forwarder is not None:
            forwarded = await self._forwarder.answer(asked, body)
            if forwarded is not None:
                return forwarded
        missing = self._missing()
        if missing:
            raise ForwardError(f"the extender is starting: {missing}; try again")
        return None


def _no_filter(why: str, status: int) -> Reply:
    return _json(FilterResult(Error=why), status)


def _no_preempt(why: str, status: int) -> Reply:
    return Reply(f"{why}\n".encode(), status, "text/plain; charset=utf-8")


def _no_bind(why: str, status: int) -> Reply:
    return _json(BindResult(why), status)


def _json(result: FilterResult | PreemptResult | BindResult, status: int = HTTPStatus.OK) -> Reply:
    return Reply(_encode(result), status)
