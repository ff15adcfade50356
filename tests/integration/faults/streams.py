"""What networks, proxies and servers do to a watch: it breaks, forgets, stutters and comes in the wrong order."""

import json
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

ENDS = ("break", "tear", "expire")
ACTS = (*ENDS, "twice", "late")
SHARE = 0.3
IN_A_ROW = 3
"""Watches of a kind that end with nothing heard; whoever follows waits longer after each."""
EXPIRED = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Expired",
    "message": "too old resource version",
    "code": 410,
}


class Disturber:
    """Treats the lines of all watches so, by a seed, until it is told to be calm.

    Attributes:
        done: How often it has done what.
        told: Names of what it has passed on since deletions are lost.
        lost: Whether a deletion was lost, of which no watch tells any more.
    """

    def __init__(self, seed: int, share: float = SHARE) -> None:
        """`share` of all lines that are no bookmarks is disturbed."""
        self._share = share
        self.done = dict.fromkeys((*ACTS, "no bookmark", "pass"), 0)
        self._dice, self._ended = random.Random(seed), Counter[str]()
        self._calm, self._losing = threading.Event(), threading.Event()
        self.told, self.lost = set[str](), threading.Event()

    def lose(self) -> None:
        """From now on have every deletion lost, the watch expires in its stead; and disturb nothing else."""
        self._losing.set()

    def calm(self) -> None:
        """Disturb no more; watches that were disturbed break at their next line."""
        self._calm.set()

    def lines(self, _: str, upstream: Iterable[bytes]) -> Iterator[bytes]:
        """What comes of a watch."""
        if self._calm.is_set():
            yield from upstream
            return
        held: list[bytes] = []
        for line in whole_lines(upstream):
            if self._calm.is_set():
                return
            what = self._choose(json.loads(line))
            self.done[what] += 1
            if what == "late":
                held.append(line)
                continue
            yield from self._sent(what, line)
            if what in ENDS:
                return
            yield from self._rest(held)
            held.clear()
        yield from self._rest(held)

    def _rest(self, held: list[bytes]) -> list[bytes]:
        return [] if self._losing.is_set() else held

    def _sent(self, what: str, line: bytes) -> Iterator[bytes]:
        if what == "tear":
            yield line[: len(line) // 2]
        elif what == "expire":
            yield json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n"
        elif what in ("pass", "twice"):
            yield from [line] * (1 + (what == "twice"))

    def _choose(self, event: dict[str, Any]) -> str:
        if event["type"] == "BOOKMARK":
            return "no bookmark"
        if self._losing.is_set():
            return self._choose_loss(event)
        return self._limited(self._dice.choice(ACTS) if self._dice.random() < self._share else "pass", event)

    def _limited(self, what: str, event: dict[str, Any]) -> str:
        kind = event["object"]["kind"]
        self._ended[kind] = self._ended[kind] + 1 if what in ENDS else self._ended[kind] * (what == "late")
        if self._ended[kind] <= IN_A_ROW:
            return what
        self._ended[kind] = 0
        return "pass"

    def _choose_loss(self, event: dict[str, Any]) -> str:
        if event["type"] == "DELETED":
            self.lost.set()
            return "expire"
        if event["type"] != "ERROR":
            self.told.add(event["object"]["metadata"]["name"])
        return "pass"


def whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of what comes in pieces."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in lines)
