"""MIG instances, from the card to the container that gets one whole."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.cli.demo.stack import SOURCE_ROOT, Stack
from aliquot.sandbox.gpus import SimCard, SimMig
from tests.integration.journey.pods import container, plain, pod
from tests.integration.journey.stacks import one_node

pytestmark = pytest.mark.slow

EXAMPLES = SOURCE_ROOT / "examples"
INSTANCES = (SimMig("1g.18gb", gi=7), SimMig("1g.18gb", gi=8), SimMig("2g.35gb+me", gi=3))
ASK = """
import json, os
from pathlib import Path
from cuda.bindings import driver
driver.cuInit(0)
device = driver.cuDeviceGet(0)[1]
nodes = sorted(p.name for p in Path(os.environ["SIMGPU_DEV"]).rglob("*") if p.name[-1].isdigit() and not p.is_dir())
print(json.dumps({
    "count": driver.cuDeviceGetCount()[1],
    "mib": driver.cuDeviceTotalMem(device)[1] >> 20,
    "nodes": nodes,
    "preload": os.environ.get("LD_PRELOAD", ""),
}), flush=True)
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A node of one shared card and one that is cut into MIG instances."""
    with one_node((SimCard(), SimCard(memory_mib=143360, mig=INSTANCES))) as made:
        made.start()
        yield made


def test_instances_are_offered_by_profile_and_their_card_offers_no_slices(stack: Stack) -> None:
    """Two of one profile, one of another ('+' has no place in a resource's name), slices of the other card alone."""

    def offered(node: dict[str, Any]) -> bool:
        ours = {
            k: count for k, count in node["status"]["allocatable"].items() if k.startswith("aliquot.dev/")
        }
        return ours == {
            "aliquot.dev/gpu": "10",
            "aliquot.dev/mig-1g.18gb": "2",
            "aliquot.dev/mig-2g.35gb.me": "1",
        }

    stack.kubectl.wait_for("nodes", "node-1", offered)


def test_a_container_gets_one_instance_whole_with_its_device_nodes(stack: Stack) -> None:
    """It sees one device of the instance's size, its card's node and its two capabilities; nothing is injected."""
    asking = container("main", {"aliquot.dev/mig-1g.18gb": "1"}, ["python", "-c", ASK])
    stack.kubectl.apply(pod("instance", asking, restartPolicy="Never"))
    stack.kubectl.wait_phase("instance", "Succeeded", "Failed")
    seen = json.loads(stack.kubectl.logs("instance"))
    assert (seen["count"], seen["mib"], seen["preload"]) == (1, 18 * 1024, "")
    caps = [name for name in seen["nodes"] if name.startswith("nvidia-cap")]
    assert len(caps) == 2
    assert [name for name in seen["nodes"] if name not in caps] == ["nvidia1"]
    stack.kubectl.delete("pods", "instance", grace=0)


def test_the_example_runs_unchanged(stack: Stack) -> None:
    """It prints the name of its instance, as the examples' README has it."""
    stack.kubectl.apply(EXAMPLES / "mig" / "mig.yaml")
    stack.kubectl.wait_phase("mig", "Succeeded", "Failed", deadline=60)
    printed = stack.kubectl.logs("mig").splitlines()[-1]
    assert f"$ kubectl logs mig\n{printed}\n" in (EXAMPLES / "README.md").read_text()
    stack.kubectl.delete("pods", "mig", grace=0)


def test_each_instance_has_one_owner_at_a_time(stack: Stack) -> None:
    """Two pods get two different instances, a third waits until one goes."""
    for name in ("first", "second", "third"):
        stack.kubectl.apply(pod(name, container("main", {"aliquot.dev/mig-1g.18gb": "1"})))
    for name in ("first", "second"):
        stack.kubectl.wait_phase(name, "Running")
    third = stack.kubectl.wait_for("pods", "third", lambda p: p["status"].get("conditions"))
    assert third["status"]["phase"] == "Pending"
    stack.kubectl.delete("pods", "first", grace=0)
    stack.kubectl.wait_phase("third", "Running")


def test_slices_and_instances_do_not_mix(stack: Stack) -> None:
    """A slice larger than the shared card waits, though the cut card would have the room."""
    stack.kubectl.apply(plain("fits", mem="16Gi"), plain("beyond", mem="17Gi"))
    stack.kubectl.wait_phase("fits", "Running")
    beyond = stack.kubectl.wait_for("pods", "beyond", lambda p: p["status"].get("conditions"))
    assert beyond["status"]["phase"] == "Pending"
