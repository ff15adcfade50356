"""Starts the node agent: `python -m aliquot.plugin --node-name NODE [FLAGS]`."""

import asyncio
import contextlib
import logging
import resource
import signal
import sys
from collections.abc import Sequence

from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from aliquot.node.malloc_tuning import share_heaps
from aliquot.plugin.agent import Agent, AlreadyRunningError, only_agent
from aliquot.plugin.devices.driver_files import nvml_files
from aliquot.plugin.devices.driver_root import load_nvml
from aliquot.plugin.devices.nvml_cards import CardsError, PyNvml, SessionOverError
from aliquot.plugin.settings import Settings, parse_settings
from aliquot.server import log as logs

log = logging.getLogger("aliquot.plugin")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the agent until SIGTERM or SIGINT; returns 1 where it cannot start or go on, and logs the reason."""
    settings = parse_settings(arguments)
    share_heaps()
    raise_file_limit()
    logs.configure(settings.log_level, settings.log_format)
    try:
        with only_agent(settings.state_dir):
            asyncio.run(serve(settings))
    except (AlreadyRunningError, CardsError, AccessError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400 - the reason is the message, not the place
        return 1
    except BaseExceptionGroup as group:
        over = group.subgroup(SessionOverError)
        if over is None:
            raise
        log.error("the driver was replaced, the next agent will have the new one: %s", first_of(over))  # noqa: TRY400
        return 1
    return 0


def raise_file_limit() -> None:
    """To the hard limit: the pages of each container with a slice stay open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def first_of(group: BaseExceptionGroup[SessionOverError]) -> BaseException:
    """The first error of a group of groups."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


async def serve(settings: Settings) -> None:
    """Runs the agent as a task that signals cancel."""
    load_nvml(nvml_files(settings.driver))
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
