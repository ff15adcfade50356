"""The HTTP side of what is asked and changes nothing: `/filter-dryrun`, `/why` and `/defragment`.

Who may ask is the guard's business (`aliquot.server.authn`). They name nodes and quotas, and no pod but the one that
was asked about. Replicas that do not lead pass them on, for reservations are known to the leader alone.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web

from aliquot.api.defragment import WrongRequestError
from aliquot.kube.answers import ApiError
from aliquot.scheduler_ext.explain.defragment import Defragmenter
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun, DryRunResult, read_dry_run
from aliquot.scheduler_ext.explain.why import Why
from aliquot.scheduler_ext.http.forward import ForwardError
from aliquot.scheduler_ext.http.metrics import ExtenderMetrics
from aliquot.scheduler_ext.kube_scheduler.wire import WireError

Elsewhere = Callable[[web.Request], Awaitable[bytes | None]]
"""The answer of the replica that leads; None where this one is to answer; ForwardError where neither can."""

_encode = msgspec.json.Encoder().encode


class QueryApi:
    """Answers them."""

    def __init__(
        self, dry_run: DryRun, why: Why, defragmenter: Defragmenter, metrics: ExtenderMetrics
    ) -> None:
        """Put the parts together.

        Args:
            dry_run: Answers filter-dryrun.
            why: Answers why.
            defragmenter: Answers defragment.
            metrics: Where calls are counted, apart from those of filter.
        """
        self._dry_run = dry_run
        self._why = why
        self._defragmenter = defragmenter
        self._metrics = metrics
        self._elsewhere: Elsewhere = _here

    def add_routes(self, app: web.Application, elsewhere: Elsewhere) -> None:
        """Serve them; another replica is asked where it leads."""
        self._elsewhere = elsewhere
        app.router.add_post("/filter-dryrun", self.dry_run)
        app.router.add_get("/why", self.why)
        app.router.add_get("/defragment", self.defragment)

    async def dry_run(self, request: web.Request) -> web.Response:
        """Say which nodes this pod could go to."""
        with self._metrics.dry_run.measure() as outcome:
            try:
                args = read_dry_run(await request.read())
                forwarded = await self._elsewhere(request)
                result = DryRunResult() if forwarded is not None else self._dry_run.answer(args)
            except WireError as error:
                outcome.word = "bad"
                return _json(DryRunResult(Error=str(error)), HTTPStatus.BAD_REQUEST)
            except ForwardError as error:
                outcome.word = "error"
                return _json(DryRunResult(Error=str(error)))
            if forwarded is not None:
                outcome.word = "forwarded"
                return _body(forwarded)
            outcome.word = "error" if result.Error else "room" if result.NodeNames else "none"
            return _json(result)

    async def why(self, request: web.Request) -> web.Response:
        """Say why a pod waits: `?namespace=&pod=`."""
        with self._metrics.why.measure() as outcome:
            namespace, pod = request.query.get("namespace", ""), request.query.get("pod", "")
            if not (namespace and pod):
                outcome.word = "bad"
                return _json(
                    {"error": "say which pod: /why?namespace=NAMESPACE&pod=POD"}, HTTPStatus.BAD_REQUEST
                )
            try:
                forwarded = await self._elsewhere(request)
                if forwarded is not None:
                    outcome.word = "forwarded"
                    return _body(forwarded)
                return _json(await self._why.answer(namespace, pod))
            except (ForwardError, ApiError) as error:
                outcome.word = "error"
                return _json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def defragment(self, request: web.Request) -> web.Response:
        """Say who would have to move for a request: `?gpu-mem=40Gi&gpu-core=50&namespace=`."""
        with self._metrics.defragment.measure() as outcome:
            try:
                forwarded = await self._elsewhere(request)
                if forwarded is not None:
                    outcome.word = "forwarded"
                    return _body(forwarded)
                return _json(await self._defragmenter.answer(request.query))
            except WrongRequestError as error:
                outcome.word = "bad"
                return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
            except (ForwardError, ApiError) as error:
                outcome.word = "error"
                return _json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)


async def _here(_: web.Request) -> bytes | None:
    return None


def _json(answer: object, status: int = 200) -> web.Response:
    return _body(_encode(answer), status)


def _body(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
