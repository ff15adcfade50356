"""At the machine's end nothing of a container is left, so that its directory can be removed."""

import asyncio
import shutil
from pathlib import Path

from aliquot.sandbox.cluster.kubelet.runtime import Launch, Runtime, kill_all

CONTAINERS = 8


def test_no_container_writes_any_more_when_all_have_been_killed(tmp_path: Path) -> None:
    """Its shim says how it ended, and would make a directory anew that is being removed."""
    containers = [Runtime(tmp_path / "pods", f"uid-{number}", "main") for number in range(CONTAINERS)]
    launch = Launch(("/bin/sleep", "60"), {}, "/")

    async def start() -> None:
        for container in containers:
            await container.start(launch)

    asyncio.run(start())
    assert all(container.running for container in containers)
    kill_all(tmp_path / "pods")
    assert not any(container.running for container in containers)
    shutil.rmtree(tmp_path / "pods")
