"""Which groups there are and who is in them, by what watches and kube-scheduler's calls show."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from aliquot.api.pod_groups import GroupKey, group_of
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.gang.gang import Gang, Look
from aliquot.scheduler_ext.gang.member import Member
from aliquot.scheduler_ext.gang.pod_groups import UNSAID, Terms, terms_of
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPods, canonical
from aliquot.scheduler_ext.state.pods import PlacedPod, controller_of, seconds_of

PLACED: Final = Pod()
"""What is kept of a member that is on its node."""

_log = logging.getLogger(__name__)


class GangRegistry:
    """The groups, each with its members; grows with them."""

    def __init__(self, ledger: Ledger, waiting: PendingPods, read: Callable[[Pod], PodRequest]) -> None:
        """Know no group yet.

        Args:
            ledger: Where places are held.
            waiting: Is told when a group may have become possible.
            read: What a pod asks for; RequestError when that makes no sense.
        """
        self._ledger = ledger
        self._waiting = waiting
        self._read = read
        self._gangs: dict[GroupKey, Gang] = {}
        self._of: dict[str, Gang] = {}

    def all(self) -> list[Gang]:
        """The groups."""
        return list(self._gangs.values())

    def get(self, key: GroupKey) -> Gang | None:
        """A group; None where it is not known."""
        return self._gangs.get(key)

    def of(self, uid: str) -> Gang | None:
        """The group of a pod that is known to be in one."""
        return self._of.get(uid)

    def put_terms(self, key: GroupKey, terms: Terms) -> None:
        """Take over what a PodGroup says; nothing, when it is gone."""
        gang = self._gang(key)
        if gang.said != terms:
            gang.said = terms
            self._waiting.something_changed()
        self._tidy_away(gang)

    def put(self, key: GroupKey, pod: PlacedPod) -> None:
        """Take over a member as the watch shows it."""
        meta, placed = pod.metadata, bool(pod.spec.node_name or pod.finished)
        told = Member(
            PLACED,
            None,
            terms_of(meta),
            placed=placed,
            gated=bool(pod.spec.scheduling_gates) and not placed,
            name=meta.name,
            priority=pod.spec.priority or 0,
            scheduler=pod.spec.scheduler_name,
            controller=controller_of(meta),
            created=seconds_of(meta.creation_timestamp),
            finished=pod.finished_at,
        )
        if placed:
            self._put(key, meta.uid, told)
        else:
            self._put_pending(key, pod.asking(), told)

    def drop(self, uid: str) -> Gang | None:
        """A pod is gone; the group that it was in."""
        gang = self._of.pop(uid, None)
        if gang is not None:
            gang.drop(uid)
            self._tidy_away(gang)
        return gang

    def called(self, pod: Pod, nodes: Sequence[str]) -> Gang | None:
        """The group of the pod of a call, once it is known what the pod was offered."""
        meta, uid = pod.metadata, pod.metadata.uid
        key = group_of(meta, pod.spec.scheduling_group)
        if key is None:
            return None
        if uid not in self._of:
            told = Member(
                PLACED,
                None,
                terms_of(meta),
                name=meta.name,
                priority=pod.spec.priority or 0,
                controller=controller_of(meta),
                created=seconds_of(meta.creation_timestamp),
            )
            self._put_pending(key, pod, told)
        gang = self._of.get(uid)
        if gang is not None:
            _note_offer(gang, uid, canonical(frozenset(nodes)))
        return gang

    def _put_pending(self, key: GroupKey, pod: Pod, told: Member) -> None:
        try:
            asked = self._read(pod)
        except RequestError as error:
            _log.warning("pod %s of group %s is left out: %s", pod.key, key, error)
            return
        request = asked if asked.wants_slices else None
        gang = self._of.get(pod.metadata.uid)
        nodes = gang.members[pod.metadata.uid].nodes if gang else None
        self._put(key, pod.metadata.uid, replace(told, pod=pod, request=request, nodes=nodes))

    def _put(self, key: GroupKey, uid: str, member: Member) -> None:
        gang = self._gang(key)
        self._of[uid] = gang
        before = gang.members.get(uid)
        gang.put(uid, member)
        if before is None or _counts_as(before) != _counts_as(member):
            self._waiting.something_changed()

    def _gang(self, key: GroupKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key, self._ledger)
        return gang

    def _tidy_away(self, gang: Gang) -> None:
        if not gang.members:
            gang.short_since = None
            gang.look = Look()
            if gang.said == UNSAID:
                self._gangs.pop(gang.key, None)


def _note_offer(gang: Gang, uid: str, nodes: tuple[str, ...]) -> None:
    member = gang.members[uid]
    if member.nodes is not nodes:
        gang.put(uid, replace(member, nodes=nodes))
        gang.look = Look()


def _counts_as(member: Member) -> tuple[bool, bool, bool]:
    """What of a member changes how many its group needs."""
    return member.gated, member.placed, member.finished is not None
