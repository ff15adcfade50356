"""Pods that were made while the webhook was away: which of them are told."""

import asyncio
from typing import Any

import msgspec
import pytest

from aliquot.api.names import DEFAULT_NAMES, ResourceNames
from aliquot.kube.objects import Pod
from aliquot.scheduler_ext.controllers.missed_admissions import MissedAdmissions

OTHER = ResourceNames.of("gpu.example.com")


class Events:
    """An API server that takes events."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def request(self, _method: str, _path: str, /, *, body: Any) -> bytes:
        """Keep one."""
        self.written.append(body)
        return b""


@pytest.mark.parametrize(
    ("names", "resource", "told"),
    [
        (DEFAULT_NAMES, "aliquot.dev/gpu-mem", True),
        (DEFAULT_NAMES, "aliquot.dev/mig-1g.10gb", True),
        (DEFAULT_NAMES, "gpu.example.com/gpu-mem", False),
        (OTHER, "gpu.example.com/gpu-mem", True),
        (OTHER, "aliquot.dev/gpu-mem", True),
        (OTHER, "nvidia.com/gpu", False),
    ],
)
def test_pods_that_the_webhook_would_have_seen_are_told(names: ResourceNames, resource: str, told: bool):
    """By the names of this cluster, or by the default ones, which it would have refused."""
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}}, Pod)
    events = Events()
    asyncio.run(MissedAdmissions(events, names).tell(pod))
    assert [event["reason"] for event in events.written] == (["PastWebhook"] if told else [])
