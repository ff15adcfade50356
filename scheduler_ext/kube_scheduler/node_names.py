"""The nodes that a call of filter offers, read no further than they are asked for.

kube-scheduler names thousands of nodes in each call, in an order that changes, and nearly always all it takes to know
is how many they are and whether one of them is there. Making a string of each takes several times as long as finding
that out from the text. So the text is kept, and names are made of it only for who goes through them: who refuses a pod.

The text has to be a list as Go writes it: strings without escapes, in ASCII, nothing between them but commas. Any other
is for the ordinary reader.
"""

from collections.abc import Iterator, Sequence
from typing import Self, overload

import msgspec

from aliquot.scheduler_ext.scoring import ffi, lib

_decode = msgspec.json.Decoder(tuple[str, ...]).decode


class OfferedNames(Sequence[str]):
    """Names of nodes in a body."""

    def __init__(self, body: bytes, start: int, end: int, count: int) -> None:
        """See `read`.

        Args:
            body: In which there is a list of strings in JSON,
            start: from here
            end: to here.
            count: How many they are.
        """
        self._body = body
        self._start, self._end = start, end
        self._count = count
        self._names: tuple[str, ...] | None = None

    @classmethod
    def read(cls, body: bytes, start: int, end: int) -> Self | None:
        """The names in a part of a body; None where that is not a list in the form above."""
        count = _count(body, start, end)
        return None if count is None else cls(body, start, end, count)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: object) -> bool:
        """Whether a node is offered.

        A text without quotes between two quotes is a name, or it is the comma that follows one.
        """
        if not isinstance(name, str) or '"' in name:
            return False
        if self._names is not None or name == ",":
            return name in self._all()
        quoted = f'"{name}"'.encode()
        text, length = ffi.from_buffer(self._body) + self._start, self._end - self._start
        return bool(lib.aq_has_name(text, length, quoted, len(quoted)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...

    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        return self._all()[at]

    def _all(self) -> tuple[str, ...]:
        if self._names is None:
            self._names = _decode(memoryview(self._body)[self._start : self._end])
        return self._names


def _count(body: bytes, start: int, end: int) -> int | None:
    """How many names there are; None where quotes and commas are not where Go has them."""
    count: int = lib.aq_count_names(ffi.from_buffer(body) + start, end - start)
    return None if count < 0 else count
