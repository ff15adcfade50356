"""Pods with slices that wait because kube-scheduler gets an error, and no answer, from the extender."""

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from aliquot.doctor.facts.cluster import Cluster, holds
from aliquot.doctor.finding import Told, count, failure, some
from aliquot.kube.objects import Pod

SCHEDULER_ERROR: Final = "SchedulerError"
"""kube-scheduler's reason where it could not decide, other than `Unschedulable`."""
LONGEST_QUOTE: Final = 200


class Fault(Enum):
    """What keeps the extender's answer from kube-scheduler."""

    CERTIFICATE = auto()
    LEADER = auto()
    OTHER = auto()


_WORDS: Final = {
    Fault.CERTIFICATE: re.compile(r"^(Get|Post) \"https://.*\b(x509|tls): "),
    Fault.LEADER: re.compile(r"no answer from the leader at (?!.*certificate)"),
    Fault.OTHER: re.compile(
        r"^Post \"https?://[^\"]*/(filter|preempt|bind)\": |^failed (filter|preempt|bind) with extender at URL "
        r"|^the extender is starting: |the leader at |no other replica is known to lead"
        r"|the replica at .* does not lead any more|the call was forwarded by "
    ),
}
"""By which an error is known; the first that matches."""


def errors(cluster: Cluster) -> Iterator[Told]:
    """Pods whose condition PodScheduled is an error of the extender, or of the way to it, by its kind."""
    waiting = defaultdict[Fault, list[Pod]](list)
    for pod in cluster.pods.get().found:
        waits = not pod.spec.node_name and not pod.finished and holds(pod, cluster.names)
        if waits and (fault := _fault(_error(pod))):
            waiting[fault].append(pod)
    told = [_told(cluster, fault, waiting[fault]) for fault in Fault if fault in waiting]
    yield from cluster.pods.get().conclude(told, "no pod waits because of an error of the extender")


def _error(pod: Pod) -> str:
    """The error that kube-scheduler has written at a pod; empty where there is none."""
    found = (one for one in pod.status.conditions if (one.type, one.status) == ("PodScheduled", "False"))
    return next((one.message for one in found if one.reason == SCHEDULER_ERROR), "")


def _fault(message: str) -> Fault | None:
    """Of which kind an error is; None where it is not the extender's."""
    return next((fault for fault, words in _WORDS.items() if words.search(message)), None)


def _told(cluster: Cluster, fault: Fault, pods: list[Pod]) -> Told:
    names = sorted(pod.key for pod in pods)
    quote = textwrap.shorten(_error(pods[0]), LONGEST_QUOTE, placeholder=" ...")
    return failure(
        f"{count(len(pods), 'pod')} with slices, waiting because kube-scheduler gets an error from the extender: "
        f"{some(names)}. It says: {quote}",
        _remedy(cluster, fault),
        names,
    )


def _remedy(cluster: Cluster, fault: Fault) -> str:
    kubectl = f"kubectl --namespace {cluster.namespace}"
    scheduler = cluster.workload("aliquot-scheduler")
    if fault is Fault.CERTIFICATE:
        restart = f"{kubectl} rollout restart deployment/aliquot-scheduler"
        if scheduler and "kube-scheduler" not in scheduler.words:
            restart = "Restart the kube-scheduler that asks the extender"
        return f"{restart}: kube-scheduler reads the CA and its certificate once, when it starts."
    if fault is Fault.LEADER:
        return (
            "The replicas of aliquot-scheduler cannot reach each other: see that NetworkPolicies let their pods "
            f"connect to one another on port 9443 ({kubectl} get networkpolicies)."
        )
    return f"{kubectl} logs deployment/aliquot-scheduler --all-containers; see `services` and `certificates`."
