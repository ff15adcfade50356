"""Where workloads run: a simulated machine of their own, whose cards record who ran when, or this machine's cards."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import numpy as np
import pynvml

from aliquot.sandbox.gpus import SimCard, SimMachine
from aliquot.sandbox.record import SWITCHED

from .timeline import Timeline
from .workloads import Workload

BUS_GIB_S = 50
SCALE = 64
"""So many times less is copied on a simulated machine, over a bus so many times as slow, where copies are large."""


class NoCardError(Exception):
    """This machine lacks the cards; the message says which."""


class Machine(Protocol):
    """Some cards."""

    uuids: tuple[str, ...]
    copy_mib: int
    """What the workload's large copies move here."""

    def environment(self) -> dict[str, str]:
        """What a process needs to find them."""
        ...

    def used_ns(self, card: int, pids: Collection[int], begin_ns: int, end_ns: int) -> int | None:
        """How long processes had a card, or its bus; None: nobody knows."""
        ...


class Simulated:
    """A machine for one run."""

    def __init__(self, root: Path, workload: Workload) -> None:
        scale = SCALE if workload.copy_mib else 1
        self.copy_mib = workload.copy_mib // scale
        card = SimCard(memory_mib=workload.card_mib, copy_gib_s=BUS_GIB_S / scale)
        self._machine = SimMachine(root / "machine", [card] * workload.cards)
        self._machine.create()
        self.uuids = tuple(card.uuid for card in self._machine.cards)

    @property
    def driver(self) -> Path:
        """What programs are linked to."""
        return self._machine.lib_dir / "libcuda.so.1"

    def environment(self) -> dict[str, str]:
        """What a process needs to find the machine."""
        return self._machine.env()

    def used_ns(self, card: int, pids: Collection[int], begin_ns: int, end_ns: int) -> int:
        """By the card's own record."""
        entries = self._machine.record(self.uuids[card], begin_ns, end_ns).entries
        own = np.isin(entries["pid"], list(pids)) & (entries["kind"] != SWITCHED)
        return round(Timeline.of(entries[own]).ran(begin_ns, end_ns))


class Real:
    """This machine.

    Raises:
        NoCardError: it has no NVIDIA driver, or too few cards for the workload.
    """

    driver = "-l:libcuda.so.1"

    def __init__(self, _root: Path, workload: Workload) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NoCardError(f"no NVIDIA driver on this machine ({error})") from error
        handles = [pynvml.nvmlDeviceGetHandleByIndex(card) for card in range(pynvml.nvmlDeviceGetCount())]
        self.uuids = tuple(pynvml.nvmlDeviceGetUUID(handle) for handle in handles)
        if len(self.uuids) < workload.cards:
            raise NoCardError(f"{workload.name} needs {workload.cards} cards")
        self.copy_mib = workload.copy_mib

    def environment(self) -> dict[str, str]:
        """Kernels are loaded before the time is taken."""
        return {"CUDA_MODULE_LOADING": "EAGER"}

    def used_ns(self, _card: int, _pids: Collection[int], _begin_ns: int, _end_ns: int) -> None:
        """No card tells."""
