"""Answers asks for other limits: a bound pod's annotations, checked against the ledger, approved in one write.

A pod asks by annotation (`aliquot.request.resize`). Its own cards are looked at and no others: a running pod does not
move. What was decided is written to the pod in one patch: the placement with the new amounts and the status,
or the refusing status alone. The patch goes to `pods/status`, which people who may edit pods may not write, and
carries the resource version the ask was read at, so that it can land once and only on that pod.

    ask seen --fits--> both amounts charged --patch--> answered: new amounts
        |                                        `--> no answer: both stay charged, and it is asked again
        +--does not fit--> refused, and looked at again whenever its node has changed in the ledger

Nothing is stored: the ask and the answer are in the pod, so an extender killed at any point begins again. What a
patch of a dead one may still write is counted when the watch shows it, and the node's own ledger is the last fence.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from prometheus_client import Counter

from aliquot.api.names import (
    PLACEMENT_ANNOTATION,
    RESIZE_CORE_ANNOTATION,
    RESIZE_MEMORY_ANNOTATION,
    RESIZE_STATUS_ANNOTATION,
)
from aliquot.kube.answers import ApiError
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import Pod, version_of
from aliquot.kube.resources import PODS, Resource
from aliquot.request.placement import CardShare, Charge, Placement, encode_placement
from aliquot.request.resize import Ask, ResizeError, encode_status, read_asks, resized
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.handlers.bind import placement_of
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.ledger import Entry, Ledger
from aliquot.scheduler_ext.state.pods import PlacedPod
from aliquot.units import MIB, format_bytes

_log = logging.getLogger(__name__)

_ASKS = (RESIZE_MEMORY_ANNOTATION, RESIZE_CORE_ANNOTATION)
LONGEST_PAUSE_S = 2.0
"""An ask that the API server stumbles over holds up the others no longer."""
NOTHING_PLACED = (
    "no slice was placed for this pod; only slices can be resized, a MIG instance is as large as its profile"
)


class PatchApi(Protocol):
    """What a resize needs of the API server; `aliquot.kube.api.Api` has it."""

    async def get(self, resource: Resource[Pod], name: str, namespace: str = "", /) -> Pod:
        """Read a pod; ApiError when that fails."""

    async def patch(
        self, resource: Resource[Pod], name: str, body: Any, namespace: str = "", /, *, subresource: str = ""
    ) -> Pod:
        """Patch a pod; ApiError when that fails."""


class Resizer:
    """Looks at the pods that ask: once when they are seen, and the refused ones when their node has changed.

    What grows: the pods that ask. An event costs its own pod and the refused asks of its node, whatever the size of
    the cluster.
    """

    def __init__(self, api: PatchApi, ledger: Ledger, decided: Counter, quotas: Quotas | None = None) -> None:
        """Wait for asks.

        Args:
            api: The cluster.
            ledger: What is promised.
            decided: Counts answers, by `outcome`.
            quotas: What each namespace may have.
        """
        self._api = api
        self._ledger = ledger
        self._decided = decided
        self._asking: dict[str, PlacedPod] = {}
        self._due: dict[str, None] = {}
        self._refused: dict[str, dict[str, None]] = {}
        self._unanswered: dict[str, tuple[PlacedPod, dict[str, str]]] = {}
        self._wake = asyncio.Event()
        self._quotas = quotas or Quotas()
        self._barred: dict[str, None] = {}
        ledger.on_change(self._node_changed)
        self._quotas.on_change(self._quotas_changed)

    def see(self, pod: PlacedPod) -> None:
        """Take note of a bound pod as the watch shows it, after the ledger has."""
        uid = pod.metadata.uid
        if asks_for_a_resize(pod.metadata.annotations):
            self._asking[uid] = pod
            self._look_at(uid)
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """The pod asks for nothing, or is gone."""
        pod = self._asking.pop(uid, None)
        if pod is None:
            return
        self._due.pop(uid, None)
        self._barred.pop(uid, None)
        refused = self._refused.get(pod.spec.node_name, {})
        refused.pop(uid, None)
        if not refused:
            self._refused.pop(pod.spec.node_name, None)

    def _look_at(self, uid: str) -> None:
        self._due[uid] = None
        self._wake.set()

    def _node_changed(self, node: str) -> None:
        """There may be room now for what was refused."""
        for uid in self._refused.pop(node, ()):
            self._look_at(uid)

    def _quotas_changed(self) -> None:
        """There may be leave now for what a quota refused."""
        for uid in self._barred:
            self._look_at(uid)
        self._barred.clear()

    async def run(self) -> None:
        """Answer until cancelled."""
        backoff = Backoff(most=LONGEST_PAUSE_S)
        await self._quotas.read.wait()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.answer()
                backoff.reset()
            except ApiError as error:
                _log.warning("a resize is not answered yet: %s", error)
                await asyncio.sleep(backoff.next())
                self._wake.set()

    async def answer(self) -> None:
        """Look at every ask that is due; one that gets no answer holds up no other.

        Raises:
            ApiError: the API server does not say now what became of a patch; call again.
        """
        trouble: ApiError | None = None
        for uid in dict.fromkeys((*self._unanswered, *self._due)):
            try:
                await self._answer(uid)
            except ApiError as error:
                if error.unreachable:
                    raise
                trouble = error
        if trouble:
            raise trouble

    async def _answer(self, uid: str) -> None:
        if uid in self._unanswered:
            await self._commit(*self._unanswered[uid])
        pod = self._asking.get(uid)
        if pod is None or uid not in self._due:
            return
        del self._due[uid]
        try:
            await self._consider(pod)
        except ApiError:
            self._due[uid] = None
            raise

    async def _consider(self, pod: PlacedPod) -> None:
        entry = self._ledger.entry(pod.metadata.uid)
        if entry is None:
            await self._refuse(pod, encode_status({}, NOTHING_PLACED))
            return
        asks: dict[str, Ask] = {}
        try:
            asks = read_asks(pod.metadata.annotations, [c.name for c in entry.placement.containers])
            wanted = resized(entry.placement, asks)
            self._check(entry, wanted)
        except ResizeError as error:
            await self._refuse(pod, encode_status(asks, str(error)))
        else:
            await self._approve(pod, entry, wanted, encode_status(asks))

    def _check(self, entry: Entry, wanted: Placement) -> None:
        """Raises ResizeError where what grows has no room beside the others on its card."""
        cards = {card.uuid: card for card in self._ledger.cards_without(entry.node, entry.uid)}
        for uuid, charge in wanted.charges().items():
            check_growth(uuid, entry.charges[uuid], charge, cards.get(uuid))
        for now, then in zip(entry.placement.containers, wanted.containers, strict=True):
            for share, larger in zip(now.cards, then.cards, strict=True):
                check_size(share, larger, cards.get(share.uuid))
        barred = self._quotas.refusal(entry.namespace, wanted)
        if barred:
            self._barred[entry.uid] = None
            raise ResizeError(barred)

    async def _refuse(self, pod: PlacedPod, status: str) -> None:
        self._refused.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = None
        if pod.metadata.annotations.get(RESIZE_STATUS_ANNOTATION) == status:
            return
        _log.info("pod %s: resize refused: %s", pod.key, status)
        try:
            await self._write(pod, {RESIZE_STATUS_ANNOTATION: status})
        except ApiError as error:
            if error.transient:
                raise
            _log.info("pod %s: its status is not written: %s", pod.key, error)
        else:
            self._decided.labels("refused").inc()

    async def _approve(self, pod: PlacedPod, entry: Entry, wanted: Placement, status: str) -> None:
        annotations = {PLACEMENT_ANNOTATION: encode_placement(wanted), RESIZE_STATUS_ANNOTATION: status}
        if annotations.items() <= pod.metadata.annotations.items():
            return
        self._ledger.resize(entry.uid, entry.placement | wanted)
        await self._commit(pod, annotations)

    async def _commit(self, pod: PlacedPod, annotations: dict[str, str]) -> None:
        """Write an approval; without an answer the same again, which lands at most once, until there is one."""
        uid = pod.metadata.uid
        self._unanswered[uid] = (pod, annotations)
        try:
            stored: Pod | None = await self._write(pod, annotations)
            self._decided.labels("approved").inc()
            _log.info("pod %s: resize approved: %s", pod.key, annotations[RESIZE_STATUS_ANNOTATION])
        except ApiError as error:
            if error.transient:
                raise
            stored = await self._read(pod)
        del self._unanswered[uid]
        if stored:
            self._take_over(uid, stored)

    async def _write(self, pod: PlacedPod, annotations: Mapping[str, str]) -> Pod:
        meta = pod.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version, "annotations": dict(annotations)}}
        return await self._api.patch(PODS, meta.name, body, meta.namespace, subresource="status")

    async def _read(self, pod: PlacedPod) -> Pod | None:
        """Somebody was faster, perhaps an earlier patch of ours: the pod as it is now; None when it is gone."""
        try:
            return await self._api.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _take_over(self, uid: str, pod: Pod) -> None:
        """Charge what the pod says, and nothing more. A pod of another UID says nothing; the watch tells of both."""
        entry = self._ledger.entry(uid)
        placement = placement_of(pod.metadata.annotations, uid, pod.spec.node_name)
        if entry and placement and entry.placement.same_place(placement):
            self._ledger.resize(uid, placement, version_of(pod.metadata.resource_version))


def asks_for_a_resize(annotations: Mapping[str, str]) -> bool:
    """Whether a pod has any annotation that asks."""
    for key in annotations:  # noqa: SIM110 - written out for every pod that is read
        if key.endswith(_ASKS):
            return True
    return False


def check_growth(uuid: str, now: Charge, wanted: Charge, card: CardState | None) -> None:
    """Raises ResizeError where a charge grows beyond what the others leave of its card; what shrinks always fits."""
    left = card.left_mib(burst=True) if card else 0
    guaranteed = card.guarantee_left_mib if card else 0
    _refuse_growth(uuid, now.memory_mib, wanted.memory_mib, left, _memory)
    _refuse_growth(uuid, now.guaranteed_mib, wanted.guaranteed_mib, guaranteed, _memory)
    _refuse_growth(uuid, now.cores, wanted.cores, card.usable_cores - card.used_cores if card else 0, _time)


def check_size(now: CardShare, wanted: CardShare, card: CardState | None) -> None:
    """Raises ResizeError where a share outgrows its card, which burst memory of one tenant cannot use either."""
    most = max(card.usable_mib if card else 0, now.memory_mib)
    if wanted.memory_mib > most:
        asked = f"card {now.uuid}: {_memory(wanted.memory_mib)} asked"
        raise ResizeError(f"{asked}, {_memory(most)} is all that one container can have; ask for less")


def _refuse_growth(uuid: str, now: int, wanted: int, left: int, spell: Callable[[int], str]) -> None:
    if wanted > now and wanted > left:
        most = spell(max(left, now))
        raise ResizeError(
            f"card {uuid}: {spell(wanted)} asked, {most} can be had beside the others; ask for less, or wait for room"
        )


def _memory(mib: int) -> str:
    return format_bytes(mib * MIB)


def _time(percent: int) -> str:
    return f"{percent} % of its time"
