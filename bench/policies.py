"""What the admission policies cost the API server: its processor time for a request, with them and without.

A real etcd and kube-apiserver of this machine (`tests/cluster`), one request after the other, as dry runs: admission is
all there, etcd is not written. Rounds with and without the policies take turns, ROUNDS of each, and the least of
either counts. Where Kubernetes' programs cannot be built, it says so and ends.

One JSON object a line.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.control_plane import ControlPlane
from tests.cluster.policies.attempts import JSON, STRATEGIC, Attempt, pods
from tests.cluster.policies.manifests import binding, container, plain, pod
from tests.cluster.policies.world import World
from tests.cluster.programs import program
from tests.tools.debian import NotAvailableError

REQUESTS, ROUNDS = 100, 3
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
RUNNING = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def made(pod: Obj) -> Attempt:
    """Somebody makes a pod."""
    return Attempt("", "", "", "alice", "POST", pods(), pod)


def ten(one: Obj) -> list[Obj]:
    """Ten containers with 100 variables each."""
    env = [{"name": f"VARIABLE_OF_THE_APPLICATION_{n}", "value": f"value {n}"} for n in range(100)]
    return [{**one, "name": f"c{n}", "env": [*env, *one["env"]]} for n in range(10)]


CASES = {
    "plain pod": made(pod("any", plain(), schedulerName="default-scheduler")),
    "plain pod, 10 containers of 100 variables": made(pod("any", *ten(plain()), schedulerName="mine")),
    "pod with a slice": made(pod("any")),
    "pod with slices, 10 containers of 100 variables": made(pod("any", *ten(container()))),
    "status of a plain pod": Attempt(
        "", "", "", "kubelet-a", "PATCH", pods("plain", "status"), RUNNING, STRATEGIC
    ),
    "status of a placed pod": Attempt(
        "", "", "", "kubelet-a", "PATCH", pods("running", "status"), RUNNING, STRATEGIC
    ),
    "Binding": Attempt(
        "",
        "",
        "",
        "kube-scheduler",
        "POST",
        pods("waiting", "binding"),
        binding("waiting", "aliquot-trial-node-a"),
        JSON,
    ),
}


class Meter:
    """Counts what one process has had of the processor."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")

    def spent_ms(self) -> float:
        """User and system time so far."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_MS


def cost_ms(world: World, meter: Meter, attempt: Attempt) -> float:
    """Of one request, on average."""
    start = meter.spent_ms()
    for _ in range(REQUESTS):
        world.try_it(attempt, dry_run=True)
    return (meter.spent_ms() - start) / REQUESTS


def rounds(world: World) -> dict[bool, list[dict[str, float]]]:
    """With the policies and without, in turn."""
    meter = Meter(world.plane.processes["kube-apiserver"].pid)
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for _ in range(ROUNDS):
        found[True].append({name: cost_ms(world, meter, one) for name, one in CASES.items()})
        with world.without_policies():
            found[False].append({name: cost_ms(world, meter, one) for name, one in CASES.items()})
    return found


def main() -> None:
    """Measure, and tell."""
    try:
        for name in ("etcd", "kube-apiserver", "helm"):
            program(name)
    except NotAvailableError as missing:
        print(f"NOT RUN: {missing}", file=sys.stderr)
        return
    with ControlPlane() as plane:
        found = rounds(World(plane))
    for name in CASES:
        least = {there: min(figures[name] for figures in found[there]) for there in found}
        row = {"name": f"policies.{name}", "value": round(least[True], 3), "unit": "ms", "better": "lower"}
        print(json.dumps({**row, "without": round(least[False], 3)}))


if __name__ == "__main__":
    main()
