"""Starts the node agent: `python -m plugin --node-name NODE [FLAGS]`."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence

from aliquot import log as logs
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from plugin.agent import Agent, AlreadyRunningError, only_agent
from plugin.cards import CardsError, PyNvml
from plugin.settings import Settings, parse_settings

log = logging.getLogger("plugin")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the agent until SIGTERM or SIGINT; returns 1 where it cannot start, and logs the reason."""
    settings = parse_settings(arguments)
    logs.configure(settings.log_level, settings.log_format)
    try:
        with only_agent(settings.state_dir):
            asyncio.run(serve(settings))
    except (AlreadyRunningError, CardsError, AccessError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400 - the reason is the message, not the place
        return 1
    return 0


async def serve(settings: Settings) -> None:
    """Runs the agent as a task that signals cancel."""
    nvml = PyNvml()
    async with Api.from_kubeconfig(settings.kubeconfig, user_agent="aliquot-plugin") as api:
        task = asyncio.ensure_future(Agent(settings, nvml, api).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
    nvml.close()


if __name__ == "__main__":
    sys.exit(main())
