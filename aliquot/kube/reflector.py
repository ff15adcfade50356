"""Keeps a copy of all objects of one kind, and says what changes.

List once, then watch from the list's resource version; bookmarks move that version forward while nothing
happens, so that a broken watch resumes where it was. When the server no longer remembers the version (410
Gone), list again and report the difference. An API server that is away is asked again and again, at jittered,
growing intervals; the copy stays usable meanwhile.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec

from aliquot.kube.api import Api, ApiError, WatchEvent, error_from_status, read_answer
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import UNREADABLE, KubeObject
from aliquot.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)

_log = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 300
_AT_ONCE_SECONDS: Final = 5.0
_RETRY_THE_WATCH: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Reflector(Generic[T]):
    """A copy of the objects of one kind, by `namespace/name` (or name), kept fresh while `run()` runs.

    Handlers are called in the loop, after the copy has changed, and must not block; one that raises is logged
    and harms nobody. An object that was deleted and made anew under its name is reported as deleted, then
    added.

    What is `keep`-t of an object is all of it, or what the caller makes of it: handlers get new objects whole, and
    old ones as they were kept.

    Attributes:
        synced: Set once all objects have been read.
        answered: Set then, or when the server has said that it knows no such kind, which is to say: there are none.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T], None] | None = None,
        keep: Callable[[T], T] = lambda item: item,
        backoff: Backoff | None = None,
        watch_seconds: int = _WATCH_SECONDS,
        optional: bool = False,
    ) -> None:
        """Read nothing yet.

        `optional`: a server that knows no such kind is nothing to warn of.
        """
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._fields, self._labels = field_selector, label_selector
        self._on_add = on_add
        self._on_update = on_update
        self._on_delete = on_delete
        self._keep = keep
        self._optional = optional
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._store: dict[str, T] = {}
        self._version = ""
        self._connected = False
        self._complaint = ""

    @property
    def store(self) -> Mapping[str, T]:
        """The copy, for reading."""
        return MappingProxyType(self._store)

    @property
    def connected(self) -> bool:
        """Whether the last list or watch succeeded; otherwise the copy may be stale."""
        return self._connected

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object of the copy."""
        return self._store.get(f"{namespace}/{name}" if namespace else name)

    async def run(self) -> None:
        """Keep the copy fresh until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._relist()
                await self._follow()
            except ApiError as error:
                self._note(error)
                await asyncio.sleep(self._backoff.next())

    def _note(self, error: ApiError) -> None:
        """Say what went wrong, and decide whether the next attempt resumes or starts over."""
        if error.gone or not (error.unreachable or error.status in _RETRY_THE_WATCH):
            self._version = ""
        if error.not_found:
            self.answered.set()
        why = f"{error}; is its CRD applied?" if error.not_found else str(error)
        if self._connected or (not error.unreachable and why != self._complaint):
            level = logging.DEBUG if error.not_found and self._optional else logging.WARNING
            _log.log(level, "watch of %s: %s", self._resource.plural, why)
            self._complaint = why
        self._connected = error.gone

    async def _relist(self) -> None:
        """Read everything page by page, and report what differs from the copy."""
        found, version = set[str](), ""
        pages = self._api.pages(
            self._resource, self._namespace, field_selector=self._fields, label_selector=self._labels
        )
        async for page in pages:
            for problem in page.unreadable:
                _log.error("%s cannot be read and is left out: %s", self._resource.plural, problem)
            for item in page.items:
                found.add(item.key)
                self._put(item.key, item)
            version = page.resource_version
        for key in self._store.keys() - found:
            self._remove(key)
        self._version = version
        self._connected, self._complaint = True, ""
        self.synced.set()
        self.answered.set()

    async def _follow(self) -> None:
        """Apply one watch; one that ends at once with nothing to say counts as a failure, lest we spin."""
        heard, start = False, time.monotonic()
        events = self._api.watch(
            self._resource,
            self._version,
            self._namespace,
            seconds=random.randint(self._watch_seconds, 2 * self._watch_seconds),  # noqa: S311 - spreads load
            field_selector=self._fields,
            label_selector=self._labels,
            on_open=self._opened,
        )
        async for event in events:
            heard = True
            self._apply(event)
            self._backoff.reset()
        if heard or time.monotonic() - start > _AT_ONCE_SECONDS:
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.next())

    def _opened(self) -> None:
        self._connected = True

    def _apply(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            raise error_from_status(event.object)
        self._version = self._change(event)

    def _change(self, event: WatchEvent) -> str:
        """Take an event over; the resource version that it brings."""
        if event.type in ("ADDED", "MODIFIED"):
            try:
                new = msgspec.json.decode(event.object, type=self._resource.type)
            except UNREADABLE as error:
                return self._left_out(event, error)
            self._put(new.key, new)
            return new.metadata.resource_version
        bare = read_answer(event.object, KubeObject, HTTPStatus.INTERNAL_SERVER_ERROR)
        if event.type == "DELETED":
            self._remove(bare.key)
        return bare.metadata.resource_version

    def _left_out(self, event: WatchEvent, error: Exception) -> str:
        bare = read_answer(event.object, KubeObject, HTTPStatus.INTERNAL_SERVER_ERROR)
        plural, key = self._resource.plural, bare.key
        _log.error("%s %s cannot be read; its last state is kept: %s", plural, key, error)
        return bare.metadata.resource_version

    def _put(self, key: str, new: T) -> None:
        old, kept = self._store.get(key), self._keep(new)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self._remove(key)
            old = None
        self._store[key] = kept
        if old is None:
            self._call(self._on_add, new)
        elif old.metadata.resource_version != new.metadata.resource_version or old != kept:
            self._call(self._on_update, old, new)

    def _remove(self, key: str) -> None:
        old = self._store.pop(key, None)
        if old is not None:
            self._call(self._on_delete, old)

    def _call(self, handler: Callable[..., None] | None, *objects: T) -> None:
        if handler is None:
            return
        try:
            handler(*objects)
        except Exception:  # noqa: BLE001 - whatever it is, the copy must stay fresh
            _log.exception("handler of %s %s failed", self._resource.plural, objects[-1].key)
