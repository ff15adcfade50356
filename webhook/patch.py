"""Builds a JSON Patch (RFC 6902) by editing the document: later edits see earlier ones."""

import copy
from typing import Any

Path = tuple[str | int, ...]
"""Where in the document: keys of objects and positions in lists."""


def pointer(path: Path) -> str:
    """Write a path as a JSON Pointer (RFC 6901): `~` and `/` within a key are escaped."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


class Patch:
    """A document, which is edited in place, and the operations that made it what it is now.

    Attributes:
        document: The document with all edits so far.
        operations: What the other side must do to come to the same; empty when nothing changed.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document: Any = document
        self.operations: list[dict[str, Any]] = []

    def get(self, path: Path) -> Any:
        """What is there now; None where there is nothing."""
        here = self.document
        for step in path:
            here = _child(here, step)
        return here

    def set(self, path: Path, value: Any) -> None:
        """Put a value at an object's key, and make the objects above it that are missing.

        Nothing happens when the value is there already.
        """
        if self.get(path) == value:
            return
        missing = next((n for n in range(1, len(path)) if self.get(path[:n]) is None), None)
        if missing is not None:
            for step in reversed(path[missing:]):
                value = {step: value}
            path = path[:missing]
        parent = self.get(path[:-1])
        exists = path[-1] in parent if isinstance(parent, dict) else True
        parent[path[-1]] = value
        self._note("replace" if exists else "add", path, value)

    def append(self, path: Path, value: Any) -> None:
        """Add a value at the end of a list, and make the list when it is missing."""
        if self.get(path) is None:
            self.set(path, [value])
            return
        self.get(path).append(value)
        self._note("add", (*path, "-"), value)

    def remove(self, path: Path) -> None:
        """Take away an object's key; nothing happens when it is not there."""
        parent = self.get(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            del parent[path[-1]]
            self.operations.append({"op": "remove", "path": pointer(path)})

    def _note(self, operation: str, path: Path, value: Any) -> None:
        # A copy: later edits below this value are operations of their own.
        self.operations.append({"op": operation, "path": pointer(path), "value": copy.deepcopy(value)})


def _child(here: Any, step: str | int) -> Any:
    if isinstance(here, dict):
        return here.get(step)
    if isinstance(here, list) and isinstance(step, int) and 0 <= step < len(here):
        return here[step]
    return None
