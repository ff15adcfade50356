"""Cards and tenants as a model, in time that the test owns: what the scheduler decides is the same on every run.

A tenant's process follows the rules of the interceptor: it announces work before it looks at its gate, keeps no more in
flight than the window, submits nothing that would outlast the lease unless nothing is in flight, and reports what
events on the card would say. A card has one context at a time; contexts with work take turns of 2 ms.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aliquot.arbiter._arbiter import ffi, lib

US = 1_000
MS = 1_000_000
S = 1_000_000_000
SLICE = 2 * MS
BELL = 30 * US
"""From a bell to the arbiter's look."""
WAKE = 50 * US
"""From an opened gate to the first work on the card, and from the end of work to the word of it."""
FOREVER = 10**18
CARD = "GPU-0"

Work = Iterator[tuple[int, int]]
"""Kernels: how long, and how long the program pauses after it has waited for it (-1: it does not wait)."""


def steady(length_ns: int) -> Work:
    """Submits as much as it may."""
    return itertools.repeat((length_ns, -1))


def synchronous(length_ns: int, pause_ns: int, every: int = 1) -> Work:
    """Waits for each so many, and does something else then."""
    return itertools.cycle([(length_ns, -1)] * (every - 1) + [(length_ns, pause_ns)])


def at_random(rng: random.Random, length_ns: int, pause_ns: int) -> Work:
    """A kernel now and then."""
    while True:
        yield length_ns, int(rng.expovariate(1 / pause_ns))


@dataclass(eq=False)
class Kernel:
    """One kernel; of a collective those on all cards go on when the last of them has begun."""

    process: "Process"
    length: int
    left: int
    follows: bool
    party: int = 1
    """On how many cards it is one piece of work."""
    began: int = -1
    others: "list[tuple[Card, Kernel]]" = field(default_factory=list)

    @property
    def spins(self) -> bool:
        """Whether it waits for another card."""
        all_there = len(self.others) == self.party - 1
        return not all_there or any(kernel.began < 0 for _, kernel in self.others)


@dataclass(eq=False)
class Card:
    """Runs one context at a time, and remembers who had it when."""

    world: "World"
    queues: "dict[Process, deque[Kernel]]" = field(default_factory=dict)
    current: "Process | None" = None
    record: "list[tuple[int, int, Process]]" = field(default_factory=list)
    _slice_end: int = 0
    _since: int = 0
    _version: int = 0

    def submit(self, kernel: Kernel) -> None:
        """Queues a kernel behind the others of its context."""
        self.settle()
        self.queues.setdefault(kernel.process, deque()).append(kernel)
        self.turn()

    def drop(self, process: "Process") -> None:
        """Forgets what a process that was killed had queued."""
        self.settle()
        self.queues.pop(process, None)
        self.turn()

    def settle(self) -> None:
        """Accounts for what has run since the last look."""
        now, process = self.world.now, self.current
        if process in self.queues and now > self._since:
            assert process
            self.record.append((self._since, now, process))
            kernel = self.queues[process][0]
            kernel.left -= 0 if kernel.spins else now - self._since
            if kernel.left <= 0:
                self._finish(process, kernel)
        self._since = now

    def _finish(self, process: "Process", kernel: Kernel) -> None:
        self.queues[process].popleft()
        if not self.queues[process]:
            del self.queues[process]
        process.finished(self, kernel)

    def turn(self) -> None:
        """Decides who runs from now on."""
        self.settle()
        self._version += 1
        now, waiting = self.world.now, list(self.queues)
        if not waiting:
            self.current = None
            return
        if self.current not in waiting or now >= self._slice_end:
            self._slice_end = now + SLICE
            after = waiting.index(self.current) + 1 if self.current in waiting else 0
            self.current = waiting[after % len(waiting)]
        self._begin(self.queues[self.current][0], alone=len(waiting) == 1)

    def _begin(self, kernel: Kernel, *, alone: bool) -> None:
        fresh, now = kernel.began < 0, self.world.now
        if fresh:
            for card, _ in kernel.others:
                card.settle()
            kernel.began = now
        until = FOREVER if kernel.spins else now + kernel.left
        self.world.at(until if alone else min(until, self._slice_end), self._turn_if, self._version)
        for card, _ in kernel.others if fresh else ():
            self.world.at(now, card.turn)

    def _turn_if(self, version: int) -> None:
        if version == self._version:
            self.turn()

    def had(self, process: "Process", since: int = 0) -> int:
        """Nanoseconds of its time that a process had."""
        return sum(
            end - max(start, since) for start, end, who in self.record if who is process and end > since
        )


@dataclass(eq=False)
class Entity:
    """What a process has at one card."""

    card: Card
    index: int
    in_flight: int = 0
    expected: int = 0
    queued: int = 0
    waiting: bool = False
    used: int = 0
    ended: int = -S
    told: Any = None


@dataclass(eq=False)
class Process:
    """A tenant's only process. On several cards all its work is collectives, or it goes from one to the next (`stage`).

    Each card is fed by itself.
    """

    world: "World"
    work: Work
    entities: list[Entity]
    native: Any
    reports: float = 1.0
    stopped: bool = False
    dead: bool = False
    stage: int = 0
    """Pieces of work on one of its cards before it turns to the next; 0: all are collectives."""
    skew: int = 0
    """Between its submissions to one card and to the next."""
    waits: list[int] = field(default_factory=list)
    _next: tuple[int, int] | None = None
    _kernels: list[tuple[Card, Kernel]] = field(default_factory=list)
    _wished: int = 0
    _pause: int = -1
    _pausing: bool = False

    def go(self) -> None:
        """Submits what it may."""
        while not (self._pausing or self.stopped or self.dead):
            if self._next is None:
                self._next = next(self.work, None)
                self._kernels, self._wished = [], self.world.now
            if self._next is None or not self._submit_all(*self._next):
                return

    def _submit_all(self, length: int, pause: int) -> bool:
        done, entities = {card for card, _ in self._kernels}, self._entities_now()
        for entity in entities:
            begins = self._wished + entity.index * self.skew
            if entity.card not in done and begins > self.world.now:
                self.world.at(begins, self.go)
            elif entity.card not in done and self._may(entity, length):
                self._submit(entity, length)
        if len(self._kernels) < len(entities):
            return False
        self.waits.append(self.world.now - self._wished)
        self._next, self._pause, self._pausing = None, pause, pause >= 0
        return True

    def _entities_now(self) -> list[Entity]:
        if not self.stage:
            return self.entities
        return [self.entities[len(self.waits) // self.stage % len(self.entities)]]

    def _may(self, entity: Entity, length: int) -> bool:
        lease, now = entity.told, self.world.now
        free = max(entity.expected, now)
        if not lease.open or (entity.in_flight and free + length > lease.end_ns):
            if not entity.waiting:
                entity.waiting = True
                self.world.ring(self)
            return False
        if not entity.in_flight or entity.queued + length <= lease.window_ns:
            return True
        if entity.queued > length:
            return False
        if free - now > lease.window_ns:
            self.world.at(free - lease.window_ns, self.go)
            return False
        return True

    def _submit(self, entity: Entity, length: int) -> None:
        now = self.world.now
        if not entity.in_flight and now > entity.ended + MS:
            self.world.ring(self)
        entity.waiting, entity.queued = False, entity.queued + length
        entity.expected = max(entity.expected, now) + length
        kernel = Kernel(self, length, length, follows=entity.in_flight > 0, party=len(self._entities_now()))
        entity.in_flight += 1
        for card, other in self._kernels:
            kernel.others.append((card, other))
            other.others.append((entity.card, kernel))
        self._kernels.append((entity.card, kernel))
        entity.card.submit(kernel)

    def finished(self, card: Card, kernel: Kernel) -> None:
        """A kernel is done; the process hears of it later. Events do not tell slices of others from its own."""
        entity = next(entity for entity in self.entities if entity.card is card)
        since = entity.ended if kernel.follows else kernel.began
        entity.ended = self.world.now
        self.world.at(self.world.now + WAKE, self._reap, entity, kernel.length, self.world.now - since)

    def _reap(self, entity: Entity, length: int, busy: int) -> None:
        if self.stopped:
            self.world.at(self.world.now + MS, self._reap, entity, length, busy)
            return
        entity.queued -= length
        entity.in_flight -= 1
        entity.used += int(busy * self.reports)
        if not entity.in_flight and not entity.told.open:
            self.world.ring(self)
        if self._pausing and not any(entity.in_flight for entity in self.entities):
            self.world.at(self.world.now + self._pause, self._resume)
        self.go()

    def _resume(self) -> None:
        self._pausing = False
        self.go()

    def report(self) -> None:
        """What the arbiter reads of it."""
        for entity in self.entities:
            said = ffi.new("aq_report *")
            said.used_ns, entity.used = entity.used, 0
            if not self.dead:
                said.waiting, said.in_flight = entity.waiting, entity.in_flight > 0
                said.ends_ns = entity.expected if self.stopped else max(entity.expected, self.world.now)
                said.moving = entity.in_flight > 0 and not self.stopped
            lib.aq_scheduler_report(self.world.scheduler, self.native, entity.index, said, self.world.now)

    def listen(self) -> bool:
        """Takes notice of its gates. Returns whether one was closed."""
        closed = changed = False
        for entity in self.entities:
            lease = lib.aq_scheduler_lease(self.native, entity.index)
            closed |= bool(entity.told.open and not lease.open)
            changed |= (entity.told.serial, entity.told.end_ns) != (lease.serial, lease.end_ns)
            entity.told = lease
        if changed:
            self.world.at(self.world.now + WAKE, self.go)
        return closed

    def had(self, since: int = 0) -> int:
        """Nanoseconds of its first card's time."""
        return self.entities[0].card.had(self, since)

    def account(self) -> Any:
        """Of its first card."""
        return lib.aq_scheduler_account(self.native, 0)

    def kill(self) -> None:
        """As SIGKILL does; the arbiter finds out when it looks."""
        self.dead = True
        for entity in self.entities:
            entity.card.drop(self)


class World:
    """A node with its arbiter's scheduler."""

    def __init__(self, **rules: int) -> None:
        self.now = 0
        wanted = lib.aq_scheduler_rules()
        for name, value in rules.items():
            setattr(wanted, name, value)
        self.scheduler = ffi.gc(lib.aq_scheduler_new(ffi.new("aq_rules *", wanted), 0), lib.aq_scheduler_free)
        self.cards: dict[str, Card] = {}
        self.processes: list[Process] = []
        self.steps = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._step_at = 0

    def at(self, when: int, what: Callable[..., object], *arguments: object) -> None:
        """Has something happen."""
        heapq.heappush(self._events, (when, next(self._count), what, arguments))

    def enter(
        self,
        work: Work,
        share: float,
        most: float | None = None,
        *,
        priority: int = 0,
        cards: Sequence[str] = (CARD,),
        at: int = 0,
        joined: bool = False,
    ) -> Process:
        """A tenant whose process begins to work at a moment; shares in percent, and it is capped if `most` is None.

        `joined`: each of its cards enters by itself, and the others move to the first.
        """
        limit = round(share) if most is None else round(most)
        terms = [(card.encode(), round(share * 100), limit, priority) for card in cards]
        each = 1 if joined else len(terms)
        native = lib.aq_scheduler_enter(self.scheduler, ffi.new("aq_terms[]", terms[:each]), each)
        for number in range(each, len(terms)):
            assert self.join(native, terms[number]) == number
        entities = [
            Entity(self.cards.setdefault(card, Card(self)), index) for index, card in enumerate(cards)
        ]
        for entity in entities:
            entity.told = lib.aq_scheduler_lease(native, entity.index)
        process = Process(self, work, entities, native)
        self.processes.append(process)
        self.at(max(at, self.now), process.go)
        return process

    def join(self, native: Any, terms: tuple[bytes, int, int, int]) -> int:
        """A tenant of one card enters and moves to another tenant; its place there."""
        entered, place = (
            lib.aq_scheduler_enter(self.scheduler, ffi.new("aq_terms *", terms), 1),
            ffi.new("uint32_t *"),
        )
        assert lib.aq_scheduler_move(self.scheduler, entered, place, 1, native) == native
        return int(place[0])

    def ring(self, process: Process) -> None:
        """A bell: the arbiter looks soon."""
        self.at(self.now + BELL, self._look, process)

    def _look(self, process: Process) -> None:
        process.report()
        lib.aq_scheduler_rang(process.native)
        self._step()

    def _step(self) -> None:
        for process in self.processes:
            if lib.aq_scheduler_holds(process.native) or lib.aq_scheduler_suspect(
                self.scheduler, process.native
            ):
                process.report()
        self._step_at = lib.aq_scheduler_step(self.scheduler, self.now)
        self.steps += 1
        closed = [process for process in self.processes if process.listen()]
        for process in closed:
            process.report()
        if closed:
            self._step()
        elif self._step_at < FOREVER:
            self.at(self._step_at, self._step_if, self._step_at)

    def _step_if(self, planned: int) -> None:
        if planned == self._step_at:
            self._step()

    def run(self, until: int) -> None:
        """Lets time pass."""
        if not self.steps:
            self._step()
        while self._events and self._events[0][0] <= until:
            self.now, _, what, arguments = heapq.heappop(self._events)
            what(*arguments)
        self.now = until
        for card in self.cards.values():
            card.settle()

    def shares(self, seconds: float) -> list[float]:
        """Percent of its first card's time that each tenant had in the coming seconds."""
        since = self.now
        self.run(since + round(seconds * S))
        return [100 * process.had(since) / (seconds * S) for process in self.processes]
