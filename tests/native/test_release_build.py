"""The release builds of the interceptor: which systems they load on, and what they export."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from tests.native.forwarded import SONAMES, behind
from tests.native.names import hooked, listed

LIBSHIM = Path(__file__).resolve().parents[2] / "libshim"
ZIG = f"{sys.executable} -m ziglang cc"
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}


@pytest.fixture(scope="module", params=sorted(LOADERS))
def architecture(request: pytest.FixtureRequest) -> str:
    """Each processor that is released for."""
    return str(request.param)


@pytest.fixture(scope="module")
def built(architecture: str) -> Path:
    """Both flavours as `make release` builds them."""
    command = ["make", "-C", LIBSHIM, "release", f"ARCHS={architecture}", f"ZIG={ZIG}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return LIBSHIM / "build" / "release" / architecture


@pytest.fixture(params=["libaliquot.so", *map("forwarder/{}".format, SONAMES)])
def path(built: Path, request: pytest.FixtureRequest) -> Path:
    """Each library of a release."""
    return built / str(request.param)


@pytest.fixture
def library(path: Path) -> Iterator[ELFFile]:
    """The same, open."""
    with path.open("rb") as file:
        yield ELFFile(file)


def exported(library: ELFFile) -> set[str]:
    """The names that the library defines for others."""
    symbols = library.get_section_by_name(".dynsym")
    assert isinstance(symbols, SymbolTableSection)
    return {symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"}


def meant(path: Path) -> set[str]:
    """The names that it should define."""
    if path.name in SONAMES:
        return listed(path.name) | hooked(path.name)
    return {"dlsym", "dlvsym"}.union(*map(hooked, SONAMES))


@pytest.mark.slow
def test_it_needs_no_glibc_newer_than_2_17(library: ELFFile):
    """It loads where CUDA itself loads: the oldest system is CentOS 7's."""
    needs = library.get_section_by_name(".gnu.version_r")
    assert isinstance(needs, GNUVerNeedSection)
    names = {str(version.name) for _, versions in needs.iter_versions() for version in versions}
    numbers = [tuple(map(int, re.findall(r"\d+", name))) for name in names]
    assert all(name.startswith("GLIBC_") for name in names)
    assert max(numbers) <= (2, 17), names


@pytest.mark.slow
def test_it_needs_only_the_c_library(library: ELFFile, path: Path, architecture: str):
    """Nothing has to be installed beside it; a forwarder needs what it forwards to."""
    dynamic = library.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    needed = {str(tag.needed) for tag in dynamic.iter_tags("DT_NEEDED")}
    if path.name in SONAMES:
        needed.remove(behind(path.name))
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", LOADERS[architecture]}


@pytest.mark.slow
def test_it_exports_what_is_meant_and_nothing_else(library: ELFFile, path: Path):
    """A program's own names are never bound to ours by accident."""
    assert exported(library) == meant(path)


@pytest.mark.slow
def test_its_hooks_have_no_version(library: ELFFile):
    """An unversioned dlsym answers references of every version."""
    assert library.get_section_by_name(".gnu.version_d") is None


@pytest.mark.slow
def test_it_is_built_for_the_processor(library: ELFFile, architecture: str):
    """Each release file is for the processor of its folder."""
    assert library["e_machine"] == {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[architecture]
