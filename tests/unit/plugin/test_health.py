"""Health of cards whose driver behaves worse than the simulated one can."""

import asyncio
import threading
from collections.abc import Mapping

from plugin.cards import Card, CardEvent
from plugin.health import Health
from plugin.watched import Watched


def card(number: int) -> Card:
    """A card of 16 GiB."""
    return Card(f"GPU-{number}", number, number, "NVIDIA H200", 16384, 0, "")


class StuckDriver:
    """A driver whose calls about one card do not return until told to, as a card in trouble makes them."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def cards(self) -> tuple[Card, ...]:
        """Two."""
        return card(0), card(1)

    def memory_used(self, uuid: str) -> int:
        """Waits on the first card."""
        if uuid == "GPU-0":
            self.free.wait()
        return 7

    def next_event(self, timeout_ms: int) -> CardEvent | None:
        """Never."""
        self.free.wait(timeout_ms / 1000)
        return None

    def close(self) -> None:
        """Nothing to end."""


def test_a_card_the_driver_gives_no_answer_about_is_unhealthy_until_it_does():
    """A call that hangs is an answer, too; the other cards are asked meanwhile."""
    driver = StuckDriver()
    health = Health(driver, Watched(driver.cards()), answer_s=0.05, look_every_s=0.01)

    async def until(wanted: Mapping[str, str]) -> None:
        async for reasons in health.reasons.changes():
            if reasons.keys() == wanted.keys():
                return

    async def story() -> None:
        try:
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                following = group.create_task(health.run())
                await until({"GPU-0": ""})
                assert "no answer" in health.reasons.value["GPU-0"]
                assert health.used_bytes == {"GPU-1": 7}
                driver.free.set()
                await until({})
                following.cancel()
        finally:
            driver.free.set()

    asyncio.run(story())
    assert health.used_bytes == {"GPU-0": 7, "GPU-1": 7}
