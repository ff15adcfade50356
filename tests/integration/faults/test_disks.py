"""The file systems that the agent writes to, each full or read-only, while pods come, start again and go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.libshim.control_page import read_control
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import ProcessName
from aliquot.plugin.container.tenant_pages import pristine
from tests.integration.faults.disks import Disk, can_mount, disks
from tests.integration.faults.test_cards import admitted
from tests.integration.faults.test_files import contents, refused
from tests.integration.plugin.small_kubelet import DEADLINE_S, until
from tests.integration.plugin.test_plugin_confined import occupy
from tests.integration.plugin.world import MakeWorld, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_mount(), reason="NOT RUN: needs a mount namespace"),
]

NOBODY = ProcessName(1 << 22, 1, 1)
PLACES = ("state", "run", "cdi")
FAULTS = {
    "full": (Disk.full, "No space left on device"),
    "read-only": (Disk.read_only, "Read-only file system"),
}


@pytest.fixture
def mounted(make_world: MakeWorld) -> Iterator[tuple[World, dict[str, Disk]]]:
    """A node with a file system for each place, and its agent."""
    world = make_world(start=False, flags=["--placement-wait", "1"])
    with disks(world.root, *PLACES) as places:
        world.start_plugin()
        world.ready()
        yield world, places
        world.kill_plugin()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_it_waits_says_why_and_goes_on(
    mounted: tuple[World, dict[str, Disk]], place: str, fault: str
) -> None:
    """Pods are admitted, nobody starts without its files, who runs keeps them, and who is gone leaves nothing."""
    world, places = mounted
    broken, says = FAULTS[fault]
    runs, leaves = admitted(world, "runs", 0, 10), admitted(world, "leaves", 1, 10)
    for one in (runs, leaves):
        world.kubelet.pre_start(one)
    page = world.control(leaves.nonce)
    occupy(world.usage(runs.nonce), NOBODY)
    before = contents(world)
    with broken(places[place]):
        waits = admitted(world, "waits", 0, 4)
        assert says in refused(world, waits)
        now = contents(world)
        assert all(now[path].startswith(content) for path, content in before.items())
        if fault == "full" and place != "cdi":
            world.kubelet.pre_start(runs)  # nothing of it has to grow
            assert pristine(read_usage(world.usage(runs.nonce)))
        world.delete("leaves")
        world.kubelet.forget(leaves.uid)
        if fault == "read-only":
            until(lambda: "not given back yet: pod default/leaves" in world.log, "it could not be removed")
        start_in_vain(world, names_lock=(place, fault) == ("state", "read-only"))
    if world.process is None:
        world.start_plugin()
    world.ready()
    until(lambda: not page.exists() and left_of(world, leaves.uid, leaves.nonce) == [], "nothing is left")
    world.kubelet.pre_start(waits)
    world.kubelet.pre_start(runs)
    for one, gib in ((runs, 10), (waits, 4)):
        (limit,) = read_control(world.control(one.nonce)).cards
        assert (limit.uuid, limit.memory_bytes) == (world.uuids[0], gib << 30)


def start_in_vain(world: World, *, names_lock: bool) -> None:
    """SIGKILL; the next agent serves all the same, or ends and names the file that it cannot do without."""
    world.kill_plugin()
    known = len(world.log)
    world.start_plugin()
    process = world.process
    assert process is not None
    if names_lock:
        assert process.wait(DEADLINE_S) == 1
        assert f"Read-only file system: '{world.state / 'lock'}'" in world.log[known:]
        world.process = None
    else:
        until(lambda: "registered aliquot.dev/gpu with the kubelet" in world.log[known:], "it serves")
    assert "Traceback" not in world.log


def left_of(world: World, uid: str, nonce: str) -> list[Path]:
    """Files and directories of a pod."""
    places = [path for name in PLACES for path in (world.root / name).rglob("*")]
    return [path for path in places if uid in path.name or nonce in path.name]
