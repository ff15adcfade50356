"""Whatever becomes of a process, what it held is free again, and its neighbours never notice."""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, library, program, two_cards
from tests.native.sims import PRELUDE, wait_for
from tests.native.tenants import Tenant, used

MIB = 1 << 20
LIMIT = 64 * MIB
SLOTS_OFFSET, PRESENCE_OFFSET = 4096, 40

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def forks(slice_: Tenant, *arguments: object) -> int:
    """How many children of a program were served."""
    command = [program("fork_storm"), *map(str, arguments)]
    done = subprocess.run(command, env=slice_.env(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def may_have_namespaces() -> bool:
    """Whether this machine lets the tests make pid namespaces."""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([*NAMESPACE, "true"], check=False).returncode == 0


NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def test_a_program_that_ends_gives_back_at_once(slice64: Tenant):
    """Nobody has to come and collect it."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        shell.say(".return")
        assert shell.process.wait() == 0
        assert used(slice64) == 0
        assert slice64.usage().processes == ()


def test_the_end_of_a_child_ends_nothing_of_its_parents(slice64: Tenant):
    """A forked child that returns from main leaves its parent's account alone."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        shell.say(".fork")
        assert shell.hear() == "child"
        shell.say(".return")
        assert shell.hear() == "parent"
        assert used(slice64) == MIB
        assert [process.pid for process in slice64.usage().processes] == [shell.pid]


UNSEEN_FORK = (
    PRELUDE
    + """
import ctypes, os
start()
check(cuda.cuMemAlloc(1 << 20))
libc = ctypes.CDLL(None)
child = libc._Fork()  # past every handler
if not child:
    libc.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("forked", flush=True)
sys.stdin.read()
"""
)


def test_the_end_of_a_child_that_nobody_saw_made_ends_nothing_of_its_parents(slice64: Tenant):
    """It has its parent's words in memory, and ends through every exit handler."""
    parent = slice64.start(UNSEEN_FORK)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "forked\n"
    assert used(slice64) == MIB
    assert [process.pid for process in slice64.usage().processes] == [parent.pid]
    parent.communicate(timeout=60)


def test_what_a_program_held_before_an_exec_is_free_for_its_neighbours(slice64: Tenant):
    """The process lives on under its number, and its new program has never called CUDA."""
    with Shell(slice64).begin() as neighbour, Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert neighbour.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert shell.pid in {process.pid for process in slice64.usage().processes}
        assert shell.ask(".exec") == "ready"
        neighbour.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert shell.pid not in {process.pid for process in slice64.usage().processes}


def test_what_a_neighbour_is_collecting_after_an_exec_is_left_to_it(slice64: Tenant):
    """Both giving it back would take it from the account twice."""
    with Shell(slice64) as shell, slice64.usage_page.open("r+b") as page:
        shell.begin().ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        assert shell.ask(".exec") == "ready"
        fcntl.fcntl(page, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        shell.begin().ok("cuMemAlloc_v2", OUT, MIB)
        assert used(slice64) == LIMIT // 2 + MIB


def test_a_child_that_outlives_its_parent_holds_nothing_of_it(slice64: Tenant):
    """Neither memory nor slot: it has closed its copy of the file that proved its parent's presence."""
    with Shell(slice64).begin() as neighbour, Shell(slice64).begin() as parent:
        parent.ok("cuMemAlloc_v2", OUT, LIMIT)
        parent.say(".fork")
        assert parent.hear() == "child"
        os.kill(parent.pid, signal.SIGKILL)
        parent.process.wait()
        neighbour.ok("cuMemAlloc_v2", OUT, LIMIT)
        with slice64.usage_page.open("rb") as page:
            page.seek(SLOTS_OFFSET)
            assert int.from_bytes(page.read(8), "little") >> 42 == neighbour.pid
        parent.say(".exit")


@pytest.mark.skipif(not may_have_namespaces(), reason="may not make pid namespaces here")
def test_what_the_dead_of_another_pid_namespace_held_is_free(slice64: Tenant):
    """A number means nothing across namespaces; the lock that ended with its owner does."""
    with Shell(slice64).begin() as outside, Shell(slice64, prefix=NAMESPACE).begin() as inside:
        inside.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert outside.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        inside.process.kill()  # and with it the first process of its namespace
        wait_for(lambda: outside.call("cuMemAlloc_v2", OUT, LIMIT)[0] == SUCCESS, "its memory", seconds=5)


@pytest.mark.skipif(not may_have_namespaces(), reason="may not make pid namespaces here")
def test_the_living_of_another_pid_namespace_keep_what_they_hold(slice64: Tenant):
    """Both processes may have the same number; neither is taken for the other's remains."""
    with (
        Shell(slice64, prefix=NAMESPACE).begin() as first,
        Shell(slice64, prefix=NAMESPACE).begin() as second,
    ):
        first.ok("cuMemAlloc_v2", OUT, LIMIT - 2 * MIB)
        assert second.call("cuMemAlloc_v2", OUT, LIMIT)[0] == OUT_OF_MEMORY
        second.ok("cuMemAlloc_v2", OUT, 2 * MIB)
        assert first.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize("left_there", [0, 0xBAD])
def test_a_slot_of_an_interceptor_without_locks_is_judged_by_its_pid(slice64: Tenant, left_there: int):
    """An older one, in the same container, announces no presence, whatever a former owner left in that word."""
    with Shell(slice64).begin() as neighbour, Shell(slice64).begin() as older:
        older.ok("cuMemAlloc_v2", OUT, LIMIT)
        with slice64.usage_page.open("r+b") as page:
            page.seek(SLOTS_OFFSET + PRESENCE_OFFSET)
            page.write(left_there.to_bytes(8, "little"))
        assert older.ask(".exec") == "ready"  # and so it holds no lock
        assert neighbour.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        os.kill(older.pid, signal.SIGKILL)
        older.process.wait()
        neighbour.ok("cuMemAlloc_v2", OUT, LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit", "return", "kill"])
def test_a_thousand_children_one_after_another_are_all_served(slice64: Tenant, ending: str):
    """Each takes the whole slice, however the one before it has ended."""
    assert forks(slice64, 1000, 1, LIMIT, ending) == 1000


@pytest.mark.parametrize("ending", ["exit", "kill"])
def test_two_hundred_children_at_once_share_the_slice(slice64: Tenant, ending: str):
    """All hold their part at the same time; then the next two hundred do."""
    assert forks(slice64, 400, 200, LIMIT // 200, ending) == 400
    assert slice64.usage().cards[0].memory_peak_bytes <= LIMIT


def test_children_that_never_allocate_take_no_slot(slice64: Tenant):
    """They only ask how much is free, and leave nothing to collect although they end without a word."""
    assert forks(slice64, 200, 200, 0, "kill", "ask") == 200
    assert slice64.usage().processes == ()


def test_sixty_four_threads_share_a_slice(slice64: Tenant):
    """They allocate and free as hard as they can, and the account is whole at the end."""
    command = [program("storm"), "1", "32", "64"]
    with subprocess.Popen(
        command, env=slice64.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as storm:
        assert storm.stdout is not None
        for _ in range(50):
            assert storm.stdout.readline() == ".\n"
        output, _ = storm.communicate(timeout=60)
    served, refused = map(int, output.split("\n")[-2].split())
    assert storm.returncode == 0
    assert served > 0
    assert slice64.usage().cards[0].allocations_denied == refused
    assert slice64.usage().cards[0].memory_peak_bytes <= LIMIT
    assert used(slice64) == 0


def test_a_page_on_a_full_file_system_is_refused_with_a_sentence(tenant: TenantMaker, tmp_path: Path):
    """A hole in its file that cannot be filled would be SIGBUS at some allocation."""
    own, small = tenant(LIMIT), tmp_path / "small"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size=64k tmpfs {small} && truncate -s 69632 {small}/usage &&"
        f" dd if={own.usage_page} of={small}/usage bs=4096 count=1 conv=notrunc status=none &&"
        f' exec "$0"'
    )
    unshare = ["unshare", "--mount", "sh", "-c", script]
    if subprocess.run([*unshare[:2], "true"], check=False, capture_output=True).returncode:
        pytest.skip("may not make mount namespaces here")
    with Shell(own, prefix=unshare, ALIQUOT_USAGE_PAGE=str(small / "usage")).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        shell.say(".exit")
        assert "its file system is full" in shell.process.communicate()[1]


def with_driver(name: str, tenant: TenantMaker, directory: Path) -> tuple[Tenant, dict[str, str]]:
    """A tenant with a slice of the one card of clients/<name>.c, and the environment that finds this driver."""
    own = tenant(limits=[CardLimit("GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", LIMIT)])
    shutil.copyfile(library(name), directory / "libcuda.so.1")
    return own, {"LD_LIBRARY_PATH": str(directory)}


def test_a_driver_without_most_entries_is_guarded_all_the_same(tenant: TenantMaker, tmp_path: Path):
    """What it lacks is not found through us either; what it has is held to the slice, and nothing breaks."""
    own, found = with_driver("sparse_driver", tenant, tmp_path)
    with Shell(own, **found).begin() as shell:
        for lacking in (
            "cuMemAlloc",
            "cuMemGetInfo_v2",
            "cuMemAllocAsync",
            "cuMemCreate",
            "cuGetProcAddress",
        ):
            assert shell.ask(f".dlsym {lacking}") == "-"
        block = shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(own) == LIMIT
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemFree_v2", block)
        assert used(own) == 0


def test_no_driver_is_asked_about_a_pool_that_it_has_ended(tenant: TenantMaker, tmp_path: Path):
    """Not by one thread while another ends the pool either: a driver may take a handle for a pointer."""
    own, found = with_driver("touchy_driver", tenant, tmp_path)
    done = subprocess.run([program("pool_end_race"), "100"], env=own.env(**found), timeout=60, check=False)
    assert done.returncode == 0
