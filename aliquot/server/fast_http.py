"""Answers calls of one plain form by itself, and leaves everything else to aiohttp.

A body of some hundred kilobytes comes in pieces, as they leave TLS records and the socket. aiohttp has work with each
of them, copies them several times, and hands the whole through a stream, two tasks and a router, which together takes
longer than many an answer. Here a call's bytes go straight from the decryption into one buffer, and are answered as
soon as all are there, in the same turn of the event loop where the answer does not have to wait for anything.

A long call takes its time to come. What it will be answered by can be got ready meanwhile, from what has come
(`FastHttp.foreseen`); whatever is got ready, the answer is the same.

The plain form: a POST over HTTP/1.1 to a path that is served here, with a Content-Length and no header that means
anything else. A connection that brings anything else is given to aiohttp as it is, with what has come, and is
aiohttp's from then on. The calls that are answered here are served there as well (`by_aiohttp`), with the same answers.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

FIRST_BYTES: Final = 1 << 14
"""A connection's buffer at first; the head of a call has to fit in it."""
KEPT_BYTES: Final = 1 << 20
"""A buffer that has grown beyond this is given back after its call."""
MOST_BYTES: Final = 32 << 20
"""Of a body."""
IDLE_SECONDS: Final = 300.0
"""Longer than the 90 s for which Go clients keep an idle connection: never close one that they just use."""
COMING_SECONDS: Final = 10.0
"""For a call, from its first bytes on."""
SILENT_SECONDS: Final = 60.0
"""For the first bytes of a connection."""
PLAIN: Final = frozenset(
    ("host", "user-agent", "content-length", "content-type", "accept", "accept-encoding")
)
"""Headers of a plain call, in small letters."""
_MOST_DIGITS: Final = 9
_END: Final = b"\r\n\r\n"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked.

    Attributes:
        path_qs: The path, and what follows a question mark.
        headers: By name, in whatever case.
        body: All of it.
    """

    path_qs: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = "application/json"


Answer = Callable[[Call], Reply | Awaitable[Reply]]
"""Answers at once where it can."""


def by_aiohttp(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The same answer for calls that come through aiohttp."""

    async def handle(request: web.Request) -> web.Response:
        found = answer(Call(request.path_qs, request.headers, await request.read()))
        reply = found if isinstance(found, Reply) else await found
        headers = {"Content-Type": reply.content_type}
        return web.Response(body=reply.body, status=reply.status, headers=headers)

    return handle


@dataclass
class FastHttp:
    """What is answered here, and the connections that ask.

    Attributes:
        answers: By path.
        admits: Whether a connection may ask at all; aiohttp has the words for one that may not.
        coming: Entered while a call is on its way in.
        heeded: Headers that answers look at, in small letters.
        foreseen: By path, what is told how a body begins whose end is yet to come. It says whether that was enough:
            else it is told again, of twice as much.
        coming_seconds: How long a call may take to come; who takes longer is hung up on, within twice the time.
    """

    answers: Mapping[str, Answer]
    admits: Callable[[asyncio.BaseTransport], bool] = lambda _: True
    coming: AbstractContextManager[object] = field(default_factory=nullcontext)
    heeded: frozenset[str] = frozenset()
    foreseen: Mapping[str, Callable[[bytes], bool]] = field(default_factory=dict)
    coming_seconds: float = COMING_SECONDS
    ending: bool = field(default=False, init=False)
    lines: "set[Line]" = field(default_factory=set, init=False)
    tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def close(self, patience: float) -> None:
        """Answer what is being answered, for so many seconds at most, and hang up."""
        self.ending = True
        for line in tuple(self.lines):
            line.end()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=patience)
        for task in tuple(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for line in tuple(self.lines):
            line.abort()


class Line(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, desk: FastHttp, aiohttp: Callable[[], asyncio.Protocol]) -> None:
        """Wait for calls.

        Args:
            desk: What is answered here.
            aiohttp: Makes aiohttp's end of a connection.
        """
        self._desk = desk
        self._answers = desk.answers
        self._aiohttp = aiohttp
        self._coming: ExitStack | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(FIRST_BYTES)
        self._have = 0
        self._head: _Head | None = None
        self._busy = self._clogged = False
        self._told: float = 0
        self._idle: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._due = math.inf
        """When the call that is on its way has to be here."""

    # ---- what the transport says ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has called."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream
        self._transport = transport
        self._desk.lines.add(self)
        if self._desk.ending:
            self._give_away()
            return
        if not self._desk.admits(transport):
            self._answers = {}
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._heard = _now()
        self._due = self._heard + SILENT_SECONDS
        self._look_whether_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """What has come of a call is worth nothing any more; one that is being answered is done all the same."""
        del exc
        self._transport = None
        self._leave()

    def eof_received(self) -> bool:
        """Hang up, too."""
        return False

    def pause_writing(self) -> None:
        """Take no more calls of somebody who does not read the answers."""
        self._clogged = True
        self._read_or_not()

    def resume_writing(self) -> None:
        """Go on."""
        self._clogged = False
        self._read_or_not()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: no further than to the end of the call, where that is known."""
        del sizehint
        if self._have == len(self._buffer):
            self._buffer = self._buffer + bytes(len(self._buffer))
        return memoryview(self._buffer)[self._have : self._head.end if self._head else len(self._buffer)]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self._have += nbytes
        self._heard = _now()
        self._go_on()

    # ---- calls ----

    def _go_on(self) -> None:
        """Answer what is there."""
        while self._have and self._transport is not None and not self._busy:
            if self._head is None and not self._read_head():
                return
            if self._head is None or self._have < self._head.end:
                self._wait()
                self._foresee()
                return
            self._answer(self._head)

    def _read_head(self) -> bool:
        """Know the call that begins in the buffer, if its head is there; False where it is none of ours."""
        end = self._buffer.find(_END, 0, self._have)
        if end >= 0:
            self._head = _read(bytes(memoryview(self._buffer)[:end]), PLAIN | self._desk.heeded)
        if self._head is None and (end >= 0 or self._have >= FIRST_BYTES):
            self._give_away()
            return False
        if self._head is not None and self._head.path not in self._answers:
            self._give_away()
            return False
        return True

    def _wait(self) -> None:
        if self._coming is None:
            self._coming = ExitStack()
            self._coming.enter_context(self._desk.coming)
            self._due = self._heard + self._desk.coming_seconds

    def _foresee(self) -> None:
        """Tell how a body begins, as long as that is not enough."""
        head = self._head
        if head is None or self._have - head.start <= 2 * self._told:
            return
        foresee, self._told = self._desk.foreseen.get(head.path), self._have - head.start
        try:
            if foresee is None or foresee(bytes(memoryview(self._buffer)[head.start : self._have])):
                self._told = math.inf
        except Exception:  # noqa: BLE001 - no answer depends on it
            self._told = math.inf
            _log.exception("a call of %s was not prepared for", head.path)

    def _has_come(self) -> None:
        if self._coming is not None:
            self._coming.close()
            self._coming = None

    def _answer(self, head: "_Head") -> None:
        view = memoryview(self._buffer)
        call = Call(head.path, head.headers, bytes(view[head.start : head.end]))
        rest = bytes(view[head.end : self._have])
        if len(self._buffer) > KEPT_BYTES:
            self._buffer = bytearray(max(FIRST_BYTES, len(rest)))
        self._buffer[: len(rest)] = rest
        self._have, self._head, self._due = len(rest), None, math.inf
        self._told = 0
        try:
            found = self._answers[head.path](call)
        except Exception:  # noqa: BLE001 - whatever it is, the next call is answered
            found = _broken(head.path)
        self._has_come()
        if isinstance(found, Reply):
            self._write(found)
        else:
            self._busy = True
            self._read_or_not()
            task = asyncio.get_running_loop().create_task(self._finish(head.path, found))
            self._desk.tasks.add(task)
            task.add_done_callback(self._desk.tasks.discard)

    async def _finish(self, path: str, found: Awaitable[Reply]) -> None:
        """Answer once it is known what."""
        try:
            reply = await found
        except Exception:  # noqa: BLE001 - as above
            reply = _broken(path)
        self._busy = False
        self._write(reply)
        self._read_or_not()
        self._go_on()

    def _write(self, reply: Reply) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        last = self._desk.ending or reply.status == HTTPStatus.INTERNAL_SERVER_ERROR
        transport.write(_written(reply, last=last) + reply.body)
        self._heard = _now()
        if last:
            self._leave()
            transport.close()

    # ---- the connection ----

    def _give_away(self) -> None:
        """Let aiohttp have it, with what has come."""
        transport, came = self._transport, bytes(memoryview(self._buffer)[: self._have])
        assert transport is not None  # noqa: S101 - it is there
        self._leave()
        self._transport, self._have = None, 0
        other = self._aiohttp()
        transport.set_protocol(other)
        other.connection_made(transport)
        if self._clogged:
            other.pause_writing()
        if came:
            other.data_received(came)

    def _read_or_not(self) -> None:
        """Read while calls can be answered."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._busy or self._clogged:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _look_whether_idle(self) -> None:
        """Hang up on somebody who is silent for long, or long about a call; look again when that may be."""
        now = _now()
        late = now >= self._heard + IDLE_SECONDS or now >= self._due
        if late and not self._busy and self._transport is not None:
            self.end()
            return
        pause = self._desk.coming_seconds
        self._idle = asyncio.get_running_loop().call_later(pause, self._look_whether_idle)

    def _leave(self) -> None:
        self._has_come()
        self._desk.lines.discard(self)
        if self._idle is not None:
            self._idle.cancel()

    def end(self) -> None:
        """Hang up, unless a call is being answered.

        A TLS connection that was told twice to close can no longer be aborted (Debian 12's Python 3.11.2).
        """
        if self._transport is not None and not self._busy and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()


@dataclass(frozen=True, slots=True)
class _Head:
    """What is said before a body, and where that is: from `start` to `end`."""

    path: str
    headers: Mapping[str, str]
    start: int
    end: int


def _read(head: bytes, known: frozenset[str]) -> _Head | None:
    """A head without the empty line that ends it; None where it is not of the plain form."""
    first, *lines = head.split(b"\r\n")
    method, _, asked = first.partition(b" ")
    path, _, version = asked.partition(b" ")
    if (method, version) != (b"POST", b"HTTP/1.1") or not head.isascii():
        return None
    headers = CIMultiDict[str]()
    for line in lines:
        name, colon, value = line.decode().partition(":")
        if not colon or name.lower() not in known or name in headers or "\n" in value or "\r" in value:
            return None
        headers[name] = value.strip(" \t")
    said = headers.get("Content-Length", "")
    if not said.isdigit() or len(said) > _MOST_DIGITS or int(said) > MOST_BYTES:
        return None
    start = len(head) + len(_END)
    return _Head(path.decode(), headers, start, start + int(said))


def _written(reply: Reply, *, last: bool) -> bytes:
    """The head of an answer."""
    phrase = HTTPStatus(reply.status).phrase
    end = "Connection: close\r\n\r\n" if last else "\r\n"
    return (
        f"HTTP/1.1 {reply.status} {phrase}\r\nContent-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(reply.body)}\r\nDate: {_date(int(time()))}\r\n{end}"
    ).encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def _broken(path: str) -> Reply:
    """The answer where there should have been another."""
    _log.exception("a call of %s has failed", path)
    return Reply(
        b"500 Internal Server Error\n", HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8"
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
