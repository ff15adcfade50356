"""Decides which of several replicas leads, by a coordination.k8s.io Lease.

All times are of one's own clock, and no replica believes another's. The holder counts its lease from the moment
before it sent a renewal; the others count it from the moment after they saw that renewal, which is later. So the
holder's lease is over first:

    holder:   |renews ------- writes may begin ------->|-- writes end -->| lease over
    others:      |sees it ------------------------------------------------->| may take it

- Every write to the Lease carries the resource version it was read at, so of several that take it one succeeds.
- The last `write_seconds` of a lease are for what has begun: a write without an answer is given up by then. The
  fence (`aliquot.kube.fence`) asks `closed` as the body of each write goes to the socket, also after a pause.
- The clock goes on while the machine is suspended (CLOCK_BOOTTIME), and the others wait a hundredth longer, for no two
  clocks run equally fast.
- Where there is no Lease, one may have been deleted under a living holder: its maker waits for a whole lease.
- A holder that finds the Lease in other hands is deposed for good: what it knows of its reservations is worth nothing
  any more, and it begins anew as a fresh process would. One that finds it expired but untaken renews it and goes on.
- A holder that ends hands the Lease back, unless an answer to a write of its own is still missing.
"""

import asyncio
import datetime as dt
import logging
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aliquot.api.names import LEADER_URL_ANNOTATION
from aliquot.kube.answers import ApiError
from aliquot.kube.fence import Fence
from aliquot.kube.objects import Lease
from aliquot.kube.resources import LEASES, Resource

LEASE_SECONDS = 7
"""How long a leader that is gone keeps the others waiting."""
WRITE_SECONDS = 2.0
"""How long a write may take; that much of every lease is not used for new ones."""
RENEW_SECONDS = 1.0
DRIFT = 1.01
"""How much longer the others wait."""

_log = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """What an election needs of the API server; `aliquot.kube.api.Api` has it."""

    async def get(self, resource: Resource[Lease], name: str, namespace: str = "", /) -> Lease:
        """Read a Lease; ApiError when that fails."""

    async def create(self, resource: Resource[Lease], body: dict[str, Any], namespace: str = "", /) -> Lease:
        """Make a Lease; ApiError when that fails."""

    async def patch(
        self, resource: Resource[Lease], name: str, body: dict[str, Any], namespace: str = "", /
    ) -> Lease:
        """Change a Lease; ApiError when that fails."""


class DeposedError(Exception):
    """Another replica leads now, or nobody knows."""


def suspended_too() -> float:
    """Seconds on a clock that nobody sets and that counts suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Candidate:
    """Who stands for election, and for which Lease.

    Attributes:
        namespace: The Lease's.
        name: The Lease's.
        identity: What people know this replica by; each process adds something that no other has.
        url: Where the other replicas can reach this one.
        lease_seconds: For how long from each renewal it leads.
    """

    namespace: str
    name: str
    identity: str
    url: str
    lease_seconds: int = LEASE_SECONDS


class Election:
    """One replica's part in the election.

    Attributes:
        elected: Set once this replica holds the Lease. It leads while `closed` says nothing.
        identity: This process's name in the Lease.
        leader_url: Where the holder can be reached, as the Lease was last seen; empty when nobody holds it.
        transitions: How often the Lease has changed hands.
    """

    def __init__(
        self,
        api: LeaseApi,
        candidate: Candidate,
        electable: Callable[[], bool],
        *,
        clock: Callable[[], float] = suspended_too,
    ) -> None:
        """Stand for election.

        Args:
            api: The cluster, without a fence.
            candidate: Who stands.
            electable: Whether this replica could lead if it were elected.
            clock: Monotonic seconds that count suspended time.
        """
        self.elected = asyncio.Event()
        self.identity = f"{candidate.identity}_{secrets.token_hex(8)}"
        self.leader_url = ""
        self.transitions = 0
        self.fence = Fence(self.closed, WRITE_SECONDS, clock)
        self._api = api
        self._candidate = candidate
        self._electable = electable
        self._clock = clock
        self._version = ""
        self._seen_at = -math.inf
        self._held_for = candidate.lease_seconds * DRIFT
        self._begins, self._ends = -math.inf, -math.inf
        self._longest = self._held_for
        self._made = False
        self._resigned = False

    def closed(self) -> str:
        """Why this replica does not lead at this moment; an empty text while it does."""
        now = self._clock()
        if not self.elected.is_set():
            return "this replica does not lead"
        if self._resigned:
            return "this replica is ending"
        if now < self._begins:
            return "the leader before this one may not have ended yet"
        if now >= self._ends - self.fence.seconds:
            return "the leader has not been able to renew its Lease"
        return ""

    @property
    def resigned(self) -> bool:
        """Whether this replica will never lead again, with this process's name."""
        return self._resigned

    async def run(self) -> None:
        """Take part until cancelled.

        Raises:
            DeposedError: this replica has led, and does not any more.
        """
        complaint = ""
        while True:
            try:
                await self.step()
                complaint = ""
            except ApiError as error:
                if not error.conflict and str(error) != complaint:
                    complaint = str(error)
                    _log.warning("Lease %s: %s", self._candidate.name, error)
            await asyncio.sleep(self._pause())

    async def step(self) -> None:
        """Look at the Lease, and renew or take it where that is due.

        Raises:
            ApiError: the API server does not answer, or somebody was faster.
            DeposedError: this replica has led, and does not any more.
        """
        lease = await self._read()
        self._observe(lease)
        holder = lease.spec.holder_identity if lease else None
        if self.elected.is_set() and holder != self.identity:
            self.resign()
            raise DeposedError(f"{holder or 'nobody'} leads now")
        if lease is None:
            if self._electable():
                await self._make()
        elif holder == self.identity:
            await self._hold(lease)
        elif self._electable() and (not holder or self._clock() >= self._seen_at + self._held_for):
            await self._take(lease)

    async def begin(self) -> None:
        """Return once this replica holds the Lease and nobody before it can write any more."""
        await self.elected.wait()
        await asyncio.sleep(max(0.0, self._begins - self._clock()))

    def resign(self) -> None:
        """Begin no more writes."""
        self._resigned = True

    async def release(self) -> None:
        """Hand the Lease back after `resign`; without a word where that is not safe or fails: it will expire."""
        waits = self._clock() < self._begins
        if waits or not self.elected.is_set() or not self.fence.quiet(self._held_for):
            return
        try:
            lease = await self._read()
            if lease is not None and lease.spec.holder_identity == self.identity:
                await self._patch(lease, {"holderIdentity": None}, "")
                _log.info("the Lease is handed back")
        except ApiError as error:
            _log.info("the Lease is not handed back: %s", error)

    async def _read(self) -> Lease | None:
        try:
            return await self._api.get(LEASES, self._candidate.name, self._candidate.namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _observe(self, lease: Lease | None) -> None:
        """Count the holder's time anew whenever the Lease has changed in whatever way."""
        if lease is None:
            self._version, self.leader_url = "", ""
            return
        if lease.metadata.resource_version != self._version:
            self._version, self._seen_at = lease.metadata.resource_version, self._clock()
        spec = lease.spec
        self._held_for = (spec.lease_duration_seconds or self._candidate.lease_seconds) * DRIFT
        self._longest = max(self._longest, self._held_for)
        self.transitions = spec.lease_transitions or 0
        url = lease.metadata.annotations.get(LEADER_URL_ANNOTATION, "")
        self.leader_url = url if spec.holder_identity else ""

    async def _make(self) -> None:
        """Make the Lease; whoever held one that somebody has deleted meanwhile is waited for."""
        candidate = self._candidate
        self._made = True
        metadata = {"name": candidate.name, "annotations": {LEADER_URL_ANNOTATION: candidate.url}}
        spec = self._spec() | {"acquireTime": _now(), "leaseTransitions": 0}
        body = {"metadata": metadata, "spec": spec}
        await self._hold(await self._api.create(LEASES, body, candidate.namespace))

    async def _take(self, lease: Lease) -> None:
        self._made = False
        more = {"acquireTime": _now(), "leaseTransitions": (lease.spec.lease_transitions or 0) + 1}
        await self._hold(lease, more)

    async def _hold(self, lease: Lease, more: dict[str, Any] | None = None) -> None:
        """Renew the Lease, or take it: from the moment before it was asked for it is this replica's."""
        sent = self._clock()
        self._observe(await self._patch(lease, self._spec() | (more or {}), self._candidate.url))
        self._ends = sent + self._candidate.lease_seconds
        if not self.elected.is_set():
            if self._made:
                self._begins = self._clock() + self._longest
            _log.info("this replica, %s, leads", self.identity)
            self.elected.set()

    async def _patch(self, lease: Lease, spec: dict[str, Any], url: str) -> Lease:
        metadata = {
            "resourceVersion": lease.metadata.resource_version,
            "annotations": {LEADER_URL_ANNOTATION: url},
        }
        body = {"metadata": metadata, "spec": spec}
        return await self._api.patch(LEASES, self._candidate.name, body, self._candidate.namespace)

    def _spec(self) -> dict[str, Any]:
        seconds = self._candidate.lease_seconds
        return {"holderIdentity": self.identity, "leaseDurationSeconds": seconds, "renewTime": _now()}

    def _pause(self) -> float:
        """Until the next step: shorter where the Lease can be taken before."""
        if self.elected.is_set() or not self._version:
            return RENEW_SECONDS
        left = self._seen_at + self._held_for - self._clock()
        return min(RENEW_SECONDS, left) if left > 0 else RENEW_SECONDS


def _now() -> str:
    """As a MicroTime, for people."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
