"""The journey of a container through the five calls of the kubelet."""

import grpc
import pytest
from world import GPU, World, container, slice_of

from aliquot.placement import CardShare
from libshim.pages import CardLimit, read_control, read_usage

GIB = 1024


def test_a_container_gets_its_card_its_limits_and_the_driver(world: World):
    """From a bound pod to a CDI spec with the chosen card, the driver, the interceptor and both pages."""
    share = CardShare(world.uuids[1], 8 * GIB, 30)
    pod = world.pod("infer", [container("main", slice_of("8Gi", 30))], {"main": [share]})
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    assert held.cdi == [f"aliquot.dev/slice={held.nonce}"]
    assert not held.answer.envs
    assert not held.answer.mounts
    world.kubelet.pre_start(held)
    mounts, nodes, env = world.edits(held.nonce)
    assert nodes == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/local/aliquot/libaliquot.so"} <= mounts.keys()
    assert "NVIDIA_VISIBLE_DEVICES=void" in env
    control = read_control(world.control(held.nonce))
    assert control.tenant == "default/infer/main"
    assert control.cards == (CardLimit(world.uuids[1], 8 << 30, 30),)
    assert read_usage(world.usage(held.nonce)).processes == ()


def test_no_placement_is_waited_for_and_then_named(world: World):
    """A pod that was bound by another scheduler is refused with the reason, after the wait."""
    pod = world.pod("unplaced", [container("main", slice_of("8Gi"))])
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    with pytest.raises(grpc.RpcError, match=r"pod default/unplaced: has no placement.*waited 1.5 s"):
        world.kubelet.pre_start(held)
