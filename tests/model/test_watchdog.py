"""A program that hangs is found, at the place where it hangs; time passes only while everything waits."""

import asyncio
import itertools

import pytest

from tests.model import virtual_time
from tests.model.virtual_time import CLOCK, HungError, Loop, StandstillError


async def endless() -> None:
    """Computes for ever."""
    for _ in itertools.count():
        pass


async def busy() -> None:
    """Gives way for ever, and never waits."""
    for _ in itertools.count():
        await asyncio.sleep(0)


async def beside(task: object) -> None:
    """The hang is in a task that nothing waits for."""
    hanging = asyncio.ensure_future(task)  # type: ignore[call-overload]
    await asyncio.sleep(3600)
    hanging.cancel()


def test_a_turn_that_does_not_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is of processor time, so a busy machine changes nothing."""
    monkeypatch.setattr(virtual_time, "TURN_SECONDS", 0.3)
    with pytest.raises(HungError, match="endless"):
        Loop().run(beside(endless()))


def test_a_loop_in_which_no_time_passes_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a loop answers calls, and never gets on."""
    monkeypatch.setattr(virtual_time, "TURNS", 1000)
    with pytest.raises(HungError, match="no time has passed"):
        Loop().run(beside(busy()))


def test_time_jumps_to_the_next_timer() -> None:
    """A day takes no time."""

    async def day() -> float:
        await asyncio.sleep(86400.0)
        return asyncio.get_running_loop().time()

    assert Loop().run(day()) == pytest.approx(86400.0)
    assert CLOCK.now == pytest.approx(86400.0)


def test_a_cluster_in_which_nothing_can_happen_any_more_is_no_endless_wait() -> None:
    """A task that waits for an event which nothing will set."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StandstillError):
        Loop().run(stuck())
