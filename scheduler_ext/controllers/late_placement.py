"""Writes the placements of pods that another scheduler has bound, after it has.

Volcano binds by itself and lets nobody add to its Binding, so such a pod comes to its node without a placement. The
node's gate keeps its containers waiting meanwhile. As soon as the watch shows the pod there, the place that was
reserved for it is written into it, in one patch of `pods/status` guarded by its UID; a pod without one (the extender
was started anew) is placed on its node first. Until that is written it is tried again, and the place stays taken.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Protocol

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.kube.answers import ApiError
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.request.placement import Placement, encode_placement
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.gang.search import Finder
from aliquot.scheduler_ext.state.ledger import Entry, Ledger, Stage
from aliquot.scheduler_ext.state.pods import PlacedPod

LONGEST_PAUSE_S = 5.0

_log = logging.getLogger(__name__)


class PatchApi(Protocol):
    """What writing needs of the API server; `aliquot.kube.api.Api` has it."""

    async def patch(
        self, resource: Resource[Pod], name: str, body: Any, namespace: str = "", /, *, subresource: str = ""
    ) -> Pod:
        """Patch a pod; ApiError when that fails."""


class LatePlacements:
    """The pods that others have bound and that have no placement yet."""

    def __init__(
        self,
        api: PatchApi,
        ledger: Ledger,
        read: Callable[[Pod], PodRequest],
        schedulers: Collection[str],
    ) -> None:
        """Wait for such pods.

        Args:
            api: The cluster.
            ledger: Where their places are.
            read: What a pod asks for; RequestError when that makes no sense.
            schedulers: Whose pods these are, by `schedulerName`.
        """
        self._api = api
        self._ledger = ledger
        self._read = read
        self._schedulers = frozenset(schedulers)
        self._finder: Finder | None = None
        self._due: dict[str, PlacedPod] = {}
        self._wake = asyncio.Event()

    def place_by(self, finder: Finder) -> None:
        """Have this say where a pod without a reservation goes on its node."""
        self._finder = finder

    def takes(self, pod: PlacedPod, placement: Placement | None) -> bool:
        """Whether a bound pod is one of these, without a placement; it is seen to."""
        if placement is not None:
            self.forget(pod.metadata.uid)
            return False
        if not pod.spec.containers or pod.spec.scheduler_name not in self._schedulers:
            return False
        if pod.metadata.uid not in self._due:
            self._due[pod.metadata.uid] = pod
            self._wake.set()
        return True

    def forget(self, uid: str) -> None:
        """It has its placement, or is gone."""
        self._due.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        backoff = Backoff(most=LONGEST_PAUSE_S)
        while True:
            await self._wake.wait()
            self._wake.clear()
            if await self.write():
                backoff.reset()
            else:
                self._wake.set()
                await asyncio.sleep(backoff.next())

    async def write(self) -> bool:
        """Write what can be written now; False when there is something left to try again."""
        return all([await self._complete(pod) for pod in tuple(self._due.values())])

    async def _complete(self, pod: PlacedPod) -> bool:
        """Write one pod's placement; False when it has to be tried again."""
        entry = self._entry(pod)
        if entry is None:
            return pod.metadata.uid not in self._due
        self._ledger.move_on(entry.uid, Stage.BINDING)
        meta = {"uid": entry.uid, "annotations": {PLACEMENT_ANNOTATION: encode_placement(entry.placement)}}
        try:
            await self._api.patch(
                PODS, pod.metadata.name, {"metadata": meta}, pod.metadata.namespace, subresource="status"
            )
        except ApiError as error:
            _log.warning("the placement of pod %s is not written: %s", pod.key, error)
            if not (error.not_found or error.conflict):
                return False
            self._ledger.depart(entry.uid)
        else:
            self._ledger.move_on(entry.uid, Stage.ASSUMED)
        self.forget(entry.uid)
        return True

    def _entry(self, pod: PlacedPod) -> Entry | None:
        """The pod's place on the node where it is, taken now if it has none; None when it gets none."""
        entry = self._ledger.entry(pod.metadata.uid)
        if entry is not None and entry.node != pod.spec.node_name:
            self._ledger.release(entry.uid)
            entry = None
        return entry or self._placed_now(pod)

    def _placed_now(self, pod: PlacedPod) -> Entry | None:
        try:
            request = self._read(pod.asking())
        except RequestError as error:
            _log.warning("pod %s gets no placement: %s", pod.key, error)
            self.forget(pod.metadata.uid)
            return None
        if not request.wants_slices or self._finder is None:
            self.forget(pod.metadata.uid)
            return None
        hosts = self._ledger.hosts
        hosts.drop_pod(request.uid)  # it is on the node, and there already counts against itself
        found = self._finder.find(pod.asking(), request, [pod.spec.node_name])
        if not isinstance(found, Placement):
            hosts.put_pod(request.uid, pod.spec.node_name, pod.spec.host)
            _log.warning("pod %s was bound to %s, where it has no room", pod.key, pod.spec.node_name)
            return None
        self._ledger.reserve(request, found)
        return self._ledger.entry(request.uid)
