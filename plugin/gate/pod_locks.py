"""One at a time for each pod: who works on a pod's tenancy now, and whether anybody does."""

import asyncio
from weakref import WeakValueDictionary


class PodLocks:
    """Locks by pod UID that exist as long as somebody holds or waits for them. Lives in one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, uid: str) -> asyncio.Lock:
        """The lock of a pod; a retry beside a call that was given up must not write the same files."""
        return self._locks.setdefault(uid, asyncio.Lock())

    def taken(self, uid: str) -> bool:
        """Whether somebody is at work on the pod now."""
        return uid in self._locks
