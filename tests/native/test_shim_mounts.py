"""What a tenant does to its file systems: nothing that it mounts or fills lifts its limit or breaks its programs."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, Shell, program, two_cards
from tests.native.tenants import Tenant, interceptor

UNSHARE = ("unshare", "--mount")
LIMIT = 64 << 20
COVERED = 'mount -t tmpfs none "$1" && shift && exec "$@"'
NO_ROOM = """
set -e
mount --rbind /tmp /mnt
mount -t tmpfs -o size=16k none /tmp
while [ "$1" != -- ]; do mkdir "/tmp/$1"; mount --rbind "/mnt/$1" "/tmp/$1"; shift; done
shift
! cat /dev/zero > /tmp/filler 2> /dev/null
exec "$@"
"""


def may_mount() -> bool:
    """Whether this machine lets the tests make mount namespaces."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not may_mount(), reason="NOT RUN: needs a mount namespace")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def inside(script: str, *arguments: str | Path) -> list[str | Path]:
    """A command before the program's, for a process that does this to its mounts first."""
    return [*UNSHARE, "sh", "-c", script, "sh", *arguments]


def without_room(own: Tenant) -> list[str | Path]:
    """The same for a process whose /tmp is full; what the test itself has below it stays there."""
    places = (own.directory, own.machine.root, Path(program("driver_shell")), interceptor())
    kept = {path.parts[2] for path in places if path.parts[:2] == ("/", "tmp")}
    return inside(NO_ROOM, *sorted(kept), "--")


def test_who_covers_the_pages_gets_no_memory(tenant: Callable[..., Tenant]):
    """A program that starts where a file system is mounted over them; one that has mapped them goes on."""
    own = tenant(LIMIT)
    with Shell(own).begin() as before:
        before.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        with Shell(own, prefix=inside(COVERED, own.directory)).begin() as shell:
            assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        before.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        assert before.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


def test_a_full_tmp_costs_nothing(tenant: Callable[..., Tenant]):
    """Two programs share their slice to the last byte where not a file can be made."""
    own = tenant(LIMIT)
    with (
        Shell(own, prefix=without_room(own)).begin() as one,
        Shell(own, prefix=without_room(own)).begin() as other,
    ):
        one.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        other.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        assert one.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert one.memory_info() == (0, LIMIT)
