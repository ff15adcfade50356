"""Calls that are answered without aiohttp, and those that are not: the same answers, and bytes stay as they are."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.server.fast_http import (
    FIRST_BYTES,
    IDLE_SECONDS,
    KEPT_BYTES,
    MOST_BYTES,
    Call,
    FastHttp,
    Line,
    Reply,
)
from tests.tools.examples import examples
from tests.unit.calls import post


class Coming:
    """Counts calls on their way."""

    def __init__(self) -> None:
        self.now = self.ever = 0

    def __enter__(self) -> None:
        self.now += 1
        self.ever += 1

    def __exit__(self, *_: object) -> None:
        self.now -= 1


class Transport(asyncio.Transport):
    """A connection that remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.protocol: asyncio.BaseProtocol | None = None
        self.reads, self.closed = True, False

    def write(self, data: Any) -> None:
        """An answer."""
        self.written += bytes(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Somebody else takes it."""
        self.protocol = protocol

    def pause_reading(self) -> None:
        """No more for now."""
        self.reads = False

    def resume_reading(self) -> None:
        """Again."""
        self.reads = True

    def is_closing(self) -> bool:
        """Whether it was hung up."""
        return self.closed

    def close(self) -> None:
        """Hang up."""
        self.closed = True


class Aiohttp(asyncio.Protocol):
    """aiohttp's end: keeps what it gets."""

    def __init__(self) -> None:
        self.came = b""

    def data_received(self, data: bytes) -> None:
        """A piece."""
        self.came += data


class Wire:
    """A connection whose bytes come in pieces of one's choice; the desk repeats what it is told."""

    def __init__(self, **answers: Callable[[Call], Reply | Awaitable[Reply]]) -> None:
        self.coming, self.calls = Coming(), list[Call]()
        self.desk = FastHttp(
            {"/filter": self._echo, **{f"/{k}": v for k, v in answers.items()}}, coming=self.coming
        )
        self.transport, self.other = Transport(), Aiohttp()
        self.line = Line(self.desk, lambda: self.other)
        self.line.connection_made(self.transport)

    def _echo(self, call: Call) -> Reply:
        self.calls.append(call)
        return Reply(call.body)

    def brings(self, data: bytes) -> None:
        """As a transport does: no more at once than the buffer takes."""
        while data:
            if self.transport.protocol is self.other:
                self.other.data_received(data)
                return
            view = self.line.get_buffer(-1)
            assert len(view)
            count = min(len(view), len(data))
            view[:count] = data[:count]
            view.release()
            self.line.buffer_updated(count)
            data = data[count:]

    @property
    def bodies(self) -> list[bytes]:
        """What was answered."""
        return [call.body for call in self.calls]


class Prophet:
    """Remembers what it was told of a call before all had come; enough is what has this in it."""

    def __init__(self, enough: bytes) -> None:
        self.told, self._enough = list[bytes](), enough

    def __call__(self, beginning: bytes) -> bool:
        """A body begins so."""
        self.told.append(beginning)
        if b"odd" in beginning:
            raise ValueError("odd")
        return self._enough in beginning


def in_loop(scene: Callable[[], None]) -> None:
    """Run a scene where connections can be."""

    async def run() -> None:
        scene()

    asyncio.run(run())


GET = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
CALLS = st.lists(st.sampled_from((0, 1, 700, FIRST_BYTES, 40_000)).map(post), max_size=4)
OTHERS = st.sampled_from((b"", GET, b"\r\n\r\n", b"P\r\n\r\n", b"\x00" * 20_000, post(5, length="5,5")))


@given(CALLS, OTHERS, CALLS, st.integers(0, 10_000), st.sampled_from((500, 5000, 1 << 20)))
@examples(200)
def test_no_byte_is_lost_or_read_twice(
    before: list[bytes], other: bytes, after: list[bytes], seed: int, most: int
):
    """Calls are answered one by one until something else comes, which goes to aiohttp with all that follows."""

    def scene() -> None:
        dice, wire, rest = random.Random(seed), Wire(), b"".join([*before, other, *after])
        while rest:
            size = dice.randint(1, most)
            wire.brings(rest[:size])
            rest = rest[size:]
        answered = [*before, *([] if other else after)]
        assert wire.bodies == [call.partition(b"\r\n\r\n")[2] for call in answered]
        assert wire.transport.written.count(b"HTTP/1.1 200 OK\r\n") == len(answered)
        assert wire.other.came == (other + b"".join(after) if other else b"")
        assert wire.coming.now == 0

    in_loop(scene)


@pytest.mark.parametrize("piece", [7, 1000, 16_384, 100_000])
@pytest.mark.parametrize("size", [0, 10, 16_200, 231_000])
def test_a_call_is_answered_whole(size: int, piece: int):
    """One after the other on one connection, however they are cut."""

    def scene() -> None:
        wire, calls = Wire(), [post(size), post(700), post(size)]
        for call in calls:
            step = max(piece, size // 300)
            for start in range(0, len(call), step):
                wire.brings(call[start : start + step])
        assert wire.bodies == [call.partition(b"\r\n\r\n")[2] for call in calls]

    in_loop(scene)


def test_how_a_call_begins_is_told_until_it_is_enough():
    """Each time of more than twice as much; of the next call anew, and of one that is there at once never."""

    def scene() -> None:
        wire, prophet = Wire(), Prophet(b"x" * 60)
        wire.desk.foreseen = {"/filter": prophet}
        call = post(400)
        start = call.index(b"\r\n\r\n") + 4
        call = call[:start] + b"x" * 400
        for _ in range(2):
            for byte in call:
                wire.brings(bytes([byte]))
            assert [len(told) for told in prophet.told] == [1, 3, 7, 15, 31, 63]
            prophet.told.clear()
        wire.brings(call)
        wire.brings(call[:start])
        assert prophet.told == []
        assert len(wire.calls) == 3

    in_loop(scene)


def test_a_call_is_answered_that_could_not_be_prepared_for(caplog: pytest.LogCaptureFixture):
    """Nothing depends on it; it is said once in the log, and not tried again."""

    def scene() -> None:
        wire, prophet = Wire(), Prophet(b"never")
        wire.desk.foreseen = {"/filter": prophet}
        call = post(9)
        for byte in call[:-9] + b"an odd on":
            wire.brings(bytes([byte]))
        assert wire.bodies == [b"an odd on"]
        assert prophet.told == [b"a", b"an ", b"an odd "]

    in_loop(scene)
    assert [record.message for record in caplog.records] == ["a call of /filter was not prepared for"]


def test_it_is_known_that_a_call_is_on_its_way():
    """From its first bytes to its last; also when the connection breaks."""

    def scene() -> None:
        wire, call = Wire(), post(50_000)
        wire.brings(call[:10])
        wire.brings(call[10:40_000])
        assert (wire.coming.now, wire.coming.ever) == (1, 1)
        wire.brings(call[40_000:])
        assert (wire.coming.now, wire.coming.ever) == (0, 1)
        wire.brings(call[:100])
        wire.line.connection_lost(None)
        assert (wire.coming.now, wire.coming.ever) == (0, 2)
        assert not wire.desk.lines

    in_loop(scene)


NOT_PLAIN = {
    "no length": b"POST /filter HTTP/1.1\r\nHost: x\r\n\r\n",
    "a GET": GET,
    "another path": post(0, path="/metrics"),
    "a question": post(0, path="/filter?x=1"),
    "an older version": post(0).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "chunks": post(50, "Transfer-Encoding: chunked"),
    "asks first": post(50, "Expect: 100-continue"),
    "to be closed": post(50, "Connection: close"),
    "compressed": post(50, "Content-Encoding: gzip"),
    "two lengths": post(50, "content-length: 51"),
    "a folded header": post(50, "Accept: a", " b"),
    "a line feed": post(50, "Accept: a\nb"),
    "a space in a name": post(50, "Accept : a"),
    "no number": post(50, length="+50"),
    "a large number": post(50, length=str(MOST_BYTES + 1)),
    "a very large number": post(50, length="9" * 30),
    "a long head": b"POST /filter HTTP/1.1\r\n" + b"Accept: y\r\n" * 4000,
}


@pytest.mark.parametrize("call", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_anything_else_is_aiohttps(call: bytes):
    """With what has come, and what comes after it; a call before it has been answered."""

    def scene() -> None:
        wire = Wire()
        wire.brings(post(3))
        wire.brings(call)
        wire.brings(post(5))
        assert wire.other.came == call + post(5)
        assert len(wire.bodies) == 1
        assert not wire.desk.lines

    in_loop(scene)


def test_a_large_buffer_is_not_kept():
    """A connection that has brought one large call does not hold its memory for ever; a promise alone takes none."""

    def scene() -> None:
        wire, large = Wire(), post(KEPT_BYTES + 1)
        wire.brings(large[:200])
        assert len(wire.line._buffer) == FIRST_BYTES
        wire.brings(large[200:])
        assert len(wire.bodies[0]) == KEPT_BYTES + 1
        assert len(wire.line._buffer) == FIRST_BYTES

    in_loop(scene)


def test_the_next_call_waits_for_the_answer_to_this_one():
    """Answers come in the order of the calls, and nothing is read that cannot be answered."""

    async def run() -> None:
        known = asyncio.get_running_loop().create_future()
        wire = Wire(bind=lambda _: known)
        wire.brings(post(3, path="/bind"))
        assert not wire.transport.reads
        wire.brings(post(5))
        assert not wire.transport.written
        known.set_result(Reply(b"bound"))
        await asyncio.gather(*wire.desk.tasks)
        assert wire.transport.written.index(b"bound") < wire.transport.written.index(post(5)[-5:])
        assert wire.transport.reads

    asyncio.run(run())


def test_whoever_does_not_read_answers_is_not_read():
    """Until he does."""

    def scene() -> None:
        wire = Wire()
        wire.line.pause_writing()
        assert not wire.transport.reads
        wire.line.resume_writing()
        assert wire.transport.reads

    in_loop(scene)


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_fails_is_an_error_and_ends_the_connection(later: bool):
    """The client learns that there will be none, and the others have theirs."""

    async def fail_later() -> Reply:
        raise ZeroDivisionError

    def fail(_: Call) -> Awaitable[Reply]:
        if later:
            return fail_later()
        raise ZeroDivisionError

    async def run() -> None:
        wire = Wire(bind=fail)
        wire.brings(post(3, path="/bind"))
        await asyncio.gather(*wire.desk.tasks)
        assert wire.transport.written.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert b"Connection: close\r\n" in wire.transport.written
        assert wire.transport.closed

    asyncio.run(run())


def test_somebody_who_says_nothing_for_long_is_hung_up_on(monkeypatch: pytest.MonkeyPatch):
    """By the loop's clock, which is turned on here."""

    async def run() -> None:
        loop, ahead = asyncio.get_running_loop(), 0.0
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + ahead)
        quiet, busy = Wire(), Wire()
        ahead = IDLE_SECONDS - 10
        busy.brings(post(3))
        ahead = IDLE_SECONDS + 10
        await asyncio.sleep(0.01)
        assert (quiet.transport.closed, busy.transport.closed) == (True, False)

    asyncio.run(run())
