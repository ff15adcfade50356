"""All objects, the history that watches resume from, and the journal that makes both survive a SIGKILL.

Every change gets the next resourceVersion, is appended to `journal.jsonl` in one write, and only then becomes
visible. Now and then the objects are written to `snapshot.json` (temporary file and rename) and the journal
starts afresh. A torn last line of the journal belongs to a request that was never answered, and is cut off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.objects import Obj, name_of, namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

SNAPSHOT_EVERY = 5000
"""Journal lines after which the journal is folded into a snapshot."""


@dataclass(frozen=True)
class Change:
    """One change of one object, as the history keeps it."""

    version: int
    type: str  # ADDED, MODIFIED, DELETED
    resource: str
    object: Obj
    previous: Obj | None


class Subscription:
    """Changes of one resource from now on, in order."""

    def __init__(self, cancel: Callable[[Subscription], None]) -> None:
        self._queue: asyncio.Queue[Change] = asyncio.Queue()
        self._cancel = cancel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel(self)

    def put(self, change: Change) -> None:
        """Hand a change over; called by the store."""
        self._queue.put_nowait(change)

    async def next(self) -> Change:
        """Wait for the next change."""
        return await self._queue.get()

    def ready(self) -> Iterator[Change]:
        """The changes that are already here."""
        while not self._queue.empty():
            yield self._queue.get_nowait()


class Store:
    """Objects by resource and key. Stored objects are never changed in place: callers copy first."""

    def __init__(self, directory: Path, history: int = 1000) -> None:
        self._directory = directory
        self._objects: dict[str, dict[Key, Obj]] = {}
        self._history: deque[Change] = deque()
        self._history_length = history
        self._floor = 0
        self._subscribers: dict[str, set[Subscription]] = {}
        self._lines = 0
        self.version = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._load_snapshot()
        self._load_journal()
        self._journal = self._journal_path.open("ab", buffering=0)

    @property
    def _snapshot_path(self) -> Path:
        return self._directory / "snapshot.json"

    @property
    def _journal_path(self) -> Path:
        return self._directory / "journal.jsonl"

    def close(self) -> None:
        """Close the journal file."""
        self._journal.close()

    def get(self, resource: str, namespace: str, name: str) -> Obj | None:
        """The stored object, or None."""
        return self._objects.get(resource, {}).get((namespace, name))

    def list(self, resource: str, namespace: str = "") -> list[Obj]:
        """Objects of a resource, of one namespace or (empty) of all, sorted by key."""
        kept = self._objects.get(resource, {})
        return [kept[key] for key in sorted(kept) if namespace in ("", key[0])]

    def put(self, resource: str, obj: Obj) -> Obj:
        """Store an object (new or changed) under the next resourceVersion and return it as stored."""
        previous = self.get(resource, namespace_of(obj), name_of(obj))
        return self._commit("MODIFIED" if previous else "ADDED", resource, obj, previous)

    def remove(self, resource: str, obj: Obj) -> Obj:
        """Remove an object; returns its last state, which carries the deletion's resourceVersion."""
        previous = self.get(resource, namespace_of(obj), name_of(obj))
        return self._commit("DELETED", resource, obj, previous)

    def since(self, resource: str, version: int) -> Iterator[Change]:
        """Changes of a resource after a resourceVersion; StatusError 410 when history is gone."""
        if version < self._floor:
            raise errors.expired(version, self._floor)
        return iter([c for c in self._history if c.version > version and c.resource == resource])

    def subscribe(self, resource: str) -> Subscription:
        """Changes of a resource from now on; use as a context manager."""
        subscribers = self._subscribers.setdefault(resource, set())
        subscription = Subscription(subscribers.discard)
        subscribers.add(subscription)
        return subscription

    def _commit(self, kind: str, resource: str, obj: Obj, previous: Obj | None) -> Obj:
        version = self.version + 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        line = msgspec.json.encode({"v": version, "t": kind, "r": resource, "o": obj}) + b"\n"
        self._journal.write(line)
        change = Change(version, kind, resource, obj, previous)
        self._apply(change)
        for subscription in self._subscribers.get(resource, ()):
            subscription.put(change)
        if self._lines >= SNAPSHOT_EVERY:
            self._fold()
        return obj

    def _apply(self, change: Change) -> None:
        self.version = change.version
        self._lines += 1
        kept = self._objects.setdefault(change.resource, {})
        key = (namespace_of(change.object), name_of(change.object))
        if change.type == "DELETED":
            kept.pop(key, None)
        else:
            kept[key] = change.object
        self._history.append(change)
        while len(self._history) > self._history_length:
            self._floor = self._history.popleft().version

    def _fold(self) -> None:
        """Write a snapshot, then begin a new journal; a kill in between leaves lines that are skipped."""
        state = {
            "version": self.version,
            "objects": {resource: list(kept.values()) for resource, kept in self._objects.items()},
        }
        temporary = self._snapshot_path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(state))
        temporary.replace(self._snapshot_path)
        self._journal.close()
        self._journal = self._journal_path.open("wb", buffering=0)
        self._lines = 0

    def _load_snapshot(self) -> None:
        if not self._snapshot_path.exists():
            return
        state = msgspec.json.decode(self._snapshot_path.read_bytes())
        self.version = self._floor = state["version"]
        for resource, objects in state["objects"].items():
            self._objects[resource] = {(namespace_of(o), name_of(o)): o for o in objects}

    def _load_journal(self) -> None:
        if not self._journal_path.exists():
            return
        whole = self._journal_path.read_bytes()
        complete = whole[: whole.rfind(b"\n") + 1]
        for line in complete.splitlines():
            entry = msgspec.json.decode(line)
            if entry["v"] > self.version:
                obj = entry["o"]
                previous = self.get(entry["r"], namespace_of(obj), name_of(obj))
                self._apply(Change(entry["v"], entry["t"], entry["r"], obj, previous))
        if len(complete) < len(whole):
            with self._journal_path.open("r+b") as journal:
                journal.truncate(len(complete))
