"""What a tenant has on its cards beyond what its processes said they took: contexts, modules, rounding.

The driver counts bytes by process, the usage page counts what was asked for. Their difference is written into the
control page (`memory_adjust`), so that what is in use is what the driver says. It is only believed while
nothing moves: the tally was the same before and after the driver was asked, every process that holds something
was there, and the driver said the same at the look before. A call that has charged already and not reached the driver
yet would otherwise look like memory that nobody has.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from aliquot.libshim.control_page import CardLimit, Control, change_control, read_control, touch_measured
from aliquot.libshim.page_file import PageError, PagePath
from aliquot.libshim.usage_page import Usage

MIB = 1 << 20
WORTH_WRITING = MIB
"""A smaller difference than this is left as it is."""

Identity = tuple[int, int, int]
"""A process: pid in its own namespace, that namespace, start time, as usage pages name it."""

Held = Mapping[str, Mapping[Identity, int]]
"""Bytes by card and process, as the driver says."""


@dataclass(frozen=True)
class Sample:
    """One card of a tenant at a moment at which its tally stood still."""

    tally_bytes: int
    driver_bytes: int
    processes: Mapping[Identity, tuple[int, int]]
    """Process → what it says, what the driver says; of those that the driver knows."""
    estimated_bytes: int = 0
    """Of the tally, what was charged by an estimate."""


class Overhead:
    """Corrects one tenant's control page."""

    def __init__(self, control: PagePath) -> None:
        self._control = control
        self._last: tuple[Sample | None, ...] = ()

    def look(self, before: Usage, held: Held, after: Usage) -> tuple[Sample | None, ...]:
        """Writes what has changed, and that it was looked; returns what was certain, by card.

        Args:
            before: The usage page before the driver was asked.
            held: What the driver said.
            after: The usage page after that.

        Raises:
            PageError: the control page is unusable.
            OSError: the control page cannot be read or written.
        """
        control = read_control(self._control)
        samples = tuple(
            sample(index, before, held.get(card.uuid, {}), after) for index, card in enumerate(control.cards)
        )
        certain = tuple(
            now if now == last else None for now, last in zip_longest(samples, self._last[: len(samples)])
        )
        self._last = samples
        if corrected(control, certain) != control:
            change_control(self._control, lambda now: self._corrected(now, certain))
        touch_measured(self._control, time.monotonic_ns())
        return certain

    def _corrected(self, control: Control | None, certain: tuple[Sample | None, ...]) -> Control:
        if control is None:
            raise PageError(self._control, "a writer left it half-written")
        return corrected(control, certain)


def sample(index: int, before: Usage, held: Mapping[Identity, int], after: Usage) -> Sample | None:
    """What is known of a card; None while something moves or a process that holds something is gone."""
    said = {identity: size for identity, size in _said(index, after).items() if size or identity in held}
    tally = after.cards[index].memory_used_bytes
    still = before.cards[index].memory_used_bytes == tally and _said(index, before) == _said(index, after)
    if not still or sum(said.values()) != tally or not said.keys() <= held.keys():
        return None
    estimated = sum(process.estimated_bytes[index] for process in after.processes if process.estimated_bytes)
    pairs = {one: (said[one], held[one]) for one in said}
    return Sample(tally, sum(held[one] for one in said), pairs, estimated)


def _said(index: int, usage: Usage) -> dict[Identity, int]:
    return {
        (process.pid, process.pid_namespace, process.start_time): process.memory_bytes[index]
        for process in usage.processes
    }


def corrected(control: Control, certain: tuple[Sample | None, ...]) -> Control:
    """The page with what the certain samples say."""
    pairs = zip(control.cards, certain, strict=True)
    return replace(control, cards=tuple(_corrected(card, one) for card, one in pairs))


def _corrected(card: CardLimit, certain: Sample | None) -> CardLimit:
    if certain is None:
        return card
    adjust = max(certain.driver_bytes - certain.tally_bytes, -_estimated(card, certain))
    return card if abs(adjust - card.adjust_bytes) < WORTH_WRITING else replace(card, adjust_bytes=adjust)


def _estimated(card: CardLimit, certain: Sample) -> int:
    """What the processes may have been charged too much for contexts and code.

    What else the driver counts less than the tally is managed memory, which may come to the card at any moment.
    """
    contexts = sum(said >= card.context_bytes for said, _ in certain.processes.values())
    return card.context_bytes * contexts + certain.estimated_bytes


def context_cost(certain: Sample, charged_bytes: int) -> int | None:
    """What the cheapest of a tenant's processes has on a card for its context alone; None where nobody tells.

    One that has less than it was charged has managed memory on the host, and tells nothing.

    Args:
        certain: A sample.
        charged_bytes: What its page charges for a context already.
    """
    costs = [driver - said + charged_bytes for said, driver in certain.processes.values()]
    return min((cost for cost in costs if cost >= 0), default=None)
