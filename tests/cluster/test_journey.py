"""From a pod's creation to a limit that holds inside it, on a real kubelet and a real containerd."""

from pathlib import Path
from typing import Any

import pytest

from aliquot.cli.demo.checks import listen, pending_reason
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.installation import Installation
from tests.integration.journey.pods import container, pod

pytestmark = pytest.mark.cluster

EXAMPLES = Path("examples")
PATIENCE_S = 120.0
ALLOCATE = """
import time
from cuda.bindings import driver
assert not driver.cuInit(0)[0]
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
print("total", driver.cuMemGetInfo()[2] >> 20)
for mib in (1024, 2048):
    print(mib, driver.cuMemAlloc(mib << 20)[0].name)
print("ready", flush=True)
time.sleep(1000)
"""


def client(name: str, mem: str = "2Gi", core: str = "30", program: str = ALLOCATE) -> dict[str, Any]:
    """A pod with a CUDA program."""
    main = container("main", {"mem": mem, "core": core}, ["python", "-c", program], image="python:3.12-slim")
    return pod(name, main)


def said(installed: Installation, name: str, last: str) -> str:
    """What a pod's program has printed, once it has come to this word."""
    installed.kubectl.wait_phase(name, "Running", deadline=PATIENCE_S)
    wait_for(f"pod {name} to say {last}", lambda: last in installed.kubectl.logs(name), PATIENCE_S)
    return installed.kubectl.logs(name)


def test_a_limit_holds_inside_a_real_container(installed: Installation):
    """The program sees 2 GiB, gets one, and is refused two more."""
    installed.kubectl.apply(client("infer"))
    assert said(installed, "infer", "ready").split("\n")[:3] == [
        "total 2048",
        "1024 CUDA_SUCCESS",
        "2048 CUDA_ERROR_OUT_OF_MEMORY",
    ]


def test_a_pod_without_a_slice_has_no_card(installed: Installation):
    """Nothing of a card is in its container, though the machine has the driver."""
    installed.kubectl.apply(
        pod("plain", container("main", command=["sh", "-c", "ls /dev; echo ready; sleep 1000"]))
    )
    assert "nvidia" not in said(installed, "plain", "ready")


def test_the_inference_example_runs_unchanged(installed: Installation):
    """Every pod computes on what it asked for, the greedy one is refused, the giant waits with the reason."""
    manifests = sorted((EXAMPLES / "inference").glob("*.yaml"))
    installed.kubectl.apply(*sorted(manifests, key=lambda path: path.name != "program.yaml"))
    asked = {"chat": [8192], "embed": [4096], "greedy": [2048], "sharded": [2048, 2048], "vision": [6000]}
    for name, mebibytes in asked.items():
        wait_for(f"pod {name} to compute", lambda n=name: _beats(installed, n) > 1, PATIENCE_S)
        told = listen(installed, name)
        assert told
        assert list(told.total_mib) == mebibytes
        assert told.intact
    greedy = listen(installed, "greedy")
    assert greedy
    assert greedy.denied == (4096, "CUDA_ERROR_OUT_OF_MEMORY")
    assert "1 every card too small" in pending_reason(installed.kubectl.get("pods", "giant"))


def _beats(installed: Installation, name: str) -> int:
    told = listen(installed, name)
    return told.beats if told else 0
