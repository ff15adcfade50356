"""Callers that mean no good: slow ones, who hold connections, and ones whose calls make no sense."""

import asyncio
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

CLOSED = 0
"""In place of a status: hung up without an answer."""
PATIENCE_S = 60.0
SLOW_ONES, MALFORMED = 200, 1000
"""How many at once."""


@dataclass
class Hostiles:
    """Attacks one server.

    Attributes:
        port: Of 127.0.0.1.
        tls: None: plain HTTP.
        path: What they call.
        seed: What they send follows from it.
        patience_s: How long the slow ones hold a connection that nobody takes from them.
        held_s: How long each slow connection was held, by its kind.
        statuses: What was answered to what makes no sense.
    """

    port: int
    tls: ssl.SSLContext | None
    path: str
    seed: int
    patience_s: float = PATIENCE_S
    _over: bool = False
    held_s: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in SLOW})
    statuses: Counter[int] = field(default_factory=Counter)
    _end: threading.Event = field(default_factory=threading.Event)

    @property
    def let_go(self) -> set[str]:
        """The kinds whose connections a server closes soon; the others give up once these are gone."""
        return {HEAD, BODY, *([NO_HANDSHAKE] if self.tls else [])}

    @contextmanager
    def at_work(self, slow: int, malformed: int) -> Iterator[None]:
        """So many slow ones hold connections meanwhile, and so many calls make no sense; all have begun and ended."""
        started = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(self._attack(slow, malformed, started))
            except BaseException as error:  # noqa: BLE001 - told to whoever waits
                failures.append(error)
            started.set()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            started.wait()
            yield
        finally:
            thread.join()
            if failures:
                raise failures[0]

    async def _attack(self, slow: int, malformed: int, started: threading.Event) -> None:
        gate = asyncio.Semaphore(20)
        dice = random.Random(self.seed)
        kinds = [list(SLOW)[number % len(SLOW)] for number in range(slow)]
        holders = [asyncio.create_task(self._hold(kind)) for kind in kinds]
        await asyncio.sleep(0.5)
        started.set()
        await asyncio.gather(*(self._send(gate, nonsense(dice, self.path)) for _ in range(malformed)))
        await asyncio.gather(
            *(task for kind, task in zip(kinds, holders, strict=True) if kind in self.let_go)
        )
        self._over = True
        await asyncio.gather(*holders)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)

    async def _hold(self, kind: str) -> None:
        """Hold a connection for as long as the server suffers it."""
        begin, letters = time.monotonic(), iter(SLOW[kind](self.path))
        tls = None if kind == NO_HANDSHAKE else self.tls
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
            if kind == BODY:
                writer.write(bytes(islice(letters, len(_body(self.path)) - 200)))
            async with asyncio.timeout(self.patience_s):
                while not (reader.at_eof() or self._over):
                    writer.write(bytes(islice(letters, 1)))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(100), 1.0)
            writer.close()
        self.held_s[kind].append(time.monotonic() - begin)

    async def _send(self, gate: asyncio.Semaphore, call: bytes) -> None:
        """One call that makes no sense."""
        async with gate:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await self._open()
                writer.write(call)
                async with asyncio.timeout(PATIENCE_S):
                    line = await reader.readline()
                writer.close()
                self.statuses[int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else CLOSED] += 1
                return
            self.statuses[CLOSED] += 1


def _head(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: {'y' * 200}\r\n".encode()


def _body(path: str) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" % path.encode() + b" " * 200


NO_HANDSHAKE, SILENT, HEAD, BODY = "no handshake", "silent", "head", "body"
SLOW: dict[str, Callable[[str], bytes]] = {
    NO_HANDSHAKE: lambda _: b"",
    SILENT: lambda _: b"",
    HEAD: _head,
    BODY: _body,
}
"""What each kind of slow caller sends, a letter a second."""

_PIECES = (
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"-1e999", b"\xff\xfe", b"\x00", b'"Pod"', b'"NodeNames"',
    b'"request"', b'"kind"', b'"AdmissionReview"', b"\\ud800", b"99999999999999999999", b"true",
)  # fmt: skip


def nonsense(dice: random.Random, path: str) -> bytes:
    """A call that no server should make sense of; cut short never, for that is for the slow."""
    kind = dice.randrange(8)
    body = b"".join(dice.choice(_PIECES) for _ in range(dice.randrange(1, 60)))
    if kind == 0:
        body = dice.randbytes(dice.randrange(1, 5000))
    elif kind == 1:
        body = dice.choice((b"[", b'{"a":', b'{"Pod":{"spec":')) * dice.randrange(1, 20_000)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode()
    if kind == 2:
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    if kind == 3:
        return head + b"Content-Length: 999999999999\r\n\r\n" + body
    if kind == 4:
        return head + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + body
    if kind == 5:
        return dice.randbytes(50) + b"\r\n\r\n"
    return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def besieged(hostiles: Hostiles, good: Callable[[], None], seconds: float = 15.0) -> list[float]:
    """Seconds that each of many good calls took while all the hostile ones were there, sorted."""
    with hostiles.at_work(SLOW_ONES, MALFORMED):
        return timed(good, seconds)


def timed(good: Callable[[], None], seconds: float) -> list[float]:
    """Seconds of each of many calls, one after the other for so long, sorted."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        good()
        took.append(time.monotonic() - begin)
        time.sleep(0.01)
    return sorted(took)
