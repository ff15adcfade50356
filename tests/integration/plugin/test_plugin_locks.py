"""A tenant that locks its pages a million times: nobody waits until the kernel has looked at each lock."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.control_page import read_times
from aliquot.placement import CardShare
from tests.integration.plugin.small_kubelet import Held
from tests.integration.plugin.test_plugin_metrics import fetch, start_and_serve
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

LOCKS = 500_000
PATIENCE_S = 5.0
WATCHED_S = 2.0
LOCKER = """
import fcntl, os, struct, sys
FIRST = 1 << 20
def lock(file, kind, start, length):
    fcntl.fcntl(file, 37, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))  # F_OFD_SETLK
for path, flags, kind in (sys.argv[1], os.O_RDWR, fcntl.F_WRLCK), (sys.argv[2], os.O_RDONLY, fcntl.F_RDLCK):
    file = os.open(path, flags)
    lock(file, kind, FIRST, 2 * int(sys.argv[3]))
    for start in range(2 * int(sys.argv[3]) - 2, 0, -2):
        lock(file, fcntl.F_UNLCK, FIRST + start, 1)
print("ready", flush=True)
sys.stdin.readline()
"""


def claim_everything(usage: Path) -> None:
    """Work in flight that never ends, in every slot, of owners that say to hold a lock."""
    file = ffi.new("aq_usage_file *")
    ffi.memmove(file, usage.read_bytes(), ffi.sizeof("aq_usage_file"))
    for index in range(lib.AQ_MAX_SLOTS):
        slot = file.page.slots[index]
        slot.owner = slot.presence = slot.pid = slot.start_time = slot.pid_namespace = index + 2
        file.annex.works[index].cards[0] = lib.AQ_WORK_IN_FLIGHT
    with usage.open("r+b") as page:
        page.write(bytes(ffi.buffer(file)))


@contextmanager
def locking(usage: Path, control: Path) -> Iterator[None]:
    """A process of the tenant's that holds the locks."""
    command = [sys.executable, "-c", LOCKER, str(usage), str(control), str(LOCKS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def admitted(world: World, name: str) -> Held:
    """A pod with a part of the first card."""
    share = CardShare(world.uuids[0], 1024, 30)
    pod = world.pod(name, [container("main", slice_of("1Gi", 30))], {"main": [share]})
    return world.kubelet.allocate(pod, "main", GPU, 1)


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.monotonic()
    assert call() != ""
    return time.monotonic() - begin


def longest_silence_s(control: Path) -> float:
    """The longest time without a word of the arbiter's to a tenant, while it is watched."""
    end, seen, longest = time.monotonic() + WATCHED_S, time.monotonic_ns(), 0
    while time.monotonic() < end:
        time.sleep(0.01)
        heard = read_times(control)[0].heartbeat_ns
        longest = max(longest, (heard if heard > seen else time.monotonic_ns()) - seen)
        seen = max(seen, heard)
    return longest / 1e9


def test_locks_on_its_own_pages_hold_up_nobody(make_world: MakeWorld) -> None:
    """Neither the arbiter's word to a neighbour, nor a scrape, nor the start of another pod, nor that of its own."""
    node = make_world(start=False)
    url = start_and_serve(node)
    hostile, neighbour, new = (admitted(node, name) for name in ("hostile", "neighbour", "new"))
    for held in (hostile, neighbour):
        node.kubelet.pre_start(held)
    usage, control = node.usage(hostile.nonce), node.control(hostile.nonce)
    claim_everything(usage)
    with locking(usage, control):
        silence_s = longest_silence_s(node.control(neighbour.nonce))
        times_s = {
            "silence": silence_s,
            "scrape": seconds_of(lambda: fetch(url)),
            "start": seconds_of(lambda: node.kubelet.pre_start(new)),
            "restart": seconds_of(lambda: node.kubelet.pre_start(hostile)),
        }
        print({name: round(taken, 3) for name, taken in times_s.items()})
        assert max(times_s.values()) < PATIENCE_S
    node.delete("hostile")
