"""One container of a pod from the kubelet's view: what it is, how it stands, when it may be started again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.objects import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.kubelet.runtime import Exit, Runtime
    from aliquot.sandbox.cluster.objects import Obj

LONGEST_BACKOFF_S = 300.0


class Kind(StrEnum):
    """How a container takes part in its pod's life."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"


@dataclass(frozen=True)
class Pace:
    """How long the kubelet waits before it tries again; seconds.

    Attributes:
        first_retry: after a container could not be created, the first time.
        retry: the following times (the real kubelet's pod sync, as observed).
        backoff: before the second restart of a crashing container (the first is immediate); doubles.
        forced_grace: what a pod gets that was deleted by force, or while no kubelet was here; the real kubelet's least.
    """

    first_retry: float = 0.6
    retry: float = 15.0
    backoff: float = 10.0
    forced_grace: float = 2.0


class Container:
    """State of one container; the processes themselves are the runtime's."""

    def __init__(self, spec: Obj, kind: Kind, restart_policy: str, runtime: Runtime, pace: Pace) -> None:
        self.spec = spec
        self.kind = kind
        self.runtime = runtime
        self._policy = "Always" if kind is Kind.SIDECAR else restart_policy
        self._pace = pace
        self._due = 0.0
        self._failures = 0
        self._crashes = 0
        self._counted = -1
        self.waiting: tuple[str, str] = ("ContainerCreating", "")

    @property
    def name(self) -> str:
        """Name in the pod's spec."""
        return str(self.spec["name"])

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.runtime.running

    @property
    def ended(self) -> Exit | None:
        """How the last attempt ended; None while it runs, and before the first."""
        return self.runtime.exit_of(self.runtime.attempt)

    @property
    def begun(self) -> bool:
        """Whether it was ever started."""
        return self.runtime.attempt >= 0

    @property
    def done(self) -> bool:
        """Ended, and never to be started again."""
        ended = self.ended
        if ended is None:
            return False
        if self.kind is Kind.INIT and ended.code == 0:
            return True
        return self._policy == "Never" or (self._policy == "OnFailure" and ended.code == 0)

    @property
    def due(self) -> float:
        """From when on it may be started, in monotonic seconds."""
        self._count_crash()
        return self._due

    def failed_to_start(self, reason: str, message: str) -> None:
        """Note that it could not be created; it is tried again at the kubelet's pace."""
        self._failures += 1
        delay = self._pace.first_retry if self._failures == 1 else self._pace.retry
        self._due = time.monotonic() + delay
        self.waiting = (reason, message)

    def started(self) -> None:
        """Note that an attempt began."""
        self._failures = 0

    def status(self, extra: Obj) -> Obj:
        """Its entry in the pod's `containerStatuses`."""
        attempt, running = self.runtime.attempt, self.running
        state = self._state(attempt, running=running)
        previous = attempt if "waiting" in state else attempt - 1
        last = self.runtime.exit_of(previous)
        status: Obj = {
            "name": self.name,
            "state": state,
            "lastState": {} if last is None else {"terminated": self._terminated(last, previous)},
            "ready": running or (self.kind is Kind.INIT and self.done),
            "started": running,
            "restartCount": max(attempt, 0),
            "image": self.spec.get("image", ""),
            "imageID": self.spec.get("image", ""),
            **extra,
        }
        if attempt >= 0:
            status["containerID"] = self.runtime.id_of(attempt)
        return status

    def _state(self, attempt: int, *, running: bool) -> Obj:
        if running:
            return {"running": {"startedAt": _moment(self.runtime.started_of(attempt))}}
        held_back = self._failures > 0 or self._crashes > 1
        if (ended := self.ended) is not None and (self.done or not held_back):
            return {"terminated": self._terminated(ended, attempt)}
        reason, message = self.waiting
        return {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def _terminated(self, ended: Exit, attempt: int) -> Obj:
        state: Obj = {
            "exitCode": ended.code,
            "reason": ended.reason,
            "startedAt": _moment(self.runtime.started_of(attempt)),
            "finishedAt": _moment(ended.finished),
            "containerID": self.runtime.id_of(attempt),
        }
        return {**state, "message": ended.message} if ended.message else state

    def _count_crash(self) -> None:
        """Set the back-off once for each attempt that ended while this kubelet watched or before."""
        ended, attempt = self.ended, self.runtime.attempt
        if ended is None or self._counted == attempt:
            return
        self._counted = attempt
        steady = ended.finished - self.runtime.started_of(attempt) > 2 * LONGEST_BACKOFF_S
        self._crashes = 1 if steady else self._crashes + 1
        if self._crashes == 1:
            return
        delay = min(self._pace.backoff * 2 ** (self._crashes - 2), LONGEST_BACKOFF_S)
        self._due = time.monotonic() + delay
        self.waiting = ("CrashLoopBackOff", f"back-off {delay:g}s restarting failed container={self.name}")


def kinds_of(pod: Obj) -> Iterator[tuple[Obj, Kind]]:
    """The pod's containers in starting order, with their kinds."""
    for spec in pod["spec"].get("initContainers") or ():
        yield spec, Kind.SIDECAR if spec.get("restartPolicy") == "Always" else Kind.INIT
    for spec in pod["spec"]["containers"]:
        yield spec, Kind.REGULAR


def _moment(seconds: float) -> str:
    return timestamp(seconds - time.time()) if seconds else timestamp()
