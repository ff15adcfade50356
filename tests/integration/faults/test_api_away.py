"""The API server is down, or cut off from a node: what runs goes on under its limits, and all catch up afterwards."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.faults.living import strangers
from tests.integration.journey.auditor import audit, check_living
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program
from tests.integration.wires import Mode, Wire

pytestmark = pytest.mark.slow

AWAY_S = 20.0
"""More than a kubelet's Lease is renewed in, and more than twice the extender's."""
TOO_MUCH, GRANTED = "CUDA_ERROR_OUT_OF_MEMORY of 4096", "CUDA_SUCCESS of 4096"


def pids(stack: Stack) -> dict[str, int]:
    """Every process by its name, but for the API server."""
    return {name: each.pid for name, each in stack.cluster.processes.items() if name != "apiserver"}


def test_while_the_api_server_is_down_limits_hold_and_nobody_ends(
    stack: Stack, node: Node, tmp_path: Path
) -> None:
    """No process of ours begins anew, no page changes, and what came to pass meanwhile is seen afterwards."""
    program = Program(stack, "works", "4Gi")
    held = stack.kubectl.get("pods", "works")["status"]["containerStatuses"]
    before, offered = pids(stack), stack.kubectl.get("gpunodes.aliquot.dev", node.name, "")["status"]["cards"]
    stack.cluster.kill("apiserver")
    end = time.monotonic() + AWAY_S
    look = tell(stack, program)
    while time.monotonic() < end:
        assert next(look) == [TOO_MUCH, GRANTED, "CUDA_SUCCESS of 0"]
        assert check_living(node) == {program.uid}
        assert pids(stack) == before
    stack.cluster.restart("apiserver")
    stack.kubectl.apply(plain("later", mem="10Gi"))
    stack.kubectl.wait_phase("later", "Running", deadline=60)
    audit(stack)
    assert pids(stack) == before
    assert stack.kubectl.get("pods", "works")["status"]["containerStatuses"] == held
    assert stack.kubectl.get("gpunodes.aliquot.dev", node.name, "")["status"]["cards"] == offered
    assert stack.kubectl.get("nodes", node.name, "")["status"]["allocatable"]["aliquot.dev/gpu"] == "20"


def tell(stack: Stack, program: Program) -> Iterator[list[str]]:
    """What a program gets again and again, by its log on the node: too much, enough, and nothing back."""
    (log,) = stack.cluster.root.glob(f"node-1/pods/{program.uid}/main.log")

    def said() -> list[str]:
        return [line.partition(" ")[2] for line in log.read_text().splitlines() if " of " in line]

    while True:
        for wish in ("5000", "2000", "free"):
            program.tell(wish)
        yield wait_for(
            "the program's answers", lambda: said()[program.count - 3 : program.count][2:] and said()[-3:]
        )


@pytest.fixture
def wires(stack: Stack, node: Node, tmp_path: Path) -> Iterator[list[Wire]]:
    """Kubelet and agent reach the API server by wires that can be cut."""
    laid: list[Wire] = []
    usual = {}
    for name in (f"kubelet-{node.name}", node.agent):
        (tmp_path / name).mkdir()
        laid.append(Wire(stack.cluster, tmp_path / name))
        usual[name] = list(stack.cluster.processes[name].argv)
        through(stack, name, laid[-1].kubeconfig)
    yield laid
    for wire in laid:
        wire.close()
    for name, argv in usual.items():
        stack.cluster.processes[name].argv = argv
        stack.cluster.restart(name)


def through(stack: Stack, name: str, kubeconfig: Path) -> None:
    """Start a process with another kubeconfig."""
    argv = list(stack.cluster.processes[name].argv)
    argv[argv.index("--kubeconfig") + 1] = str(kubeconfig)
    stack.cluster.processes[name].argv = argv
    stack.cluster.restart(name)


def test_a_node_that_is_cut_off_and_comes_back_promises_nothing_twice(
    stack: Stack, node: Node, wires: list[Wire]
) -> None:
    """Its pod is given up and another gets the card: it is let in when the first has ended on the node, not before."""
    lost = Program(stack, "lost", "12Gi", stubborn=True)
    stack.kubectl.apply(plain("stays", mem="12Gi"))
    stays = stack.kubectl.wait_phase("stays", "Running")["metadata"]["uid"]
    for wire in wires:
        wire.set(Mode.CUT)
    stack.kubectl.delete("pods", "lost", grace=0)
    stack.kubectl.apply(plain("instead", mem="12Gi"))
    stack.kubectl.wait_for("pods", "instead", lambda pod: pod["spec"].get("nodeName"))
    end, look = time.monotonic() + AWAY_S / 2, tell(stack, lost)
    while time.monotonic() < end:
        next(look)
        assert check_living(node) == {lost.uid, stays}
    assert strangers(stack) == {lost.uid}
    agent = stack.cluster.processes[node.agent].pid
    for wire in wires:
        wire.set(Mode.CARRIES)

    def arrived() -> bool:
        living = check_living(node)
        return (
            lost.uid not in living
            and stack.kubectl.get("pods", "instead")["status"].get("phase") == "Running"
        )

    wait_for("the other to run in its place", arrived, 90)
    audit(stack)
    assert stack.kubectl.get("pods", "stays")["status"]["containerStatuses"][0]["restartCount"] == 0
    assert stack.cluster.processes[node.agent].pid == agent
