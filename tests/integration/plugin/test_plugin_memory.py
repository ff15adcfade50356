"""How much memory an agent takes, on which kinds of nodes whatever the tenants do; every node has one."""

import re
import ssl
import urllib.request
from pathlib import Path

import pytest

from aliquot.request.placement import CardShare
from aliquot.sandbox.cluster.processes import free_port
from tests.integration.identities import Identities
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

pytestmark = pytest.mark.slow

MOST_MIB = 75
SLICES = 20
OTHERS = {"click", "cryptography", "kubernetes", "numpy", "rich"}
OURS = {"aliquot.sandbox", "aliquot.scheduler_ext", "aliquot.webhook"}
"""Packages that others of our programs need, and that take some MiB each."""


def scrape(port: int) -> str:
    """What Prometheus would be told that brings nothing; empty where nobody answers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(
            f"https://127.0.0.1:{port}/metrics", timeout=5, context=context
        ) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def start(world: World) -> int:
    """Start the agent as the chart does, but that nobody is asked who he is; the port of its metrics."""
    cert, key = Identities.make(world.root / "pki").issue("agent")
    port = free_port()
    tls = ["--tls-cert", str(cert), "--tls-key", str(key)]
    world.start_plugin(
        "--metrics-port", str(port), "--metrics-host", "127.0.0.1", *tls, env={"PYTHONPROFILEIMPORTTIME": "1"}
    )
    until(lambda: scrape(port), "metrics")
    return port


def fill(world: World) -> None:
    """Have as many slices run as the cards have."""
    for number in range(SLICES):
        share = CardShare(world.uuids[number % 2], 1024, 5)
        pod = world.pod(f"p{number}", [container("main", slice_of("1Gi", 5))], {"main": [share]})
        world.kubelet.pre_start(world.kubelet.allocate(pod, "main", GPU, 1))


def test_an_agent_is_small(make_world: MakeWorld):
    """With all slices taken, after some scrapes, over TLS; it has loaded nothing of what it does not need."""
    world = make_world(start=False)
    port = start(world)
    fill(world)
    for _ in range(20):
        assert scrape(port).count("aliquot_slice_memory_limit_bytes{") == SLICES
    assert world.process
    status = Path(f"/proc/{world.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    assert int(found[1]) / 1024 <= MOST_MIB, status
    loaded = {line.rpartition("|")[2].strip() for line in world.log.splitlines()}
    assert {"aliquot.plugin", "grpc", "pynvml"} <= loaded
    assert not loaded & (OTHERS | OURS)
