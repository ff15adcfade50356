"""What a group of 64 pods costs at 5,000 nodes of 8 cards, and what groups cost a pod that has none.

Each figure is processor time. Lone pods are placed with and without an eye on groups in the same run, in turns.
"""

import itertools
import json
import random
import statistics
import time
from collections.abc import Callable

import msgspec

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.kube.objects import Pod
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind, read_pod_request
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.node_backoff import NodeBackoff
from aliquot.scheduler_ext.state.pending_pods import PendingPods

NODES, CARDS, CARD_MIB, MEMBERS, GROUPS, CALLS = 5000, 8, 81920, 64, 10, 300
NAMES = tuple(f"node-{n:04}" for n in range(NODES))
NUMBERS = itertools.count()


def cluster() -> Ledger:
    """Half full."""
    ledger, dice = Ledger(time.monotonic), random.Random(1)  # noqa: S311 - a figure, no secret
    for n, name in enumerate(NAMES):
        uuids = [f"GPU-{n:06}-{i}" for i in range(CARDS)]
        cards = tuple(Card(uuid=uuid, index=i, memory_mib=CARD_MIB) for i, uuid in enumerate(uuids))
        ledger.put_node(name, GPUNodeStatus(slices_per_card=10, cards=cards))
        for uuid in uuids:
            mib = dice.choice([0, 8, 24, 40, 64, 80]) * 1024
            if mib:
                container = ContainerPlacement("main", ContainerKind.REGULAR, (CardShare(uuid, mib, 0),))
                ledger.confirm(uuid, Placement(uuid, name, (container,)), namespace="default")
    return ledger


def extender(*, groups: bool) -> Filter:
    """Its deciding parts."""
    ledger, waiting, node_backoff = cluster(), PendingPods(), NodeBackoff()
    ledger.on_change(waiting.something_changed)
    gangs = Gangs(ledger, waiting, node_backoff, read_pod_request) if groups else None
    return Filter(
        ledger,
        ForeignPlugins(()),
        Placer(ledger.table),
        node_backoff=node_backoff,
        waiting=waiting,
        gangs=gangs,
    )


def pod(gib: int, group: str = "") -> Pod:
    """A pod, of a group that needs all its members."""
    uid = f"uid-{next(NUMBERS)}"
    mark = {"labels": {"scheduling.x-k8s.io/pod-group": group}, "annotations": TERMS} if group else {}
    limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": f"{gib}Gi"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    meta = {"name": uid, "namespace": "default", "uid": uid, **mark}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


TERMS = {"aliquot.dev/group-min-members": str(MEMBERS)}


def timed(call: Callable[[], object]) -> float:
    """Seconds of processor time: nothing here waits for anybody, and other programs on the machine do not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def asks(decide: Filter, made: Pod) -> float:
    """Seconds of one filter call."""
    return timed(lambda: decide.answer(FilterArgs(Pod=made, NodeNames=NAMES)))


def group(decide: Filter, name: str, gib: int) -> list[float]:
    """Seconds of the call that decides, and of those of the other members; the pods leave again."""
    members = [pod(gib, name) for _ in range(MEMBERS)]
    for member in members[:-1]:
        asks(decide, member)  # too few exist
    took = [asks(decide, member) for member in reversed(members)]
    for member in members:
        decide.ledger.depart(member.metadata.uid)
        if decide.gangs is not None:
            decide.gangs.depart(member.metadata.uid)
    return took


def alone(decide: Filter) -> float:
    """Seconds of one call for a pod of no group, which leaves again."""
    made = pod(8)
    took = asks(decide, made)
    decide.ledger.release(made.metadata.uid)
    return took


def tell(name: str, seconds: list[float]) -> None:
    """The median, on a line of its own; less is better."""
    value = round(statistics.median(seconds) * 1e3, 3)
    print(json.dumps({"name": name, "value": value, "unit": "ms", "better": "lower"}))


def main() -> None:
    """Print the figures."""
    worlds = {"with": extender(groups=True), "without": extender(groups=False)}
    found: dict[str, list[float]] = {}
    for _ in range(CALLS):
        for word, decide in worlds.items():
            found.setdefault(f"groups.lone_pod.{word}", []).append(alone(decide))
    for n in range(GROUPS):
        for word, gib in (("placed", 40), ("refused", 200)):
            first, *others = group(worlds["with"], f"{word}-{n}", gib)
            found.setdefault(f"groups.{word}.deciding_call", []).append(first)
            found.setdefault(f"groups.{word}.other_call", []).extend(others)
    for name, seconds in found.items():
        tell(name, seconds)


if __name__ == "__main__":
    main()
