"""What pods have been asking for of late, which is the best guess at what they will ask for next.

A sliding histogram over the last `WINDOW` pods that asked for slices, each counted once. Nothing is configured and
nothing is stored: an extender that begins learns from the pods that it finds bound (`workload_history`). Where there
are none it places by what is left and used alone, and has learned what matters after some tens of pods.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from aliquot.request.core_policy import NO_POLICY
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import ContainerKind, PodRequest, SliceRequest
from aliquot.request.topology import Rdma

WINDOW: Final = 4000
"""Pods that are remembered."""
REFRESH: Final = 500
"""Pods after which what is typical is worked out anew; at first more often."""
FIRST_REFRESHES: Final = (1, 10, 50, 200)
CARDS_POWER: Final = 0.5
"""How much more a pod weighs that asks for many cards at once: their number to this power."""
MOST_CLASSES: Final = 128
"""Classes of pods that are told apart; rarer ones are left out."""


@dataclass(frozen=True)
class Wanted:
    """What one pod asks for, as far as it matters to others: its largest slice, and its node's CPU and memory."""

    slice: SliceRequest
    host: HostShare


@dataclass(frozen=True)
class Typical:
    """A kind of pod, its weight, and how many there were; the weights add up to 1."""

    wanted: Wanted
    weight: float
    count: int


class WorkloadModel:
    """Learns what is typical.

    Attributes:
        version: Grows whenever what is typical should be looked at again.
    """

    def __init__(self) -> None:
        self.version = 0
        self._seen: deque[tuple[str, Wanted]] = deque()
        self._uids: set[str] = set()
        self._counts: Counter[Wanted] = Counter()
        self._total = 0

    def note(self, request: PodRequest) -> None:
        """A pod asks for a place; asking again is not counted."""
        if request.uid in self._uids or not request.wants_slices:
            return
        wanted = _wanted(request)
        self._uids.add(request.uid)
        self._seen.append((request.uid, wanted))
        self._counts[wanted] += 1
        if len(self._seen) > WINDOW:
            self._forget_oldest()
        self._total += 1
        if self._total in FIRST_REFRESHES or self._total % REFRESH == 0:
            self.version += 1

    def typical(self) -> list[Typical]:
        """The kinds of pods that weigh most, in an order that depends on counts and contents alone.

        A kind weighs as many pods as there were, times a power of the cards that each asks for: few pods ask for
        many cards at once, and for them it takes least to make a node useless.
        """
        weighed = [Typical(w, n * w.slice.cards**CARDS_POWER, n) for w, n in self._counts.items()]
        weighed.sort(key=lambda kind: (-kind.weight, *_content(kind.wanted)))
        kept = weighed[:MOST_CLASSES]
        total = sum(kind.weight for kind in kept)
        return [replace(kind, weight=kind.weight / total) for kind in kept]

    def asked(self) -> Iterator[tuple[Wanted, int]]:
        """All that was asked for, and how often."""
        return iter(self._counts.items())

    def _forget_oldest(self) -> None:
        uid, wanted = self._seen.popleft()
        self._uids.remove(uid)
        self._counts[wanted] -= 1
        if not self._counts[wanted]:
            del self._counts[wanted]


def _wanted(request: PodRequest) -> Wanted:
    largest = max(running_slices(request), key=_size, default=None) or max(_slices(request), key=_size)
    return _typified(largest, request.host)


@lru_cache(maxsize=1024)
def _typified(largest: SliceRequest, host: HostShare) -> Wanted:
    """One object for all that ask for the same."""
    coarse = HostShare(host.cpu_milli, _coarse(host.memory_mib))
    return Wanted(replace(largest, policy=NO_POLICY, burst=False, topology=None, rdma=Rdma.NONE), coarse)


def _content(wanted: Wanted) -> tuple[str, ...]:
    """What tells kinds apart, written down; filters, which few pods have, take longer than all the rest."""
    asked, host = wanted.slice, wanted.host
    amounts = (asked.cards, asked.memory_mib, asked.memory_percent, asked.cores, asked.exclusive)
    only = [" ".join(sorted(names)) for names in vars(asked.only).values()] if asked.only else [""]
    return (*map(str, amounts), *only, str(host.cpu_milli), str(host.memory_mib))


def _coarse(mib: int) -> int:
    """Rounded up to three binary digits, so that pods that differ in nothing else are of one kind."""
    step = 1 << max(mib.bit_length() - 3, 0)
    return -(-mib // step) * step


def running_slices(request: PodRequest) -> Iterator[SliceRequest]:
    """The slices that are held at the same time, those of plain init containers left out."""
    return (c.slice for c in request.containers if c.slice and c.kind is not ContainerKind.INIT)


def _slices(request: PodRequest) -> Iterator[SliceRequest]:
    return (c.slice for c in request.containers if c.slice)


def _size(wanted: SliceRequest) -> tuple[int, int, int, int]:
    return (wanted.cards, wanted.memory_percent or 0, wanted.memory_mib or 0, wanted.cores)
