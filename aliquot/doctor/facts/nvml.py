"""The driver and its cards, asked of NVML."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pynvml

from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.node import Card, Driver

LIBRARY: Final = "libnvidia-ml.so.1"
LIBRARY_DIRECTORIES: Final = (
    ".",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
)
"""Below a driver's root."""


def libraries(root: Path, name: str) -> Iterator[Path]:
    """Where a library of the driver lies below its root."""
    return (root / place / name for place in LIBRARY_DIRECTORIES if (root / place / name).exists())


def read_driver(root: Path) -> Fact[Driver]:
    """The driver, by the loader's NVML or by the one below the driver's root."""
    _load(root)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Fact.unknown(f"NVML does not start: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
        cards = tuple(_card_or_error(index) for index in range(count))
        version, cuda = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion()
    except pynvml.NVMLError as error:
        return Fact.unknown(f"NVML fails: {error}")
    finally:
        pynvml.nvmlShutdown()
    return Fact.of(Driver(version, cuda, cards))


def _load(root: Path) -> None:
    """Has NVML in this process where the loader does not know of it; whoever asks for it by name is given this one."""
    for candidate in (LIBRARY, *map(str, libraries(root, LIBRARY))):
        try:
            ctypes.CDLL(candidate)
        except OSError:
            continue
        return


def _card_or_error(index: int) -> Card:
    try:
        return _card(index, pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError as error:
        return Card(index, error=str(error))


def _card(index: int, handle: Any) -> Card:
    using = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return Card(
        index,
        pynvml.nvmlDeviceGetUUID(handle),
        pynvml.nvmlDeviceGetName(handle),
        pynvml.nvmlDeviceGetComputeMode(handle),
        _mig_enabled(handle),
        {one.pid: one.usedGpuMemory or 0 for one in using},
    )


def _mig_enabled(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    except pynvml.NVMLError:  # most cards have no such mode
        return False
