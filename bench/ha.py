"""How long pods wait for an answer after the leader of three replicas of the extender is killed, or ended with a word.

Three extender processes with TLS and an API server of the pocket cluster. A client binds one pod after the other
through a replica that lives; from SIGKILL or SIGTERM to the first bind after it that succeeds.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import add_node, create
from tests.integration.replicas import TAKES_OVER_S, Replica, Replicas, three

ROUNDS = 5


def measure(replicas: Replicas, end: Callable[[Replica], None]) -> float:
    """Seconds without an answer; the replica is started again."""
    leader = replicas.leader()
    other = replicas.others(leader)[0]
    pod = create(replicas.cluster, gib=1)
    start = time.perf_counter()
    end(leader)
    wait_for("bind to be answered", lambda: other.bind(pod, "n1") == "", TAKES_OVER_S)
    took = time.perf_counter() - start
    leader.start()
    return took


def tell(name: str, seconds: list[float]) -> None:
    """Median and worst, each on a line of its own; less is better."""
    for word, value in (("", statistics.median(seconds)), ("_worst", max(seconds))):
        line = {"name": f"{name}{word}", "value": round(value, 2), "unit": "s", "better": "lower"}
        print(json.dumps(line))


def main() -> None:
    """Print both figures."""
    with (
        tempfile.TemporaryDirectory(prefix="aq-") as directory,
        PocketCluster(Path(directory) / "c") as cluster,
    ):
        cluster.start_apiserver()
        cluster.kubectl.apply(Path("deploy/crds/gpunodes.yaml"))
        add_node(cluster, "n1", [f"n1-{n}" for n in range(8)])
        with three(cluster, Path(directory)) as replicas:
            tell(
                "sched.ha.takeover_s", [measure(replicas, lambda r: r.process.kill()) for _ in range(ROUNDS)]
            )
            tell(
                "sched.ha.handover_s", [measure(replicas, lambda r: r.process.stop()) for _ in range(ROUNDS)]
            )


if __name__ == "__main__":
    main()
