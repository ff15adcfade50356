"""A tenant that holds a million locks on its pages: nobody waits until the kernel has looked at each of them."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.libshim._pages import ffi, lib
from tests.integration.plugin.test_plugin_metrics import fetch, start_and_serve
from tests.integration.plugin.waits import longest_silence_s, seconds_of
from tests.integration.plugin.world import MakeWorld
from tests.unit.arbiter.player import Player

LOCKS = 500_000
PATIENCE_S = 5.0
WATCHED_S = 2.0
HOSTILE = """
import fcntl, os, select, struct, sys, time
from pathlib import Path
from aliquot.libshim._pages import lib
FIRST = 1 << 20
usage, control, count = *sys.argv[1:3], int(sys.argv[3])
def lock(file, kind, start, length):
    fcntl.fcntl(file, 37, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))  # F_OFD_SETLK
def work():
    end = time.monotonic_ns() >> lib.AQ_WORK_END_UNIT_SHIFT << lib.AQ_WORK_END_SHIFT & 0xFFFFFFFF
    return struct.pack("I60x", end | lib.AQ_WORK_IN_FLIGHT | lib.AQ_WORK_WAITING)
files = os.open(usage, os.O_RDWR), os.open(control, os.O_RDONLY)
for file, kind in zip(files, (fcntl.F_WRLCK, fcntl.F_RDLCK)):
    lock(file, kind, FIRST, 2 * count)
    for start in range(2 * count - 2, 0, -2):
        lock(file, fcntl.F_UNLCK, FIRST + start, 1)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    os.pwrite(files[0], work() * lib.AQ_MAX_SLOTS, lib.AQ_USAGE_SIZE)
"""


def claim_every_slot(usage: Path) -> None:
    """For owners that are none, and say to hold a lock."""
    file = ffi.new("aq_usage_file *")
    ffi.memmove(file, usage.read_bytes(), ffi.sizeof("aq_usage_file"))
    for index in range(lib.AQ_MAX_SLOTS):
        slot = file.page.slots[index]
        slot.owner = slot.presence = slot.pid = slot.start_time = slot.pid_namespace = index + 2
    with usage.open("r+b") as page:
        page.write(bytes(ffi.buffer(file)))


@contextmanager
def locking(usage: Path, control: Path) -> Iterator[None]:
    """A process of the tenant's that holds the locks, and has every slot say again and again that it is at work."""
    command = [sys.executable, "-c", HOSTILE, str(usage), str(control), str(LOCKS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def test_locks_on_its_own_pages_hold_up_nobody(make_world: MakeWorld) -> None:
    """Neither the arbiter's word to a neighbour, nor a scrape, nor the start of another pod, nor that of its own."""
    node = make_world(start=False)
    url = start_and_serve(node)
    hostile, neighbour, new = (node.admit(name, 1024, 30) for name in ("hostile", "neighbour", "new"))
    for held in (hostile, neighbour):
        node.kubelet.pre_start(held)
    usage, control = node.usage(hostile.nonce), node.control(hostile.nonce)
    claim_every_slot(usage)
    waiting = Player(node.control(neighbour.nonce), node.usage(neighbour.nonce), 0)
    with locking(usage, control), waiting as player:
        player.say(
            0, lib.AQ_WORK_WAITING
        )  # so that the arbiter wants to know whether the hostile tenant's processes live
        player.ring(0)
        silence_s = longest_silence_s(node.control(neighbour.nonce), WATCHED_S)
        waits_s = {
            "scrape": seconds_of(lambda: fetch(url)),
            "start": seconds_of(lambda: node.kubelet.pre_start(new)),
            "restart": seconds_of(lambda: node.kubelet.pre_start(hostile)),
        }
    print({"silence": silence_s, **waits_s})
    assert silence_s < WATCHED_S / 2
    assert max(waits_s.values()) < PATIENCE_S


def test_an_agent_may_keep_the_pages_of_many_containers_open(make_world: MakeWorld) -> None:
    """As many files as it may at all, however few a container runtime starts it with."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    try:
        node = make_world()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert node.process is not None
    assert resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE) == (most, most)
