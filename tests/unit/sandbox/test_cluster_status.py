"""The kubelet's writer of pod statuses against an API server of a few lines."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from aliquot.sandbox.cluster.client import Client, Credentials
from aliquot.sandbox.cluster.kubelet.pod_status import StatusWriter
from aliquot.sandbox.cluster.processes import free_port
from aliquot.server.certs import write_pair

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 10


def pod(name: str) -> dict[str, Any]:
    """A pod as far as its status is concerned."""
    return {"metadata": {"name": name, "namespace": "default", "uid": name}}


class Statuses:
    """An API server that keeps the phases it was told, per pod."""

    def __init__(self) -> None:
        self.phases: dict[str, list[str]] = {}
        self._told = asyncio.Condition()

    async def patch(self, request: web.Request) -> web.Response:
        """PATCH …/pods/{name}/status."""
        body = await request.json()
        async with self._told:
            self.phases.setdefault(request.match_info["name"], []).append(body["status"]["phase"])
            self._told.notify_all()
        return web.json_response({})

    async def knows(self, name: str) -> None:
        """Return once a status of that pod has come."""
        async with asyncio.timeout(WAIT_S), self._told:
            await self._told.wait_for(lambda: name in self.phases)


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    """A server's address and its CA; the key pair is in the directory `tls`."""
    pair = write_pair(tmp_path / "tls", ["127.0.0.1"])
    return Credentials(f"https://127.0.0.1:{free_port()}", pair.ca.read_text(), "token")


def test_the_last_status_is_the_one_that_stays(credentials: Credentials, tmp_path: Path) -> None:
    """Also where it equals what was written before a change that never got out."""

    async def story() -> Statuses:
        server = Statuses()
        application = web.Application()
        application.add_routes([web.patch("/api/v1/namespaces/default/pods/{name}/status", server.patch)])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(
            runner, "127.0.0.1", int(credentials.server.rpartition(":")[2]), ssl_context=context
        ).start()
        client = Client(credentials)
        writer = StatusWriter(client)
        writing = asyncio.create_task(writer.run())
        writer.set(pod("a"), {"phase": "Running"})
        writer.set(pod("first"), {"phase": "Running"})
        await server.knows("first")
        writer.set(pod("a"), {"phase": "Pending"})
        writer.set(pod("a"), {"phase": "Running"})
        writer.set(pod("last"), {"phase": "Running"})
        await server.knows("last")
        writing.cancel()
        await client.close()
        await runner.cleanup()
        return server

    assert asyncio.run(story()).phases["a"][-1] == "Running"
