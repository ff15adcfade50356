"""The agent's files are damaged, of a newer version or gone, and its disk is full."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from aliquot.libshim.control_page import read_control
from aliquot.sandbox.gpus import SimCard
from tests.integration.faults.test_cards import admitted
from tests.integration.plugin.small_kubelet import Held, until
from tests.integration.plugin.test_plugin_recovery import start_again
from tests.integration.plugin.world import MakeWorld, World

UNLIMITED = resource.RLIM_INFINITY
DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "another digit": lambda path: path.write_bytes(path.read_bytes().replace(b"10240", b"10200", 1)),
    "newer": lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9})),
    "absent": lambda path: path.unlink(),
}


@pytest.mark.slow
def test_damaged_files_of_pods_at_the_gate_and_behind_it_promise_nothing_twice(make_world: MakeWorld) -> None:
    """Tenancies of pods that run and cached placements of pods that wait, each damaged in another way at once."""
    world = make_world(*(SimCard() for _ in DAMAGE))
    held = [admitted(world, f"pod-{card}", card, 10) for card in range(len(DAMAGE))]
    for one in held:
        world.kubelet.pre_start(one)
    world.kill_plugin()
    for one, damage in zip(held, DAMAGE.values(), strict=True):
        for path in (world.state / "tenancies" / f"{one.uid}.json", world.state / "pods" / f"{one.uid}.json"):
            damage(path)
    start_again(world)
    for card, one in enumerate(held):
        rival = admitted(world, f"rival-{card}", card, 10)
        call = world.kubelet.ask(rival)
        refusal = f"pod default/rival-{card}: does not fit this node: card {world.uuids[card]}"
        until(lambda text=refusal: text in world.log, "the rival is kept out")
        call.cancel()
        world.kubelet.pre_start(one)
        (limit,) = read_control(world.control(one.nonce)).cards
        assert (limit.uuid, limit.memory_bytes) == (world.uuids[card], 10 << 30)


@contextmanager
def full_disk(world: World) -> Iterator[None]:
    """No file of the agent's can grow, as on a disk that is full; pages that are mapped can be written."""
    assert world.process is not None
    resource.prlimit(world.process.pid, resource.RLIMIT_FSIZE, (0, UNLIMITED))
    yield
    resource.prlimit(world.process.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


def contents(world: World) -> dict[Path, bytes]:
    """The agent's files of who was let in, and the specs of their containers."""
    places = [
        world.state / "journal",
        *(world.state / "tenancies").iterdir(),
        *(world.root / "cdi").iterdir(),
    ]
    return {path: path.read_bytes() for path in places}


def refused(world: World, held: Held) -> str:
    """Why a container may not start now."""
    with pytest.raises(grpc.RpcError) as refusal:
        world.kubelet.pre_start(held)
    return str(refusal.value.details())


@pytest.mark.slow
def test_a_full_disk_costs_retries_and_no_file(make_world: MakeWorld) -> None:
    """Pods are admitted, the gate says why it waits, old files stay whole, and room mends it; so do killed agents."""
    world = make_world(flags=["--placement-wait", "1"])
    runs = admitted(world, "runs", 0, 10)
    world.kubelet.pre_start(runs)
    before = contents(world)
    with full_disk(world):
        waits = admitted(world, "waits", 1, 10)
        assert "File too large" in refused(world, waits)
        assert contents(world) == before
    world.kubelet.pre_start(waits)
    world.kubelet.pre_start(runs)
    start_after_kill(world)
    for card, one in enumerate((runs, waits)):
        world.kubelet.pre_start(one)
        (limit,) = read_control(world.control(one.nonce)).cards
        assert (limit.uuid, limit.memory_bytes) == (world.uuids[card], 10 << 30)


def start_after_kill(world: World) -> None:
    """SIGKILL, and another agent."""
    world.kill_plugin()
    start_again(world)
