"""NVIDIA's libcuda, libnvidia-ml and nvidia-smi, of two driver branches.

    python -m tests.driver.drivers        fetches them; where they cannot be had it says why, and ends with 1

They are packages of Debian's component non-free, fetched when they are first wanted. Nothing of NVIDIA's is kept in
this repository.
"""

import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.tools.debian import NotAvailableError, Release, unpack

BRANCHES = {"535": "bookworm", "550": "trixie"}
"""Driver branch -> the release of Debian that has it."""
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-smi")


@dataclass(frozen=True)
class Exported:
    """A name that a library exports."""

    offset: int
    is_function: bool


@dataclass(frozen=True)
class Driver:
    """The unpacked files of a branch."""

    branch: str
    root: Path

    @property
    def libraries(self) -> Path:
        """The directory with libcuda.so.1 and libnvidia-ml.so.1."""
        return next(self.root.glob("usr/lib/*/nvidia/current"))

    @property
    def smi(self) -> Path:
        """The program nvidia-smi."""
        return self.root / "usr" / "lib" / "nvidia" / "current" / "nvidia-smi"

    def file(self, soname: str) -> Path:
        """A library's own file, behind its links."""
        return (self.libraries / soname).resolve()

    def exports(self, soname: str) -> dict[str, Exported]:
        """Name -> where it lies in the library."""
        return exported(self.file(soname))


@cache
def exported(library: Path) -> dict[str, Exported]:
    """The dynamic symbols that a library defines."""
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        return {
            symbol.name: Exported(symbol["st_value"], symbol["st_info"]["type"] == "STT_FUNC")
            for symbol in table.iter_symbols()
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
        }


def fetch(branch: str) -> Driver:
    """Returns a branch's files.

    Raises:
        NotAvailableError: they cannot be had here.
    """
    if platform.machine() != "x86_64":
        message = f"NVIDIA's driver {branch}: these tests know its x86-64 libraries only"
        raise NotAvailableError(message)
    return Driver(branch, unpack(*PACKAGES, release=Release(BRANCHES[branch], "non-free")))


if __name__ == "__main__":
    try:
        for name in BRANCHES:
            print(fetch(name).root)
    except NotAvailableError as missing:
        sys.exit(str(missing))
