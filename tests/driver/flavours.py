"""A process on NVIDIA's libraries: bare, or in a slice with the interceptor preloaded, forwarded, or both."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.library import forwarder_path, library_path
from aliquot.libshim.usage_page import create_usage
from tests.driver.drivers import Driver
from tests.native.forwarded import forwarded

BARE = "bare"
FLAVOURS = ("preload", "forwarder", "both")
CARD = "GPU-7f1a2b3c-0000-1111-2222-333344445555"
GIB = 1 << 30


@dataclass(frozen=True)
class Ground:
    """What processes of all flavours need: the driver, forwarders before it, and the pages of a slice."""

    driver: Driver
    directory: Path

    @classmethod
    def prepare(cls, driver: Driver, directory: Path) -> "Ground":
        """Makes the files."""
        forwarded(directory / "forwarders", driver.libraries)
        create_control(directory / "control", Control("test/driver", (CardLimit(CARD, GIB, 50),)))
        create_usage(directory / "usage")
        return cls(driver, directory)

    def env(self, flavour: str) -> dict[str, str]:
        """The environment of a process; nothing of the caller's that could choose libraries or devices."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {**kept, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(self.libraries(flavour))}
        if flavour != BARE:
            env["ALIQUOT_CONTROL_PAGE"] = str(self.directory / "control")
            env["ALIQUOT_USAGE_PAGE"] = str(self.directory / "usage")
        if flavour in ("preload", "both"):
            env["LD_PRELOAD"] = str(library_path())
        return env

    def libraries(self, flavour: str) -> Path:
        """Where the process finds libcuda.so.1."""
        return self.directory / "forwarders" if flavour in ("forwarder", "both") else self.driver.libraries

    def forwarder(self, soname: str) -> Path:
        """The file of a forwarder as these processes load it."""
        assert forwarder_path(soname).exists()
        return self.directory / "forwarders" / soname

    def run(
        self, flavour: str, command: Sequence[str | Path], text: str = "", **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end."""
        return subprocess.run(
            [str(word) for word in command],
            env={**self.env(flavour), **extra},
            input=text,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def lines(self, flavour: str, command: Sequence[str | Path], questions: Sequence[str]) -> list[str]:
        """Runs a program that answers each line with a line."""
        done = self.run(flavour, command, "".join(f"{question}\n" for question in questions))
        answers = done.stdout.splitlines()
        assert (done.returncode, done.stderr, len(answers)) == (0, "", len(questions)), done.stderr
        return answers
