"""Damaged files, lost files, and an API server that is away."""

import shutil
import signal

import pytest

from aliquot.libshim.control_page import read_control
from aliquot.request.placement import CardShare
from tests.integration.plugin.small_kubelet import DEADLINE_S, Held, until
from tests.integration.plugin.world import GPU, ApiServer, MakeWorld, World, container, slice_of

GIB = 1024


def started(world: World, name: str = "pod", memory: int = 10) -> Held:
    """A pod whose container has started on the first card."""
    held = admitted(world, name, memory)
    world.kubelet.pre_start(held)
    return held


def admitted(world: World, name: str, memory: int = 10) -> Held:
    """A pod for which Allocate has answered."""
    share = CardShare(world.uuids[0], memory * GIB, 0)
    pod = world.pod(name, [container("main", slice_of(f"{memory}Gi"))], {"main": [share]})
    return world.kubelet.allocate(pod, "main", GPU, 1)


def start_again(world: World) -> None:
    """The plugin after a kill, registered."""
    before = world.kubelet.registrations
    world.start_plugin()
    until(lambda: world.kubelet.registrations > before, "registered again")
    world.ready()


def check_still_taken(world: World) -> None:
    """The card has no room for another pod of this size."""
    world.check_no_room(admitted(world, "rival"), "10240 MiB asked, 6144 MiB left")
    world.delete("rival")


@pytest.mark.slow
def test_restarts_work_while_the_api_server_is_away(make_world: MakeWorld, own_api: ApiServer):
    """Agent and container are both restarted; what was placed is in the node's own files."""
    world = make_world(api=own_api)
    held, waiting = started(world), admitted(world, "second", 2)
    until((world.state / "pods" / f"{waiting.uid}.json").exists, "placement cached")
    own_api.kill()
    world.kill_plugin()
    shutil.rmtree(world.root / "run")
    start_again(world)
    world.kubelet.pre_start(held)
    world.kubelet.pre_start(waiting)
    assert read_control(world.control(held.nonce)).cards[0].memory_bytes == 10 << 30
    assert read_control(world.control(waiting.nonce)).cards[0].memory_bytes == 2 << 30


@pytest.mark.slow
def test_nothing_is_given_back_on_silence(make_world: MakeWorld, own_api: ApiServer):
    """API server away, kubelet just restarted: neither names the pod, and it keeps its card."""
    world = make_world(api=own_api)
    started(world)
    rival = admitted(world, "rival")
    own_api.kill()
    world.kill_plugin()
    kept, world.kubelet.held = world.kubelet.held, []
    start_again(world)
    world.kubelet.held = kept
    world.check_no_room(rival, "10240 MiB asked, 6144 MiB left")


@pytest.mark.slow
def test_a_damaged_journal_is_set_aside_and_made_good_by_the_kubelets_notes(world: World):
    """Every good line is kept; a lost one is found in the answer the kubelet has kept."""
    held = started(world)
    world.kill_plugin()
    journal = world.state / "journal"
    journal.write_bytes(b"garbage\n" + journal.read_bytes()[5:])
    start_again(world)
    assert (world.state / "journal.corrupt-1").exists()
    assert "is damaged (line 1" in world.log
    world.kubelet.pre_start(held)
    check_still_taken(world)


@pytest.mark.slow
def test_a_journal_line_cut_short_by_a_kill_is_dropped(world: World):
    """It was never answered, so nobody misses it and nothing is set aside."""
    held = started(world)
    world.kill_plugin()
    with (world.state / "journal").open("ab") as journal:
        journal.write(b'12345678 {"nonce":"ab')
    start_again(world)
    assert not (world.state / "journal.corrupt-1").exists()
    world.kubelet.pre_start(held)
    check_still_taken(world)


def test_a_damaged_tenancy_is_recovered_from_the_pages(make_world: MakeWorld, own_api: ApiServer):
    """Nobody else knows the placement any more, but the pages say what the pod may use: the card stays taken."""
    world = make_world(api=own_api)
    held, rival = started(world), admitted(world, "rival")
    until((world.state / "pods" / f"{rival.uid}.json").exists, "placement cached")
    own_api.kill()
    world.kill_plugin()
    path = world.state / "tenancies" / f"{held.uid}.json"
    path.write_bytes(path.read_bytes()[:40])
    (world.state / "pods" / f"{held.uid}.json").unlink()
    start_again(world)
    assert path.with_name(f"{path.name}.corrupt-1").exists()
    assert f"tenancy of pod {held.uid} recovered from its pages" in world.log
    world.check_no_room(rival, "10240 MiB asked, 6144 MiB left")


@pytest.mark.slow
def test_a_damaged_cached_pod_is_set_aside(world: World):
    """The API server has the placement still."""
    held = started(world)
    world.kill_plugin()
    (world.state / "pods" / f"{held.uid}.json").write_bytes(b"\x00")
    start_again(world)
    assert (world.state / "pods" / f"{held.uid}.json.corrupt-1").exists()
    world.kubelet.pre_start(held)
    check_still_taken(world)


@pytest.mark.slow
def test_with_all_files_lost_kubelet_and_api_server_know_enough(world: World):
    """All is wiped: who holds slices is asked of the kubelet, what was placed of the API server."""
    held = started(world)
    world.kill_plugin()
    shutil.rmtree(world.state)
    shutil.rmtree(world.root / "run")
    shutil.rmtree(world.root / "cdi")
    start_again(world)
    check_still_taken(world)
    world.kubelet.pre_start(held)


def test_nobody_is_let_in_before_the_api_server_has_told_of_pods_that_run(
    make_world: MakeWorld, own_api: ApiServer
):
    """All but the later pod's placement is lost, and the API server is slow: the gate waits for its answer."""
    world = make_world(api=own_api)
    rival, held = admitted(world, "a-rival"), started(world)
    world.tell_running("pod", "main")
    until((world.state / "pods" / f"{rival.uid}.json").exists, "placement cached")
    world.kill_plugin()
    shutil.rmtree(world.state / "tenancies")
    shutil.rmtree(world.root / "run")
    (world.state / "pods" / f"{held.uid}.json").unlink()
    own_api.process.send_signal(signal.SIGSTOP)
    start_again(world)
    call = world.kubelet.ask(rival)
    until(lambda: "still finding out what runs" in world.log or call.done(), "the gate waits")
    own_api.process.send_signal(signal.SIGCONT)
    world.check_no_room(rival, "10240 MiB asked, 6144 MiB left")
    call.cancel()


def test_a_deleted_spec_is_there_again_before_the_container_restarts(world: World):
    """Somebody cleans the CDI directory."""
    held = started(world)
    shutil.rmtree(world.root / "cdi")
    world.kubelet.pre_start(held)
    assert world.control(held.nonce).exists()


def test_ids_in_use_stay_listed_when_slices_per_card_shrink(world: World):
    """A kubelet restart would reject pods whose ids are gone."""
    held = [admitted(world, f"pod-{number}", 1) for number in range(3)]
    world.kill_plugin()
    world.flags += ["--slices-per-card", "1"]
    start_again(world)
    devices = world.kubelet.wait_for(GPU).devices
    assert {one for h in held for one in h.ids} <= devices.keys()
    assert len(devices) <= 5


def test_sigterm_ends_the_agent_quietly_and_at_once(world: World):
    """Status 0, and the socket is gone."""
    process = world.process
    assert process is not None
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert "Traceback" not in world.log
    assert not (world.kubelet.plugins / "aliquot-gpu.sock").exists()


def test_the_interceptor_of_a_running_container_is_never_overwritten(world: World):
    """A new library goes under a new path; the old file keeps its inode."""
    held = started(world)
    old = world.edits(held.nonce)[0]["/usr/local/aliquot/libaliquot.so"]
    (path,) = (world.state / "lib").glob("*/libaliquot.so")
    inode = path.stat().st_ino
    assert old == str(path)
    newer = world.root / "newer" / "libaliquot.so"
    shutil.copytree(path.parent, newer.parent / "forwarder")
    newer.write_bytes(path.read_bytes() + b"\0")
    world.kill_plugin()
    world.flags += ["--library", str(newer)]
    start_again(world)
    world.kubelet.pre_start(held)
    assert world.edits(held.nonce)[0]["/usr/local/aliquot/libaliquot.so"] != old
    assert path.stat().st_ino == inode
