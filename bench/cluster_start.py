"""How long a pod takes from its creation to Ready on a real kubelet: with a slice, plain, and plain with a volume.

    python bench/cluster_start.py [--pods 24] [--rounds 3]

Prints one JSON object a line. It needs what docs/test-cluster.md says of the node. Pods of the three kinds are created
in turns; each waits for nothing but its own container. Single pods are measured with the volume of their account's
token, as pods have it that do not refuse it, and without: the kubelet looks for volumes every 0.3 s. The volume of the
third kind is one in memory, such as usage pages are on: what that costs, it costs whoever has one.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from aliquot.api.names import USAGE_VOLUME_SIZE
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.cluster.installation import Installation
from tests.integration.journey.pods import container, pod

SERVICES = {
    "agent": "aliquot-plugin",
    "webhook": "aliquot-webhook",
    "extender": "aliquot-scheduler-ext",
}


IN_MEMORY: dict[str, Any] = {"emptyDir": {"medium": "Memory", "sizeLimit": USAGE_VOLUME_SIZE}}
KINDS = ("plain", "volume", "slice")


def made(kind: str, name: str, *, token: bool) -> dict[str, Any]:
    """A pod of one of the kinds."""
    limits = {"mem": "256Mi", "core": "1"} if kind == "slice" else {}
    mounts = [{"name": "scratch", "mountPath": "/scratch"}] if kind == "volume" else []
    volumes = [{"name": "scratch", **IN_MEMORY}] if kind == "volume" else []
    main = container("main", limits, volumeMounts=mounts)
    return pod(name, main, automountServiceAccountToken=token, volumes=volumes)


def started(installed: Installation, count: int, kind: str, *, token: bool = True) -> list[float]:
    """Seconds from creation to Ready of so many pods at once, on a node that is at rest."""
    names = [f"{kind}-{number}" for number in range(count)]
    before = sandboxes(installed)
    watch = Watch(installed, set(names))
    for name in names:
        watch.created[name] = time.time()
        installed.kubectl.create(made(kind, name, token=token))
        watch.look()
    wait_for(f"{kind} pods to be ready", watch.look, 300, growth=0)
    for name in names:
        installed.kubectl.delete("pods", name, grace=0)
    wait_for("them to go", lambda: not installed.kubectl.list("pods", "default"), 300)
    wait_for("what the kubelet ends in the background", lambda: sandboxes(installed) <= before, 300)
    return watch.took()


def sandboxes(installed: Installation) -> int:
    """How many pods the runtime has: those deleted by force are with it for seconds yet."""
    return sum("containerd-shim" in line for line in installed.node.box.processes().values())


class Watch:
    """Notes when pods are first seen ready; a look takes some milliseconds."""

    def __init__(self, installed: Installation, names: set[str]) -> None:
        self._installed, self._names = installed, names
        self.created: dict[str, float] = {}
        self._ready: dict[str, float] = {}

    def look(self) -> bool:
        """Whether all are ready."""
        now = time.time()
        for found in self._installed.kubectl.list("pods", "default"):
            name = found["metadata"]["name"]
            if name not in self._ready and ready(found):
                self._ready[name] = now
        return set(self._ready) >= self._names

    def took(self) -> list[float]:
        """Seconds of each."""
        return [self._ready[name] - self.created[name] for name in self._names]


def ready(found: dict[str, Any]) -> bool:
    """Whether a pod is Ready."""
    conditions = found["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def resident(installed: Installation, script: str) -> float:
    """MiB in memory of a service."""
    status = installed.node.box.path(f"/proc/{installed.pid_of(script)}/status")
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def compare(installed: Installation, count: int, rounds: int, *, token: bool) -> None:
    """Print what pods of each kind take, and the ratios."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            taken[kind] += started(installed, count, kind, token=token)
    about = {"at once": count, "token": token}
    middle = {kind: statistics.median(values) for kind, values in taken.items()}
    for kind, p50 in middle.items():
        figures = {"p50 s": round(p50, 3), "of": len(taken[kind])}
        print(json.dumps({"what": f"{kind} pod to Ready", **about, **figures}))
    for other in ("plain", "volume"):
        ratio = round(middle["slice"] / middle[other], 2)
        print(json.dumps({"what": f"slice over {other}", **about, "ratio": ratio}), flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pods", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with Installation([SimCard() for _ in range(4)]) as installed:
        for token in (True, False):
            compare(installed, 1, 10 * given.rounds, token=token)
        compare(installed, given.pods, given.rounds, token=True)
        for name, script in SERVICES.items():
            print(json.dumps({"what": f"RSS of {name}", "MiB": round(resident(installed, script), 1)}))


if __name__ == "__main__":
    main()
