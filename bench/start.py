"""What a start of the extender costs in clusters of several sizes, how much it keeps, and what a scrape of it takes.

The leader's own process with its default options, on a core of its own (`bench/sched.py` has the rest). Ten pods a node
of eight cards, eight of them with slices. A start is all processor time until it is ready, the program's own loading
included. A scrape is one of `/metrics`, packed as Prometheus asks for it; meanwhile somebody asks for `/healthz` again
and again, on another connection: the longest of these answers is how long a call of filter might wait for a scrape.

One JSON object a line; numbers of pods as arguments choose other sizes.
"""

import http.client
import json
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.extender.leader import Leader

SIZES = (10_000, 50_000, 100_000)
PODS_A_NODE, OF_TEN_WITH_SLICES = 10, 8
SCRAPES = 3
REST_S = 8.0
"""Until it has been elected, has caught up and learned: what it does then is not the scrape's."""


def tell(name: str, value: float, unit: str) -> None:
    """One figure."""
    print(
        json.dumps({"name": f"start.{name}", "value": round(value, 3), "unit": unit, "better": "lower"}),
        flush=True,
    )


@dataclass
class Asker:
    """Asks for `/healthz` without a pause, and knows the longest answer."""

    leader: Leader
    longest_ms: float = 0.0
    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While the block runs."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def _run(self) -> None:
        connection = connect(self.leader)
        while not self._done.is_set():
            start = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - start) * 1e3)
        connection.close()


def connect(leader: Leader) -> http.client.HTTPSConnection:
    """A connection to the leader."""
    context = ssl.create_default_context(cafile=leader.ca)
    return http.client.HTTPSConnection("127.0.0.1", leader.port, context=context)


def scrape(leader: Leader) -> tuple[float, int]:
    """Seconds of processor time, and the answer's length."""
    connection = connect(leader)
    before = leader.busy_ns()
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    length = len(connection.getresponse().read())
    connection.close()
    return (leader.busy_ns() - before) / 1e9, length


def measure(pods: int) -> None:
    """One cluster."""
    nodes, slices = pods // PODS_A_NODE, pods * OF_TEN_WITH_SLICES // 10
    with (
        tempfile.TemporaryDirectory(prefix="aq-") as root,
        Leader(Path(root), nodes, slices, pods - slices) as leader,
    ):
        tell(f"{pods}_pods.cpu_s", leader.started_s, "s")
        time.sleep(REST_S)
        tell(f"{pods}_pods.rss_mib", leader.rss_mib(), "MiB")
        calm, busy = Asker(leader), Asker(leader)
        with calm.asking():
            time.sleep(1.0)
        with busy.asking():
            scrapes = [scrape(leader) for _ in range(SCRAPES)]
        alone = [scrape(leader) for _ in range(SCRAPES)]
        tell(f"{pods}_pods.scrape_cpu_s", min(cpu for cpu, _ in alone), "s")
        tell(f"{pods}_pods.scrape_mib", scrapes[0][1] / (1 << 20), "MiB")
        tell(f"{pods}_pods.answer_beside_a_scrape_ms", busy.longest_ms, "ms")
        tell(f"{pods}_pods.answer_ms", calm.longest_ms, "ms")


def main() -> int:
    """Print the figures."""
    for pods in map(int, sys.argv[1:] or SIZES):
        measure(int(pods))
    return 0


if __name__ == "__main__":
    sys.exit(main())
