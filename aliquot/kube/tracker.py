"""Says what changes among the objects of one kind, and keeps no copy: for objects of which others keep what matters.

Of each object nothing is remembered but its UID and resource version, in what a dictionary takes for two words. That
suffices to tell, after a break, what has changed and who has gone.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from aliquot.kube.api import Api
from aliquot.kube.backoff import Backoff
from aliquot.kube.follower import Follower
from aliquot.kube.objects import KubeObject
from aliquot.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)


class RestoredError(Exception):
    """The API server was restored from a backup: what was made of its objects may be true no more."""


class Tracker(Follower[T]):
    """Follows the objects of one kind by their UIDs, while `run()` runs.

    Handlers are called in the loop, and must not block; one that raises is logged and harms nobody. One object that was
    made anew under the name of another is another: after a break it may be told of before the other is told to be gone.

    Where the API server was restored from a backup, `run()` ends with a RestoredError. Pods that were bound may wait
    again, and some that had gone be there: without a copy nobody can say what has changed, so all has to begin anew.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource[T],
        *,
        on_put: Callable[[T], None],
        on_gone: Callable[[str], None],
        others: Callable[[], Iterable[str]] = tuple,
        namespace: str = "",
        backoff: Backoff | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            api: The cluster.
            resource: The kind.
            on_put: Gets each object that is new or has changed.
            on_gone: Gets the UID of each object that is no more.
            others: Gives the UIDs of objects that the handlers have heard of elsewhere. Of one that was made and
                deleted while no watch was open nobody would be told otherwise that it is gone.
            namespace: Whose; all where it is empty.
            backoff: How long an API server is let be that is away.
        """
        super().__init__(api, resource, namespace=namespace, backoff=backoff)
        self._on_put = on_put
        self._on_gone = on_gone
        self._others = others
        self._versions: dict[str, str | int] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def has_later(self, item: T) -> bool:
        """Whether a later version of an object than this one has been told of."""
        known, version = self._versions.get(item.metadata.uid), _short(item.metadata.resource_version)
        return isinstance(known, int) and isinstance(version, int) and known > version

    def _went_back(self) -> None:
        raise RestoredError(f"the API server has fewer versions of {self._resource.plural} than it had")

    def _key_of(self, item: KubeObject) -> str:
        return item.metadata.uid

    def _keys(self) -> Iterable[str]:
        return {*self._versions, *self._others()}

    def _put(self, key: str, new: T) -> None:
        version = _short(new.metadata.resource_version)
        if self._versions.get(key) != version:
            self._versions[key] = version
            self._call(self._on_put, new.key, new)

    def _remove(self, key: str) -> None:
        self._versions.pop(key, None)
        self._call(self._on_gone, key, key)


def _short(version: str) -> str | int:
    """A resource version in as little memory as there is: as a number, where it is one."""
    return int(version) if version.isdecimal() and version[0] != "0" else version
