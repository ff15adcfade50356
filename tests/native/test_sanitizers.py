"""The interceptor under sanitizers, and beside other libraries that are preloaded."""

import random
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.libshim.library import library_path
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import CLIENTS, LIBSHIM, two_cards
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX
from tests.tools.debian import unpack_or_skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LIMIT = 64 << 20
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
# The simulated driver is not instrumented: what its threads exchange by locks and atomics of its own looks like a race.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=66",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "exitcode=66:ignore_noninstrumented_modules=1",
}
STORMS = {
    "storm": ["storm", "1", "32", "4"],
    "vmm": ["vmm_storm", "2000", "4"],
    "fork": ["fork_storm", "40", "20", "65536", "return"],
    "pools": ["pool_storm", "1", "20", "4", "200", "31"],
    "graphs": ["pool_storm", "1", "20", "4", "1000", "8"],
    "resident": ["resident_storm", "1", "4", "50"],
}
"""Clients and their arguments; who launches nothing but graphs has them all end, and begin, at once."""

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@cache
def objects() -> None:
    """The interceptor as an archive, once for each sanitizer."""
    subprocess.run(["make", "-s", "-C", LIBSHIM, "sanitize"], check=True)


def build(directory: Path, client: str, sanitizer: str) -> Path:
    """A client with the interceptor linked into it; both are instrumented."""
    objects()
    program = directory / f"{client}-{sanitizer}"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", *SANITIZERS[sanitizer]]
    include = [f"-I{LIBSHIM / 'include'}", f"-I{LIBSHIM / 'src'}"]
    hosted = directory / "hosted.o"
    subprocess.run(["cc", *flags, *include, "-c", "-o", hosted, CLIENTS / "hosted.c"], check=True)
    archive = LIBSHIM / "build" / sanitizer / "libhosted.a"
    whole = ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-ldl", "-lpthread"]
    source = ["-Ddlsym=hosted_dlsym", CLIENTS / f"{client}.c"]
    subprocess.run(["cc", *flags, *source, hosted, "-o", program, *whole], check=True)
    return program


def run(program: Path, arguments: list[str], environment: dict[str, str]) -> str:
    """Runs a client until it has got on a good deal and then to its end; what it said of itself."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [program, *arguments], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as client:
        assert client.stdout is not None
        for _ in range(20):
            if client.stdout.readline() != ".\n":
                break
        _, errors = client.communicate(timeout=300)
    assert client.returncode == 0, errors
    return errors


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("storm", STORMS)
def test_clients_are_clean_under_sanitizers(
    machine: SimMachine, tenant: TenantMaker, tmp_path: Path, storm: str, sanitizer: str
):
    """No bad access, no undefined behaviour, no leak, no race; and the account is whole at the end."""
    client, *arguments = STORMS[storm]
    own = tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT, managed_resident=True)])
    environment = {**own.env(**OPTIONS), "LD_PRELOAD": ""}
    errors = run(build(tmp_path, client, sanitizer), arguments, environment)
    assert errors == ""
    usage = own.usage().cards[0]
    assert 0 < usage.memory_peak_bytes <= LIMIT
    assert usage.memory_used_bytes == 0


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_launches_by_ticket_are_clean_under_sanitizers(tenant: TenantMaker, tmp_path: Path, sanitizer: str):
    """Threads with streams, contexts and captures of their own, and the monitor beside them, under a core limit."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    own = tenant(LIMIT, 60)
    quiet = "detect_leaks=0:exitcode=66"  # of events, which go with the contexts that the client ends
    environment = {**own.env(**OPTIONS), "LD_PRELOAD": "", "ASAN_OPTIONS": quiet}
    program = build(tmp_path, "ticket_race", sanitizer)
    assert run(program, [str(SPIN_PTX), str(seed), "3", "4"], environment) == ""
    assert own.usage().cards[0].busy_ns > 0


def asan_runtime() -> str:
    """Where the compiler's ASan runtime lies."""
    told = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return str(Path(told.stdout.strip()).resolve())


def preload_storm(own: Tenant, tmp_path: Path, libraries: list[str], *flags: str, **extra: str) -> None:
    """Races threads in a program with these libraries preloaded; the account must be whole afterwards."""
    program = tmp_path / "storm"
    base = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", *flags]
    subprocess.run([*base, "-o", program, CLIENTS / "storm.c", "-ldl", "-lpthread"], check=True)
    environment = {**own.env(**extra), "LD_PRELOAD": ":".join(libraries)}
    assert run(program, ["1", "32", "4"], environment) == ""
    usage = own.usage().cards[0]
    assert 0 < usage.memory_peak_bytes <= LIMIT
    assert usage.memory_used_bytes == 0


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_program_built_with_asan_is_guarded(tenant: TenantMaker, tmp_path: Path, ours_first: bool):
    """Before or after the sanitizer's runtime in the list of what is preloaded."""
    libraries = [str(library_path()), asan_runtime()]
    options = "detect_leaks=1:verify_asan_link_order=0"
    ordered = libraries if ours_first else libraries[::-1]
    preload_storm(tenant(LIMIT), tmp_path, ordered, "-fsanitize=address", ASAN_OPTIONS=options)


@pytest.mark.parametrize("ours_first", [True, False])
def test_jemalloc_may_be_preloaded_too(tenant: TenantMaker, tmp_path: Path, ours_first: bool):
    """Before or after us: its own look-ups go through ours, and our memory comes from its heap."""
    (jemalloc,) = unpack_or_skip("libjemalloc2").rglob("libjemalloc.so.2")
    libraries = [str(library_path()), str(jemalloc)]
    preload_storm(tenant(LIMIT), tmp_path, libraries if ours_first else libraries[::-1])
