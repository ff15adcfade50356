"""Reservations that kube-scheduler has forgotten, because it did not get the answer or was started anew.

Nothing tells of that. It shows where kube-scheduler has CPU or memory of a node for a pod and the ledger has not, for
kube-scheduler counts what it is about to bind.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.state.ledger import Entry, Stage


def release_forgotten(
    decide: Filter, nominations: Nominations, request: PodRequest, given: Mapping[str, Sequence[str]]
) -> None:
    """Release the reservations for which a pod would lack room that kube-scheduler has for it.

    Those of groups stay, for kube-scheduler may not have asked for all members yet, and those of pods that others have
    left: it counts neither. A pod whose reservation is released and was not forgotten is placed anew by bind.

    Args:
        decide: Knows the groups and the ledger.
        nominations: For whom others have left.
        request: What the pod asks for.
        given: By node, the UIDs of the pods of which kube-scheduler says that there is room once they have left.
    """
    gangs, lacks = decide.gangs, decide.ledger.hosts.lacks
    places = defaultdict[str, list[Entry]](list)
    for entry in decide.ledger.unconfirmed():
        if entry.node in given and entry.stage in (Stage.HELD, Stage.RESERVED) and entry.uid != request.uid:
            places[entry.node].append(entry)
    for node, entries in places.items():
        reserved = [entry.uid for entry in entries if entry.stage is Stage.RESERVED]
        counted = {uid for uid in reserved if not (nominations.node_of(uid) or (gangs and gangs.of(uid)))}
        without = {request.uid, *given[node], *(entry.uid for entry in entries)}
        if lacks(node, request.host, without - counted) and not lacks(node, request.host, without):
            for uid in counted:
                decide.ledger.release(uid)
