"""Eight scrapers without a pause, among ten thousand pods: calls of filter go through, and memory does not grow."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, manifest
from tests.integration.faults.crowds import crowd

PODS = 10_000
NODES = 200
SCRAPERS, CALLS = 8, 400
P99_MS = 500.0
"""Ten times what a busy machine of two processors took."""
MOST_MIB, GROWTH_MIB = 250, 40


def resident_mib(extender: Extender) -> int:
    """Of the process, now."""
    status = Path(f"/proc/{extender.process.pid}/status").read_text()
    (found,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(found) // 1024


@contextmanager
def storm(extender: Extender) -> Iterator[list[int]]:
    """Scrapers, each on its connection, and how large what they got is."""
    sizes: list[int] = []
    over = threading.Event()

    def scrape() -> None:
        pool = urllib3.PoolManager(retries=False)
        while not over.is_set():
            reply = pool.request(
                "GET", f"{extender.url}/metrics", headers={"Accept-Encoding": "gzip"}, timeout=120
            )
            assert reply.status == 200
            sizes.append(len(reply.data))

    threads = [threading.Thread(target=scrape) for _ in range(SCRAPERS)]
    for thread in threads:
        thread.start()
    try:
        yield sizes
    finally:
        over.set()
        for thread in threads:
            thread.join()


def filtered(extender: Extender, calls: int) -> list[float]:
    """How long each call of filter took, in ms; each is for a pod of its own, which gets a place."""
    names, taken = [f"n{number}" for number in range(NODES)], []
    for number in range(calls):
        pod: Document = manifest(gib=1 + number % 2)
        pod["metadata"]["uid"] = f"asker-{number}"
        begin = time.perf_counter()
        answer = extender.filter(pod, *names)
        taken.append(1000 * (time.perf_counter() - begin))
        assert len(answer["NodeNames"]) == 1
    return sorted(taken)


@pytest.mark.slow
@pytest.mark.timing
def test_filter_keeps_its_time_in_a_storm_of_scrapes(tmp_path: Path) -> None:
    """The 99th percentile, and what the process holds."""
    with crowd(tmp_path / "c", NODES, PODS) as cluster:
        extender = Extender(cluster)
        extender.start()
        try:
            wait_for("all to be counted", lambda: extender.places() == PODS, 60)
            calm = filtered(extender, 50)
            with storm(extender) as sizes:
                wait_for("a scrape by each", lambda: len(sizes) >= SCRAPERS, 120)
                before = resident_mib(extender)
                stormy = filtered(extender, CALLS)
            after, p99 = resident_mib(extender), stormy[int(0.99 * CALLS)]
            print(f"{len(sizes)} scrapes; p50 {calm[25]:.1f} ms calm, {stormy[CALLS // 2]:.1f} in the storm")
            print(f"p99 {p99:.1f} ms; {before} MiB, then {after} MiB")
            assert min(sizes) > 100_000
            assert len(sizes) > 2 * SCRAPERS
            assert p99 < P99_MS
            assert after < min(MOST_MIB, before + GROWTH_MIB)
        finally:
            extender.process.stop()
