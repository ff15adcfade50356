"""A kubelet that is new hears of the plugin when its socket appears, not at the plugin's next look."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from aliquot.plugin.kubelet import registration
from aliquot.plugin.kubelet.allocation_journal import AllocationJournal
from aliquot.plugin.kubelet.device_plugin import Device, DevicePlugin
from aliquot.plugin.kubelet.registration import Registration
from aliquot.plugin.util.latest_value import LatestValue
from aliquot.server.metrics import Metrics
from tests.integration.plugin.small_kubelet import DEADLINE_S, SmallKubelet
from tests.integration.plugin.world import GPU

NEVER_S = 3600.0


async def open_gate(_resource: str, _ids: Any) -> None:
    """No container starts here."""


def plugin_of(directory: Path) -> DevicePlugin:
    """A plugin of one slice."""
    calls = Metrics(CollectorRegistry(), "agent").timer(
        "call", "Calls", ("ok", "refused"), ("call", "resource")
    )
    devices = LatestValue((Device("card::0"),))
    return DevicePlugin(
        GPU, devices, AllocationJournal(directory / "journal"), open_gate, lambda *_: (), calls
    )


async def told(kubelet: SmallKubelet, registrations: int) -> None:
    """Return once the plugin has registered so often, and the kubelet has its slice."""
    async with asyncio.timeout(DEADLINE_S):
        while kubelet.registrations < registrations:  # noqa: ASYNC110 - another thread counts them
            await asyncio.sleep(0.01)
    endpoint = await asyncio.to_thread(kubelet.wait_for, GPU)
    assert endpoint.devices == {"card::0": "Healthy"}


async def three_restarts(kubelet: SmallKubelet, registration: Registration) -> None:
    """Return once a kubelet that restarts three times has been told each time."""
    await asyncio.to_thread(kubelet.start)
    serving = asyncio.create_task(registration.run())
    for restart in range(1, 4):
        await told(kubelet, restart)
        await asyncio.to_thread(kubelet.stop)
        await asyncio.to_thread(kubelet.start)
    await told(kubelet, 4)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await asyncio.to_thread(kubelet.stop)


class Overtaken(Registration):
    """One that finds the kubelet's socket changed, each time, between its look and its call."""

    async def _register(self) -> None:
        self._kubelet.chmod(0o700)
        await super()._register()


def test_a_kubelet_whose_socket_came_before_the_call_is_told_once(tmp_path: Path):
    """Else the plugin's socket is away for a moment, and a pod that is admitted in it fails for good."""
    kubelet = SmallKubelet(tmp_path)
    asyncio.run(three_restarts(kubelet, Overtaken(kubelet.plugins, plugin_of(tmp_path))))
    assert kubelet.registrations == 4


def test_a_kubelet_that_restarts_is_told_without_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Looking at fixed times would leave it without slices while it admits its pods; here no look ever comes."""
    monkeypatch.setattr(registration, "LOOK_EVERY_S", NEVER_S)
    monkeypatch.setattr(registration, "RETRY_MOST_S", NEVER_S)
    kubelet = SmallKubelet(tmp_path)
    asyncio.run(three_restarts(kubelet, Registration(kubelet.plugins, plugin_of(tmp_path))))
