"""The agent without privileges: two capabilities, a pid namespace of its own, a read-only root, and few paths."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.control_page import read_control
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import ProcessName, name_of
from aliquot.request.placement import CardShare
from aliquot.sandbox.gpus import SimCard
from tests.integration.plugin.confinement import ConfinedWorld, can_confine
from tests.integration.plugin.conftest import short_directory
from tests.integration.plugin.small_kubelet import Held, until
from tests.integration.plugin.test_plugin_watchdog import is_doubted, let_in, say, spinning
from tests.integration.plugin.world import GPU, ApiServer, container, slice_of

pytestmark = pytest.mark.skipif(not can_confine(), reason="NOT RUN: needs root, unshare and setpriv")

GIB = 1024
NOBODY = 65534
LIVES = """
import os, sys, time
if os.fork() == 0:
    os.setgid(65534); os.setuid(65534)
    print("lives", flush=True)
    time.sleep(600)
os.wait()
"""


@contextmanager
def confined(api: ApiServer, *capabilities: str, hidden: str = "") -> Iterator[ConfinedWorld]:
    """A node with two cards and a confined agent; a path whose name is hidden is not given to it."""
    root = short_directory()
    world = ConfinedWorld(root, root.name.lower().replace("_", "-"), api, (SimCard(), SimCard()))
    world.capabilities = capabilities
    world.hidden = [path for path in world.paths() if path.name == hidden]
    assert len(world.hidden) == bool(hidden)
    world.join()
    world.kubelet.start()
    try:
        world.start_plugin()
        if not hidden:
            world.ready()
        yield world
    finally:
        world.close()
        subprocess.run(["rm", "-rf", str(root)], check=True)


def admitted(world: ConfinedWorld, name: str, memory: int = 10) -> Held:
    """A pod for which Allocate has answered."""
    share = CardShare(world.uuids[0], memory * GIB, 0)
    pod = world.pod(name, [container("main", slice_of(f"{memory}Gi"))], {"main": [share]})
    return world.kubelet.allocate(pod, "main", GPU, 1)


@contextmanager
def tenant() -> Iterator[Path]:
    """A process of another user in a pid namespace of its own, as /proc's directory on the host."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "python3", "-c", LIVES]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as outer:
        try:
            assert outer.stdout
            assert outer.stdout.readline() == b"lives\n"
            (first,) = children(outer.pid)
            (living,) = children(first)
            yield Path(f"/proc/{living}")
        finally:
            outer.kill()


def children(pid: int) -> list[int]:
    """Whom a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def occupy(usage: Path, name: ProcessName) -> None:
    """Writes what the interceptor would: that this process, as it knows itself, holds memory on the first card."""
    page = ffi.new("aq_usage_page *")
    ffi.memmove(page, usage.read_bytes(), lib.AQ_USAGE_SIZE)
    slot = page.slots[0]
    slot.owner, slot.pid, slot.start_time, slot.pid_namespace = (
        1,
        name.pid,
        name.start_time,
        name.pid_namespace,
    )
    page.cards[0].memory = slot.memory[0] = (1 << 30) << lib.AQ_TALLY_SHIFT
    with usage.open("r+b") as file:
        file.write(bytes(ffi.buffer(page)))


def test_the_journey(own_api: ApiServer):
    """Admission, start, restart of the agent, end: with two capabilities and what is listed."""
    with confined(own_api, "sys_ptrace", "sys_nice") as world:
        held = admitted(world, "infer")
        world.kubelet.pre_start(held)
        assert read_control(world.control(held.nonce)).cards[0].memory_bytes == 10 << 30
        assert world.inside("grep", "CapEff", "/proc/self/status").split()[1] == f"{1 << 19 | 1 << 23:016x}"
        assert world.inside("sh", "-c", "echo /proc/[0-9]*") == "/proc/1"
        before = world.kubelet.registrations
        world.restart_plugin()
        until(lambda: world.kubelet.registrations > before, "registered again")
        world.ready()
        world.kubelet.pre_start(held)
        world.delete("infer")
        world.kubelet.forget(held.uid)
        until(lambda: not (world.root / "run" / "tenants" / held.uid).exists(), "given back")
        assert "SYS_PTRACE" not in world.log
        assert "SYS_NICE" not in world.log


@pytest.mark.slow
@pytest.mark.parametrize("capabilities", [("sys_ptrace",), ()], ids=["sys_ptrace", "none"])
def test_a_force_deleted_pods_process_is_seen(own_api: ApiServer, capabilities: tuple[str, ...]):
    """Of another user, in a namespace of its own; also where its namespace may not be looked at."""
    with confined(own_api, *capabilities) as world, tenant() as process:
        first, second = admitted(world, "zombie"), admitted(world, "next")
        world.kubelet.pre_start(first)
        occupy(world.usage(first.nonce), name_of(process))
        world.delete("zombie")
        world.kubelet.forget(first.uid)
        with pytest.raises(grpc.RpcError, match="does not fit this node"):
            world.kubelet.pre_start(second)
        (parent,) = [
            line.split()[1] for line in (process / "status").read_text().splitlines() if "PPid" in line
        ]
        for pid in (parent, process.name):  # the first may take the other with it
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        world.kubelet.pre_start(second)
        assert read_control(world.control(second.nonce)).cards[0].memory_bytes == 10 << 30


ASK = """
import sys
from pathlib import Path
from aliquot.node.processes import identity_of
print(identity_of(int(sys.argv[1]), Path("/host/proc")))
"""


@pytest.mark.slow
def test_what_sys_ptrace_is_for(own_api: ApiServer):
    """Without it a process cannot be named as its tenant's page names it, and the agent says so."""
    with confined(own_api) as world, tenant() as process:
        until(lambda: "SYS_PTRACE is missing" in world.log, "told")
        assert world.inside("python3", "-c", ASK, process.name) == "None"
        world.capabilities = ("sys_ptrace",)
        name = name_of(process)
        told = world.inside("python3", "-c", ASK, process.name)
        assert told == str((name.pid, name.pid_namespace, name.start_time))
        assert name.pid != int(process.name)


NAME = "aliquot-arbiter\n"


def threads_below(pid: int) -> Iterator[Path]:
    """Of a process and of all that it has started."""
    yield from Path(f"/proc/{pid}/task").iterdir()
    for child in children(pid):
        yield from threads_below(child)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capabilities", "policy"),
    [(("sys_ptrace", "sys_nice"), os.SCHED_FIFO), (("sys_ptrace",), os.SCHED_OTHER)],
    ids=["sys_nice", "without"],
)
def test_what_sys_nice_is_for(own_api: ApiServer, capabilities: tuple[str, ...], policy: int):
    """Without it the arbiter's thread has ordinary priority, and the agent says so."""
    with confined(own_api, *capabilities) as world:
        assert world.process
        threads = {
            task for task in threads_below(world.process.pid) if task.joinpath("comm").read_text() == NAME
        }
        assert [os.sched_getscheduler(int(task.name)) for task in threads] == [policy]
        assert ("SYS_NICE is missing" in world.log) == (policy != os.SCHED_FIFO)


@pytest.mark.slow
def test_the_watchdog_finds_a_silent_tenant(own_api: ApiServer):
    """By the driver's pids, which are the host's, looked up in the host's /proc."""
    with confined(own_api, "sys_ptrace") as world:
        held = let_in(world, "quiet")
        with spinning(world) as process:
            occupy(world.usage(held.nonce), name_of(Path(f"/proc/{process.pid}")))
            say(world.usage(held.nonce), 0)
            until(lambda: is_doubted(world, held), "found")
        assert read_usage(world.usage(held.nonce))


NEEDED = {
    "device-plugins": "registers there",
    "pod-resources": "asks there whose ids are about to start",
    "state": "keeps there what must survive a reboot",
    "run": "makes the pages there",
    "cdi": "writes the specs there",
    "machine": "finds the driver there",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", NEEDED)
def test_every_path_is_needed(own_api: ApiServer, path: str):
    """Without one of them, no container starts."""
    with confined(own_api, "sys_ptrace", hidden=path) as world:
        until(lambda: world.log or (world.process and world.process.poll() is not None), "it says something")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if GPU in world.kubelet.endpoints:
                held = admitted(world, "vain")
                with pytest.raises(grpc.RpcError):
                    world.kubelet.pre_start(held, 2.0)
                return
            time.sleep(0.05)
        assert GPU not in world.kubelet.endpoints, NEEDED[path]
