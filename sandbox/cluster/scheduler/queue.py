"""Pods that wait for a node: ready ones by priority and age, and rejected ones until something changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.objects import uid_of

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.objects import Obj


@dataclass
class Waiting:
    """One pod in the queue. Times on the monotonic clock."""

    pod: Obj
    since: float = field(default_factory=time.monotonic)
    attempts: int = 0
    due: float = 0.0
    parked: bool = False  # rejected: not before something in the cluster changes


class Queue:
    """As the real one: back-off doubles from `initial` to `longest`; parked pods return after `stale` too."""

    def __init__(self, initial: float = 1.0, longest: float = 10.0, stale: float = 300.0) -> None:
        self._initial, self._longest, self._stale = initial, longest, stale
        self._waiting: dict[str, Waiting] = {}
        self._changed = asyncio.Event()

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    def put(self, pod: Obj) -> None:
        """A new pod."""
        self._waiting[uid_of(pod)] = Waiting(pod)
        self._changed.set()

    def update(self, pod: Obj) -> None:
        """A waiting pod's object changed."""
        if entry := self._waiting.get(uid_of(pod)):
            entry.pod = pod

    def remove(self, uid: str) -> None:
        """The pod no longer waits: bound, or deleted."""
        self._waiting.pop(uid, None)

    def failed(self, uid: str, *, parked: bool) -> None:
        """An attempt failed. Parked: no node fits; else an error, tried again after the back-off."""
        if entry := self._waiting.get(uid):
            entry.attempts += 1
            delay = min(self._initial * 2 ** (entry.attempts - 1), self._longest)
            entry.due = time.monotonic() + delay
            entry.parked = parked

    def wake(self) -> None:
        """Something in the cluster changed: parked pods may be tried again (after their back-off)."""
        for entry in self._waiting.values():
            entry.parked = False
        self._changed.set()

    async def next(self) -> Obj:
        """The pod to try now; it stays in the queue until removed, and is not given again until it failed."""
        while True:
            now = time.monotonic()
            ready = [e for e in self._waiting.values() if self._due(e) <= now]
            if ready:
                entry = min(ready, key=lambda e: (-int(e.pod["spec"].get("priority", 0)), e.since))
                entry.due = float("inf")
                return entry.pod
            self._changed.clear()
            nearest = min((self._due(e) for e in self._waiting.values()), default=float("inf"))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if nearest == float("inf") else nearest - now):
                    await self._changed.wait()

    def _due(self, entry: Waiting) -> float:
        return entry.due + self._stale if entry.parked else entry.due
