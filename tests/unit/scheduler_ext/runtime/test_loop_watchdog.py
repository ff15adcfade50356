"""A process whose event loop hangs ends, and no other one."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aliquot.scheduler_ext.runtime.loop_watchdog import EXIT_STATUS, LoopWatchdog

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 60.0
HANGS = """
import asyncio, sys
from aliquot.kube.api import Api
from aliquot.scheduler_ext import __main__ as extender
from aliquot.scheduler_ext.options import parse_arguments
from aliquot.scheduler_ext.app import App

class Worker:
    async def run(self):
        await asyncio.sleep(1)
        self.spares_the_same_pod_for_ever()

    def spares_the_same_pod_for_ever(self):
        while True:
            pass

async def main():
    options = parse_arguments(["--kubeconfig", sys.argv[1], "--port", "0"])
    async with Api.from_kubeconfig(options.kubeconfig, user_agent="test") as api:
        await extender.serve(App(api, options).extender(), options, None, Worker())

asyncio.run(main())
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


def test_a_loop_that_hangs_ends_its_process_once(capfd: pytest.CaptureFixture[str]) -> None:
    """And says where it hangs."""
    ended = threading.Event()
    watchdog = LoopWatchdog(look_seconds=0.05, silent_looks=3, end=ended.set)

    async def hangs() -> bool:
        task = asyncio.create_task(watchdog.run())
        await asyncio.sleep(0)
        hung = ended.wait(PATIENCE_S)  # the loop stands still meanwhile, which is what is tried
        task.cancel()
        return hung

    assert asyncio.run(hangs())
    assert "in hangs" in capfd.readouterr().err


def test_a_loop_that_comes_round_goes_on() -> None:
    """However many looks are taken at it, and after it has been watched nobody looks any more."""
    ended = threading.Event()
    watchdog = LoopWatchdog(look_seconds=0.2, silent_looks=150, end=ended.set)

    async def works() -> None:
        task = asyncio.create_task(watchdog.run())
        await asyncio.sleep(1.0)
        task.cancel()

    asyncio.run(works())
    for thread in threading.enumerate():
        if thread.name == "loop-watchdog":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    assert not ended.is_set()


@pytest.mark.slow
def test_an_extender_whose_worker_hangs_ends(tmp_path: Path) -> None:
    """With the status that says so, and the place on standard error."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    command = [sys.executable, "-c", HANGS, str(kubeconfig)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == EXIT_STATUS, done.stderr
    assert "spares_the_same_pod_for_ever" in done.stderr
