"""Something that was read, or why it could not be."""

from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar, cast

T = TypeVar("T")


class NotKnownError(Exception):
    """A fact could not be read; the message says why, with the right that is missing where it is one."""


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value, or (`reason`) why there is none."""

    _value: T | None = None
    reason: str = ""

    @classmethod
    def of(cls, value: T) -> Self:
        """What was read."""
        return cls(value)

    @classmethod
    def unknown(cls, reason: str) -> Self:
        """Why it was not."""
        return cls(None, reason)

    def get(self) -> T:
        """The value. Raises NotKnownError."""
        if self.reason:
            raise NotKnownError(self.reason)
        return cast("T", self._value)


UNREAD: Final[Fact[Any]] = Fact.unknown("it was not read")
