"""What contexts cost is charged to the tenants that have them."""

from collections.abc import Iterator

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import read_control
from aliquot.libshim.usage_page import Usage, read_usage
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.pods import container, pod
from tests.integration.journey.stacks import one_node

pytestmark = pytest.mark.slow

MIB = 1 << 20
CONTEXT_MIB = 300
HOLD = """
import time
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
driver.cuMemAlloc(512 << 20)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A node whose card takes memory for every context."""
    with one_node((SimCard(context_mib=CONTEXT_MIB),)) as made:
        made.start()
        yield made


MANAGED = """
import os, time
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
driver.cuMemAllocManaged(3 << 30, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
print("held", flush=True)
while not os.path.exists("/data/more"):
    time.sleep(0.01)
print(driver.cuMemAlloc(2 << 30)[0].name, flush=True)
time.sleep(1000)
"""


def run(stack: Stack, name: str) -> str:
    """Starts a pod that holds 512 MiB; its UID."""
    stack.kubectl.apply(pod(name, container("main", {"mem": "4Gi"}, ["python", "-c", HOLD])))
    uid: str = stack.kubectl.wait_phase(name, "Running")["metadata"]["uid"]
    return uid


def in_use(node: Node, uid: str) -> int:
    """MiB in use: tally and correction."""
    (limit,) = read_control(node.tenants / uid / "main" / "control").cards
    return (usage(node, uid).cards[0].memory_used_bytes + limit.adjust_bytes) // MIB


def usage(node: Node, uid: str) -> Usage:
    """A pod's usage page."""
    return read_usage(node.tenants / uid / "main" / "usage")


def test_a_context_is_charged_to_its_tenant_and_known_for_the_next(stack: Stack) -> None:
    """What is in use becomes what the driver says, and new pages have the estimate from the start."""
    (node,) = stack.nodes.values()
    uid = run(stack, "first")
    wait_for("the correction", lambda: in_use(node, uid) == 512 + CONTEXT_MIB)
    held = node.machine.processes(node.machine.cards[0].uuid)
    assert list(held.values()) == [(512 + CONTEXT_MIB) * MIB]
    second = run(stack, "second")
    (limit,) = read_control(node.tenants / second / "main" / "control").cards
    assert limit.context_bytes == CONTEXT_MIB * MIB
    wait_for("the correction", lambda: in_use(node, second) == 512 + CONTEXT_MIB)


def test_a_killed_programs_context_is_given_back(stack: Stack) -> None:
    """Nothing of it stays charged to the container's next start."""
    (node,) = stack.nodes.values()
    uid = run(stack, "dies")
    wait_for("the correction", lambda: in_use(node, uid) == 512 + CONTEXT_MIB)
    stack.kubectl.delete("pods", "dies", grace=0)
    stack.kubectl.wait_gone("pods", "dies")
    wait_for("the pages to go", lambda: not (node.tenants / uid).exists())


@pytest.mark.slow
def test_managed_memory_on_the_host_leaves_no_room_on_the_card() -> None:
    """The driver does not count it, but whoever touched it again would have more than the slice."""
    main = container("main", {"mem": "4Gi"}, ["python", "-c", MANAGED])
    main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    with one_node((SimCard(context_mib=CONTEXT_MIB),)) as stack:
        stack.start()
        (node,) = stack.nodes.values()
        stack.kubectl.apply(pod("managed", main, volumes=[{"name": "data", "emptyDir": {}}]))
        uid = stack.kubectl.wait_phase("managed", "Running")["metadata"]["uid"]
        wait_for("the program", lambda: "held" in stack.kubectl.logs("managed"))
        beside = run(stack, "beside")  # all tenants are looked at together
        wait_for("the correction", lambda: in_use(node, beside) == 512 + CONTEXT_MIB)
        (volume,) = stack.cluster.root.glob(f"node-1/pods/{uid}/**/data")
        (volume / "more").touch()
        wait_for("its answer", lambda: "CUDA_" in stack.kubectl.logs("managed"))
        assert "CUDA_ERROR_OUT_OF_MEMORY" in stack.kubectl.logs("managed")
