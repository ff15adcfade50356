"""The webhook's HTTP side: `/mutate` for the API server, health for everybody, metrics for whom the guard lets in.

A call is answered from the call alone and, where it follows them, the quotas it has read; nobody is asked meanwhile, so
any number of replicas will do and a dry run is like any other.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from aliquot.server import service
from aliquot.server.authn import OPEN, Guard
from aliquot.server.metrics import add_routes
from aliquot.webhook.metrics import WebhookMetrics
from aliquot.webhook.mutate import Mutation, Mutator
from aliquot.webhook.refusal import Refusal
from aliquot.webhook.review import Review, ReviewError, allow, deny, read_old_pod, read_pod, read_review

LARGEST_BODY = 8 << 20
"""In bytes; an object of the API server's is at most 3 MiB, and a review may hold two."""


class Webhook:
    """Answers the API server's calls."""

    def __init__(
        self,
        mutator: Mutator,
        metrics: WebhookMetrics,
        missing: Callable[[], str] = lambda: "",
        guard: Guard = OPEN,
    ) -> None:
        """Put the parts together.

        Args:
            mutator: Works out what changes.
            metrics: Where calls are counted.
            missing: What has not been read yet, in words; empty when all has been.
            guard: Who may read the metrics.
        """
        self._guard = guard
        self._mutator = mutator
        self._metrics = metrics
        self._missing = missing

    def app(self) -> web.Application:
        """The web application."""
        app = service.application(LARGEST_BODY, self._guard)
        app.router.add_post("/mutate", self.mutate)
        add_routes(app, self._metrics.registry, self._missing)
        return app

    async def mutate(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview; HTTP 400 for what is none."""
        with self._metrics.time.measure() as outcome:
            try:
                outcome.word, answer = self._answer(read_review(await request.read()))
                status = HTTPStatus.OK
            except ReviewError as error:
                outcome.word, answer, status = "bad", {"error": str(error)}, HTTPStatus.BAD_REQUEST
        self._metrics.requests.labels(outcome.word).inc()
        return web.Response(body=msgspec.json.encode(answer), status=status, content_type="application/json")

    def _answer(self, review: Review) -> tuple[str, dict[str, Any]]:
        """The outcome in a word, and the answer."""
        if not review.is_pod:
            return "bad", deny(
                review.uid,
                f"this webhook changes pods, not {review.kind_name}; correct the rules of its configuration",
                code=400,
                reason="BadRequest",
            )
        missing = self._missing()
        if missing:
            why = f"the webhook is starting: {missing}; try again"
            return "bad", deny(review.uid, why, code=503, reason="ServiceUnavailable")
        try:
            mutation = self._mutation(review)
        except ReviewError as error:
            return "bad", deny(review.uid, str(error), code=400, reason="BadRequest")
        except Refusal as refusal:
            return "refused", deny(review.uid, str(refusal))
        word = "changed" if mutation.operations else "unchanged"
        return word, allow(review.uid, mutation.operations, mutation.warnings)

    def _mutation(self, review: Review) -> Mutation:
        """What to do to the pod; nothing for what is neither its creation nor an edit of it."""
        if review.is_pod_creation:
            return self._mutator.mutate(*read_pod(review), review.namespace)
        if review.is_pod_update:
            return self._mutator.review_edit(*read_pod(review), read_old_pod(review))
        return Mutation()
