"""The fence before writes: what it holds back, and what it remembers."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from aliquot.kube.access import Access
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.fence import Fence
from aliquot.kube.resources import PODS
from tests.unit.kube.conftest import status

Kube = Any  # the server of conftest.py


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


async def bind(api: Api) -> None:
    """Write something."""
    await api.bind_pod("ns", "p", "u", "n1", {"here": "it-is"})


def test_a_fence_that_closes_while_a_connection_is_made_holds_the_write_back():
    """It is asked as the body goes out, not when the request is begun: no body arrives."""
    accepted, received = asyncio.Event(), bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        received.extend(await reader.read())
        writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        fence = Fence(lambda: "too late" if accepted.is_set() else "", 5.0)
        async with server, Api(Access(f"http://127.0.0.1:{port}"), fence=fence) as api:
            with pytest.raises(ApiError, match="too late") as error:
                await bind(api)
        assert error.value.unreachable

    asyncio.run(scene())
    assert b"it-is" not in received


def test_reading_passes_a_closed_fence(kube: Kube):
    """A replica that does not lead follows the cluster."""

    async def scene() -> None:
        async with kube, Api(Access(kube.url), fence=Fence(lambda: "closed", 5.0)) as api:
            await api.list(PODS)
            with pytest.raises(ApiError, match="closed"):
                await bind(api)

    asyncio.run(scene())
    assert kube.lists == 1
    assert kube.requests == []


def test_a_fence_knows_of_writes_without_an_answer(kube: Kube):
    """A refusal is an answer; a server that has gone, or does not know itself, has given none."""
    clock = Clock()
    fence = Fence(lambda: "", 5.0, clock)

    async def scene() -> None:
        async with kube, Api(Access(kube.url), fence=fence) as api:
            await bind(api)
            assert fence.quiet(7.0)
            kube.answer = lambda _: web.json_response(status(409, "Conflict"), status=409)
            with pytest.raises(ApiError):
                await bind(api)
            assert fence.quiet(7.0)
            kube.answer = lambda _: web.json_response(status(504, "Timeout"), status=504)
            with pytest.raises(ApiError):
                await bind(api)
            assert not fence.quiet(7.0)
            clock.now = 7.1
            assert fence.quiet(7.0)

    asyncio.run(scene())
