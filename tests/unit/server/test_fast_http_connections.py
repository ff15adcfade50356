"""Calls over real connections, with aiohttp beside the desk: all are answered, whatever breaks off."""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from aliquot.sandbox.cluster.processes import free_port
from aliquot.server import service
from aliquot.server.certs import write_pair
from aliquot.server.fast_http import (
    MOST_BYTES,
    Call,
    FastHttp,
    Reply,
    by_aiohttp,
)
from aliquot.server.tls import server_context
from tests.unit.calls import post


@contextmanager
def connected(port: int, ca: Path | None) -> Iterator[socket.socket]:
    """A client of one's own."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        if ca is None:
            yield plain
        else:
            context = ssl.create_default_context(cafile=ca)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secret:
                yield secret


class Server:
    """Says what it was asked, and by which way; `/bind` when it is let."""

    def __init__(self, scheme: str, root: Path) -> None:
        pair = write_pair(root, ["127.0.0.1"]) if scheme == "https" else None
        self.tls = server_context(pair.cert, pair.key) if pair else None
        self.ca = pair.ca if pair else None
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.let = asyncio.Event()
        self.asked = asyncio.Event()
        answers = {"/filter": self._at_once, "/bind": self._when_let}
        self.desk = FastHttp(answers)
        self.app = web.Application(client_max_size=MOST_BYTES)
        for path, answer in answers.items():
            self.app.router.add_post(path, by_aiohttp(answer))
        self.app.router.add_get("/healthz", self._healthz)

    def _at_once(self, call: Call) -> Reply:
        way = "desk" if type(call.headers).__name__ == "CIMultiDict" else "aiohttp"
        return Reply(json.dumps({"way": way, "body": len(call.body)}).encode())

    async def _when_let(self, call: Call) -> Reply:
        self.asked.set()
        await self.let.wait()
        return self._at_once(call)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"way": "aiohttp", "body": 0})

    def serves(self, patience: float = 0.2) -> Any:
        """While it does."""
        return service.serving(self.app, "127.0.0.1", self.port, self.tls, patience=patience, desk=self.desk)

    def session(self) -> aiohttp.ClientSession:
        """A client with one connection."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else True
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=1, ssl=context))


def serving(scheme: str, root: Path, scene: Callable[[Server], Awaitable[None]]) -> None:
    """Run a scene while a server answers."""

    async def run() -> None:
        server = Server(scheme, root)
        async with server.serves():
            await scene(server)

    asyncio.run(run())


BOTH = pytest.mark.parametrize("scheme", ["http", "https"])


@BOTH
def test_calls_of_all_sizes_are_answered_on_one_connection(scheme: str, tmp_path: Path):
    """At the desk until one comes that is not plain, by aiohttp from then on."""

    async def scene(server: Server) -> None:
        async with server.session() as session:

            async def ask(size: int, **more: Any) -> str:
                async with session.post("/filter", data=b"x" * size, **more) as answer:
                    found = await answer.json()
                assert found["body"] == size
                return str(found["way"])

            sizes = (1, 231_000, 700, 3_000_000, 231_000)
            assert [await ask(size) for size in sizes] == ["desk"] * 5
            async with session.get("/healthz") as answer:
                assert (await answer.json())["way"] == "aiohttp"
            assert [await ask(size) for size in sizes] == ["aiohttp"] * 5
            assert await ask(90_000, chunked=True) == "aiohttp"
            assert await ask(90_000, expect100=True) == "aiohttp"

    serving(scheme, tmp_path, scene)


@BOTH
def test_who_does_not_answer_that_it_is_hung_up_on_keeps_nobody_from_ending(scheme: str, tmp_path: Path):
    """It has sent half a call, was hung up on, and reads nothing; then the service ends."""

    async def run() -> None:
        server = Server(scheme, tmp_path)
        server.desk.coming_seconds = 0.05
        with ExitStack() as open_longer:
            async with server.serves():
                wire = await asyncio.to_thread(open_longer.enter_context, connected(server.port, server.ca))
                wire.sendall(post(5)[:-2])
                while not (lines := tuple(server.desk.lines)):  # noqa: ASYNC110 - it comes at once
                    await asyncio.sleep(0.01)
                while lines[0]._transport and not lines[0]._transport.is_closing():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(run())


@BOTH
def test_calls_sent_without_waiting_are_answered_in_turn(scheme: str, tmp_path: Path):
    """Three at once, the last in two pieces."""

    def talk(server: Server) -> bytes:
        calls = b"".join(map(post, (3, 30_000, 5)))
        with connected(server.port, server.ca) as wire:
            wire.sendall(calls[:-2])
            wire.sendall(calls[-2:])
            got = b""
            while got.count(b'"body"') < 3:
                piece = wire.recv(1 << 16)
                assert piece, got
                got += piece
        return got

    async def scene(server: Server) -> None:
        got = await asyncio.to_thread(talk, server)
        assert got.index(b'"body": 3}') < got.index(b'"body": 30000}') < got.index(b'"body": 5}')

    serving(scheme, tmp_path, scene)


@BOTH
def test_a_call_that_breaks_off_harms_nobody(scheme: str, tmp_path: Path):
    """The next connection is served."""

    def break_off(server: Server) -> None:
        with connected(server.port, server.ca) as wire:
            wire.sendall(post(50_000)[:20_000])

    async def scene(server: Server) -> None:
        await asyncio.to_thread(break_off, server)
        async with server.session() as session, session.post("/filter", data=b"x" * 50_000) as answer:
            assert (await answer.json())["body"] == 50_000

    serving(scheme, tmp_path, scene)


@BOTH
def test_a_call_under_way_at_the_end_is_answered(scheme: str, tmp_path: Path):
    """One that is being answered has its time; nobody else is waited for."""

    async def run() -> None:
        server = Server(scheme, tmp_path)
        async with server.session() as session, server.session() as idle:
            async with server.serves(patience=30):
                async with idle.post("/filter", data=b"x") as answer:
                    assert answer.status == 200
                under_way = asyncio.create_task(session.post("/bind", data=b"xyz"))
                await server.asked.wait()
                asyncio.get_running_loop().call_later(0.1, server.let.set)
            async with await under_way as answer:
                assert (await answer.json())["body"] == 3
                assert answer.headers["Connection"] == "close"
        assert not server.desk.lines

    asyncio.run(run())


@BOTH
def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(scheme: str, tmp_path: Path):
    """The connection ends without one."""

    async def run() -> None:
        server = Server(scheme, tmp_path)
        async with server.session() as session:
            async with server.serves(patience=0.1):
                under_way = asyncio.create_task(session.post("/bind", data=b"xyz"))
                await server.asked.wait()
            with pytest.raises(aiohttp.ClientError):
                await under_way

    asyncio.run(run())
