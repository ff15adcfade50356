"""Says things about pods where people look for them: in `kubectl describe`."""

import asyncio
import logging
from collections.abc import Collection

from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.events import pod_event
from aliquot.plugin.kubelet.container_identity import PodName

log = logging.getLogger(__name__)

COMPONENT = "aliquot-plugin"
PATIENCE_S = 1.0
"""Other pods wait for their limits meanwhile."""


class Events:
    """Writes one event about a pod each time there is something else to say."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node
        self._said: dict[tuple[str, str], str] = {}

    async def warn(self, pod: PodName, reason: str, message: str) -> None:
        """Writes a warning unless it was the last one of its reason; one that cannot be written is in the log alone."""
        if self._said.get((pod.uid, reason)) == message:
            return
        self._said[pod.uid, reason] = message
        log.warning("pod %s: %s: %s", pod, reason, message)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._api.request(
                    "POST",
                    f"/api/v1/namespaces/{pod.namespace}/events",
                    body=pod_event(
                        (pod.namespace, pod.name, pod.uid),
                        reason,
                        message,
                        kind="Warning",
                        component=COMPONENT,
                        host=self._node,
                    ),
                )
        except (ApiError, TimeoutError) as error:
            log.info("event of pod %s is not written: %s", pod, error)

    def keep(self, uids: Collection[str]) -> None:
        """Forgets what was said of all other pods."""
        for uid, reason in tuple(self._said):
            if uid not in uids:
                del self._said[uid, reason]

    def over(self, pod: PodName, reason: str) -> None:
        """What was warned of is over; should it come back, it is said again."""
        self._said.pop((pod.uid, reason), None)
