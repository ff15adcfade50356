"""The extender tells the kubelet how the kube-scheduler of its pod is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from aliquot.sandbox.cluster.processes import free_port
from aliquot.scheduler_ext.kube_scheduler.health import PATH, SILENT_SECONDS, KubeSchedulerHealth


class Pod:
    """An extender, the time, and a kube-scheduler that can be well or not."""

    def __init__(self, authorities: Path | None) -> None:
        self.now = 1000.0
        self.authorities = authorities
        self.status = HTTPStatus.OK
        self.asked = 0
        self.was_asked = asyncio.Event()

    async def healthz(self, _: web.Request) -> web.Response:
        """Answer as kube-scheduler does."""
        self.asked += 1
        self.was_asked.set()
        return web.Response(status=self.status)


def within(
    check: Callable[[Pod, TestClient[web.Request, web.Application]], Awaitable[None]],
    authorities: Path | None = None,
) -> None:
    """Run a check against both."""

    async def run() -> None:
        pod, beside, app = Pod(authorities), web.Application(), web.Application()
        beside.router.add_get("/healthz", pod.healthz)
        async with TestServer(beside) as server:
            began = time.monotonic()
            health = KubeSchedulerHealth(
                str(server.make_url("/healthz")),
                lambda: pod.now + time.monotonic() - began,
                pod.authorities,
            )
            app.router.add_get(PATH, health.answer)
            async with TestClient(TestServer(app)) as client:
                await check(pod, client)

    asyncio.run(run())


def test_a_kube_scheduler_is_given_time_before_it_is_called_unwell():
    """Its Lease expires long before; a moment's silence is none."""

    async def check(pod: Pod, client: TestClient[web.Request, web.Application]) -> None:
        assert (await client.get(PATH)).status == HTTPStatus.OK
        pod.status = HTTPStatus.INTERNAL_SERVER_ERROR
        for later, status in (
            (SILENT_SECONDS / 2, HTTPStatus.OK),
            (SILENT_SECONDS, HTTPStatus.SERVICE_UNAVAILABLE),
        ):
            pod.now += later
            assert (await client.get(PATH)).status == status
        pod.now, pod.status = pod.now + 1, HTTPStatus.OK
        assert (await client.get(PATH)).status == HTTPStatus.OK

    within(check)


def test_a_kube_scheduler_that_has_read_other_authorities_is_started_anew(tmp_path: Path):
    """Before a certificate is used that it does not trust; a file that cannot be read ends nothing."""
    file = tmp_path / "ca.crt"
    file.write_bytes(b"one")

    async def check(_: Pod, client: TestClient[web.Request, web.Application]) -> None:
        async def is_well(query: str = "") -> bool:
            return (await client.get(PATH + query)).status == HTTPStatus.OK

        assert await is_well(), "its start was not seen"
        assert await is_well("?wait=5")
        file.write_bytes(b"one, two")
        assert not await is_well()
        assert not await is_well()
        assert "started anew" in await (await client.get(PATH)).text()
        assert await is_well("?wait=5"), "it has started"
        assert await is_well()
        file.unlink()
        assert await is_well()
        file.write_bytes(b"two")
        assert not await is_well()

    within(check, file)


def test_a_start_is_waited_for():
    """The answer comes when kube-scheduler is well, so that no probe of a healthy start fails."""

    async def check(pod: Pod, client: TestClient[web.Request, web.Application]) -> None:
        pod.status = HTTPStatus.INTERNAL_SERVER_ERROR
        waits = asyncio.create_task(client.get(f"{PATH}?wait=50"))
        await pod.was_asked.wait()
        assert not waits.done()
        pod.status = HTTPStatus.OK
        assert (await waits).status == HTTPStatus.OK

    within(check)


def test_many_questions_are_one_to_kube_scheduler():
    """Anybody may ask for health."""

    async def check(pod: Pod, client: TestClient[web.Request, web.Application]) -> None:
        await asyncio.gather(*(client.get(PATH) for _ in range(20)))
        assert pod.asked < 20
        assert (await client.get(f"{PATH}?wait=long")).status == HTTPStatus.BAD_REQUEST

    within(check)


def test_one_that_is_not_there_is_unwell_when_its_time_is_over():
    """As one that has never been well since the extender's start."""

    async def run() -> None:
        now = [0.0]
        health = KubeSchedulerHealth(f"http://127.0.0.1:{free_port()}/healthz", lambda: now[0])
        app = web.Application()
        app.router.add_get(PATH, health.answer)
        async with TestClient(TestServer(app)) as client:
            assert (await client.get(PATH)).status == HTTPStatus.OK
            now[0] += SILENT_SECONDS
            assert (await client.get(PATH)).status == HTTPStatus.SERVICE_UNAVAILABLE

    asyncio.run(run())
