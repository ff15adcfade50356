"""How long an allocation takes that wants what a neighbour was granted, and may be using.

Prints one JSON object: whole calls in milliseconds, of those that had to wait; after a second one is refused.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.pods import container, pod
from tests.integration.journey.stacks import one_node

ROUNDS = 100
WAITED_MS = 2.0
PROGRAM = """
import os, time
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
GIB = 1 << 30
for _ in range({rounds}):
    begin = time.monotonic_ns()
    error, block = driver.cuMemAlloc({gib} * GIB)
    print(error.name, time.monotonic_ns() - begin, flush=True)
    driver.cuMemFree(block) if not error else None
    time.sleep({pause})
print("done", flush=True)
time.sleep(1000)
"""


def main() -> None:
    """Two programs that take turns with 10 of a card's 16 GiB."""
    spec = {"memoryPercent": 200}
    pool = {
        "apiVersion": "aliquot.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": "all"},
        "spec": spec,
    }
    with one_node((SimCard(),)) as stack:
        stack.start()
        stack.kubectl.apply(pool)
        for name, pause in (("one", 0.08), ("other", 0.11)):
            program = PROGRAM.format(rounds=ROUNDS, gib=10, pause=pause)
            manifest = pod(name, container("main", {"mem": "12Gi"}, ["python", "-c", program]))
            manifest["metadata"]["annotations"] = {"aliquot.dev/memory-class": "burst"}
            stack.kubectl.apply(manifest)
            stack.kubectl.wait_phase(name, "Running")
        while not all("done" in stack.kubectl.logs(name) for name in ("one", "other")):
            time.sleep(0.5)
        lines = [
            line.split() for name in ("one", "other") for line in stack.kubectl.logs(name).splitlines()[:-1]
        ]
    times = sorted(int(nanoseconds) / 1e6 for error, nanoseconds in lines if error == "CUDA_SUCCESS")
    refused = sum(error != "CUDA_SUCCESS" for error, _ in lines)
    waited = [spent for spent in times if spent >= WAITED_MS]
    middle, last = waited[len(waited) // 2], waited[len(waited) * 99 // 100]
    figures = {"p50_ms": round(middle, 1), "p99_ms": round(last, 1), "max_ms": round(waited[-1], 1)}
    print(
        json.dumps(
            {
                "what": "allocation that a grant must be moved for",
                "rounds": len(times),
                "waited": len(waited),
                "refused": refused,
                **figures,
            }
        )
    )


if __name__ == "__main__":
    main()
