"""The extender's HTTP side: `/filter`, `/preempt` and `/bind` for kube-scheduler, health and metrics for everybody.

Where there are several replicas, only the leader answers; the others pass the calls on to it. Until the ledger has
been read from the cluster, all calls answer an error, which makes kube-scheduler try the pod again; a guess could
promise memory twice.
"""

from collections.abc import Callable

import msgspec
from aiohttp import web

from aliquot.metrics import add_routes
from scheduler_ext.bind import Binder, BindError
from scheduler_ext.filter import Filter
from scheduler_ext.forward import Forwarder, ForwardError, only_peers
from scheduler_ext.learner import Quiet
from scheduler_ext.metrics import ExtenderMetrics
from scheduler_ext.preempt import Preemption
from scheduler_ext.questions import Questions
from scheduler_ext.volcano import Volcano
from scheduler_ext.wire import (
    BindResult,
    FilterResult,
    PreemptResult,
    WireError,
    read_bind,
    read_filter,
    read_preempt,
)

LARGEST_BODY = 32 << 20
"""In bytes: 100,000 node names and the largest pod that etcd takes."""

_encode = msgspec.json.Encoder().encode


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
        questions: Questions | None = None,
        volcano: Volcano | None = None,
        quiet: Quiet | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            decide: Answers filter.
            binder: Answers bind.
            metrics: Where calls are counted.
            missing: What has not been read from the cluster yet, in words; empty when all has been.
            preemption: Answers preempt.
            forwarder: Passes calls on while another replica leads; None where this is the only one.
            questions: Answers what changes nothing; None where nobody asks.
            volcano: Answers Volcano's scheduler; None where there is none.
            quiet: Is told while kube-scheduler waits.
        """
        self._filter = decide
        self._binder = binder
        self._metrics = metrics
        self._missing = missing
        self._forwarder = forwarder
        self._questions = questions
        self._preemption = preemption
        self._volcano = volcano
        self._quiet = quiet or Quiet()

    def app(self) -> web.Application:
        """The web application."""
        guards = (only_peers,) if self._forwarder else ()
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=guards)
        app.router.add_post("/filter", self.filter)
        app.router.add_post("/preempt", self.preempt)
        app.router.add_post("/bind", self.bind)
        if self._questions is not None:
            self._questions.add_routes(app, self._elsewhere)
        if self._volcano is not None:
            self._volcano.add_routes(app, self._metrics.volcano, self._elsewhere)
        add_routes(app, self._metrics.registry, self._missing, more=self._metrics.cards)
        return app

    async def filter(self, request: web.Request) -> web.Response:
        """Say which node this pod goes to."""
        with self._quiet, self._metrics.filter.measure() as outcome:
            try:
                args = read_filter(await request.read())
            except WireError as error:
                outcome.word = "bad"
                return _json(FilterResult(Error=str(error)), status=400)
            try:
                forwarded = await self._elsewhere(request)
            except ForwardError as error:
                outcome.word = "error"
                return _json(FilterResult(Error=str(error)))
            if forwarded is not None:
                outcome.word = "forwarded"
                return _body(forwarded)
            result = self._filter.answer(args)
            outcome.word = "error" if result.Error else "placed" if result.NodeNames else "refused"
            return _json(result)

    async def preempt(self, request: web.Request) -> web.Response:
        """Say who has to leave which node for this pod; the protocol has no word for an error but the status."""
        with self._quiet, self._metrics.preempt.measure() as outcome:
            try:
                args = read_preempt(await request.read())
            except WireError as error:
                outcome.word = "bad"
                return web.Response(text=f"{error}\n", status=400)
            try:
                forwarded = await self._elsewhere(request)
            except ForwardError as error:
                outcome.word = "error"
                return web.Response(text=f"{error}\n", status=503)
            if forwarded is not None:
                outcome.word = "forwarded"
                return _body(forwarded)
            result = self._preemption.answer(args)
            outcome.word = "found" if result.NodeNameToMetaVictims else "none"
            return _json(result)

    async def bind(self, request: web.Request) -> web.Response:
        """Bind this pod to this node."""
        with self._metrics.bind.measure() as outcome:
            try:
                args = read_bind(await request.read())
            except WireError as error:
                outcome.word = "bad"
                return _json(BindResult(str(error)), status=400)
            try:
                forwarded = await self._elsewhere(request)
            except ForwardError as error:
                outcome.word = "error"
                return _json(BindResult(str(error)))
            if forwarded is not None:
                outcome.word = "forwarded"
                return _body(forwarded)
            try:
                await self._binder.bind(args)
            except BindError as error:
                outcome.word = "refused"
                return _json(BindResult(str(error)))
            return _json(BindResult())

    async def _elsewhere(self, request: web.Request) -> bytes | None:
        """The answer of the replica that leads; None where this one is to answer.

        Raises:
            ForwardError: neither can.
        """
        if self._forwarder is not None:
            forwarded = await self._forwarder.answer(request, await request.read())
            if forwarded is not None:
                return forwarded
        missing = self._missing()
        if missing:
            raise ForwardError(f"the extender is starting: {missing}; try again")
        return None


def _json(result: FilterResult | PreemptResult | BindResult, status: int = 200) -> web.Response:
    return _body(_encode(result), status)


def _body(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
