"""Whoever looks a function up gets the hook of exactly that function's ABI, or the driver's own answer."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aliquot.libshim.library import library_path
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import LIBSHIM, Shell, two_cards
from tests.native.tenants import Tenant

LEGACY_STREAM, PER_THREAD = 1, 2
ROW = re.compile(r"AQ_HOOK\((\w+), (\w+), (\d+), (\w+),")
PASSED = re.compile(r"AQ_PASSED\((\w+), ")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def rows() -> list[tuple[str, str, int, str]]:
    """The hook table: symbol, name, since, stream flavour."""
    files = sorted((LIBSHIM / "src" / "hooks").glob("*.def"))
    found = ROW.findall("".join(file.read_text() for file in files))
    return [(symbol, name, int(since), stream) for symbol, name, since, stream in found]


DRIVER_ROWS = [row for row in rows() if row[0].startswith("cu")]


@pytest.fixture
def shell(tenant: Callable[..., Tenant]) -> Iterator[Shell]:
    """A process in a slice of 64 MiB."""
    with Shell(tenant(64 << 20)) as made:
        yield made


@pytest.fixture
def bare(tenant: Callable[..., Tenant]) -> Iterator[Shell]:
    """A process without the interceptor."""
    with Shell(tenant(64 << 20), bare=True) as made:
        yield made


def test_the_library_exports_its_hooks_and_nothing_else():
    """Every row of the table, dlsym and dlvsym: a stray name would collide with somebody's program."""
    with library_path().open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        exported = {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"}
    assert exported - {""} == {symbol for symbol, *_ in rows()} | {"dlsym", "dlvsym"}


@pytest.mark.parametrize("question", [".dlsym", ".default", ".next"])
@pytest.mark.parametrize("scope", [{}, {"GLOBAL_SCOPE": "1"}], ids=["local", "global"])
def test_dlsym_gives_the_hook_of_every_function_that_the_driver_has(
    tenant: Callable[..., Tenant], scope: dict[str, str], question: str
):
    """By handle, RTLD_DEFAULT and RTLD_NEXT, where the same question without a slice finds a function."""
    limit, found = 64 << 20, 0
    with Shell(tenant(limit), bare=True, **scope) as bare, Shell(tenant(limit), **scope) as shell:
        for symbol, *_ in DRIVER_ROWS:
            there = bare.ask(f"{question} {symbol}") != "-"
            assert shell.ask(f"{question} {symbol}") == (f"libaliquot.so {symbol}" if there else "-")
            found += there
    assert bool(found) == (question == ".dlsym" or bool(scope))


@pytest.mark.parametrize("question", [".dlsym", ".default", ".next"])
@pytest.mark.parametrize("symbol", ["cuInit", "cuNoSuchThing", "malloc", "c", "nvNone", "printf"])
def test_other_names_get_what_they_get_without_us(shell: Shell, bare: Shell, question: str, symbol: str):
    """The question reaches the next dlsym with the caller as its caller."""
    assert shell.ask(f"{question} {symbol}") == bare.ask(f"{question} {symbol}")


def test_rtld_next_is_seen_from_its_caller(shell: Shell):
    """The program's next dlsym is ours; asked from within our library it would be the C library's."""
    assert shell.ask(".next dlsym") == "libaliquot.so dlsym"


def test_dlvsym_answers_as_the_driver_does(shell: Shell, bare: Shell):
    """No version of a function that the driver does not know is given out, and libc's versions still are."""
    for question in ("cuMemAlloc_v2 NONE", "cuInit NONE"):
        assert (shell.ask(f".dlvsym {question}") == "-") == (bare.ask(f".dlvsym {question}") == "-")


@pytest.mark.parametrize("entry", [".gpa", ".gpa1"])
@pytest.mark.parametrize("flags", [0, LEGACY_STREAM, PER_THREAD])
def test_cugetprocaddress_gives_the_hook_of_the_very_function_the_driver_gives(
    shell: Shell, bare: Shell, entry: str, flags: int
):
    """Whatever version and stream flavour is asked for, file and status differ, the symbol never."""
    versions = sorted({since for _, _, since, _ in DRIVER_ROWS} | {-1, 1000, 12090, 13050, 99990})
    hooks = {symbol for symbol, *_ in DRIVER_ROWS}
    for name in sorted({name for _, name, _, _ in DRIVER_ROWS}):
        for version in versions:
            theirs = bare.ask(f"{entry} {name} {version} {flags}").split()
            ours = shell.ask(f"{entry} {name} {version} {flags}").split()
            assert ours[:2] == theirs[:2]
            assert ours[3:] == theirs[3:]
            assert len(ours) < 4 or (ours[2] == "libaliquot.so") == (ours[3] in hooks)


@pytest.mark.parametrize(
    "question", ["cuInit 12000 0", "cuNothing 12000 0", "cuMemAlloc 12000 7", "cuMemAlloc 99990 7"]
)
def test_cugetprocaddress_otherwise_answers_as_the_driver(shell: Shell, bare: Shell, question: str):
    """Functions without a hook, unknown names, versions and flags."""
    assert shell.ask(f".gpa {question}") == bare.ask(f".gpa {question}")


def test_the_table_names_each_symbol_once():
    """Two rows of a symbol would make the answer a matter of order; nothing is both hooked and passed on."""
    passed = PASSED.findall((LIBSHIM / "src" / "hooks" / "passed.def").read_text())
    symbols = [*(symbol for symbol, *_ in rows()), *passed]
    assert sorted(set(symbols)) == sorted(symbols)


def test_a_name_has_one_function_for_each_version_and_flavour():
    """Two rows of one name that start with the same version must differ in their stream's flavour."""
    keys = [(name, since, stream) for _, name, since, stream in DRIVER_ROWS]
    assert len(set(keys)) == len(keys)


def test_a_program_that_never_touches_cuda_is_left_alone(tenant: Callable[..., Tenant]):
    """No output, no slot, the same exit status."""
    made = tenant(64 << 20)
    done = subprocess.run(["/bin/sh", "-c", "exit 7"], env=made.env(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"")
    assert made.usage().processes == ()


def test_without_pages_everything_passes_through(tenant: Callable[..., Tenant]):
    """No control page and no environment of HAMi-core's: the whole card."""
    made = tenant(64 << 20)
    with Shell(made, ALIQUOT_CONTROL_PAGE="", ALIQUOT_USAGE_PAGE="").begin() as free:
        free.ok("cuMemAlloc_v2", "&", 1 << 30)
        assert free.memory_info()[1] == made.machine.cards[0].memory_mib << 20


def test_the_sources_name_no_header_of_the_vendors():
    """Our own declarations only: NVIDIA's cuda.h may not be redistributed."""
    sources = [*(LIBSHIM / "src").rglob("*.[ch]"), *(LIBSHIM / "include").glob("*.h")]
    assert not [path for path in sources if re.search(r'#include [<"](cuda|nvml)\.h', Path(path).read_text())]
