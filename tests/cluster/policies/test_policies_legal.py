"""What the policies leave alone.

The legal twin of what they refuse, everything about pods without slices, and what Kubernetes' own programs write.
"""

from typing import Any

import pytest

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.policies.attempts import (
    APPLY,
    JSON,
    MERGE,
    OPERATIONS,
    STRATEGIC,
    Attempt,
    annotated,
    pods,
)
from tests.cluster.policies.manifests import (
    LIBRARY,
    PLACEMENT,
    TEAM,
    binding,
    container,
    ephemeral,
    event,
    gpu_node,
    host_path,
    plain,
    plain_pod,
    pod,
)
from tests.cluster.policies.world import World

pytestmark = pytest.mark.cluster

PRIVILEGED = {"securityContext": {"privileged": True}}
CAPABLE = {"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE", "IPC_LOCK"]}}}
NODES = "/apis/aliquot.dev/v1alpha1/gpunodes"
VISIBLE = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def env(*variables: tuple[str, str]) -> list[Obj]:
    """An environment."""
    return [{"name": name, "value": value} for name, value in variables]


def preloading(value: str, **more: Any) -> Obj:
    """A pod whose LD_PRELOAD is this."""
    made = pod("good", **more)
    made["spec"]["containers"][0]["env"] = env(("LD_PRELOAD", value))
    return made


MIG = container(limits={"aliquot.dev/mig-1g.10gb": "1"})
NOTHING = container(limits={"aliquot.dev/gpu": "0"}, **PRIVILEGED)
NOTHING_OF_HAMI = container(limits={"nvidia.com/gpu": "0", "nvidia.com/gpumem": "100"}, **PRIVILEGED)
EVERYTHING = plain(env=[*VISIBLE, *env(("LD_AUDIT", "x"), ("LD_PRELOAD", "/mine.so"))], **PRIVILEGED)
PODS = {
    "as the webhook leaves it": pod("good"),
    "with a library of its own after the interceptor": preloading(f"{LIBRARY}:/mine.so"),
    "with the interceptor preloaded by a file": preloading(
        "/mine.so", annotations={"aliquot.dev/inject": "file"}
    ),
    "with a second container without a slice": pod(
        "good", container(), plain("helper", env=env(("LD_PRELOAD", "/x.so")))
    ),
    "with a slice in an init container": pod("good", plain(), initContainers=[container("first")]),
    "with all that is asked by annotation": pod(
        "good",
        annotations={
            "aliquot.dev/enforcement": "observe",
            "main.aliquot.dev/core-mode": "burst",
            "aliquot.dev/resize-gpu-mem": "4Gi",
        },
    ),
    "with harmless environment": pod(
        "good",
        container(
            env=env(
                ("NVIDIA_VISIBLE_DEVICES", "void"),
                ("NVIDIA_DRIVER_CAPABILITIES", "compute"),
                ("CUDA_VISIBLE_DEVICES", "0"),
                ("LD_LIBRARY_PATH", "/opt"),
                ("CUDA_CACHE_PATH", "/cache"),
            )
        ),
    ),
    "with harmless capabilities": pod("good", container(**CAPABLE)),
    "with a host path of the team's": pod("good", volumes=host_path("/data/sets")),
    "with a host path beside the kubelet's": pod("good", volumes=host_path("/var/lib/kubelet-backup")),
    "with a host path beside the devices'": pod("good", volumes=host_path("/devices")),
    "on the host's network": pod("good", hostNetwork=True),
    "in a namespace of users": pod("good", hostUsers=False),
    "with a MIG instance and the default scheduler": pod("good", MIG, schedulerName="default-scheduler"),
    "with no cards, privileged": plain_pod("good")
    | {"spec": pod("good", NOTHING, schedulerName="default-scheduler")["spec"]},
    "with no cards in HAMi's words, privileged": pod(
        "good", NOTHING_OF_HAMI, schedulerName="default-scheduler"
    ),
    "without slices and with everything": pod(
        "good",
        EVERYTHING,
        schedulerName="mine",
        nodeName="aliquot-trial-node-a",
        hostPID=True,
        hostIPC=True,
        volumes=host_path("/"),
        annotations={"cdi.k8s.io/mine": "nvidia.com/gpu=all"},
    ),
}


@pytest.mark.parametrize("made", PODS.values(), ids=PODS.keys())
def test_a_pod_is_made(world: World, made: Obj):
    """By a user with the ordinary rights, who hears of no policy."""
    attempt = Attempt("creates a pod", "", "", "alice", "POST", pods(), made)
    assert world.try_it(attempt)["metadata"]["name"] == "good"
    world.admin.delete("pods", "good", TEAM, grace=0)
    world.admin.wait_gone("pods", "good", namespace=TEAM)


def done(who: str, method: str, path: str, body: Any = None, media: str = JSON) -> Attempt:
    """A request that is nobody's harm."""
    query = {"fieldManager": "somebody", "force": "true"} if media == APPLY else {}
    return Attempt(
        f"{method} {path.removeprefix(f'/api/v1/namespaces/{TEAM}/')}",
        "",
        "",
        who,
        method,
        path,
        body,
        media,
        query,
    )


PLACED = annotated({PLACEMENT: "placed anew", "aliquot.dev/resize-status": "approved"})
LABELLED = {"metadata": {"labels": {"a": "b"}}}
RUNNING = {
    "status": {"phase": "Running", "podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}
}
UNSCHEDULABLE = {
    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
}
SHELL = {"spec": {"ephemeralContainers": [ephemeral()]}}
ROOT_SHELL = {"spec": {"ephemeralContainers": [ephemeral(env=VISIBLE, **PRIVILEGED)]}}
CPU = {
    "spec": {
        "containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]
    }
}
FINALIZER = [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/wait"]}]
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "running"}}
DONE = [
    done(
        "scheduler",
        "POST",
        pods("waiting", "binding"),
        binding("waiting", "aliquot-trial-node-a", **{PLACEMENT: "placed"}),
    ),
    done("scheduler", "PATCH", pods("running", "status"), PLACED, MERGE),
    done(
        "scheduler",
        "PATCH",
        pods("waiting", "status"),
        annotated({"aliquot.dev/retry": "now"}, "waiting"),
        MERGE,
    ),
    done(
        "scheduler",
        "PATCH",
        pods("waiting", "status"),
        annotated({"aliquot.dev/reclaim": "{}"}, "waiting"),
        MERGE,
    ),
    done("kube-scheduler", "POST", pods("waiting", "binding"), binding("waiting", "aliquot-trial-node-b")),
    done("kube-scheduler", "PATCH", pods("waiting", "status"), UNSCHEDULABLE, STRATEGIC),
    done("kubelet-a", "PATCH", pods("running", "status"), RUNNING, STRATEGIC),
    done("kubelet-a", "PATCH", pods("plain", "status"), RUNNING, STRATEGIC),
    done("kubelet-a", "DELETE", pods("running"), {"gracePeriodSeconds": 0}),
    done(
        "agent-a", "PATCH", f"{NODES}/aliquot-trial-node-a/status", {"status": {"slicesPerCard": 10}}, MERGE
    ),
    done("agent-a", "POST", f"/api/v1/namespaces/{TEAM}/events", event("aliquot-trial-node-a")),
    done("alice", "PATCH", pods("running"), LABELLED, MERGE),
    done("alice", "PATCH", pods("running"), annotated({"aliquot.dev/resize-gpu-mem": "6Gi"}), MERGE),
    done("alice", "PATCH", pods("running"), annotated({PLACEMENT: "placed", "note": "x"}), APPLY),
    done("alice", "PATCH", pods("running"), FINALIZER, OPERATIONS),
    done(
        "alice", "PATCH", pods("plain"), annotated({"cdi.k8s.io/mine": "nvidia.com/gpu=all"}, "plain"), MERGE
    ),
    done("alice", "DELETE", pods("running")),
    done("alice", "POST", pods("running", "eviction"), EVICTION),
    done("operator", "PATCH", pods("running", "ephemeralcontainers"), SHELL, STRATEGIC),
    done("operator", "PATCH", pods("plain", "ephemeralcontainers"), ROOT_SHELL, STRATEGIC),
    done("operator", "PATCH", pods("running", "resize"), CPU, STRATEGIC),
    done("operator", "PATCH", pods("plain", "resize"), CPU, STRATEGIC),
]


@pytest.mark.parametrize("attempt", DONE, ids=str)
def test_it_is_done(world: World, attempt: Attempt):
    """As a dry run: the API server admits it and writes nothing."""
    world.try_it(attempt, dry_run=True)


@pytest.mark.parametrize("part", ["ephemeralcontainers", "resize"])
def test_what_cannot_be_written_there_is_not(world: World, part: str):
    """The API server drops annotations that come so before any policy is asked; the placement stays what it was."""
    forged = annotated({PLACEMENT: "mine alone", "aliquot.dev/retry": "mine alone"})
    before = world.admin.get("pods", "running", TEAM)["metadata"]["annotations"]
    world.try_it(done("operator", "PATCH", pods("running", part), forged, MERGE))
    assert world.admin.get("pods", "running", TEAM)["metadata"]["annotations"] == before


def test_an_agent_makes_and_writes_its_own_node(world: World):
    """Where somebody has deleted the object, the agent makes it again, by server-side apply too."""
    world.admin.delete("gpunodes.aliquot.dev", "aliquot-trial-node-a", "")
    world.try_it(done("agent-a", "POST", NODES, gpu_node("aliquot-trial-node-a")))
    status = gpu_node("aliquot-trial-node-a", slicesPerCard=7)
    assert world.try_it(done("agent-a", "PATCH", f"{NODES}/aliquot-trial-node-a/status", status, APPLY))[
        "status"
    ] == {"slicesPerCard": 7}


def test_a_pod_from_before_the_policies_lives_on(world: World):
    """What would be refused today is not refused to those who run it: only what is new is looked at."""
    old = pod(
        "old",
        container(env=VISIBLE, **PRIVILEGED),
        hostPID=True,
        nodeName="aliquot-trial-node-a",
        annotations={"cdi.k8s.io/mine": "x=y"},
    )
    with world.without("aliquot-slices"), world.without("aliquot-cdi"):
        world.try_it(done("alice", "POST", pods(), old))
    world.try_it(done("kubelet-a", "PATCH", pods("old", "status"), RUNNING, STRATEGIC))
    world.try_it(done("alice", "PATCH", pods("old"), LABELLED, MERGE))
    world.try_it(done("operator", "PATCH", pods("old", "ephemeralcontainers"), SHELL, STRATEGIC))
    world.try_it(done("alice", "PATCH", pods("old"), annotated({"cdi.k8s.io/mine": None}, "old"), MERGE))
    world.try_it(done("kubelet-a", "DELETE", pods("old"), {"gracePeriodSeconds": 0}))
    world.admin.wait_gone("pods", "old", namespace=TEAM)
