"""Pods that wait because kube-scheduler gets an error from the extender, or on the way to it."""

from typing import Any

import pytest

from aliquot.doctor.facts import objects
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.finding import Finding, Result
from aliquot.kube.objects import Pod
from tests.unit.doctor.clusters import broken, healthy, named, pod, pods, read, worst

FAILURE, OK = Result.FAILURE, Result.OK
STRANGER = (
    'Post "https://127.0.0.1:9443/filter": tls: failed to verify certificate: x509: certificate signed by unknown '
    "authority"
)
UNTRUSTED = 'Post "https://127.0.0.1:9443/bind": remote error: tls: bad certificate'
UNREACHED = (
    "no answer from the leader at https://10.0.0.7:9443: Connection timeout to host https://10.0.0.7:9443/filter; "
    "try again"
)
FORGED = (
    "no answer from the leader at https://10.0.0.7:9443: Cannot connect to host 10.0.0.7:9443 ssl:True "
    "[SSLCertVerificationError: certificate verify failed]; try again"
)
RESTART = "kubectl --namespace aliquot-system rollout restart deployment/aliquot-scheduler"


def waiting(name: str, message: str, reason: str = "SchedulerError", **more: Any) -> Pod:
    """A pod with a slice and without a node, as kube-scheduler leaves it."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "4Gi"}
    status = {"phase": "Pending", "conditions": [condition]}
    return pod(name, "", **{"limits": limits, "status": status, **more})


def seen(*more: Pod, **changes: Any) -> Finding:
    """The worst that the check finds where these pods wait."""
    return worst(broken(pods=pods(*more), **changes), "extender-errors")


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (STRANGER, RESTART),
        (UNTRUSTED, RESTART),
        (UNREACHED, "NetworkPolicies let their pods connect to one another on port 9443"),
        (FORGED, "see `services` and `certificates`"),
        ('Post "https://127.0.0.1:9443/filter": EOF', "logs deployment/aliquot-scheduler"),
        ("failed filter with extender at URL https://127.0.0.1:9443/filter, code 401", "logs deployment/"),
        ("the extender is starting: it has not read pods; try again", "logs deployment/"),
        ("the scheduler does not lead, and no other replica is known to lead; try again", "logs deployment/"),
    ],
)
def test_an_error_of_the_extender(message: str, remedy: str):
    """It is quoted, with the pods that wait for it and what mends an error of its kind."""
    found = seen(waiting("a", message), waiting("b", message))
    assert (found.result, found.objects) == (FAILURE, ("default/a", "default/b"))
    assert found.seen.startswith("2 pods with slices")
    assert found.seen.endswith(message)
    assert remedy in found.remedy


def test_each_kind_of_error_is_told_by_itself():
    """Two faults need two remedies."""
    two = broken(pods=pods(waiting("a", STRANGER), waiting("b", UNREACHED)))
    assert worst(two, "extender-errors").objects == ("default/a",)
    assert worst(broken(pods=pods(waiting("b", UNREACHED))), "extender-errors").objects == ("default/b",)


def test_a_long_message_is_quoted_in_part():
    """The report stays readable."""
    found = seen(waiting("a", f"{STRANGER} {'word ' * 200}"))
    assert (STRANGER in found.seen, found.seen.endswith(" ..."), len(found.seen) < 400) == (True, True, True)


@pytest.mark.parametrize(
    "other",
    [
        waiting("short", "0/2 nodes are available: 2 short of memory on every card.", "Unschedulable"),
        waiting("quoting", STRANGER, "Unschedulable"),
        waiting("volume", "running PreBind plugin VolumeBinding: timed out waiting for the condition"),
        waiting("without-a-slice", STRANGER, limits={"cpu": "1"}),
    ],
    ids=lambda other: other.metadata.name,
)
def test_other_pods_that_wait(other: Pod):
    """For room, for a volume, or for another extender."""
    assert seen(other).result is OK


def test_a_kube_scheduler_of_the_admins_own_is_restarted_by_the_admin():
    """The chart's Deployment has none then."""
    document = named("Deployment", "aliquot-scheduler")
    for one in document["spec"]["template"]["spec"]["containers"]:
        one["command"], one["args"] = ["aliquot-extender"], []
    own = read(document, objects.Workload)
    workloads = {**healthy().workloads, "aliquot-scheduler": Fact.of(own)}
    found = seen(waiting("a", STRANGER), workloads=workloads)
    assert found.remedy.startswith("Restart the kube-scheduler that asks the extender")
