"""A real card, and slices of it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.library import library_path
from aliquot.libshim.usage_page import Usage, create_usage, read_usage

PROGRAMS = Path(__file__).with_name("programs")
PYTHON = os.environ.get("ALIQUOT_GPU_PYTHON", sys.executable)
"""The Python whose PyTorch and CuPy are tested."""


@dataclass(frozen=True)
class Card:
    """The first card of this machine."""

    uuid: str
    name: str
    driver: str
    handle: object

    def used(self) -> int:
        """Bytes in use on the card, by anybody."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)


@pytest.fixture(scope="session")
def card() -> Iterator[Card]:
    """The card; without one nothing here can be said."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.exit(f"NOT RUN: no NVIDIA driver on this machine ({error})", returncode=2)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    yield Card(
        pynvml.nvmlDeviceGetUUID(handle),
        pynvml.nvmlDeviceGetName(handle),
        pynvml.nvmlSystemGetDriverVersion(),
        handle,
    )
    pynvml.nvmlShutdown()


@dataclass(frozen=True)
class Slice:
    """A tenant of the card."""

    directory: Path

    def start(self, program: str, *arguments: object, **extra: str) -> "subprocess.Popen[str]":
        """Starts programs/<program>.py in the slice."""
        pages = {
            "LD_PRELOAD": str(library_path()),
            "ALIQUOT_CONTROL_PAGE": str(self.directory / "control"),
            "ALIQUOT_USAGE_PAGE": str(self.directory / "usage"),
        }
        return subprocess.Popen(
            [PYTHON, PROGRAMS / f"{program}.py", *map(str, arguments)],
            env={**os.environ, **pages, **extra},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def usage(self) -> Usage:
        """What the tenant says of itself."""
        return read_usage(self.directory / "usage")


SliceMaker = Callable[..., Slice]


@pytest.fixture
def slice_of(card: Card, tmp_path: Path) -> SliceMaker:
    """Makes slices: `slice_of(bytes, percent, context_bytes, managed_resident)`."""

    def make(
        memory_bytes: int, core_percent: int = 0, context_bytes: int = 0, *, managed_resident: bool = False
    ) -> Slice:
        directory = tmp_path / f"slice{len(list(tmp_path.iterdir()))}"
        directory.mkdir()
        limit = CardLimit(
            card.uuid,
            memory_bytes,
            core_percent,
            context_bytes=context_bytes,
            managed_resident=managed_resident,
        )
        create_control(directory / "control", Control("test/gpu", (limit,)))
        create_usage(directory / "usage")
        return Slice(directory)

    return make


@pytest.fixture(scope="session")
def context_bytes(card: Card) -> int:
    """What a process's context costs on this card, as the card says."""
    before = card.used()
    command = [PYTHON, PROGRAMS / "context.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return card.used() - before
