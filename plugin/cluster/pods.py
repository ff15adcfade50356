"""The pods of this node and what was placed for them, as the API server tells, also while it is away.

A watch brings every pod bound to this node. Those that carry a placement are kept in a file each, so that
a container can be restarted, and this agent too, while there is no API server to ask. A pod that the watch
has not brought yet can be asked for by name.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.objects import UNREADABLE, Pod
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import PODS
from aliquot.plugin.kubelet.container_identity import PodName
from aliquot.plugin.util.atomic_files import quarantine, remove_leftovers, write_whole

log = logging.getLogger(__name__)

REFRESH_S = 2.0


class Pods:
    """All pods of this node by UID. Lives in one event loop."""

    def __init__(self, api: Api, node: str, cache: Path) -> None:
        self._api = api
        self._node = node
        self._cache = cache
        self._by_uid: dict[str, Pod] = {}
        self._changed = asyncio.Event()
        self._reflector = Reflector(
            api,
            PODS,
            field_selector=f"spec.nodeName={node}",
            on_add=self._seen,
            on_update=lambda _, pod: self._seen(pod),
            on_delete=self._deleted,
        )
        cache.mkdir(parents=True, exist_ok=True)
        remove_leftovers(cache)
        for path in sorted(cache.glob("*.json")):
            self._load(path)

    async def run(self) -> None:
        """Follows the API server until cancelled."""
        await self._reflector.run()

    @property
    def synced(self) -> bool:
        """Whether the API server has told once which pods there are."""
        return self._reflector.synced.is_set()

    def get(self, uid: str) -> Pod | None:
        """A pod as it was last seen, perhaps before a restart of this agent."""
        return self._by_uid.get(uid)

    def over(self, uid: str) -> bool:
        """Whether the API server has said that the pod is no more, or will never run a container again."""
        if not self.synced:
            return False
        pod = next((pod for pod in self._reflector.store.values() if pod.metadata.uid == uid), None)
        return pod is None or pod.finished

    def finished(self, uid: str) -> bool:
        """Whether the pod has ended by itself and is only kept as a record."""
        pod = self._by_uid.get(uid)
        return pod is not None and pod.finished

    def replaced(self, uid: str, namespace: str, name: str) -> bool:
        """Whether the API server knows another pod by this pod's name."""
        pod = self._reflector.get(name, namespace)
        return pod is not None and pod.metadata.uid != uid

    async def wait(self, timeout_s: float) -> None:
        """Returns when any pod has changed, or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)

    async def refresh(self, namespace: str, name: str) -> Pod | None:
        """Asks the API server for a pod; None if it is not on this node or there is no answer."""
        try:
            async with asyncio.timeout(REFRESH_S):
                pod = await self._api.get(PODS, name, namespace)
        except (ApiError, TimeoutError) as error:
            log.debug("pod %s/%s not read: %s", namespace, name, error)
            return None
        if pod.spec.node_name != self._node:
            return None
        self._seen(pod)
        return pod

    def name_of(self, uid: str) -> PodName | None:
        """The pod of a UID, if it has been seen."""
        pod = self._by_uid.get(uid)
        return PodName(pod.metadata.namespace, pod.metadata.name, uid) if pod else None

    async def look_up(self, namespace: str, name: str) -> PodName | None:
        """The pod that has the name now: the API server's word, else the only one seen under that name."""
        pod = await self.refresh(namespace, name)
        if pod is not None:
            return PodName(namespace, name, pod.metadata.uid)
        seen = [
            uid
            for uid, pod in self._by_uid.items()
            if (pod.metadata.namespace, pod.metadata.name) == (namespace, name)
        ]
        return PodName(namespace, name, seen[0]) if len(seen) == 1 else None

    def start_order(self, uid: str) -> Sequence[str]:
        """The names of a pod's containers in the order in which they start; empty if the pod is not known."""
        pod = self._by_uid.get(uid)
        return [c.name for c in (*pod.spec.init_containers, *pod.spec.containers)] if pod else []

    def placed(self) -> tuple[Pod, ...]:
        """Pods seen that carry a placement and have not ended."""
        return tuple(
            pod
            for pod in self._by_uid.values()
            if PLACEMENT_ANNOTATION in pod.metadata.annotations and not pod.finished
        )

    def forget(self, uid: str) -> None:
        """Drops a pod that is gone, from disk and from memory. Raises OSError, and then it is still known."""
        self._path(uid).unlink(missing_ok=True)
        self._by_uid.pop(uid, None)

    def known_uids(self) -> frozenset[str]:
        """Every pod seen and not forgotten."""
        return frozenset(self._by_uid)

    def _seen(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        old = self._by_uid.get(uid)
        self._by_uid[uid] = pod
        if placement_text(pod) and (old is None or placement_text(old) != placement_text(pod)):
            self._keep(pod)
        self.notify()

    def _deleted(self, pod: Pod) -> None:
        """What cannot be forgotten now is forgotten by a later sweep."""
        try:
            self.forget(pod.metadata.uid)
        except OSError as error:
            log.warning("placement of pod %s stays cached: %s", pod.key, error)
        self.notify()

    def notify(self) -> None:
        """Something that the limits of pods depend on has changed: whoever waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _path(self, uid: str) -> Path:
        return self._cache / f"{uid}.json"

    def _keep(self, pod: Pod) -> None:
        """Writes the fields that we read; a disk that refuses costs only a restart without API server."""
        try:
            write_whole(self._path(pod.metadata.uid), msgspec.json.encode(pod))
        except OSError as error:
            log.warning("placement of pod %s not cached: %s", pod.key, error)

    def _load(self, path: Path) -> None:
        try:
            pod = msgspec.json.decode(path.read_bytes(), type=Pod)
        except (OSError, *UNREADABLE) as error:
            log.error("cached pod %s cannot be read (%s): set aside as %s", path, error, quarantine(path))  # noqa: TRY400
        else:
            self._by_uid[pod.metadata.uid] = pod


def placement_text(pod: Pod) -> str:
    """The placement annotation as it stands; empty if there is none."""
    return pod.metadata.annotations.get(PLACEMENT_ANNOTATION, "")
