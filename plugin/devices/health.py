"""Which cards are well, and what they hold: the driver's events, and a question every few seconds.

A card is unhealthy when the driver reports an XID that is not the application's own fault, an uncorrected
ECC error, or when the card no longer answers. One that answers again is well again; one with an XID stays
unhealthy until this agent is restarted, since NVML cannot say that it was repaired. Every question is
asked in a thread, and about each card in one of its own: a driver that is slow must neither stop the agent from
talking to the kubelet nor take the threads that write its files. A driver that is no longer the one that was
loaded ends the agent, so that the next one asks the new driver.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from aliquot.plugin.devices.nvml_cards import Card, CardEvent, CardsError, Nvml, SessionOverError
from aliquot.plugin.util.latest_value import LatestValue

log = logging.getLogger(__name__)

# What a program can cause by itself (page faults, stopped channels, clean-up): the card is well.
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})
ECC = "ecc"
EVENT_WAIT_MS = 500
LOOK_EVERY_S = 2.0
MOST_CARDS = 64
RETRY_S = 10.0


@dataclass(frozen=True)
class CardState:
    """What was last seen. `reason` is empty for a card that is well."""

    reason: str = ""
    used_bytes: int = 0


@dataclass
class Health:
    """Follows the health of the cards; `reasons` has an entry for each card that is not well.

    `errors` counts what the driver has reported, by card and error, the harmless ones included.
    """

    nvml: Nvml
    cards: LatestValue[tuple[Card, ...]]
    reasons: LatestValue[Mapping[str, str]] = field(default_factory=lambda: LatestValue({}))
    used_bytes: dict[str, int] = field(default_factory=dict)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    look_every_s: float = LOOK_EVERY_S
    _struck: dict[str, str] = field(default_factory=dict)
    _silent: dict[str, str] = field(default_factory=dict)
    _threads: Executor = field(default_factory=lambda: ThreadPoolExecutor(MOST_CARDS, "nvml"))

    async def run(self) -> None:
        """Follows until cancelled. Raises SessionOverError, in a group, when the driver has been replaced."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_events())
            group.create_task(self._ask_cards())

    async def _follow_events(self) -> None:
        said = ""
        while True:
            try:
                event = await asyncio.to_thread(self.nvml.next_event, EVENT_WAIT_MS)
            except CardsError as error:
                if str(error) != said:
                    log.warning("card events cannot be followed: %s", error)
                said = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._strike(event)

    def _strike(self, event: CardEvent | None) -> None:
        if event is None:
            return
        struck = [card.uuid for card in self.cards.value if event.uuid in ("", card.uuid)]
        self.errors.update((uuid, f"xid_{event.xid}" if event.xid else ECC) for uuid in struck)
        if event.xid in HARMLESS_XIDS:
            return
        reason = f"XID {event.xid}" if event.xid else "uncorrected ECC error"
        for uuid in struck:
            self._struck[uuid] = reason
            log.error("card %s: %s", uuid, reason)
        self._publish()

    async def _ask_cards(self) -> None:
        while True:
            await asyncio.gather(*(self._ask(card.uuid) for card in self.cards.value))
            self._publish()
            await asyncio.sleep(self.look_every_s)

    async def _ask(self, uuid: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            self.used_bytes[uuid] = await loop.run_in_executor(self._threads, self.nvml.memory_used, uuid)
        except SessionOverError:
            raise
        except CardsError as error:
            if uuid not in self._silent:
                log.error("card does not answer: %s", error)  # noqa: TRY400
            self._silent[uuid] = str(error)
        else:
            self._silent.pop(uuid, None)

    def _publish(self) -> None:
        self.reasons.set({**self._silent, **self._struck})
