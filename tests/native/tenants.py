"""Tenants of a simulated machine: processes with pages, as a container or `aliquot run` would have them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from aliquot.libshim._pages import ffi
from aliquot.libshim.library import library_path
from aliquot.libshim.usage_page import Usage, read_usage
from aliquot.sandbox.gpus import SimMachine


def interceptor() -> Path:
    """The interceptor under test: the ordinary one, or that of another flavour which ALIQUOT_FLAVOUR names."""
    return Path(os.environ.get("ALIQUOT_FLAVOUR") or library_path())


@dataclass(frozen=True)
class Tenant:
    """A container as far as the interceptor can tell: pages, and an environment for its processes."""

    machine: SimMachine
    directory: Path
    forwarders: Path | None = None
    """Where they stand in the driver's place; nothing is preloaded then."""

    @property
    def control(self) -> Path:
        """The control page."""
        return self.directory / "control"

    @property
    def usage_page(self) -> Path:
        """The usage page."""
        return self.directory / "usage"

    def usage(self) -> Usage:
        """What the tenant says of itself."""
        return read_usage(self.usage_page)

    def shorten_usage(self, size: int) -> None:
        """Makes the usage page's file as long as an older agent's, which says so in its head."""
        with self.usage_page.open("r+b") as page:
            page.truncate(size)
            page.seek(ffi.offsetof("aq_usage_page", "size"))
            page.write(size.to_bytes(4, "little"))

    def env(self, **extra: str) -> dict[str, str]:
        """The environment of a process of this tenant."""
        pages = {"ALIQUOT_CONTROL_PAGE": str(self.control), "ALIQUOT_USAGE_PAGE": str(self.usage_page)}
        flavour = {"LD_PRELOAD": str(interceptor())}
        if self.forwarders:
            flavour = {"LD_PRELOAD": "", "LD_LIBRARY_PATH": str(self.forwarders)}
        return {**os.environ, **self.machine.env(), **flavour, **pages, **extra}

    def start(self, program: str, *arguments: object, **extra: str) -> subprocess.Popen[str]:
        """Starts a Python program, given as text, in the slice."""
        command = [sys.executable, "-c", program, *map(str, arguments)]
        return subprocess.Popen(
            command, env=self.env(**extra), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, program: str, *arguments: object, **extra: str) -> str:
        """Runs a program to its end and returns what it printed; it must succeed."""
        process = self.start(program, *arguments, **extra)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return output


def used(slice_: Tenant) -> int:
    """Bytes that the usage page says are in use on the tenant's first card."""
    return slice_.usage().cards[0].memory_used_bytes


def truth(slice_: Tenant) -> int:
    """Bytes that the machine's first card itself says are in use."""
    return slice_.machine.memory_used(slice_.machine.cards[0].uuid)
