"""Usage pages in volumes of the pods' own: what a tenant does to its page, or to its volume, reaches nobody else."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.libshim._pages import lib
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import ProcessName
from aliquot.plugin.container.tenant_pages import pristine
from aliquot.request.placement import CardShare
from tests.integration.faults.disks import can_mount, disks
from tests.integration.faults.test_files import refused
from tests.integration.plugin.small_kubelet import Held
from tests.integration.plugin.test_plugin_confined import occupy
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

pytestmark = pytest.mark.skipif(not can_mount(), reason="NOT RUN: needs a mount namespace")

VOLUME = "aliquot-usage-0"
SOURCE = {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "128Ki"}}
MOUNTS = [{"name": VOLUME, "mountPath": "/run/aliquot/usage", "subPath": "usage"}]
ROOM = 128 << 10
GIB = 1024
SOMEBODY = ProcessName(1 << 22, 1, 1)


@pytest.fixture
def world(make_world: MakeWorld) -> Iterator[World]:
    """A node whose tenants' pages are on a file system of 4 MiB, but for those in volumes."""
    world = make_world(start=False, flags=["--placement-wait", "1"])
    with disks(world.root, "run"):
        world.start_plugin()
        world.ready()
        yield world
        world.kill_plugin()


def admitted(world: World, name: str, volume: Path | None = None) -> Held:
    """A pod whose webhook has added a volume, which the kubelet has mounted from there, if at all."""
    main = container("main", slice_of("2Gi"), volumeMounts=MOUNTS)
    share = CardShare(world.uuids[0], 2 * GIB, 0)
    pod = world.pod(name, [main], {"main": [share]}, volumes=[SOURCE])
    if volume is not None:
        directory = (
            world.kubelet.directory / "pods" / pod["metadata"]["uid"] / "volumes/kubernetes.io~empty-dir"
        )
        directory.mkdir(parents=True)
        (directory / VOLUME).symlink_to(volume)
    return world.kubelet.allocate(pod, "main", GPU, 1)


@pytest.fixture
def volume(world: World) -> Iterator[Path]:
    """A volume as large as the webhook asks for."""
    with disks(world.root, "volume", room=str(ROOM)) as made:
        yield made["volume"].path


def fill(path: Path) -> int:
    """Makes a file as long as its file system lets it be; returns how long that is."""
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return file.tell()
    raise AssertionError("unreachable")


def test_a_page_that_grows_fills_its_own_volume(world: World, volume: Path):
    """The next pod finds its room, and its own container starts again with a page as it was."""
    first = admitted(world, "hog", volume)
    world.kubelet.pre_start(first)
    page = volume / "usage"
    assert (page.stat().st_mode & 0o777, page.stat().st_size) == (0o666, lib.AQ_USAGE_FILE_SIZE)
    assert "/run/aliquot/usage" not in world.edits(first.nonce)[0]
    occupy(page, SOMEBODY)
    assert fill(page) == ROOM
    world.kubelet.pre_start(admitted(world, "next"))
    inode = page.stat().st_ino
    world.kubelet.pre_start(first)
    assert (page.stat().st_ino, page.stat().st_size) == (inode, lib.AQ_USAGE_FILE_SIZE)
    assert pristine(read_usage(page))


def test_without_a_volume_it_fills_what_all_pages_are_on(world: World):
    """Pods whose kubelet or webhook makes none go on as before."""
    first = admitted(world, "hog")
    world.kubelet.pre_start(first)
    fill(world.usage(first.nonce))
    assert "No space left on device" in refused(world, admitted(world, "next"))


def test_a_restarted_agent_finds_the_page(world: World, volume: Path):
    """The tenant's processes have it open, so it must be the same."""
    held = admitted(world, "goes-on", volume)
    world.kubelet.pre_start(held)
    occupy(volume / "usage", SOMEBODY)
    world.restart_plugin()
    world.ready()
    known = world.root / "run" / "tenants" / held.uid / "main" / "usage"
    assert known.samefile(volume / "usage")
    world.kubelet.pre_start(held)
    assert pristine(read_usage(volume / "usage"))


REPLACED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a link": (Path.symlink_to, "Too many levels of symbolic links"),
    "a pipe": (lambda page, _: os.mkfifo(page), "no regular file"),
}


@pytest.mark.parametrize(("replace", "says"), REPLACED.values(), ids=REPLACED.keys())
def test_what_is_no_page_is_not_used(
    world: World, volume: Path, replace: Callable[[Path, Path], object], says: str
):
    """Were a tenant to reach the volume: nothing of the host is read or written, and others start."""
    precious = world.root / "precious"
    precious.write_bytes(b"precious" * 20000)
    held = admitted(world, "swaps", volume)
    world.kubelet.pre_start(held)
    (volume / "usage").unlink()
    replace(volume / "usage", precious)
    assert says in refused(world, held)
    assert precious.read_bytes() == b"precious" * 20000
    world.kubelet.pre_start(admitted(world, "next"))


def test_what_others_have_left_is_taken_away(world: World, volume: Path):
    """The kubelet makes a directory where it finds no page, and an agent that is killed leaves half a page."""
    held = admitted(world, "late", volume)
    (volume / "usage").mkdir()
    (volume / ".usage.half").write_bytes(bytes(60000))
    world.kubelet.pre_start(held)
    assert pristine(read_usage(volume / "usage"))
    assert [path.name for path in volume.iterdir()] == ["usage"]


def test_a_volume_that_is_none_is_refused(world: World, tmp_path: Path):
    """It would fill the host's file system; the message says what must be."""
    held = admitted(world, "on-disk", tmp_path)
    world.kubelet.directory.joinpath("pods", held.uid, "volumes/kubernetes.io~empty-dir", VOLUME).unlink()
    world.kubelet.directory.joinpath("pods", held.uid, "volumes/kubernetes.io~empty-dir", VOLUME).mkdir()
    assert f"volume {VOLUME} is not mounted here" in refused(world, held)


def test_a_large_volume_is_refused(world: World):
    """It is one of another kubelet's making: without a limit such volumes have half of the host's memory."""
    with disks(world.root, "large", room="64m") as made:
        held = admitted(world, "large", made["large"].path)
        assert f"volume {VOLUME} has {64 << 20} bytes" in refused(world, held)
