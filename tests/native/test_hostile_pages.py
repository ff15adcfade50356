"""A tenant that keeps its pages busy in every way that a file can be holds up nobody but itself."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.libshim.control_page import (
    CardLimit,
    Control,
    change_control,
    create_control,
    read_control,
    touch_granter,
)
from aliquot.libshim.page_file import PageFile
from aliquot.libshim.usage_page import clear_usage, create_usage, read_card_usages, read_usage
from aliquot.plugin.container.tenant_pages import TenantDirectories
from tests.native.sims import wait_for

AT_ONCE_S = 10
HOLDER = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
page = open(sys.argv[1], sys.argv[2])
{}
print("held", flush=True)
sys.stdin.read()
"""
LOCK = "fcntl.flock(page, fcntl.LOCK_EX)"
READ_LEASE = "fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_RDLCK)"
WRITE_LEASE = "fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_WRLCK)"


@contextmanager
def held(path: Path, mode: str, how: str) -> Iterator[None]:
    """A process of a tenant that holds a page as long as it can."""
    command = [sys.executable, "-c", HOLDER.format(how), str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate()


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """A control page, which tenants can only read."""
    create_control(tmp_path / "control", Control("a/b/c", (CardLimit("GPU-a", 1 << 30),)))
    return tmp_path / "control"


def lower(page: Path) -> None:
    """The agent's next change."""

    def change(now: Control | None) -> Control:
        assert now is not None
        return replace(now, cards=(replace(now.cards[0], memory_bytes=1 << 20),))

    change_control(page, change)


def at_once(work: Callable[[], object]) -> None:
    """Does it; fails when that takes longer than nobody else's doing could explain."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(AT_ONCE_S)


def test_a_page_that_its_tenant_has_locked_is_changed(control: Path):
    """The lock that writers take turns by is none that a tenant can reach."""
    pool = ThreadPoolExecutor(1)
    with held(control, "rb", LOCK):
        changed = pool.submit(lower, control)
        changed.result(AT_ONCE_S)
    pool.shutdown()
    assert read_control(control).cards[0].memory_bytes == 1 << 20


def test_a_lease_on_a_page_is_an_error_at_once(control: Path):
    """The kernel would have the agent wait 45 s for it."""
    with held(control, "rb", READ_LEASE):
        with pytest.raises(BlockingIOError):
            at_once(lambda: lower(control))
        with pytest.raises(BlockingIOError):
            at_once(lambda: touch_granter(control, 1))
        at_once(lambda: read_control(control))
    lower(control)


def open_below(directory: Path) -> list[int]:
    """The inodes of files there that this process has open, removed ones included."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which this directory is read
            if str(link.readlink()).startswith(f"{directory}/"):
                found.append(link.stat().st_ino)
    return found


def test_a_page_is_opened_once_until_another_has_its_name(tmp_path: Path):
    """Or until nobody knows it any more: closing it may take long."""
    create_usage(tmp_path / "usage")
    page = PageFile(tmp_path / "usage")
    for _ in range(3):
        read_usage(page)
    first = open_below(tmp_path)
    create_usage(tmp_path / "usage")
    read_usage(page)
    assert open_below(tmp_path) == [(tmp_path / "usage").stat().st_ino] != first
    assert len(first) == 1
    del page
    assert not open_below(tmp_path)


@pytest.mark.parametrize("kind", [Path, PageFile])
def test_one_link_is_followed_and_no_other(tmp_path: Path, kind: Callable[[Path], Path | PageFile]):
    """The agent's own leads to the page; what its tenant may have put in the page's place is no page."""
    page, name = tmp_path / "usage", kind(tmp_path / "name")
    create_usage(page)
    (tmp_path / "name").symlink_to(page)
    read_usage(name)
    page.rename(tmp_path / "other")
    page.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        read_usage(name)


def test_the_pages_of_a_pod_that_is_gone_are_closed(tmp_path: Path):
    """Soon, beside whoever removes them, and though somebody still knows them."""
    tenants = TenantDirectories(tmp_path)
    made = tenants.prepare("uid", "main", Control("a/b/main", (CardLimit("GPU-1", 1 << 30),)))
    read_usage(made.usage)
    assert open_below(tmp_path)
    tenants.remove("uid")
    wait_for(lambda: not open_below(tmp_path), "the pages to be closed")
    with pytest.raises(FileNotFoundError):
        read_usage(made.usage)


def test_a_lease_that_keeps_writers_out_hides_nothing(tmp_path: Path):
    """The agent reads on, also one that has just been started."""
    page = tmp_path / "usage"
    create_usage(page)
    with held(page, "rb", READ_LEASE):
        at_once(lambda: read_usage(PageFile(page)))
        with pytest.raises(BlockingIOError):
            at_once(lambda: clear_usage(PageFile(page)))


@pytest.mark.parametrize("read", [read_usage, read_card_usages])
def test_a_lease_on_a_usage_page_is_an_error_at_once(tmp_path: Path, read: Callable[[Path], object]):
    """What a tenant says of itself is passed over then."""
    page = tmp_path / "usage"
    create_usage(page)
    with held(page, "r+b", WRITE_LEASE), pytest.raises(BlockingIOError):
        at_once(lambda: read(page))
    read(page)
