"""The extender's HTTP side: `/filter` and `/bind` for kube-scheduler, health and metrics for everybody.

Until the ledger has been read from the cluster, both calls answer an error, which makes kube-scheduler try
the pod again; a guess could promise memory twice.
"""

from collections.abc import Callable

import msgspec
from aiohttp import web

from aliquot.metrics import add_routes
from scheduler_ext.bind import Binder, BindError
from scheduler_ext.filter import Filter
from scheduler_ext.metrics import ExtenderMetrics
from scheduler_ext.wire import BindResult, FilterResult, WireError, read_bind, read_filter

LARGEST_BODY = 32 << 20
"""In bytes: 100,000 node names and the largest pod that etcd takes."""

_encode = msgspec.json.Encoder().encode


class Extender:
    """Answers kube-scheduler's calls."""

    def __init__(
        self, decide: Filter, binder: Binder, metrics: ExtenderMetrics, missing: Callable[[], str]
    ) -> None:
        """Put the parts together.

        Args:
            decide: Answers filter.
            binder: Answers bind.
            metrics: Where calls are counted.
            missing: What has not been read from the cluster yet, in words; empty when all has been.
        """
        self._filter = decide
        self._binder = binder
        self._metrics = metrics
        self._missing = missing

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_post("/filter", self.filter)
        app.router.add_post("/bind", self.bind)
        add_routes(app, self._metrics.registry, self._missing)
        return app

    async def filter(self, request: web.Request) -> web.Response:
        """Say which node this pod goes to."""
        with self._metrics.filter.measure() as outcome:
            try:
                args = read_filter(await request.read())
            except WireError as error:
                outcome.word = "bad"
                return _json(FilterResult(Error=str(error)), status=400)
            missing = self._missing()
            if missing:
                outcome.word = "error"
                return _json(FilterResult(Error=f"the extender is starting: {missing}; try again"))
            result = self._filter.answer(args)
            outcome.word = "error" if result.Error else "placed" if result.NodeNames else "refused"
            return _json(result)

    async def bind(self, request: web.Request) -> web.Response:
        """Bind this pod to this node."""
        with self._metrics.bind.measure() as outcome:
            try:
                args = read_bind(await request.read())
            except WireError as error:
                outcome.word = "bad"
                return _json(BindResult(str(error)), status=400)
            missing = self._missing()
            if missing:
                outcome.word = "error"
                return _json(BindResult(f"the extender is starting: {missing}; try again"))
            try:
                await self._binder.bind(args)
            except BindError as error:
                outcome.word = "refused"
                return _json(BindResult(str(error)))
            return _json(BindResult())


def _json(result: FilterResult | BindResult, status: int = 200) -> web.Response:
    return web.Response(body=_encode(result), status=status, content_type="application/json")
