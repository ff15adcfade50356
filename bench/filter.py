"""How long filter takes at 100, 1,000 and 5,000 nodes of 8 cards, half full, over real HTTP.

The extender's own application serves on loopback; the client sends what kube-scheduler sends (names of 43
characters) over one kept connection. Client and server share this process, so the figures include the client's
half of the work. Each pod is new, takes its place, and leaves again, so that the cluster stays as full as it was.
"""

import asyncio
import json
import random
import statistics
import time

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot.inventory import Card, GPUNodeStatus
from aliquot.placement import CardShare, ContainerPlacement, Placement
from aliquot.request import ContainerKind
from scheduler_ext.bind import Binder
from scheduler_ext.choose import Placer
from scheduler_ext.filter import Filter
from scheduler_ext.foreign import ForeignAgents
from scheduler_ext.ledger import Ledger
from scheduler_ext.metrics import ExtenderMetrics
from scheduler_ext.server import Extender

SIZES = (100, 1000, 5000)
CARDS, CALLS, CARD_MIB = 8, 200, 81920
SHAPES = ("1Gi", "4Gi", "10Gi", "20Gi", "40Gi")


def node_name(n: int) -> str:
    """As long as a cloud's names are."""
    return f"ip-10-{n // 256:03}-{n % 256:03}-17.eu-central-1.compute.internal"[:43]


def half_full(nodes: int) -> Ledger:
    """A ledger of that many nodes on whose cards pods of 8 GiB hold about half."""
    ledger, dice = Ledger(time.monotonic), random.Random(1)  # noqa: S311 - a figure, no secret
    for n in range(nodes):
        uuids = [f"GPU-{n:06}-{i}" for i in range(CARDS)]
        cards = tuple(Card(uuid=uuid, index=i, memory_mib=CARD_MIB) for i, uuid in enumerate(uuids))
        ledger.put_node(node_name(n), GPUNodeStatus(slices_per_card=10, cards=cards))
        for uuid in uuids:
            for k in range(dice.randint(0, 9)):
                share = CardShare(uuid=uuid, memory_mib=8192, cores=0)
                container = ContainerPlacement("main", ContainerKind.REGULAR, (share,))
                uid = f"{uuid}-{k}"
                ledger.confirm(uid, Placement(uid, node_name(n), (container,)))
    return ledger


def bodies(nodes: int, count: int) -> list[bytes]:
    """Filter calls for new pods of mixed sizes."""
    names = [node_name(n) for n in range(nodes)]
    found = []
    for n in range(count):
        limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": SHAPES[n % len(SHAPES)]}
        container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
        metadata = {"name": f"pod-{n}", "namespace": "default", "uid": f"uid-{n}"}
        pod = {"metadata": metadata, "spec": {"containers": [container]}}
        found.append(json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode())
    return found


async def measure(nodes: int) -> list[float]:
    """Seconds of each call at this size, sorted."""
    ledger = half_full(nodes)
    decide = Filter(ledger, ForeignAgents(()), Placer(ledger.table))
    extender = Extender(
        decide,
        Binder(None, ledger, Placer(ledger.table)),  # type: ignore[arg-type] - nothing is bound here
        ExtenderMetrics(CollectorRegistry(), ledger),
        lambda: "",
    )
    runner = web.AppRunner(extender.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession() as session:
            return sorted([await call(session, port, body, ledger) for body in bodies(nodes, CALLS)])
    finally:
        await runner.cleanup()


async def call(session: aiohttp.ClientSession, port: int, body: bytes, ledger: Ledger) -> float:
    """One filter call in seconds; the pod leaves again."""
    headers = {"Content-Type": "application/json"}
    start = time.perf_counter()
    async with session.post(f"http://127.0.0.1:{port}/filter", data=body, headers=headers) as reply:
        answer = await reply.json()
    took = time.perf_counter() - start
    assert len(answer["NodeNames"]) == 1, answer
    for entry in ledger.unconfirmed():
        ledger.release(entry.uid)
    return took


def tell(name: str, value: float, unit: str) -> None:
    """One figure on a line of its own; less is better."""
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "better": "lower"}))


def main() -> None:
    """Print p50 and p99 for each size."""
    for nodes in SIZES:
        times = asyncio.run(measure(nodes))
        tell(f"filter.{nodes}_nodes.p50", statistics.median(times) * 1000, "ms")
        tell(f"filter.{nodes}_nodes.p99", times[int(len(times) * 0.99)] * 1000, "ms")


if __name__ == "__main__":
    main()
