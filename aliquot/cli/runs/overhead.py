"""Corrects what a run is charged by what the driver says its processes have, while the run lasts.

The node agent does the same for its tenants, by the same formula (`aliquot.libshim.overhead`).
"""

import threading
from collections.abc import Callable
from contextlib import suppress

import pynvml

from aliquot.cli.options import Refusal
from aliquot.cli.runs.registry import Holding
from aliquot.libshim.control_page import read_control
from aliquot.libshim.overhead import Identity, Overhead, context_cost
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import identity_of

LOOK_EVERY_S = 0.5


def follow(holding: Holding, learned: Callable[[int], None], looked: Callable[[], None]) -> None:
    """Corrects a run's page until this process ends, in a thread: a driver that hangs must not hold up signals.

    Args:
        holding: The run.
        learned: Is told what a context costs on the run's card, each time that is seen.
        looked: Is called after each correction.
    """
    threading.Thread(target=_look_on, args=(holding, learned, looked), name="overhead", daemon=True).start()


def _look_on(holding: Holding, learned: Callable[[int], None], looked: Callable[[], None]) -> None:
    overhead, pause = Overhead(holding.control), threading.Event()
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(holding.run.slice.card)
    except pynvml.NVMLError:
        return  # the estimates stand
    while not pause.wait(LOOK_EVERY_S):
        with suppress(pynvml.NVMLError, PageError, OSError, Refusal):  # the next look may be luckier
            _look(holding, overhead, handle, learned)
            looked()


def _look(holding: Holding, overhead: Overhead, handle: object, learned: Callable[[int], None]) -> None:
    before = read_usage(holding.usage)
    held = {holding.run.slice.card: _held(handle)}
    (certain,) = overhead.look(before, held, read_usage(holding.usage))
    charged = read_control(holding.control).cards[0].context_bytes
    cost = context_cost(certain, charged) if certain else None
    if cost is not None:
        learned(cost)


def _held(handle: object) -> dict[Identity, int]:
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    named = ((identity_of(one.pid), one.usedGpuMemory) for one in found)
    return {identity: int(size) for identity, size in named if identity and size is not None}
