"""Kubernetes' own controllers beside the policies: they check the expressions, and make, end and clear away pods."""

import copy

import pytest

from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.objects import Obj
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.policies.attempts import STRATEGIC, pods
from tests.cluster.policies.catalogue import CANARIES
from tests.cluster.policies.manifests import PLACEMENT, TEAM, binding, container, pod
from tests.cluster.policies.world import World

pytestmark = pytest.mark.cluster

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
LABELS = {"app": "made"}


def workload(kind: str, template: Obj, group: str = "apps/v1", **spec: object) -> Obj:
    """An object whose controller makes pods."""
    template = copy.deepcopy({"metadata": {"labels": LABELS}, "spec": template["spec"]})
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "made", "namespace": TEAM},
        "spec": {"template": template, **spec},
    }


def made_by(admin: Kubectl, count: int) -> list[Obj]:
    """The pods of a workload, once there are so many."""
    return wait_for(f"{count} pods", lambda: len(found := made(admin)) == count and (found or [{}]), 60)


def made(admin: Kubectl) -> list[Obj]:
    """The pods of a workload now."""
    return admin.list("pods", TEAM, labelSelector="app=made")


@pytest.mark.parametrize("policy", CANARIES)
def test_its_expressions_are_of_the_right_types(controlled: World, policy: str):
    """The API server has checked them against the schemas of what they speak of, and warns of nothing."""

    def checked(stored: Obj) -> bool:
        return stored.get("status", {}).get("observedGeneration") == stored["metadata"]["generation"]

    stored = controlled.admin.wait_for(POLICIES, policy, checked, 60, "")
    assert stored["status"]["typeChecking"] == {}


SELECTED = {"selector": {"matchLabels": LABELS}}
WORKLOADS = {
    "Deployment": workload("Deployment", pod("x"), replicas=2, **SELECTED),
    "StatefulSet": workload(
        "StatefulSet", pod("x"), replicas=2, serviceName="x", podManagementPolicy="Parallel", **SELECTED
    ),
    "DaemonSet": workload("DaemonSet", pod("x"), **SELECTED),
    "Job": workload("Job", pod("x", restartPolicy="Never"), "batch/v1", parallelism=2, completions=2),
}


@pytest.mark.parametrize("manifest", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_a_workload_has_its_pods_made_and_cleared_away(controlled: World, manifest: Obj):
    """By its own controller, and when it is deleted by the garbage collector."""
    admin, plural = (
        controlled.admin,
        f"{manifest['kind'].lower()}s.{manifest['apiVersion'].partition('/')[0]}",
    )
    admin.create(manifest)
    assert all(
        one["spec"]["containers"][0]["resources"]["limits"]["aliquot.dev/gpu"] for one in made_by(admin, 2)
    )
    path = f"/apis/{manifest['apiVersion']}/namespaces/{TEAM}/{manifest['kind'].lower()}s/made"
    admin.request("DELETE", path, {"propagationPolicy": "Foreground"})
    admin.wait_gone(plural, "made", 60, TEAM)
    assert made(admin) == []


def test_a_job_runs_to_its_end(controlled: World):
    """Scheduled, run and finished: the job's finalizer is taken off a pod that carries a placement."""
    admin = controlled.admin
    admin.create(workload("Job", pod("x", restartPolicy="Never"), "batch/v1"))
    (one,) = made_by(admin, 1)
    name = one["metadata"]["name"]
    bound = binding(name, "aliquot-trial-node-a", **{PLACEMENT: "placed"})
    controlled.client("scheduler").request("POST", pods(name, "binding"), bound)
    finished = {"status": {"phase": "Succeeded"}}
    controlled.client("kubelet-a").request("PATCH", pods(name, "status"), finished, media_type=STRATEGIC)
    job = admin.wait_for("jobs.batch", "made", lambda job: job["status"].get("succeeded"), 60, TEAM)
    assert job["status"]["succeeded"] == 1
    ended = admin.wait_for("pods", name, lambda one: "finalizers" not in one["metadata"], 60, TEAM)
    assert ended["metadata"]["annotations"][PLACEMENT] == "placed"
    admin.request(
        "DELETE", f"/apis/batch/v1/namespaces/{TEAM}/jobs/made", {"propagationPolicy": "Background"}
    )
    made_by(admin, 0)


def test_a_workload_that_is_refused_says_why(controlled: World):
    """Whoever looks at it finds the policy's sentence in its events; nothing else of the team's waits for that."""
    admin = controlled.admin
    bad = pod("x", container(securityContext={"privileged": True}))
    admin.create(workload("Deployment", bad, replicas=1, **SELECTED))

    def told() -> list[str]:
        events = admin.list("events", TEAM, fieldSelector="reason=FailedCreate")
        return [event["message"] for event in events if "denied request" in event["message"]]

    (message, *_) = wait_for("an event", told, 60)
    assert "ValidatingAdmissionPolicy 'aliquot-slices'" in message
    assert (
        "container main is privileged, so it could use every card of the node; leave privileged out"
        in message
    )
    admin.delete("deployments.apps", "made", TEAM)
    admin.wait_gone("deployments.apps", "made", 60, TEAM)


def test_a_namespace_goes_with_all_that_is_in_it(controlled: World):
    """Pods with placements and finalizers included."""
    admin = controlled.admin
    controlled.plane.namespace("leaving")
    stays = pod("stays")
    stays["metadata"] |= {"namespace": "leaving", "finalizers": ["example.com/wait"]}
    admin.create(stays)
    path = "/api/v1/namespaces/leaving/pods/stays"
    controlled.client("scheduler").request(
        "POST", f"{path}/binding", binding("stays", "aliquot-trial-node-a", **{PLACEMENT: "placed"})
    )
    admin.delete("namespaces", "leaving", "")
    admin.wait_for("pods", "stays", lambda one: "deletionTimestamp" in one["metadata"], 60, "leaving")
    admin.patch("pods", "stays", {"metadata": {"finalizers": None}}, "leaving")
    admin.wait_gone("namespaces", "leaving", 180, "")
