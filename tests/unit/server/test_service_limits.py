"""What a server puts up with of heads, bodies and silence; the whole of it under attack is an integration test."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from aliquot.sandbox.cluster.processes import free_port
from aliquot.server import service
from aliquot.server.body_limits import SMALL_BYTES, BodyLimits
from aliquot.server.fast_http import FastHttp, Reply

LARGEST = 1 << 20


class Server:
    """A server with short patience; `/echo` says how long the body was, `/desk` is answered at a desk."""

    def __init__(self, many: int = LARGEST) -> None:
        self.port = free_port()
        bodies = BodyLimits(LARGEST, coming_seconds=0.3, answer_seconds=1.0, many=many)
        self.app = web.Application(client_max_size=LARGEST + 1, middlewares=[bodies.middleware()])
        self.app.router.add_post("/echo", self._echo)
        self.app.router.add_get("/flood", self._flood)
        self.desk = FastHttp({"/desk": lambda call: Reply(b"%d" % len(call.body))}, coming_seconds=0.3)

    async def _echo(self, request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    async def _flood(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(1 << 16))

    async def say(self, *pieces: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which this has been said."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for piece in pieces:
            writer.write(piece)
        return reader, writer

    async def answer(self, *pieces: bytes) -> tuple[int, object]:
        """Status and JSON body of the answer to a call."""
        reader, writer = await self.say(*pieces)
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.close()
        return int(head.split()[1]), json.loads(body)


def serving(scene: Callable[[Server], Awaitable[None]], many: int = LARGEST) -> None:
    """Play while a server serves."""

    async def run() -> None:
        server = Server(many)
        async with service.listening(
            server.app, "127.0.0.1", server.port, None, patience=0.1, desk=server.desk
        ):
            await scene(server)

    asyncio.run(run())


def post(path: str, length: int) -> bytes:
    """The head of a call."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


SLOW = {
    "a head at the desk": b"POST /desk HTTP/1.1\r\nHo",
    "a body at the desk": post("/desk", 1000) + b"123",
    "a head for aiohttp": b"GET /echo HTTP/1.1\r\nHo",
}


@pytest.mark.parametrize("said", SLOW)
def test_who_does_not_come_to_an_end_is_hung_up_on(said: str):
    """Also if a byte comes now and then."""

    async def scene(server: Server) -> None:
        reader, writer = await server.say(SLOW[said])
        async with asyncio.timeout(20):
            while not reader.at_eof():
                writer.write(b"x")
                with contextlib.suppress(TimeoutError):
                    assert await asyncio.wait_for(reader.read(1), 0.05) == b""

    serving(scene)


def test_a_slow_body_for_aiohttp_is_told_so():
    """408, and the connection ends."""

    async def scene(server: Server) -> None:
        status, body = await server.answer(post("/echo", 10), b"123")
        assert (status, body) == (408, {"error": "the body has not come within 0.3 s"})

    serving(scene)


def test_a_body_has_its_limit():
    """The last byte that is good, and the first that is not, with its length said and without."""

    async def scene(server: Server) -> None:
        chunk = b"%x\r\n%b\r\n0\r\n\r\n"
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        for size, status in ((LARGEST, 200), (LARGEST + 1, 413)):
            assert (await server.answer(post("/echo", size), bytes(size)))[0] == status
            assert (await server.answer(head, chunk % (size, bytes(size))))[0] == status
        assert await server.answer(post("/echo", LARGEST + 1)) == (
            413,
            {"error": f"a body has at most {LARGEST} bytes"},
        )

    serving(scene)


def test_large_bodies_share_what_there_is_and_small_ones_do_not_wait():
    """503 while others are on their way, and room again when they have come or gone."""

    async def scene(server: Server) -> None:
        large = SMALL_BYTES + 1

        async def until(status: int) -> object:
            end = time.monotonic() + 20
            while (answer := await server.answer(post("/echo", large), bytes(large)))[0] != status:
                assert time.monotonic() < end, answer
            return answer[1]

        _, first = await server.say(post("/echo", large))
        assert await until(503) == {"error": "too many large calls at the same time; try again"}
        assert (await server.answer(post("/echo", SMALL_BYTES), bytes(SMALL_BYTES)))[0] == 200
        first.write(bytes(large))
        await until(200)

    serving(scene, many=SMALL_BYTES + 100)


def test_who_does_not_read_the_answer_is_hung_up_on():
    """Within the time for an answer."""

    async def scene(server: Server) -> None:
        reader, writer = await server.say(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(1.5)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(20):
                await reader.readexactly(1 << 30)
        writer.close()

    serving(scene)


def test_a_second_head_that_does_not_come_to_an_end_is_hung_up_on(monkeypatch: pytest.MonkeyPatch):
    """For aiohttp knows no time for a head: its time for idleness is what ends it."""
    monkeypatch.setattr(service, "KEEP_ALIVE_SECONDS", 0.5)

    async def scene(server: Server) -> None:
        reader, writer = await server.say(post("/echo", 0).replace(b"POST", b"PUT"))
        async with asyncio.timeout(20):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET /x HTTP/1.1\r\nHo")
            while not reader.at_eof():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(100), 0.05)
                writer.write(b"o")

    serving(scene)
