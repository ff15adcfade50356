"""A value that others can follow: each reader gets the latest, however many changes it slept through."""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LatestValue(Generic[T]):
    """Holds one immutable value; setting an equal one wakes nobody. Lives in one event loop."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._changed = asyncio.Event()

    @property
    def value(self) -> T:
        """The latest value."""
        return self._value

    def set(self, value: T) -> None:
        """Replaces the value and wakes every reader if it differs."""
        if value == self._value:
            return
        self._value = value
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[T]:
        """Yields the current value at once and then each time it has changed."""
        while True:
            changed = self._changed
            yield self._value
            await changed.wait()
