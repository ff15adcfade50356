"""Prometheus metrics and the two health questions, for every service alike.

Names start with `aliquot_` and end in their base unit. Registries are passed in, never global, so that two
services can live in one test process.
"""

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

PREFIX: Final = "aliquot"
OK: Final = "ok"
ERROR: Final = "error"
"""The outcome of what raised."""
# From a dictionary look-up to a request that somebody gives up on.
LATENCY_BUCKETS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip

Readiness = Callable[[], str]
"""Returns what is still missing, in words, or an empty text when ready."""
Pieces = Callable[[], Iterator[str]]
"""Returns more families in Prometheus' text format as they are at the moment of the call, in pieces made one by one."""

_END: Final = b"# EOF\n"
"""What OpenMetrics' text ends with."""
_GZIP: Final = 31
"""zlib's word for it."""
_FASTEST: Final = 1
_NEVER: Final = re.compile(r"q=0(\.0*)?")


class Metrics:
    """Makes the metrics of one service (`subsystem`) in one registry: `aliquot_<subsystem>_<name>`."""

    def __init__(self, registry: CollectorRegistry, subsystem: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, asked for by nobody
        self.registry = registry
        self._subsystem = subsystem

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        """Make a counter; its name ends in `_total` by itself."""
        return Counter(name, about, labels, PREFIX, self._subsystem, registry=self.registry)

    def outcomes(self, name: str, about: str, words: Sequence[str]) -> Counter:
        """Make a counter by `outcome`; each word is told from the start, as 0: what appears at 1 shows no rise."""
        counter = self.counter(name, f"{about}, by outcome: {', '.join(words)}.", ["outcome"])
        for word in words:
            counter.labels(word)
        return counter

    def gauge(self, name: str, about: str, labels: Sequence[str] = ()) -> Gauge:
        """Make a gauge."""
        return Gauge(name, about, labels, PREFIX, self._subsystem, registry=self.registry)

    def timer(self, name: str, about: str, words: Sequence[str], labels: Sequence[str] = ()) -> "Timer":
        """Make a timer: a histogram `<name>_seconds` with the labels and `outcome`: one of the words, or `error`.

        Without labels each of them is told from the start, as 0; with labels, once `Timer.expect` was told of those.
        """
        words = (*words, ERROR)
        histogram = Histogram(
            f"{name}_seconds",
            f"{about}, by outcome: {', '.join(words)}.",
            (*labels, "outcome"),
            PREFIX,
            self._subsystem,
            registry=self.registry,
            buckets=LATENCY_BUCKETS,
        )
        timer = Timer(histogram, words)
        if not labels:
            timer.expect()
        return timer


class Outcome:
    """How a timed piece of work ended; change `word` to say more than `ok` or `error`."""

    def __init__(self) -> None:
        self.word = OK


class Timer:
    """Counts and times pieces of work, by outcome: `ok`, `error` (it raised), or a word of the caller's."""

    def __init__(self, histogram: Histogram, words: Sequence[str]) -> None:
        self._histogram = histogram
        self._words = words

    def expect(self, *labels: str) -> None:
        """Tell of work with these labels from now on, though there was none: what appears at 1 shows no rise."""
        for word in self._words:
            self._histogram.labels(*labels, word)

    @contextmanager
    def measure(self, *labels: str) -> Iterator[Outcome]:
        """Time the body of a `with` statement, also around awaits."""
        outcome, start = Outcome(), time.perf_counter()
        try:
            yield outcome
        except BaseException:
            outcome.word = ERROR if outcome.word == OK else outcome.word
            raise
        finally:
            self._histogram.labels(*labels, outcome.word).observe(time.perf_counter() - start)


def add_routes(
    app: web.Application,
    registry: CollectorRegistry,
    ready: Readiness,
    before_scrape: Callable[[], Awaitable[None]] | None = None,
    *,
    more: Pieces | None = None,
) -> None:
    """Serve `/metrics`, `/healthz` (the process answers) and `/readyz` (503 and what is missing).

    The registry is read in the event loop, in one step. What a collector would have to wait for is looked up by
    `before_scrape`, which is awaited first. What is too much for one step is `more`: between its pieces, others have
    their turn.
    """
    app.router.add_get("/metrics", _metrics(registry, before_scrape, more))
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz(ready))


def _metrics(
    registry: CollectorRegistry, before_scrape: Callable[[], Awaitable[None]] | None, more: Pieces | None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        if before_scrape is not None:
            await before_scrape()
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        text = encode(registry)
        if more is None:
            return web.Response(body=text, headers={"Content-Type": content_type})
        return await _send(request, content_type, _joined(text, more))

    return answer


def _joined(text: bytes, more: Pieces) -> Iterator[bytes]:
    """More families before the end of a text, where that says that it ends."""
    families = text.removesuffix(_END)
    yield families
    for piece in more():
        yield piece.encode()
    yield text[len(families) :]


async def _send(request: web.Request, content_type: str, pieces: Iterator[bytes]) -> web.StreamResponse:
    """Answer piece by piece, packed if the client understands that."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    packer = zlib.compressobj(_FASTEST, wbits=_GZIP) if _takes_gzip(request) else None
    if packer is not None:
        response.headers["Content-Encoding"] = "gzip"
    await response.prepare(request)
    for piece in pieces:
        packed = piece if packer is None else packer.compress(piece)
        if packed:
            await response.write(packed)
        await asyncio.sleep(0)
    await response.write_eof(b"" if packer is None else packer.flush())
    return response


def _takes_gzip(request: web.Request) -> bool:
    codings = [part.partition(";") for part in request.headers.get("Accept-Encoding", "").split(",")]
    return any(
        coding.strip().lower() == "gzip" and not _NEVER.fullmatch(quality.strip())
        for coding, _, quality in codings
    )


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _readyz(ready: Readiness) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        missing = ready()
        return web.Response(
            text=f"not ready: {missing}\n" if missing else "ok\n", status=503 if missing else 200
        )

    return answer
