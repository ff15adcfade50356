"""Writes the events that tell of a pod what the extender has done; one that cannot be written is only logged."""

import logging
from typing import Any, Final, Protocol

from aliquot.kube.answers import ApiError
from aliquot.kube.events import pod_event

COMPONENT: Final = "aliquot-scheduler-ext"

_log = logging.getLogger(__name__)


class EventApi(Protocol):
    """What is needed of the API server; `aliquot.kube.api.Api` has it."""

    async def request(self, method: str, path: str, /, *, body: Any = None) -> bytes:
        """Send any request; ApiError when that fails."""


async def write_event(
    api: EventApi, pod: tuple[str, str, str], reason: str, message: str, *, kind: str = "Normal"
) -> None:
    """Write an event.

    Args:
        api: The cluster.
        pod: Namespace, name and UID of the pod that it is about.
        reason: One word in CamelCase.
        message: What has happened, for people.
        kind: `Normal` or `Warning`.
    """
    body = pod_event(pod, reason, message, kind=kind, component=COMPONENT)
    try:
        await api.request("POST", f"/api/v1/namespaces/{pod[0]}/events", body=body)
    except ApiError as error:
        _log.info("event of pod %s/%s is not written: %s", pod[0], pod[1], error)
