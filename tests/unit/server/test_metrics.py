"""Metrics by name and unit, and the three routes that every service has."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aliquot.server.metrics import Metrics, add_routes


def ask(
    registry: CollectorRegistry,
    ready: Callable[[], str],
    *paths: str,
    before: Callable[[], Awaitable[None]] | None = None,
) -> list[tuple[int, str]]:
    """Serve the routes and fetch these paths: status and text of each."""

    async def run() -> list[tuple[int, str]]:
        app = web.Application()
        add_routes(app, registry, ready, before)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        answers = []
        async with aiohttp.ClientSession() as session:
            for path in paths:
                async with session.get(base + path) as answer:
                    answers.append((answer.status, await answer.text()))
        await runner.cleanup()
        return answers

    return asyncio.run(run())


def test_names_carry_prefix_subsystem_and_unit():
    """Counters end in _total, timers in _seconds."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, "plugin")
    metrics.counter("denied_allocations", "Denied.", ["card"]).labels("GPU-1").inc()
    metrics.gauge("card_memory_bytes", "Memory.").set(5)
    with metrics.timer("allocate", "Allocate", ("ok",)).measure():
        pass
    ((code, text),) = ask(registry, lambda: "", "/metrics")
    assert code == 200
    assert 'aliquot_plugin_denied_allocations_total{card="GPU-1"} 1.0' in text
    assert "aliquot_plugin_card_memory_bytes 5.0" in text
    assert 'aliquot_plugin_allocate_seconds_count{outcome="ok"} 1.0' in text


def test_work_is_timed_by_how_it_ended():
    """What raises counts as an error, unless the caller had a better word."""
    registry = CollectorRegistry()
    timer = Metrics(registry, "x").timer("work", "Work", ["ok", "denied"], ["verb"])

    def counts() -> list[float | None]:
        return [
            registry.get_sample_value("aliquot_x_work_seconds_count", {"verb": "v", "outcome": word})
            for word in ("error", "denied", "ok")
        ]

    assert counts() == [None, None, None]
    timer.expect("v")
    assert counts() == [0, 0, 0]
    with pytest.raises(RuntimeError), timer.measure("v"):
        raise RuntimeError
    with timer.measure("v") as outcome:
        outcome.word = "denied"
    assert counts() == [1, 1, 0]


def test_work_without_labels_is_told_before_there_was_any():
    """Else Prometheus sees no rise when the first of it is done."""
    registry = CollectorRegistry()
    Metrics(registry, "x").timer("work", "Work", ["done"])
    for outcome in ("done", "error"):
        assert registry.get_sample_value("aliquot_x_work_seconds_count", {"outcome": outcome}) == 0


def test_health_and_readiness_are_different_questions():
    """A service that is not synced yet lives but is not ready, and says what is missing."""
    missing = iter(["pods are not synced", ""])
    answers = ask(CollectorRegistry(), lambda: next(missing), "/healthz", "/readyz", "/readyz")
    assert answers == [(200, "ok\n"), (503, "not ready: pods are not synced\n"), (200, "ok\n")]


def test_what_takes_long_is_looked_up_before_the_metrics_are_read():
    """Collecting is one step in the event loop, so whoever must ask around does it before, without holding it up."""
    registry, steps = CollectorRegistry(), []

    class Steps(Collector):
        def collect(self) -> Iterator[Metric]:
            steps.append("collected")
            yield from ()

    async def look_up() -> None:
        await asyncio.to_thread(steps.append, "looked up")

    registry.register(Steps())
    steps.clear()
    ask(registry, lambda: "", "/metrics", "/healthz", before=look_up)
    assert steps == ["looked up", "collected"]
