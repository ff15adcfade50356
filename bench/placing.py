"""What one choice costs at 5,000 nodes of 8 cards, half full, with 100 kinds of pods: cold, warm, after learning.

Processor time, so that other work on the machine hardly counts. The placing code alone, without HTTP
(`bench/sched.py` has that). Cold is the first pod of a class, of which no node has been looked at; warm is every
later one, after the placement before it has changed one node. With classes that take turns each of them finds many
nodes changed. A lesson is what an extender does between the calls when other pods come than before.
"""

import json
import random
import statistics
import time
from dataclasses import replace

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import ContainerKind, ContainerRequest, PodRequest, SliceRequest
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.ledger import Ledger

NODES, CARDS, CARD_MIB, KINDS, TRIES = 5000, 8, 81920, 100, 60
COLD_MS, WARM_MS = 20.0, 1.5
MIXED, LESSON_S, STEP_MS = 1000, 0.3, 1.0


def kinds(dice: random.Random) -> list[SliceRequest]:
    """Different slices, one in four with cores, some of several cards."""
    return [
        SliceRequest(
            cards=dice.choice([1, 1, 1, 1, 2, 4]),
            memory_mib=1024 * dice.randint(1, 79) + n,
            memory_percent=None,
            cores=dice.choice([0, 0, 0, dice.randint(1, 100)]),
        )
        for n in range(KINDS)
    ]


def request(wanted: SliceRequest, uid: str, cpu: int) -> PodRequest:
    """A pod of one container."""
    return PodRequest(
        "default", uid, uid, (ContainerRequest("main", ContainerKind.REGULAR, wanted),), HostShare(cpu, 4096)
    )


def cluster(dice: random.Random) -> Ledger:
    """The nodes; on each card promises of up to nine tenths."""
    ledger = Ledger(time.monotonic)
    for n in range(NODES):
        cards = tuple(Card(uuid=f"{n}-{i}", index=i, memory_mib=CARD_MIB, model="H200") for i in range(CARDS))
        ledger.put_node(f"node-{n:05}", GPUNodeStatus(cards=cards))
        ledger.hosts.put_node(f"node-{n:05}", HostShare(dice.choice([32000, 96000, 192000]), 1 << 20))
        row = int(ledger.table.rows_of([f"node-{n:05}"])[0])
        for i in range(CARDS):
            ledger.table.used[i, row] = 8192 * dice.randint(0, 9)
    return ledger


def timed(placer: Placer, ledger: Ledger, pod: PodRequest, names: list[str]) -> float:
    """Milliseconds of processor time of one choice, whose place is then taken."""
    start = time.process_time()
    placement = placer.choose(pod, names).placement
    took = (time.process_time() - start) * 1000
    if placement is not None:
        ledger.reserve(pod, placement)
    return took


def tell(name: str, times: list[float], bound: float | None = None) -> None:
    """Median and 99th percentile."""
    middle, late = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
    figure = {"name": name, "value": round(middle, 2), "p99": round(late, 2), "unit": "ms", "better": "lower"}
    print(json.dumps({**figure, **({"bound": bound, "met": middle <= bound} if bound else {})}))


def lesson() -> None:
    """Learn from as many pods of other kinds as are looked at together, all classes having been asked for."""
    dice = random.Random(2)  # noqa: S311
    ledger = cluster(dice)
    placer, names = Placer(ledger.table, patient=True), sorted(ledger.table.nodes())
    old, new = kinds(dice), kinds(dice)
    for n in range(500):
        placer.demand.note(request(old[n % KINDS], f"old-{n}", 1000 * (n % KINDS % 9)))
    for n in range(KINDS):
        timed(placer, ledger, request(old[n], f"asked-{n}", 2000), names)
    for n in range(500):
        placer.demand.note(request(new[n % KINDS], f"new-{n}", 1000 * (n % KINDS % 9)))
    steps, start = [], time.process_time()
    for _ in placer.lessons():
        steps.append((time.process_time() - start) * 1000)
        start = time.process_time()
    assert not placer.has_lessons
    total, longest = sum(steps) / 1000, max(steps)
    print(json.dumps({"name": "placing.lesson", "value": round(total, 3), "unit": "s", "better": "lower",
                      "bound": LESSON_S, "met": total <= LESSON_S}))  # fmt: skip
    print(json.dumps({"name": "placing.lesson_step", "value": round(longest, 2), "steps": len(steps), "unit": "ms",
                      "better": "lower", "bound": STEP_MS, "met": longest <= STEP_MS}))  # fmt: skip


def main() -> None:
    """Print the figures."""
    dice = random.Random(1)  # noqa: S311 - figures, no secrets
    ledger = cluster(dice)
    placer, names, known = Placer(ledger.table), sorted(ledger.table.nodes()), kinds(dice)
    for n in range(501):
        placer.demand.note(request(known[n % KINDS], f"seen-{n}", 1000 * (n % KINDS % 9)))
    relearned = timed(placer, ledger, request(known[0], "first", 1000), names)
    cold = [timed(placer, ledger, request(known[n], f"cold-{n}", 2000), names) for n in range(1, TRIES)]
    tell("placing.cold", cold, COLD_MS)
    small = replace(known[0], cards=1, memory_mib=1024, cores=0)
    timed(placer, ledger, request(small, "warm", 500), names)
    warm = [timed(placer, ledger, request(small, f"warm-{n}", 500), names) for n in range(300)]
    tell("placing.warm", warm, WARM_MS)
    mixed = [
        timed(placer, ledger, request(dice.choice(known[:TRIES]), f"mixed-{n}", 2000), names)
        for n in range(MIXED)
    ]
    tell("placing.mixed", mixed[MIXED // 2 :])
    tell("placing.relearned", [relearned])
    lesson()


if __name__ == "__main__":
    main()
