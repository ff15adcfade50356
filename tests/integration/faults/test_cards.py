"""Cards and drivers that fail, hang, are replaced, or are found in another order after a reboot."""

import shutil
import time
from collections import defaultdict

import pytest

from aliquot.libshim.control_page import read_control
from aliquot.request.placement import CardShare
from aliquot.sandbox.gpus import SimCard, SimMig
from tests.integration.plugin.small_kubelet import DEADLINE_S, Held, until
from tests.integration.plugin.test_plugin_health import published
from tests.integration.plugin.test_plugin_metrics import fetch, start_and_serve
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

GIB = 1024
XIDS_OF_THE_CARD = (48, 63, 64, 79, 94, 95, 119)
XIDS_OF_A_PROGRAM = (13, 31, 43, 45, 68, 109)
MIG = "aliquot.dev/mig-1g.18gb"


def admitted(world: World, name: str, card: int, memory: int = 2) -> Held:
    """A pod on one card, for which Allocate has answered."""
    share = CardShare(world.uuids[card], memory * GIB, 0)
    pod = world.pod(name, [container("main", slice_of(f"{memory}Gi"))], {"main": [share]})
    return world.kubelet.allocate(pod, "main", GPU, 1)


def health_of_slices(world: World, resource: str = GPU) -> dict[str, set[str]]:
    """What the kubelet knows of each card's slices, or of each MIG instance."""
    found = defaultdict(set)
    for one, health in world.kubelet.wait_for(resource).devices.items():
        found[one.partition("::")[0]].add(health)
    return found


@pytest.mark.slow
def test_each_error_of_a_card_withdraws_its_slices_and_no_error_of_a_program_does(
    make_world: MakeWorld,
) -> None:
    """Every XID of both lists, an ECC error, and one on a card divided by MIG; the next agent has all of them again."""
    errors = (*XIDS_OF_THE_CARD, *XIDS_OF_A_PROGRAM)
    divided, broken_memory = len(errors), len(errors) + 1
    instances = (SimMig("1g.18gb", gi=7), SimMig("1g.18gb", gi=8))
    world = make_world(*(SimCard() for _ in errors), SimCard(mig=instances), SimCard(), start=False)
    metrics = start_and_serve(world)
    until(lambda: set(published(world).values()) == {"Healthy"}, "all cards are published")
    for card, xid in enumerate(errors):
        world.machine.raise_xid(card, xid)
    world.machine.raise_xid(divided, 79)
    world.machine.raise_ecc(broken_memory)
    for error in (*(f"xid_{xid}" for xid in errors), "ecc"):
        until(lambda error=error: f'error="{error}"' in fetch(metrics), f"{error} is counted")
    sick = {*range(len(XIDS_OF_THE_CARD)), divided, broken_memory}
    wanted = {u: "Unhealthy" if n in sick else "Healthy" for n, u in enumerate(world.uuids)}
    until(lambda: published(world) == wanted, "the cluster knows which")
    slices = {uuid: {health} for uuid, health in wanted.items() if uuid != world.uuids[divided]}
    until(lambda: health_of_slices(world) == slices, "the kubelet knows which")
    until(lambda: set().union(*health_of_slices(world, MIG).values()) == {"Unhealthy"}, "no instance is well")
    world.restart_plugin()
    until(lambda: set(published(world).values()) == {"Healthy"}, "a card that was reset is asked anew")


@pytest.mark.slow
def test_a_card_that_hangs_is_unhealthy_and_holds_up_no_other(make_world: MakeWorld) -> None:
    """The driver answers nothing about one card: the kubelet hears so, and the other card's pods start meanwhile."""
    world = make_world()
    world.machine.update(0, stuck=True)
    slices = world.kubelet.wait_for(GPU)
    well = {world.uuids[0]: {"Unhealthy"}, world.uuids[1]: {"Healthy"}}
    number = 0
    while health_of_slices(world) != well:
        held, begun = admitted(world, f"pod-{number}", 1), time.monotonic()
        world.kubelet.pre_start(held)
        assert time.monotonic() - begun < 5
        world.delete(held.pod)
        world.kubelet.forget(held.uid)
        number += 1
        assert number < 500, "the kubelet never hears of the card"
    assert number > 1
    assert not slices.ended
    until(lambda: published(world)[world.uuids[0]] == "Unhealthy", "the cluster knows")
    world.machine.update(0, stuck=False)
    until(lambda: set(slices.devices.values()) == {"Healthy"}, "it answers again")


@pytest.mark.slow
def test_an_agent_that_starts_while_a_card_hangs_serves_the_others(make_world: MakeWorld) -> None:
    """The card is left out until it answers, and the agent can be ended meanwhile."""
    world = make_world(start=False)
    world.machine.update(0, stuck=True)
    world.start_plugin()
    world.kubelet.pre_start(admitted(world, "pod", 1))
    assert health_of_slices(world) == {world.uuids[1]: {"Healthy"}}
    assert "card 0 is left out" in world.log
    process = world.process
    assert process is not None
    process.terminate()
    assert process.wait(DEADLINE_S) == 0


@pytest.mark.slow
def test_an_agent_ends_when_the_driver_is_replaced_and_the_next_one_goes_on(world: World) -> None:
    """It says why; the pod that runs keeps its pages, and the next pod starts under the new driver."""
    held = admitted(world, "pod", 0)
    world.kubelet.pre_start(held)
    inode = world.control(held.nonce).stat().st_ino
    world.machine.replace_driver("620.10.01")
    process = world.process
    assert process is not None
    assert process.wait(DEADLINE_S) == 1
    assert "the driver was replaced, the next agent will have the new one" in world.log
    world.start_plugin()
    world.kubelet.pre_start(admitted(world, "next", 0))
    until(lambda: set(published(world).values()) == {"Healthy"}, "all cards are well")
    assert world.control(held.nonce).stat().st_ino == inode


@pytest.mark.slow
def test_cards_in_another_order_after_a_reboot_are_the_same_cards(world: World) -> None:
    """A pod that starts again gets the card of its placement under its new number, and nobody else fits beside it."""
    mine, other = admitted(world, "mine", 0, 10), admitted(world, "other", 1, 10)
    for held in (mine, other):
        world.kubelet.pre_start(held)
    world.kill_plugin()
    world.kubelet.stop()
    shutil.rmtree(world.root / "run")
    shutil.rmtree(world.root / "cdi")
    world.machine.rearrange([1, 0])
    world.kubelet.start()
    world.start_plugin()
    for number, held in ((1, mine), (0, other)):
        world.kubelet.pre_start(held)
        assert world.edits(held.nonce)[1][0] == f"/dev/nvidia{number}"
        assert read_control(world.control(held.nonce)).cards[0].uuid == world.uuids[1 - number]
    world.check_no_room(admitted(world, "rival", 0, 10), "10240 MiB asked, 6144 MiB left")
