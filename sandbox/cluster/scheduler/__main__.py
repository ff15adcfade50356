"""`python -m aliquot.sandbox.cluster.scheduler --kubeconfig K --config C`: schedule until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from pathlib import Path

from aliquot.sandbox.cluster.client import Client, Credentials
from aliquot.sandbox.cluster.scheduler.config import SchedulerConfig
from aliquot.sandbox.cluster.scheduler.queue import Queue
from aliquot.sandbox.cluster.scheduler.scheduler import Scheduler


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="aliquot.sandbox.cluster.scheduler", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True, help="a KubeSchedulerConfiguration")
    parser.add_argument("--backoff", type=float, default=1.0, metavar="SECONDS", help="after a first failure")
    parser.add_argument("--longest-backoff", type=float, default=10.0, metavar="SECONDS")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> None:
    client = Client(Credentials.of_kubeconfig(arguments.kubeconfig))
    queue = Queue(arguments.backoff, arguments.longest_backoff)
    scheduler = Scheduler(client, SchedulerConfig.read(arguments.config), queue)
    task = asyncio.create_task(scheduler.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await client.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(_run(_arguments()))
