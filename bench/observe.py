"""What Prometheus has to do for the rules and the dashboard of a large cluster: Debian's package, made-up nodes.

    python bench/observe.py [NODES]     of 8 cards with 4 slices each; default 1,000

All agents are one target, whose answer does not change. Processor time of Prometheus: of one scrape of all and one
evaluation of all rules, and of the dashboard's queries, each for one moment. One JSON object a line.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.observe import prometheus as real
from tests.observe.expressions import drawn, flat
from tests.observe.prometheus import Prometheus, Target

CARDS, SLICES, GIB = 8, 4, 1 << 30
CARD = {
    "memory_total_bytes": 80 * GIB,
    "memory_promised_bytes": 64 * GIB,
    "memory_guaranteed_bytes": 64 * GIB,
    "memory_promisable_bytes": 80 * GIB,
    "memory_used_bytes": 40 * GIB,
    "core_promised_ratio": 0.8,
    "core_promisable_ratio": 1,
    "healthy": 1,
}
SLICE = {
    "memory_limit_bytes": 16 * GIB,
    "memory_used_bytes": 10 * GIB,
    "memory_peak_bytes": 12 * GIB,
    "memory_overhead_bytes": 0,
    "core_share_ratio": 0.2,
    "core_most_ratio": 1,
    "trusted": 1,
    "enforcement_level": 2,
    "allocations_denied_total": 1,
    "busy_seconds_total": 1000,
    "throttled_seconds_total": 10,
    "core_guaranteed_seconds_total": 900,
    "core_used_seconds_total": 1000,
    "core_lent_seconds_total": 100,
}
CYCLE_S, CYCLES = 30, 2


def told(nodes: int) -> Iterator[str]:
    """What all agents tell."""
    for node in range(nodes):
        for card in range(CARDS):
            where = f'node="node-{node:05}",card="GPU-{node:05}-{card}"'
            yield f'aliquot_card_info{{{where},index="{card}",model="H200",mig="false"}} 1\n'
            for name, value in CARD.items():
                yield f"aliquot_card_{name}{{{where}}} {value}\n"
            for number in range(SLICES):
                whose = f'namespace="team-{node % 50}",pod="train-{node}-{card}-{number}",container="main"'
                for name, value in SLICE.items():
                    yield f"aliquot_slice_{name}{{{where},{whose}}} {value}\n"


def serve(body: bytes) -> int:
    """Answer every GET with this; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main(nodes: int) -> None:
    """Measure and print."""
    body = "".join(told(nodes)).encode()
    real.EVERY = real.JUDGED_EVERY = f"{CYCLE_S}s"
    agents = Target("aliquot-agent", f"127.0.0.1:{serve(body)}", {"node": "all"})
    with tempfile.TemporaryDirectory() as scratch, Prometheus(Path(scratch) / "p", [agents]) as prometheus:
        prometheus.wait_for("node_model:aliquot_cards:count")
        begin = prometheus.cpu_seconds()
        time.sleep(CYCLES * CYCLE_S)
        cycle = (prometheus.cpu_seconds() - begin) / CYCLES
        costs = [asked(prometheus, queries, cycle / CYCLE_S) for queries in in_rows()]
    print(json.dumps({"nodes": nodes, "cards": nodes * CARDS, "series": body.count(b"\n")}))
    print(json.dumps({"scrape_and_rules_cpu_s": round(cycle, 2)}))
    print(json.dumps({"open_rows_cpu_s": round(costs[0], 2), "closed_rows_cpu_s": round(costs[1], 2)}))


def asked(prometheus: Prometheus, queries: list[str], busy: float) -> float:
    """Processor time of queries, one after another, without what scraping and rules use meanwhile."""
    begin, start = prometheus.cpu_seconds(), time.monotonic()
    for query in queries:
        prometheus.query(query)
    return prometheus.cpu_seconds() - begin - busy * (time.monotonic() - start)


def in_rows() -> tuple[list[str], list[str]]:
    """The queries of panels in rows that are open at first, and in those that are closed."""
    closed = {panel["title"] for row in flat() for panel in row.get("panels", ())}
    named = [(any(repr(title) in one.where for title in closed), one.text) for one in drawn()]
    return [text for shut, text in named if not shut], [text for shut, text in named if shut]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
