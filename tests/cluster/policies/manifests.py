"""The objects of the tests: pods as Aliquot's webhook leaves them, and such as it would never leave."""

import copy
from typing import Any

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.helm import NAMESPACE
from tests.cluster.trial import PREFIX

TEAM, OPTED_OUT = f"{PREFIX}team", f"{PREFIX}opted-out"
SYSTEM = NAMESPACE
TRIAL = "aliquot.dev/trial"
"""Label and taint of the nodes of these tests: their pods go nowhere else, and no others come to them."""
LIBRARY = "/usr/local/aliquot/libaliquot.so"
PLACEMENT = "aliquot.dev/placement"
SLICE = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "8Gi", "aliquot.dev/gpu-core": "30"}
UID_OF_NODE_A = "the UID of aliquot-trial-node-a"
"""Stands for what the API server gives it."""
PRELOAD = {"name": "LD_PRELOAD", "value": LIBRARY}


def container(
    name: str = "main", limits: Obj | None = None, env: list[Obj] | None = None, **more: Any
) -> Obj:
    """A container with a slice, as the webhook leaves it."""
    asked = {"cpu": "500m", **(SLICE if limits is None else limits)}
    return {
        "name": name,
        "image": "registry.example/app",
        "env": [*(env or []), PRELOAD] if limits is None else env or [],
        "resources": {"limits": asked, "requests": asked},
        **more,
    }


def plain(name: str = "main", **more: Any) -> Obj:
    """A container that asks for nothing."""
    return container(name, {}, **more)


def pod(
    name: str, *containers: Obj, annotations: Obj | None = None, labels: Obj | None = None, **spec: Any
) -> Obj:
    """A pod; without containers it has one with a slice."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "containers": copy.deepcopy(list(containers)) or [container()],
            "schedulerName": "aliquot-scheduler",
            "nodeSelector": {TRIAL: "node"},
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            **spec,
        },
    }


def plain_pod(name: str, **more: Any) -> Obj:
    """A pod that asks for nothing."""
    return pod(name, plain(), **{"schedulerName": "default-scheduler", **more})


def host_path(path: str) -> list[Obj]:
    """Volumes with a directory of the node."""
    return [{"name": "host", "hostPath": {"path": path}}]


def ephemeral(name: str = "shell", **more: Any) -> Obj:
    """An ephemeral container."""
    return {"name": name, "image": "registry.example/shell", "terminationMessagePolicy": "File", **more}


def binding(name: str, node: str, **annotations: str) -> Obj:
    """A Binding of a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def gpu_node(name: str, **status: Any) -> Obj:
    """What an agent publishes."""
    body: Obj = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}}
    return {**body, "status": status} if status else body


def event(host: str, kind: str = "Pod", name: str = "running") -> Obj:
    """What an agent says about a pod."""
    about = {"apiVersion": "v1", "kind": kind, "name": name, "namespace": TEAM}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": TEAM},
        "involvedObject": about,
        "reason": "ResizeNotApplied",
        "message": "no room yet",
        "type": "Warning",
        "source": {"component": "aliquot-plugin", **({"host": host} if host else {})},
    }
