"""The extender at 5,000 nodes of 8 cards, from outside: how long its answers take, what they and its start cost.

The leader's own process with its default options, on a core of its own, over TLS; the client (on another core, with
the API server) sends what kube-scheduler sends: pods of ninety classes, bodies of 231 KB with all node names in an
order that changes from call to call. Each pod is bound afterwards, and another one leaves, so that nodes change, too.

One JSON object a line, with the bound where there is one; the exit status is 1 if one is not met.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.extender import world
from bench.extender.apiserver import FRESH_KINDS
from bench.extender.leader import Leader
from bench.extender.wire import Wire, bind_call, filter_call, preempt_call

NODES, SLICES, OTHERS = 5000, 40_000, 10_000
LEARN, STEADY, RATE = 1200, 3000, 2000
CURVE = (1000, 5000, 10_000, 15_000)
CURVE_CALLS = 600
ORDERS = 50
PREEMPTIONS, PREEMPT_NODES = 20, 100


@dataclass
class Report:
    """Prints figures, and remembers whether all bounds were met."""

    met: bool = True

    def tell(
        self, name: str, value: float, unit: str, bound: float | None = None, *, higher: bool = False
    ) -> None:
        """One figure."""
        line = {
            "name": f"sched.{name}",
            "value": round(value, 3),
            "unit": unit,
            "better": "higher" if higher else "lower",
        }
        if bound is not None:
            met = value >= bound if higher else value <= bound
            self.met &= met
            line |= {"bound": bound, "met": met}
        print(json.dumps(line), flush=True)


@dataclass
class Times:
    """What some calls took, in milliseconds: on the client's clock, and of the extender's processor."""

    filters: list[float] = field(default_factory=list)
    binds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    busy_binds: list[float] = field(default_factory=list)
    refused: int = 0

    def at(self, part: float) -> float:
        """A percentile of filter's."""
        return sorted(self.filters)[int(len(self.filters) * part)]


class Client:
    """kube-scheduler, as far as the extender can tell."""

    def __init__(self, leader: Leader, nodes: int) -> None:
        self._leader = leader
        self._wire: Wire = leader.wire()
        self._pods = world.Pods(list(world.fresh_kinds(FRESH_KINDS)))
        self._offers = world.offers(nodes, ORDERS)
        self._dice = random.Random(17)  # noqa: S311
        self._number = 10**6

    def usual(self, count: int) -> Iterator[int]:
        """Classes of pods to come."""
        return (self._pods.draw(self._dice) for _ in range(count))

    def fresh(self) -> Iterator[int]:
        """One pod of each class that the extender has not seen."""
        return iter(range(len(self._pods.kinds) - FRESH_KINDS, len(self._pods.kinds)))

    def place(self, kinds: Iterator[int], *, bind: bool = True) -> Times:
        """One pod after the other."""
        times = Times()
        for kind in kinds:
            self._number += 1
            pod = world.pending(self._pods, world.pod_name(kind, self._number))
            call = filter_call(pod, self._dice.choice(self._offers))
            nodes = self._timed(call, times.filters, times.busy)["NodeNames"]
            if not nodes:
                times.refused += 1
            elif bind:
                answer = self._timed(bind_call(pod, nodes[0]), times.binds, times.busy_binds)
                assert not answer["Error"], answer
        return times

    def preempt(self, count: int) -> list[float]:
        """Milliseconds of calls for pods that want a whole node, about a hundred nodes each."""
        times, kind = list[float](), len(self._pods.kinds) - FRESH_KINDS - 1
        for _ in range(count):
            self._number += 1
            pod = world.pending(self._pods, world.pod_name(kind, self._number))
            pod["spec"]["priority"] = 1000
            nodes = [world.node_name(n) for n in self._dice.sample(range(NODES), PREEMPT_NODES)]
            assert "NodeNameToMetaVictims" in self._timed(preempt_call(pod, nodes), times, [])
        return times

    def rate(self, count: int) -> float:
        """Filter calls in a second, one after the other on one connection; nothing is bound."""
        calls = []
        for kind in self.usual(count):
            self._number += 1
            pod = world.pending(self._pods, world.pod_name(kind, self._number))
            calls.append(filter_call(pod, self._dice.choice(self._offers)))
        start = time.perf_counter()
        for call in calls:
            self._wire.post(call)
        return count / (time.perf_counter() - start)

    def _timed(self, call: bytes, took: list[float], busy: list[float]) -> world.Document:
        before = self._leader.busy_ns()
        start = time.perf_counter()
        answer = self._wire.post(call)
        took.append((time.perf_counter() - start) * 1e3)
        busy.append((self._leader.busy_ns() - before) / 1e6)
        found: world.Document = json.loads(answer)
        return found


def measure(report: Report) -> None:
    """At the size that the bounds are for."""
    with (
        tempfile.TemporaryDirectory(prefix="aq-") as root,
        Leader(Path(root), NODES, SLICES, OTHERS) as leader,
    ):
        report.tell("ledger.cpu_s", leader.started_s, "s", 4.0)
        client = Client(leader, NODES)
        client.place(client.usual(LEARN))
        fresh = client.place(client.fresh())
        report.tell("filter.new_class_ms", statistics.median(fresh.filters), "ms", 20.0)
        report.tell("filter.new_class_worst_ms", max(fresh.filters), "ms")
        steady = client.place(client.usual(STEADY))
        report.tell("filter.p50_ms", steady.at(0.5), "ms", 1.2)
        report.tell("filter.p99_ms", steady.at(0.99), "ms", 4.0)
        report.tell("filter.worst_ms", max(steady.filters), "ms")
        report.tell("filter.cpu_ms", statistics.mean(steady.busy), "ms")
        report.tell("filter.refused", steady.refused, "pods")
        report.tell("bind.p50_ms", statistics.median(steady.binds), "ms")
        report.tell("bind.cpu_ms", statistics.mean(steady.busy_binds), "ms", 1.0)
        report.tell("preempt.ms", statistics.median(client.preempt(PREEMPTIONS)), "ms", 20.0)
        report.tell("filter.per_second", client.rate(RATE), "1/s", 700.0, higher=True)
        report.tell("rss_mib", leader.rss_mib(), "MiB", 150.0)


def curve(report: Report) -> None:
    """What a call costs at other sizes."""
    costs = {}
    for nodes in CURVE:
        with (
            tempfile.TemporaryDirectory(prefix="aq-") as root,
            Leader(Path(root), nodes, 4 * nodes, 0) as leader,
        ):
            client = Client(leader, nodes)
            client.place(client.usual(CURVE_CALLS))
            times = client.place(client.usual(CURVE_CALLS))
            costs[nodes] = statistics.median(times.busy)
            report.tell(f"filter.{nodes}_nodes.p50_ms", times.at(0.5), "ms")
            report.tell(f"filter.{nodes}_nodes.cpu_ms", costs[nodes], "ms")
    report.tell("filter.growth", costs[15_000] / costs[5000], "of 5,000 nodes' cost", 3.0)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-curve", action="store_true", help="leave out how cost grows with the nodes")
    given = parser.parse_args()
    report = Report()
    measure(report)
    if not given.no_curve:
        curve(report)
    return 0 if report.met else 1


if __name__ == "__main__":
    sys.exit(main())
