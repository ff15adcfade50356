"""Tells pods that were made while the webhook was away that they wait in vain, by an event each.

The webhook writes the name of our scheduler into a pod with a slice. A pod that came past it has the cluster's own,
which does not know what is free on cards, and never asks. That cannot be mended here: a pod's scheduler is fixed when
the pod is made.
"""

from typing import Final

from aliquot.api.names import DEFAULT_NAMES, DEFAULT_SCHEDULER, ResourceNames
from aliquot.kube.objects import Pod
from aliquot.scheduler_ext.state.pod_events import EventApi, write_event

REASON: Final = "PastWebhook"
WORDS: Final = (
    f"schedulerName is {DEFAULT_SCHEDULER}, which does not ask Aliquot: the pod was made while the webhook was away, "
    "and waits for ever; delete it and make it anew"
)


class MissedAdmissions:
    """Writes the events."""

    def __init__(self, api: EventApi, names: ResourceNames = DEFAULT_NAMES) -> None:
        """Write none yet; `names` are the resources' names."""
        self._api = api
        self._names = names

    async def tell(self, pod: Pod) -> None:
        """Write the event of one pod, where it asks for a slice in our names; others may have a plugin of their own."""
        if not self._asks(pod) or pod.finished:
            return
        meta = pod.metadata
        about = (meta.namespace, meta.name, meta.uid)
        await write_event(self._api, about, REASON, WORDS, kind="Warning")

    def _asks(self, pod: Pod) -> bool:
        """Whether the webhook would have seen the pod by its limits."""
        names, containers = self._names, (*pod.spec.init_containers, *pod.spec.containers)
        return any(
            names.owns(name) or names.misnamed(name) for one in containers for name in one.resources.limits
        )
