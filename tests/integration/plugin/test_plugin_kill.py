"""SIGKILL at every step of a container's way in: nothing is lost, nothing is promised twice."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from aliquot.libshim.control_page import read_control
from aliquot.request.placement import CardShare
from tests.integration.plugin.small_kubelet import Held, until
from tests.integration.plugin.world import GPU, World, container, slice_of

pytestmark = pytest.mark.slow

GIB = 1024


def admitted(world: World, name: str, memory: int = 10) -> Held:
    """A pod placed on the first card, for which Allocate has answered."""
    share = CardShare(world.uuids[0], memory * GIB, 0)
    pod = world.pod(name, [container("main", slice_of(f"{memory}Gi"))], {"main": [share]})
    return world.kubelet.allocate(pod, "main", GPU, 1)


def kill_when(world: World, seen: Callable[[], object]) -> threading.Thread:
    """Kills the plugin the moment something can be seen on disk."""
    process = world.process
    assert process is not None

    def watch() -> None:
        while not seen() and process.poll() is None:
            pass
        process.kill()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def try_to_start(world: World, held: Held) -> bool:
    """One attempt of the kubelet; an error is what a killed plugin answers."""
    try:
        world.kubelet.pre_start(held)
    except grpc.RpcError:
        return False
    return True


def check_nothing_lost(world: World, held: Held) -> None:
    """The container starts with its own limits, and a second pod of the same size does not fit beside it."""
    world.kubelet.pre_start(held)
    (limit,) = read_control(world.control(held.nonce)).cards
    assert (limit.uuid, limit.memory_bytes) == (world.uuids[0], 10 << 30)
    world.check_no_room(admitted(world, "rival"), "10240 MiB asked, 6144 MiB left")
    world.delete("rival")


def restart(world: World) -> None:
    """A new plugin process, registered."""
    before = world.kubelet.registrations
    world.restart_plugin()
    until(lambda: world.kubelet.registrations > before, "registered again")
    world.ready()


STEPS: dict[str, Callable[[World, Held], Path]] = {
    "the tenancy is written": lambda world, held: world.state / "tenancies" / f"{held.uid}.json",
    "the usage page is there": lambda world, held: (
        world.root / "run" / "tenants" / held.uid / "main" / "usage"
    ),
    "the control page is there": lambda world, held: (
        world.root / "run" / "tenants" / held.uid / "main" / "control"
    ),
    "the spec is there": lambda world, held: world.root / "cdi" / f"aliquot.dev-slice_{held.nonce}.json",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_inside_the_gate_costs_a_retry_and_nothing_else(world: World, step: str):
    """Killed as soon as a step's file can be seen, wherever the plugin is by then."""
    held = admitted(world, "pod")
    path = STEPS[step](world, held)
    killer = kill_when(world, path.exists)
    try_to_start(world, held)
    killer.join(10)
    restart(world)
    check_nothing_lost(world, held)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_kill_between_allocate_and_the_gate_loses_no_answer(world: World, checkpoint: bool):
    """The nonce was on disk before Allocate answered, whether or not the kubelet's notes tell it too."""
    world.kubelet.writes_checkpoint = checkpoint
    held = admitted(world, "pod")
    restart(world)
    check_nothing_lost(world, held)


def test_a_kill_while_the_gate_waits_for_a_placement(world: World):
    """The kubelet's call breaks; the placement comes while nobody listens."""
    pod = world.pod("pod", [container("main", slice_of("10Gi"))], None)
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    attempt = threading.Thread(target=try_to_start, args=(world, held))
    attempt.start()
    until(lambda: "a container waits: pod default/pod: has no placement" in world.log, "the gate waits")
    world.kill_plugin()
    attempt.join()
    text = world.placement(held.uid, {"main": [CardShare(world.uuids[0], 10 * GIB, 0)]})
    patch = {"metadata": {"annotations": {"aliquot.dev/placement": text}}}
    path = "/api/v1/namespaces/default/pods/pod"
    world.api.request("PATCH", path, patch, "application/merge-patch+json")
    restart(world)
    check_nothing_lost(world, held)


def test_a_kill_after_the_start_keeps_the_promise(world: World):
    """The container runs; its pages stay the same files, and its card stays taken."""
    held = admitted(world, "pod")
    world.kubelet.pre_start(held)
    inode = world.control(held.nonce).stat().st_ino
    restart(world)
    check_nothing_lost(world, held)
    assert world.control(held.nonce).stat().st_ino == inode


def test_kills_at_random_moments(world: World):
    """Several rounds; the seed is printed so that a failure can be had again."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(4):
        held = admitted(world, f"pod-{number}")
        process = world.process
        assert process is not None
        killer = threading.Timer(chance.uniform(0, 0.03), process.kill)
        killer.start()
        try_to_start(world, held)
        killer.join()
        restart(world)
        world.kubelet.pre_start(held)
        (limit,) = read_control(world.control(held.nonce)).cards
        assert limit.memory_bytes == 10 << 30, f"seed {seed}"
        world.delete(held.pod)
        world.kubelet.forget(held.uid)
