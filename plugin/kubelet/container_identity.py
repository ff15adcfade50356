"""Whose container is about to start: the way from device ids to pod, containers and nonces.

PodResources is asked first. It knows neither pod UIDs nor plain init containers, so the kubelet's
checkpoint completes it; where the checkpoint cannot be read, a live look at the pod stands in for it. A
plain init container shares its ids with a later container of its pod, and nothing tells which of the two
is starting: so the answer names all of them, and each is made ready under its own nonce. So it is with pods
to which the kubelet has given the same ids. (It forgets what it is about to give when somebody asks at that
moment who has what, and one of its pods has just ended.)
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aliquot.api.names import is_mig
from aliquot.plugin.kubelet.allocation_journal import Allocation, AllocationJournal
from aliquot.plugin.kubelet.checkpoint import Entry, read_checkpoint
from aliquot.plugin.kubelet.pod_resources import Holder, PodResources, PodResourcesError, Running
from aliquot.plugin.util.errors import NotYetError


@dataclass(frozen=True)
class PodName:
    """A pod, once and for all."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Starting:
    """The pod, and by container the nonces under which these ids were promised to it."""

    pod: PodName
    nonces: Mapping[str, tuple[str, ...]]


class Directory(Protocol):
    """Names pods: what the API server said of this node's pods, or says when asked."""

    def name_of(self, uid: str) -> PodName | None:
        """The pod of a UID, if it has been seen."""

    async def look_up(self, namespace: str, name: str) -> PodName | None:
        """The pod that has the name now; asks the API server unless it is known."""

    def start_order(self, uid: str) -> Sequence[str]:
        """The names of a pod's containers in the order in which they start; empty if not known."""


class ContainerIdentity:
    """Finds the owner of device ids."""

    def __init__(
        self, journal: AllocationJournal, pod_resources: PodResources, checkpoint: Path, directory: Directory
    ) -> None:
        self._journal = journal
        self._pod_resources = pod_resources
        self._checkpoint = checkpoint
        self._directory = directory

    async def identify(self, resource: str, ids: Collection[str]) -> Sequence[Starting]:
        """The pods, of which there is seldom more than one, and the containers that hold exactly these ids.

        Raises:
            NotYetError: nobody is known to hold them, or the sources disagree, which a moment can mend.
        """
        wanted = frozenset(ids)
        running = await self._running()
        holders = [h for h in running.holders if wanted <= h.devices.get(resource, frozenset())]
        entries = [e for e in read_checkpoint(self._checkpoint) if e.resource == resource and e.ids == wanted]
        sharing = [] if is_mig(resource) else self._sharing(holders, entries)
        if sharing:
            return sharing
        pod = await self._pod(resource, wanted, holders, entries)
        entries = [entry for entry in entries if entry.pod_uid == pod.uid]
        exact = [holder.container for holder in holders if holder.devices[resource] == wanted]
        return [Starting(pod, self._nonces(pod, self._journal.holding(resource, wanted), entries, exact))]

    def _sharing(self, holders: Sequence[Holder], entries: Sequence[Entry]) -> list[Starting]:
        """Several pods with the same ids, of which both sources tell the same; none where there are no such pods.

        Ids of slices stand for no part of a card, so each has what its placement says. Those of MIG instances do.
        """
        names = {(holder.namespace, holder.pod) for holder in holders}
        nonces: dict[str, dict[str, tuple[str, ...]]] = {}
        for entry in entries:
            nonces.setdefault(entry.pod_uid, {})[entry.container] = (entry.nonce,)
        pods = [pod for pod in map(self._directory.name_of, nonces) if pod is not None]
        agreed = names == {(pod.namespace, pod.name) for pod in pods} and len(pods) == len(nonces)
        if len(pods) < 2 or not agreed or not all(entry.nonce for entry in entries):  # noqa: PLR2004 - several
            return []
        return [Starting(pod, nonces[pod.uid]) for pod in pods]

    async def devices_of(self, pod: PodName, container: str) -> Mapping[str, frozenset[str]]:
        """All ids a container holds, by resource: PodResources and checkpoint together."""
        held: dict[str, frozenset[str]] = {}
        for holder in (await self._running()).holders:
            if (holder.namespace, holder.pod, holder.container) == (pod.namespace, pod.name, container):
                held.update(holder.devices)
        for entry in read_checkpoint(self._checkpoint):
            if (entry.pod_uid, entry.container) == (pod.uid, container):
                held[entry.resource] = held.get(entry.resource, frozenset()) | entry.ids
        return held

    async def _running(self) -> Running:
        try:
            return await self._pod_resources.list()
        except PodResourcesError as error:
            raise NotYetError(str(error)) from error

    async def _pod(
        self, resource: str, ids: frozenset[str], holders: Sequence[Holder], entries: Sequence[Entry]
    ) -> PodName:
        """One pod that both sources agree on."""
        names = {(holder.namespace, holder.pod) for holder in holders}
        uids = {entry.pod_uid for entry in entries}
        what = f"{resource} {', '.join(sorted(ids))}"
        if len(names) > 1 or len(uids) > 1:
            raise NotYetError(f"{what} are held by several pods: {sorted(names)}, UIDs {sorted(uids)}")
        if uids:
            return self._pod_of_uid(uids.pop(), names, what)
        if names:
            return await self._pod_of_name(*names.pop())
        raise NotYetError(f"the kubelet does not say which pod holds {what}")

    def _pod_of_uid(self, uid: str, names: Collection[tuple[str, str]], what: str) -> PodName:
        """The pod of the checkpoint's UID; PodResources must not name another."""
        pod = self._directory.name_of(uid)
        if pod is None and names:
            return PodName(*next(iter(names)), uid)
        if pod is None:
            raise NotYetError(f"pod {uid}, which holds {what}, is not known yet")
        if names and (pod.namespace, pod.name) not in names:
            raise NotYetError(
                f"{what} are held by {pod} in the checkpoint and by {sorted(names)} in PodResources"
            )
        return pod

    async def _pod_of_name(self, namespace: str, name: str) -> PodName:
        """Without the checkpoint: the pod that has the name now."""
        pod = await self._directory.look_up(namespace, name)
        if pod is None:
            raise NotYetError(f"pod {namespace}/{name} is not known to the API server yet")
        return pod

    def _nonces(
        self, pod: PodName, promised: Sequence[Allocation], entries: Sequence[Entry], exact: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """Which container each nonce stands for: as the kept answers say, else by order of start."""
        told = [entry for entry in entries if entry.nonce]
        if told and len(told) == len(entries):
            return {entry.container: (entry.nonce,) for entry in told}
        containers = self._in_start_order(pod, {e.container for e in entries} or set(exact))
        nonces = [allocation.nonce for allocation in promised]
        if not containers or not nonces:
            raise NotYetError(f"pod {pod}: no allocation is known for the ids it holds")
        if not entries:
            return {containers[-1]: tuple(nonces)}
        latest = nonces[-len(containers) :]
        return {name: (nonce,) for name, nonce in zip(containers[-len(latest) :], latest, strict=True)}

    def _in_start_order(self, pod: PodName, containers: Collection[str]) -> list[str]:
        """The kubelet allocates in the order in which containers start."""
        order = {name: place for place, name in enumerate(self._directory.start_order(pod.uid))}
        return sorted(containers, key=lambda name: (order.get(name, len(order)), name))
