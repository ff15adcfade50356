"""Keeps a copy of all objects of one kind, and says what changes."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from aliquot.kube.api import Api
from aliquot.kube.backoff import Backoff
from aliquot.kube.follower import WATCH_SECONDS, Follower
from aliquot.kube.objects import KubeObject
from aliquot.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)


class Reflector(Follower[T]):
    """A copy of the objects of one kind, by `namespace/name` (or name), kept fresh while `run()` runs.

    Handlers are called in the loop, after the copy has changed, and must not block; one that raises is logged
    and harms nobody. An object that was deleted and made anew under its name is reported as deleted, then
    added. While the API server is away the copy stays usable.

    What is `keep`-t of an object is all of it, or what the caller makes of it: handlers get new objects whole, and
    old ones as they were kept.
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
        watch_seconds: int = WATCH_SECONDS,
        optional: bool = False,
    ) -> None:
        """Read nothing yet.

        `optional`: a server that knows no such kind is nothing to warn of.
        """
        super().__init__(
            api,
            resource,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            backoff=backoff,
            watch_seconds=watch_seconds,
            optional=optional,
        )
        self._on_add = on_add
        self._on_update = on_update
        self._on_delete = on_delete
        self._keep = keep
        self._store: dict[str, T] = {}

    @property
    def store(self) -> Mapping[str, T]:
        """The copy, for reading."""
        return MappingProxyType(self._store)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object of the copy."""
        return self._store.get(f"{namespace}/{name}" if namespace else name)

    def _key_of(self, item: KubeObject) -> str:
        return item.key

    def _keys(self) -> Iterable[str]:
        return self._store

    def _put(self, key: str, new: T) -> None:
        old, kept = self._store.get(key), self._keep(new)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self._remove(key)
            old = None
        self._store[key] = kept
        if old is None:
            self._call(self._on_add, key, new)
        elif old.metadata.resource_version != new.metadata.resource_version or old != kept:
            self._call(self._on_update, key, old, new)

    def _remove(self, key: str) -> None:
        old = self._store.pop(key, None)
        if old is not None:
            self._call(self._on_delete, key, old)
