"""What asking costs at 5,000 nodes of 8 cards with 80,000 pods: why a pod waits, and dry runs of all nodes.

Processor time, so that other work on the machine hardly counts, and the longest that other calls are kept waiting
at a time. The code alone, without HTTP and without a cluster: the pods that would move are made up when asked for.
"""

import asyncio
import contextlib
import json
import random
import time
from typing import Any

import msgspec

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.kube.listing import Listing
from aliquot.kube.objects import Pod
from aliquot.kube.resources import Resource
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun, read_dry_run
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes, KnownNodes
from aliquot.scheduler_ext.explain.why import Why
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger

NODES, CARDS, CARD_MIB = 5000, 8, 81920
ASKING = {
    "slice": [{"gpu-mem": "50Gi", "gpu-core": "30"}],
    "two_cards": [{"gpu": "2", "gpu-mem": "50Gi"}],
    "two_containers": [{"gpu-mem": "45Gi"}, {"gpu-mem": "50Gi"}],
    "whole": [{"gpu": "4"}],
    "two_that_fit": [{"gpu-mem": "18Gi"}, {"gpu-mem": "19Gi"}],
}


def document(uid: str, containers: list[dict[str, str]]) -> dict[str, Any]:
    """A pod of containers with these limits."""
    made = [
        {"name": f"c{n}", "resources": {"limits": {f"aliquot.dev/{key}": v for key, v in limits.items()}}}
        for n, limits in enumerate(containers)
    ]
    return {"metadata": {"name": uid, "namespace": "a", "uid": uid}, "spec": {"containers": made}}


class Api:
    """One pod that asks, and the pods of a node as the ledger has them."""

    def __init__(self, ledger: Ledger, asks: dict[str, Any]) -> None:
        self.ledger = ledger
        self.pod = msgspec.convert(asks, Pod)

    async def get(self, _resource: Resource[Pod], _name: str, _namespace: str = "", /) -> Pod:
        """The pod that asks."""
        return self.pod

    async def list(
        self, _resource: Resource[Pod], _namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[Pod]:
        """The pods of a node, for which a server is waited for."""
        await asyncio.sleep(0)
        entries = self.ledger.on(field_selector.removeprefix("spec.nodeName="))
        sizes = {e.uid: sum(c.memory_mib for c in e.charges.values()) for e in entries}
        pods = (msgspec.convert(document(uid, [{"gpu-mem": f"{mib}Mi"}]), Pod) for uid, mib in sizes.items())
        return Listing("1", tuple(pods))


def cluster(dice: random.Random) -> Ledger:
    """The nodes; on each card a pod of about half of it, and a smaller one."""
    ledger = Ledger(time.monotonic)
    for n in range(NODES):
        name, model = f"node-{n:05}", dice.choice(["NVIDIA H200", "Tesla T4"])
        uuids = [f"{name}-{i}" for i in range(CARDS)]
        cards = tuple(Card(uuid=uuid, memory_mib=CARD_MIB, model=model) for uuid in uuids)
        ledger.put_node(name, GPUNodeStatus(cards=cards))
        for uuid in uuids:
            for gib in (40, dice.choice([10, 20, 30])):
                share = CardShare(uuid, 1024 * gib - dice.randint(0, 20), 0)
                uid = f"{uuid}-{gib}"
                placement = Placement(uid, name, (ContainerPlacement("c", ContainerKind.REGULAR, (share,)),))
                ledger.confirm(uid, placement, namespace="x")
    return ledger


async def answer(why: Why, pod: str) -> tuple[float, float]:
    """Milliseconds of processor time in all, and the longest hold of the loop."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            start = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - start)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    start = time.process_time()
    await why.answer("a", pod)
    took = time.process_time() - start
    await asyncio.sleep(0)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return took * 1000, longest * 1000


def tell(name: str, value: float) -> None:
    """One figure."""
    print(json.dumps({"name": name, "value": round(value, 1), "unit": "ms", "better": "lower"}))


def main() -> None:
    """Print the figures."""
    ledger = cluster(random.Random(1))  # noqa: S311 - figures, no secrets
    decide = Filter(ledger, ForeignPlugins(()), Placer(ledger.table))
    dry_run, names = DryRun(decide, HypotheticalNodes(KnownNodes())), sorted(ledger.table.nodes())
    for name, containers in ASKING.items():
        asks = document(name, containers)
        why = Why(Api(ledger, asks), decide, KnownNodes())
        took, longest = min(asyncio.run(answer(why, name)) for _ in range(3))
        tell(f"why.{name}", took)
        tell(f"why.{name}.longest_hold", longest)
        body = json.dumps({"Pod": asks, "NodeNames": names}).encode()
        times = []
        for _ in range(3):
            start = time.process_time()
            dry_run.answer(read_dry_run(body))
            times.append(time.process_time() - start)
        tell(f"dryrun.{name}", min(times) * 1000)


if __name__ == "__main__":
    main()
