"""The forwarders that stand where the driver's libraries were: the driver's functions, and ours for the hooked ones."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aliquot.libshim.library import forwarder_path, library_path
from aliquot.sandbox.gpus import SimMachine
from tests.native.forwarded import SONAMES, behind, forwarded
from tests.native.names import hooked, known, listed
from tests.native.shells import CLIENTS, OUT_OF_MEMORY, Shell, program, two_cards
from tests.native.tenants import Tenant

NO_INTERCEPTOR = 303
STATIC_TLS = 0x10


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def libraries(machine: SimMachine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a container with forwarders finds."""
    return forwarded(tmp_path_factory.mktemp("libraries") / "lib", machine.lib_dir)


@pytest.fixture(params=["forwarder", "both"])
def shell(tenant: Callable[..., Tenant], libraries: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    """A process in a slice of 64 MiB that has the forwarder, and the preloaded interceptor too or not."""
    preload = str(library_path()) if request.param == "both" else ""
    with Shell(tenant(64 << 20), LD_LIBRARY_PATH=str(libraries), LD_PRELOAD=preload) as made:
        yield made


@pytest.fixture
def bare(tenant: Callable[..., Tenant]) -> Iterator[Shell]:
    """A process without the interceptor."""
    with Shell(tenant(64 << 20), bare=True) as made:
        yield made


def dynamic(library: Path) -> Iterator[tuple[str, object]]:
    """The entries of a library's dynamic section."""
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        for tag in section.iter_tags():
            value = getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower(), tag.entry.d_val)
            yield tag.entry.d_tag, value


@pytest.mark.parametrize("soname", SONAMES)
def test_a_forwarder_exports_the_list_and_the_hooks_and_nothing_else(soname: str):
    """A program that is linked against it finds all of the driver, and its own names meet none of ours."""
    with forwarder_path(soname).open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        exported = {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"}
    assert exported - {""} == listed(soname) | hooked(soname)


def test_the_lists_hold_every_name_that_is_known():
    """A name that is missing here is missing for whoever links against the mounted library."""
    lists = {name for soname in SONAMES for name in listed(soname) | hooked(soname)}
    assert known() - lists == set()


@pytest.mark.parametrize("soname", SONAMES)
def test_a_forwarder_has_the_drivers_name_and_needs_the_driver(soname: str):
    """The same soname, the driver by the name behind it, never unloaded."""
    entries = list(dynamic(forwarder_path(soname)))
    needed = [value for tag, value in entries if tag == "DT_NEEDED"]
    assert ("DT_SONAME", soname) in entries
    assert needed[0] == behind(soname)
    assert ("DT_RPATH", "/usr/local/aliquot") in entries


@pytest.mark.parametrize("library", [*map(forwarder_path, SONAMES)], ids=lambda path: path.name)
def test_no_forwarder_needs_room_that_only_a_starting_process_has(library: Path):
    """Loaded late by dlopen, a library with static thread-local storage may find none left."""
    flags = [value for tag, value in dynamic(library) if tag == "DT_FLAGS"]
    assert not any(isinstance(value, int) and value & STATIC_TLS for value in flags)


def test_the_interceptor_needs_one_pointer_of_that_room():
    """A launch reads it, so it is static; the C library keeps some hundred times as much for late libraries."""
    with library_path().open("rb") as file:
        sizes = [part["p_memsz"] for part in ELFFile(file).iter_segments("PT_TLS")]
    assert sizes == [8]


def test_dlsym_finds_what_the_driver_has_and_nothing_else(shell: Shell, bare: Shell):
    """All names of the list, those that the driver lacks too."""
    for name in sorted(listed("libcuda.so.1")):
        assert (shell.ask(f".dlsym {name}") == "-") == (bare.ask(f".dlsym {name}") == "-"), name


def test_a_forwarded_process_is_held_to_its_slice(shell: Shell):
    """One account, whether the interceptor was preloaded too or not."""
    shell.begin()
    shell.ok("cuMemAlloc_v2", "&", 40 << 20)
    assert shell.memory_info() == (24 << 20, 64 << 20)
    assert shell.call("cuMemAlloc_v2", "&", 40 << 20)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize("preload", ["", str(library_path())], ids=["forwarder", "both"])
def test_nvml_shows_the_slice_through_its_forwarder(
    tenant: Callable[..., Tenant], libraries: Path, preload: str
):
    """Its memory and no other card; and what is not hooked is NVML's own answer."""
    asks = """
import pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetCount(), pynvml.nvmlDeviceGetMemoryInfo(card).total >> 20, pynvml.nvmlDeviceGetName(card))
"""
    told = tenant(64 << 20).run(asks, LD_LIBRARY_PATH=str(libraries), LD_PRELOAD=preload)
    assert told == "1 64 NVIDIA H200\n"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a container finds whose driver lacks nearly everything."""
    root = tmp_path_factory.mktemp("odd")
    source, driver = CLIENTS / "odd_driver.c", root / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{driver.name}", "-o", driver, source], check=True)
    return forwarded(root / "lib", root)


def ask_odd(libraries: Path, program: str) -> str:
    """Runs a Python program with `cuda`, that driver's library, in a process of its own."""
    prelude = f"import ctypes; cuda = ctypes.CDLL({str(libraries / 'libcuda.so.1')!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + program],
        env={"LD_LIBRARY_PATH": str(libraries)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_function_newer_than_the_list_is_the_drivers(odd: Path):
    """The loader finds it in the driver itself."""
    assert ask_odd(odd, "print(cuda.cuNewerThanAnyList(41))") == "42"


def test_a_function_that_the_driver_lacks_is_absent_hooked_or_not(odd: Path):
    """It says so as it would without us, with an error that names it."""
    program = """
for name in ('cuMemAlloc_v2', 'cuCtxGetDevice'):
    try: getattr(cuda, name)
    except AttributeError as error: print(error)
"""
    lines = ask_odd(odd, program).splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == [
        "undefined symbol: cuMemAlloc_v2",
        "undefined symbol: cuCtxGetDevice",
    ]


def test_numbers_in_floating_point_registers_come_through(odd: Path):
    """A stub touches no register but its own."""
    program = "print(cuda.cuTexRefSetMipmapLevelBias(None, ctypes.c_float(3.5)))"
    assert ask_odd(odd, program) == "7"


def test_who_is_linked_to_a_function_that_the_driver_lacks_is_told(odd: Path, tmp_path: Path):
    """The program starts, and the call answers CUDA_ERROR_NOT_FOUND."""
    source = tmp_path / "linked.c"
    source.write_text(
        "int cuMemAlloc_v2(void *, unsigned long); int main(void) { return cuMemAlloc_v2(0, 1) == 500; }"
    )
    program = tmp_path / "linked"
    library = forwarder_path("libcuda.so.1")
    options = ["-Wl,--allow-shlib-undefined", "-Wl,-z,now"]
    subprocess.run(["cc", "-o", program, source, library, *options], check=True)
    assert subprocess.run([program], env={"LD_LIBRARY_PATH": str(odd)}, check=False).returncode == 1


def test_without_the_interceptor_what_it_would_count_is_refused(
    machine: SimMachine, tenant: Callable[..., Tenant], tmp_path: Path
):
    """Closed, not open; and one line says why."""
    libraries = forwarded(tmp_path / "lib", machine.lib_dir)
    (libraries / "libaliquot.so").unlink()
    with Shell(tenant(64 << 20), LD_LIBRARY_PATH=str(libraries), LD_PRELOAD="") as shell:
        assert shell.call("cuInit", 0)[0] == 0
        assert shell.call("cuMemAlloc_v2", "&", 1)[0] == NO_INTERCEPTOR
        shell.process.kill()
        assert shell.process.stderr is not None
        assert (
            shell.process.stderr.read()
            == "aliquot: no libaliquot.so, so libcuda.so.1 refuses what it would count\n"
        )


@pytest.mark.parametrize("preload", ["", str(library_path())], ids=["forwarder", "both"])
def test_two_copies_in_one_process_share_the_quota_and_keep_their_accounts(
    tenant: Callable[..., Tenant], libraries: Path, preload: str
):
    """Each link namespace has an interceptor of its own; neither takes the other for a past life, nor counts twice."""
    made = tenant(64 << 20)
    process = subprocess.Popen(
        [program("two_namespaces"), "20", "30", "20", "20", "14"],
        env=made.env(LD_LIBRARY_PATH=str(libraries), LD_PRELOAD=preload),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [int(process.stdout.readline()) for _ in range(5)] == [0, 0, OUT_OF_MEMORY, OUT_OF_MEMORY, 0]
    usage = made.usage()
    assert usage.cards[0].memory_used_bytes == 64 << 20
    assert sorted(sum(one.memory_bytes) for one in usage.processes) == [30 << 20, 34 << 20]
    process.communicate("\n")
    with Shell(made).begin() as next_one:
        next_one.ok("cuMemAlloc_v2", "&", 64 << 20)
