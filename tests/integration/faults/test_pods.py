"""Pods that end, crash or start while agent or kubelet is away or stands still, or a card fails."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim._pages import lib
from aliquot.libshim.control_page import read_control
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.faults.steady import Steady
from tests.integration.journey.auditor import MIB, audit, placement_of
from tests.integration.journey.pods import container, plain, pod
from tests.integration.journey.test_kills import arrive

STUBBORN = """
import signal, time
from cuda.bindings import driver
signal.signal(signal.SIGTERM, signal.SIG_IGN)
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
print(driver.cuMemAlloc(12 << 30)[0].name, flush=True)
time.sleep(1000)
"""
GRACE_S = "5"
"""Long after the next pod has come to the gate, and long before that has waited for as long as it does."""
CRASHES, SETTLED = 50, 5
CRASHING = "cat /run/aliquot/control >> /data/pages; exit 1"
GROWTH_BYTES = 4 * MIB


def stubborn(name: str, mem: str = "12Gi") -> dict[str, Any]:
    """A pod that holds 12 GiB of a card and ends for no SIGTERM."""
    return pod(name, container("main", {"mem": mem}, ["python", "-c", STUBBORN]))


def start_stubborn(stack: Stack, manifest: dict[str, Any]) -> str:
    """Start such a pod; returns its UID once it has its memory."""
    name = manifest["metadata"]["name"]
    stack.kubectl.apply(manifest)
    uid: str = stack.kubectl.wait_phase(name, "Running")["metadata"]["uid"]
    wait_for("the program", lambda: "CUDA_SUCCESS" in stack.kubectl.logs(name))
    return uid


def card_of(stack: Stack, name: str) -> str:
    """The card of a pod's only container."""
    placement = placement_of(stack.kubectl.get("pods", name))
    assert placement is not None
    return str(placement["containers"][0]["cards"][0]["uuid"])


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_pods_that_differ_in_amounts_alone_are_told_apart_by_an_agent_that_stood_still(
    stack: Stack, node: Node, restarted: bool
) -> None:
    """All of them are bound before it answers the first Allocate: each has its own limits, also from the next agent."""
    agent = stack.cluster.processes[node.agent]
    os.kill(agent.pid, signal.SIGSTOP)
    sizes = {f"twin-{mib}": mib for mib in (1024, 2048, 3072, 4096)}
    stack.kubectl.apply(*(plain(name, mem=f"{mib}Mi") for name, mib in sizes.items()))
    for name in sizes:
        stack.kubectl.wait_for("pods", name, lambda p: p["spec"].get("nodeName"))
    if restarted:
        stack.cluster.restart(node.agent)
    else:
        os.kill(agent.pid, signal.SIGCONT)
    for name, mib in sizes.items():
        arrive(stack, plain(name, mem=f"{mib}Mi"))
        uid = stack.kubectl.get("pods", name)["metadata"]["uid"]
        (limit,) = read_control(node.tenants / uid / "main" / "control").cards
        assert limit.memory_bytes == mib * MIB
    audit(stack)


@pytest.mark.slow
def test_a_card_that_fails_takes_nobody_new_and_ends_nobody(stack: Stack, node: Node) -> None:
    """The pod on it runs on, the next ones go to the other card; the agent after the repair uses it again."""
    steady = Steady(stack)
    sick = card_of(stack, "steady")
    index = [card.uuid for card in node.machine.cards].index(sick)
    node.machine.raise_xid(index, 79)
    stack.kubectl.wait_for("gpunodes.aliquot.dev", node.name, lambda n: unhealthy(n) == [sick], namespace="")
    for name in ("next", "after"):
        stack.kubectl.apply(plain(name, mem="2Gi"))
        stack.kubectl.wait_phase(name, "Running")
        assert card_of(stack, name) != sick
    audit(stack)
    steady.check()
    stack.cluster.restart(node.agent)
    stack.kubectl.apply(pod("whole", container("main", {"gpu": "2", "mem": "12Gi"})))
    stack.kubectl.wait_phase("whole", "Running", deadline=60)
    steady.check()


def unhealthy(node: dict[str, Any]) -> list[str]:
    """The cards that the cluster takes for unhealthy."""
    return [card["uuid"] for card in node["status"]["cards"] if card["health"] != "Healthy"]


@contextlib.contextmanager
def kubelet_with(stack: Stack, flag: str, value: str) -> Iterator[Stack]:
    """The stack with a kubelet of other manners, to which the agent has registered."""
    kubelet = stack.cluster.processes["kubelet-node-1"]
    usual = kubelet.argv
    kubelet.argv = [*usual, flag, value]
    restart_kubelet(stack)
    try:
        yield stack
    finally:
        kubelet.argv = usual
        restart_kubelet(stack)


def restart_kubelet(stack: Stack) -> None:
    """Start it again; return once it offers slices."""
    stack.cluster.restart("kubelet-node-1")
    stack.kubectl.wait_for("nodes", "node-1", offers_slices)


def offers_slices(stored: dict[str, Any]) -> bool:
    """Whether a node has slices to give."""
    return int(stored["status"]["allocatable"].get("aliquot.dev/gpu", "0")) > 0


@pytest.fixture
def hasty(stack: Stack) -> Iterator[Stack]:
    """The stack with a kubelet that restarts containers at once."""
    with kubelet_with(stack, "--restart-backoff", "0"):
        yield stack


@pytest.mark.slow
def test_fifty_crashes_leave_card_limit_and_files_as_they_were(hasty: Stack, node: Node) -> None:
    """Each start finds the same page; neither files nor the agent's memory and descriptors grow."""
    main = container("main", {"mem": "3Gi", "core": "20"}, ["sh", "-c", CRASHING])
    main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    hasty.kubectl.apply(pod("crashes", main, volumes=[{"name": "data", "emptyDir": {}}]))
    await_crashes(hasty, SETTLED)
    files = wait_for("no file half-written", lambda: settled(files_of(hasty, node)))
    descriptors, memory = footprint(hasty, node)
    audit(hasty)
    await_crashes(hasty, CRASHES)
    wait_for("the files to be what they were", lambda: files_of(hasty, node) == files)
    wait_for("no more descriptors than before", lambda: footprint(hasty, node)[0] <= descriptors + 2)
    assert footprint(hasty, node)[1] <= memory + GROWTH_BYTES
    uid = hasty.kubectl.get("pods", "crashes")["metadata"]["uid"]
    (pages,) = hasty.cluster.root.glob(f"node-1/pods/{uid}/**/pages")
    assert {found(pages, number) for number in range(CRASHES)} == {(card_of(hasty, "crashes"), 3 << 30, 20)}


def await_crashes(stack: Stack, count: int) -> None:
    """Wait until the pod's container was started again so many times."""
    stack.kubectl.wait_for("pods", "crashes", lambda p: restarts(p) >= count, 120)


def restarts(stored: dict[str, Any]) -> int:
    """How often the only container was started again."""
    (status,) = stored["status"].get("containerStatuses") or [{"restartCount": 0}]
    return int(status["restartCount"])


def files_of(stack: Stack, node: Node) -> dict[str, int]:
    """All files of the agent, with their sizes."""
    places = [node.directory / "state", node.directory / "run", stack.cluster.node(node.name).cdi]
    found = dict[str, int]()
    for file in (file for place in places for file in place.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            found[str(file)] = file.stat().st_size if file.is_file() else 0
    return found


def settled(files: dict[str, int]) -> dict[str, int]:
    """These files, if none of them is being written; else none."""
    return {} if any(Path(name).name.startswith(".") for name in files) else files


def footprint(stack: Stack, node: Node) -> tuple[int, int]:
    """The agent's open descriptors, and its bytes of memory."""
    process = Path(f"/proc/{stack.cluster.processes[node.agent].pid}")
    pages = int((process / "statm").read_text().split()[1])
    return len(list((process / "fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")


def found(pages: Path, number: int) -> tuple[str, int, int]:
    """Card, bytes and percent in the page that a start of the container has kept."""
    page = pages.with_name(f"page-{number}")
    page.write_bytes(pages.read_bytes()[number * lib.AQ_CONTROL_SIZE : (number + 1) * lib.AQ_CONTROL_SIZE])
    (card,) = read_control(page).cards
    return card.uuid, card.memory_bytes, card.core_percent
