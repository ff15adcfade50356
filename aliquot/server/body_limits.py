"""What a server puts up with of a call's body: how large, how slow, and how much of all at once.

For what aiohttp serves; calls of the plain form are read by `aliquot.server.fast_http`. The body is read here, so that
a handler that asks for it has it at once; who may not call at all should have been sent away before.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from aliquot.server.authn import refusal

COMING_SECONDS: Final = 10.0
"""For a body, from the moment that its head is there."""
ANSWER_SECONDS: Final = 60.0
"""For an answer, until somebody has read it."""
SMALL_BYTES: Final = 256 << 10
MANY_BYTES: Final = 64 << 20
"""Of large bodies at the same time."""


@dataclass
class BodyLimits:
    """Reads bodies.

    Attributes:
        largest: Bytes of one body.
        coming_seconds: How long it may take to come.
        answer_seconds: How long an answer may take.
        many: Bytes of all bodies that are not small, at once.
    """

    largest: int
    coming_seconds: float = COMING_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    many: int = MANY_BYTES
    _now: int = field(default=0, init=False)

    def middleware(self) -> Middleware:
        """Reads a call's body before anybody looks at it; 413, 408 or 503 and a sentence where that cannot be."""

        @web.middleware
        async def read(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not request.can_read_body:
                return await self._answered(request, handler)
            size = self.largest if request.content_length is None else request.content_length
            if size > self.largest:
                return self._too_large()
            with self._counted(size) as fits:
                if not fits:
                    return refusal(
                        HTTPStatus.SERVICE_UNAVAILABLE, "too many large calls at the same time; try again"
                    )
                return await self._read(request) or await self._answered(request, handler)

        return read

    async def _read(self, request: web.Request) -> web.Response | None:
        """Why the body is not there; None when it is."""
        try:
            async with asyncio.timeout(self.coming_seconds):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return self._too_large()
        except TimeoutError:
            return refusal(
                HTTPStatus.REQUEST_TIMEOUT, f"the body has not come within {self.coming_seconds:g} s"
            )
        return self._too_large() if len(body) > self.largest else None

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The handler's answer; who does not read it in time is hung up on."""
        patience = asyncio.timeout(self.answer_seconds)
        try:
            async with patience:
                return await handler(request)
        except TimeoutError:
            if patience.expired() and request.transport is not None:
                request.transport.abort()
            raise

    def _too_large(self) -> web.Response:
        return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {self.largest} bytes")

    @contextmanager
    def _counted(self, size: int) -> Iterator[bool]:
        size = size if size > SMALL_BYTES else 0
        fits = self._now + size <= self.many
        self._now += size if fits else 0
        try:
            yield fits
        finally:
            self._now -= size if fits else 0
