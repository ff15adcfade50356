"""The journey of a container through the five calls of the kubelet."""

import grpc
import pytest

from aliquot.libshim.control_page import CardLimit, Enforcement, read_control
from aliquot.libshim.usage_page import read_usage
from aliquot.request.placement import CardShare
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

GIB = 1024


def test_a_container_gets_its_card_its_limits_and_the_driver(busy: World):
    """From a bound pod to a CDI spec with the chosen card, the driver, the interceptor and both pages."""
    share = CardShare(busy.uuids[1], 8 * GIB, 30)
    minor = next(card.minor for card in busy.machine.cards if card.uuid == share.uuid)
    pod = busy.pod("infer", [container("main", slice_of("8Gi", 30))], {"main": [share]})
    held = busy.kubelet.allocate(pod, "main", GPU, 1)
    assert held.cdi == [f"aliquot.dev/slice={held.nonce}"]
    assert not held.answer.envs
    assert not held.answer.mounts
    busy.kubelet.pre_start(held)
    mounts, nodes, env = busy.edits(held.nonce)
    assert nodes == [f"/dev/nvidia{minor}", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/local/aliquot/libaliquot.so"} <= mounts.keys()
    assert "NVIDIA_VISIBLE_DEVICES=void" in env
    control = read_control(busy.control(held.nonce))
    assert control.tenant == "default/infer/main"
    assert control.cards == (CardLimit(busy.uuids[1], 8 << 30, 30, core_share_bp=3000, core_most_percent=30),)
    assert read_usage(busy.usage(held.nonce)).processes == ()


def test_the_driver_may_lie_elsewhere_on_the_host(make_world: MakeWorld):
    """As in a pod: specs have the host's names, and NVML comes from there where the loader does not know of it."""
    world = make_world(start=False)
    world.start_plugin("--host-driver-root", "/run/nvidia/driver", env={"LD_LIBRARY_PATH": ""})
    world.ready()
    pod = world.pod(
        "mounted", [container("main", slice_of("1Gi"))], {"main": [CardShare(world.uuids[0], GIB, 0)]}
    )
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    world.kubelet.pre_start(held)
    mounts = world.edits(held.nonce)[0]
    assert mounts["/usr/local/aliquot/libcuda-real.so.1"].startswith("/run/nvidia/driver/libcuda.so.")
    assert "NVML is " in world.log


def test_the_agent_says_how_strict_a_card_of_no_pool_is(make_world: MakeWorld):
    """An admin who tries Aliquot first has limits observed in the whole cluster."""
    world = make_world(flags=["--enforcement", "observe"])
    share = {"main": [CardShare(world.uuids[0], GIB, 0)]}
    pod = world.pod("observed", [container("main", slice_of("1Gi"))], share)
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    world.kubelet.pre_start(held)
    assert read_control(world.control(held.nonce)).enforcement is Enforcement.OBSERVE


def test_no_placement_is_waited_for_and_then_named(busy: World):
    """A pod that was bound by another scheduler is refused with the reason, after the wait."""
    pod = busy.pod("unplaced", [container("main", slice_of("8Gi"))])
    held = busy.kubelet.allocate(pod, "main", GPU, 1)
    with pytest.raises(grpc.RpcError, match=r"pod default/unplaced: has no placement.*waited 1.5 s"):
        busy.kubelet.pre_start(held)
