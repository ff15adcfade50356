"""A minute of everything at once: pods come and go while services, kubelet, scheduler and API server are killed.

After each act the auditor looks at first-hand evidence. SEED repeats a run, MINUTES lengthens it.
"""

import os
import random
import time
from dataclasses import dataclass, field

import pytest

from aliquot.cli.demo.stack import Node, Stack
from sandbox.cluster.processes import wait_for
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import container, plain, pod

LASTS_S = 60 * float(os.environ.get("MINUTES", "0.75"))
MOST_PODS = 12
SETTLES_S = 90.0


@dataclass
class Chaos:
    """Acts drawn from a seed; `names` are the pods that were made and not deleted."""

    stack: Stack
    node: Node
    dice: random.Random
    names: list[str] = field(default_factory=list)
    made: int = 0

    def act(self) -> str:
        """Do one thing; returns what."""
        acts = [self.create, self.create, self.delete, self.kill]
        return self.dice.choice(acts)()

    def create(self) -> str:
        """A pod of random size and shape."""
        if len(self.names) >= MOST_PODS:
            return self.delete()
        name = f"chaos-{self.made}"
        self.made += 1
        mem, core = f"{self.dice.choice([256, 1000, 2048, 5000])}Mi", str(self.dice.choice([5, 10, 30]))
        shapes = [
            plain(name, mem, core),
            pod(name, container("main", {"gpu": "2", "mem": mem, "core": core})),
            pod(name, container("a", {"mem": mem}), container("b", {"core": core, "mem-percent": "5"})),
            pod(
                name, container("main", {"mem": mem}), initContainers=[container("i", {"mem": mem}, ["true"])]
            ),
        ]
        self.stack.kubectl.apply(self.dice.choice(shapes))
        self.names.append(name)
        return f"create {name}"

    def delete(self) -> str:
        """A pod, gently or by force."""
        if not self.names:
            return self.create()
        name = self.names.pop(self.dice.randrange(len(self.names)))
        self.stack.kubectl.delete("pods", name, grace=self.dice.choice([None, 0]))
        return f"delete {name}"

    def kill(self) -> str:
        """A process of ours or of the cluster, and start it again."""
        ours = [self.node.agent, "extender", "webhook"]
        process = self.dice.choice([*ours, *ours, f"kubelet-{self.node.name}", "scheduler", "apiserver"])
        self.stack.cluster.kill(process)
        self.stack.cluster.restart(process)
        return f"kill {process}"

    def settled(self) -> bool:
        """Whether every pod runs, was given up by the kubelet, or waits with a reason."""
        return all(self._settled(name) for name in self.names)

    def _settled(self, name: str) -> bool:
        stored = self.stack.kubectl.get("pods", name)
        status = stored["status"]
        if status.get("phase") == "Pending":
            waits = [c for c in status.get("conditions", ()) if c["type"] == "PodScheduled"]
            return (
                bool(waits) and waits[0]["status"] == "False" and "nodes are available" in waits[0]["message"]
            )
        return status.get("phase") in ("Running", "Failed")


@pytest.mark.slow
@pytest.mark.timeout(LASTS_S + 4 * SETTLES_S)
def test_nothing_is_lost_or_promised_twice_in_a_minute_of_chaos(stack: Stack, node: Node) -> None:
    """All invariants hold after each act; in the end everybody runs or knows why not, and nothing is left over."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    chaos = Chaos(stack, node, random.Random(seed))
    end = time.monotonic() + LASTS_S
    while time.monotonic() < end:
        print(f"{LASTS_S - end + time.monotonic():5.1f} s  {chaos.act()}")
        audit(stack)
    wait_for("all pods to settle", chaos.settled, SETTLES_S)
