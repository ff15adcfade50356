"""A stand-in for all kubelets and the controllers around them: they start bound pods, and end deleted ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.model.api_server import ApiServer, Change, key_of, merged
from tests.model.virtual_time import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

START_SECONDS: Final = 1.0


class Kubelets:
    """Follows all pods.

    Attributes:
        stuck: Names of pods that stay in Terminating until they are taken off this set and `release` is called.
        lost: Names of nodes whose kubelet is away.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.stuck: set[str] = set()
        self.lost: set[str] = set()
        server.listeners.append(self._heed)

    def _heed(self, change: Change) -> None:
        pod = change.after
        if change.plural != "pods" or pod is None or not pod["spec"].get("nodeName"):
            return
        before = change.before
        if "deletionTimestamp" in pod["metadata"]:
            if before is None or "deletionTimestamp" not in before["metadata"]:
                grace = pod["spec"].get("terminationGracePeriodSeconds", 1)
                self._later(grace, lambda: self._end(pod))
        elif not (before and before["spec"].get("nodeName")):
            self._later(START_SECONDS, lambda: self._start(pod))

    @staticmethod
    def _later(seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what)

    def _start(self, pod: dict) -> None:
        now = self._server.objects["pods"].get(key_of(pod))
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        if pod["spec"]["nodeName"] not in self._server.objects["nodes"]:
            self._server.remove("pods", key_of(now))  # it was bound a moment after its node had gone
        elif pod["spec"]["nodeName"] not in self.lost and now["status"].get("phase") == "Pending":
            running = {"status": {"phase": "Running", "startTime": CLOCK.stamp()}}
            self._server.put("pods", merged(now, running))

    def _end(self, pod: dict) -> None:
        now = self._server.objects["pods"].get(key_of(pod))
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        if now["metadata"]["name"] not in self.stuck and now["spec"]["nodeName"] not in self.lost:
            self._server.remove("pods", key_of(now))

    def release(self) -> None:
        """End all that are being deleted and are no longer stuck."""
        for pod in self._server.pods():
            if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
                self._end(pod)
