"""Follows all objects of one kind: what there is at first, and then every change.

List once, then watch from the list's resource version; bookmarks move that version forward while nothing
happens, so that a broken watch resumes where it was. When the server no longer remembers the version (410
Gone), list again and report the difference. An API server that is away is asked again and again, at jittered,
growing intervals.

Versions of one kind grow. An event that comes after one of a later version was held up on its way, and what is known
may be wrong by now: list again. A server whose own version is behind what it has told was restored from a backup; a
watch from a version that it has not reached would be silent until it has. So before a watch is taken up again, the
server is asked how far it is.

What is kept of the objects is up to those who inherit: all of them (`reflector`), or hardly anything (`tracker`).
"""

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, Generic, TypeVar

import msgspec

from aliquot.kube.answers import ApiError, error_from_status, read_answer
from aliquot.kube.api import Api, WatchEvent
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import UNREADABLE, KubeObject, version_of
from aliquot.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)

_log = logging.getLogger(__name__)
WATCH_SECONDS: Final = 300
NOBODY: Final = "metadata.name=-"
"""Selects no object, for none may have this name."""
_AT_ONCE_SECONDS: Final = 5.0
_RETRY_THE_WATCH: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Follower(ABC, Generic[T]):
    """Follows while `run()` runs.

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
        backoff: Backoff | None = None,
        watch_seconds: int = WATCH_SECONDS,
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
        self._optional = optional
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._version = ""
        self._moved = asyncio.Event()
        self._connected = False
        self._complaint = ""

    @property
    def connected(self) -> bool:
        """Whether the last list or watch succeeded; otherwise what is known may be stale."""
        return self._connected

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if self._version and await self._is_restored():
                    _log.warning("watch of %s: the server has gone back in time", self._resource.plural)
                    self._version = ""
                    self._went_back()
                if not self._version:
                    await self._relist()
                await self._follow()
            except ApiError as error:
                self._note(error)
                await asyncio.sleep(self._backoff.next())

    async def reach(self, version: int) -> None:
        """Return once everything up to this resource version has been told of.

        A watch tells of the changes of one kind in the order of their versions, so whatever has this version or a later
        one proves that nothing before it is missing. It may take until the next change, or the next bookmark.
        """
        while version_of(self._version) < version:
            self._moved.clear()
            await self._moved.wait()

    # ---- for those who keep something of the objects ----

    @abstractmethod
    def _key_of(self, item: KubeObject) -> str:
        """By what an object is known."""

    @abstractmethod
    def _keys(self) -> Iterable[str]:
        """Those of all that are known."""

    @abstractmethod
    def _put(self, key: str, new: T) -> None:
        """An object is there, new or changed or as it was."""

    @abstractmethod
    def _remove(self, key: str) -> None:
        """An object has gone, if it was known."""

    def _went_back(self) -> None:
        """The server was restored from a backup: versions that are remembered may come to mean something else."""

    def _call(self, handler: Callable[..., None] | None, key: str, *things: object) -> None:
        """Have a handler told; one that raises is logged and harms nobody."""
        if handler is None:
            return
        try:
            handler(*things)
        except Exception:  # noqa: BLE001 - whatever it is, what follows must be told
            _log.exception("handler of %s %s failed", self._resource.plural, key)

    # ---- what the server says ----

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

    async def _is_restored(self) -> bool:
        """Whether the server has not come as far as it was already.

        Of a selection nothing is read, for to find one object of it the server may have to look at all.
        """
        if self._fields or self._labels:
            nobody = ",".join(filter(None, (self._fields, NOBODY)))
            now = await self._api.version(
                self._resource,
                self._namespace,
                field_selector=nobody,
                label_selector=self._labels,
                cached=True,
            )
        else:
            now = await self._api.version(self._resource, self._namespace)
        return 0 < version_of(now) < version_of(self._version)

    async def _relist(self) -> None:
        """Read everything page by page, and report what differs from what is known."""
        missing, version = set(self._keys()), ""
        pages = self._api.pages(
            self._resource, self._namespace, field_selector=self._fields, label_selector=self._labels
        )
        async for page in pages:
            for problem in page.unreadable:
                _log.error("%s cannot be read and is left out: %s", self._resource.plural, problem)
            for item in page.items:
                key = self._key_of(item)
                missing.discard(key)
                self._put(key, item)
            version = page.resource_version
        for key in missing:
            self._remove(key)
        self._connected, self._complaint = True, ""
        self.synced.set()
        self.answered.set()
        self._move_to(version)

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
        self._move_to(self._change(event))

    def _move_to(self, version: str) -> None:
        self._version = version
        self._moved.set()

    def _change(self, event: WatchEvent) -> str:
        """Take an event over; the resource version that it brings."""
        if event.type in ("ADDED", "MODIFIED"):
            try:
                new = msgspec.json.decode(event.object, type=self._resource.type)
            except UNREADABLE as error:
                return self._left_out(event, error)
            self._expect_order(new.metadata.resource_version)
            self._put(self._key_of(new), new)
            return new.metadata.resource_version
        bare = read_answer(event.object, KubeObject, HTTPStatus.INTERNAL_SERVER_ERROR)
        self._expect_order(bare.metadata.resource_version)
        if event.type == "DELETED":
            self._remove(self._key_of(bare))
        return bare.metadata.resource_version

    def _expect_order(self, version: str) -> None:
        """Raises ApiError where an event is older than the one before it; the same one twice does no harm."""
        if 0 < version_of(version) < version_of(self._version):
            late = f"an event of version {version} came after one of version {self._version}"
            raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "OutOfOrder", late)

    def _left_out(self, event: WatchEvent, error: Exception) -> str:
        bare = read_answer(event.object, KubeObject, HTTPStatus.INTERNAL_SERVER_ERROR)
        plural, key = self._resource.plural, bare.key
        _log.error("%s %s cannot be read; its last state is kept: %s", plural, key, error)
        return bare.metadata.resource_version
