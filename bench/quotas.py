"""What quotas add to a filter call, to an event of a pod and to a round of waking, at 5,000 nodes of 8 cards.

A hundred GPUQuotas of five namespaces each, two of them of one pool; the pods hold about half of the cards. Each
figure is processor time, beside the same without any quota, taken in the same run in turns.
"""

import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable

import msgspec

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.crds.gpu_quota import GPUQuota
from aliquot.kube.objects import Pod
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPods, Waker

NODES, CARDS, CARD_MIB, QUOTAS, CALLS, WAITING = 5000, 8, 81920, 100, 200, 1000
NAMES = tuple(f"node-{n:04}" for n in range(NODES))
NUMBERS = itertools.count()


def cluster() -> Ledger:
    """Half full; every other node's cards are in pool x."""
    ledger, dice = Ledger(time.monotonic), random.Random(1)  # noqa: S311 - a figure, no secret
    for n, name in enumerate(NAMES):
        uuids = [f"GPU-{n:06}-{i}" for i in range(CARDS)]
        cards = tuple(Card(uuid=uuid, index=i, memory_mib=CARD_MIB) for i, uuid in enumerate(uuids))
        ledger.put_node(name, GPUNodeStatus(slices_per_card=10, cards=cards))
        ledger.put_pools(name, dict.fromkeys(uuids, "x" if n % 2 else ""))
        for uuid in uuids:
            for k in range(dice.randint(0, 9)):
                confirm(ledger, f"{uuid}-{k}", name, uuid)
    return ledger


def confirm(ledger: Ledger, uid: str, node: str, uuid: str) -> None:
    """A bound pod of 8 GiB, of some namespace."""
    container = ContainerPlacement("main", ContainerKind.REGULAR, (CardShare(uuid, 8192, 10),))
    namespace = f"ns-{hash(uid) % (5 * QUOTAS)}"
    ledger.confirm(uid, Placement(uid, node, (container,)), namespace=namespace)


def quotas_of(ledger: Ledger, count: int) -> Quotas:
    """So many quotas that leave something to borrow and owe something to each other."""
    quotas = Quotas(ledger.accounts)
    for n in range(count):
        spec = {
            "namespaces": [f"ns-{5 * n + i}" for i in range(5)],
            "guaranteed": {"memoryMiB": 18 << 20, "cores": 22000},
            "limit": {"memoryMiB": 64 << 20},
            "pool": "x" if n < 2 else "",
        }
        quotas.put(msgspec.convert({"metadata": {"name": f"q{n:03}"}, "spec": spec}, GPUQuota))
    return quotas


def pod(gib: int) -> Pod:
    """A new pod of some namespace."""
    uid = f"uid-{next(NUMBERS)}"
    limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": f"{gib}Gi", "aliquot.dev/gpu-core": "10"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    meta = {"name": uid, "namespace": f"ns-{hash(uid) % 500}", "uid": uid}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def timed(call: Callable[[], object]) -> float:
    """Seconds of processor time: nothing here waits for anybody, and other programs on the machine do not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def filter_once(decide: Filter, gib: int) -> float:
    """Seconds of one call; the pod leaves again."""
    made = pod(gib)
    took = timed(lambda: decide.answer(FilterArgs(Pod=made, NodeNames=NAMES)))
    decide.ledger.release(made.metadata.uid)
    return took


def event(ledger: Ledger) -> float:
    """Seconds for one pod's coming and going as the watch tells it."""
    uid, uuid = f"event-{next(NUMBERS)}", "GPU-000000-0"

    def both() -> None:
        confirm(ledger, uid, NAMES[0], uuid)
        ledger.depart(uid)

    return timed(both)


def wake(decide: Filter) -> float:
    """Seconds of one round over many pods of twenty kinds that all wait in vain."""
    waiting = PendingPods()
    for n in range(WAITING):
        made = pod(200 + n % 20)
        made = msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, namespace="ns-7")
        )
        waiting.refused(made, decide.request_of(made), NAMES)
    waker = Waker(None, waiting, decide)  # type: ignore[arg-type] - nobody is touched
    return timed(lambda: asyncio.run(waker.wake()))


def tell(name: str, seconds: list[float], unit: str, factor: float) -> None:
    """The median, on a line of its own; less is better."""
    value = round(statistics.median(seconds) * factor, 3)
    print(json.dumps({"name": name, "value": value, "unit": unit, "better": "lower"}))


def main() -> None:
    """Print each figure without and with quotas."""
    found: dict[str, list[float]] = {}
    worlds = []
    for word, count in (("without", 0), ("with", QUOTAS)):
        ledger = cluster()
        worlds.append(
            (word, Filter(ledger, ForeignPlugins(()), Placer(ledger.table), quotas=quotas_of(ledger, count)))
        )
    for _ in range(CALLS):
        for word, decide in worlds:
            found.setdefault(f"quotas.filter.{word}", []).append(filter_once(decide, 8))
            found.setdefault(f"quotas.pod_event.{word}", []).append(event(decide.ledger))
    for _ in range(5):
        for word, decide in worlds:
            found.setdefault(f"quotas.round_of_waking.{word}", []).append(wake(decide))
    for name, seconds in found.items():
        tell(name, seconds, *(("us", 1e6) if "event" in name else ("ms", 1e3)))


if __name__ == "__main__":
    main()
