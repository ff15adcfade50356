"""A stack under a load of every kind, so that each panel has something to show, and what can be broken of it."""

import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aliquot.cli.demo.stack import LOOPBACK, SOURCE_ROOT, Node, Stack
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program
from tests.integration.journey.spinners import spin

EXAMPLES = SOURCE_ROOT / "examples"
CARDS = tuple(SimCard(context_mib=64) for _ in range(6))
AGENT_FLAGS = ("--placement-wait", "1")
BURST = {"aliquot.dev/memory-class": "burst", "aliquot.dev/overflow": "Host"}
HARMLESS, FATAL = 31, 79
STRAY = """
import sys
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(int(sys.argv[1]))[1])[1]
driver.cuCtxSetCurrent(context)
error, _ = driver.cuMemAlloc(2 << 30)
print(error.name, flush=True)
sys.stdin.read()
"""


def busy(stack: Stack) -> None:
    """Pods that compute, ask for too much, burst, lie, wait, and are held to a quota."""
    kubectl = stack.kubectl
    for team in ("team-a", "team-b"):
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
    kubectl.apply(EXAMPLES / "burst" / "pool.yaml", _quota())
    for size in ("3Gi", "4Gi", "12Gi"):
        kubectl.apply(_of("team-a", plain(f"train-{size.lower()}", size, "20")))
    kubectl.apply(*sorted((EXAMPLES / "inference").glob("*.yaml")))
    for name in ("chat", "embed", "vision", "greedy", "sharded"):
        kubectl.wait_phase(name, "Running")
    spin(stack, "bursts", {"core": "20"}, core_mode="burst")
    spin(stack, "steady", {"core": "20"})
    spin(stack, "liar", {"core": "10"}, "lies", core_mode="burst")
    for name in ("notebook", "other"):
        assert Program(stack, name, "12Gi", BURST).alloc(6 * 1024).startswith("CUDA_SUCCESS")
    patch = {"metadata": {"annotations": {"aliquot.dev/resize-gpu-mem": "2Gi"}}}
    kubectl.patch("pods", "steady", patch)
    (node,) = stack.nodes.values()
    node.machine.raise_xid(0, HARMLESS)


def _quota() -> dict[str, object]:
    return {
        "apiVersion": "aliquot.dev/v1alpha1",
        "kind": "GPUQuota",
        "metadata": {"name": "team-a"},
        "spec": {"namespaces": ["team-a"], "limit": {"memoryMiB": 7500, "cores": 100, "cards": 4}},
    }


def _of(namespace: str, manifest: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    manifest["metadata"]["namespace"] = namespace
    return manifest


@contextmanager
def stray(node: Node, card: int) -> Iterator[None]:
    """A process on the host that has memory of a card, and no slice."""
    command = [sys.executable, "-c", STRAY, str(card)]
    environment = {**os.environ, **node.machine.env()}
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().strip() == "CUDA_SUCCESS"
        yield
        process.stdin.close()


def overpromise(stack: Stack) -> None:
    """The pool that let more be promised goes, under its pods."""
    stack.kubectl.delete("gpupools.aliquot.dev", "shared")


def smuggle(stack: Stack) -> None:
    """A pod that nobody has found a place for is bound to the node by somebody else."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "giant"}, "target": target}
    stack.kubectl.request("POST", "/api/v1/namespaces/default/pods/giant/binding", body)


def babble(stack: Stack) -> None:
    """Somebody calls filter with what is no call."""
    context = ssl.create_default_context(cafile=stack.root / "tls" / "ca.crt")
    request = urllib.request.Request(f"https://{LOOPBACK}:{stack.extender_port}/filter", data=b"nonsense")
    for _ in range(20):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=5, context=context)  # noqa: S310
