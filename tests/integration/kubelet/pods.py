"""Pods of the kubelet's tests, and what is read off them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aliquot.sandbox.cluster.objects import dig
from tests.integration.kubelet.fake_plugin import RESOURCE

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.cluster import PocketCluster
    from aliquot.sandbox.cluster.kubectl import Kubectl

Obj = dict[str, Any]

FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"


def wait_allocatable(kubectl: Kubectl, number: str) -> None:
    """Until the node offers so many devices."""
    kubectl.wait_for("nodes", "n1", lambda n: dig(n, "status.allocatable").get(RESOURCE) == number)


def container(name: str, script: str = FOREVER, amount: int = 1, **more: Any) -> Obj:
    """A container that runs a shell script; with `amount` 0 it asks for no device."""
    limits = {RESOURCE: str(amount)} if amount else {}
    return {
        "name": name,
        "image": "lab.local/busybox:1",
        "command": ["sh", "-c", script],
        "resources": {"limits": limits},
        **more,
    }


def run(kubectl: Kubectl, name: str, *containers: Obj, bound: bool = True, **spec: Any) -> Obj:
    """Create a pod, on the node at once unless told otherwise."""
    spec = {"containers": list(containers) or [container("main")], "terminationGracePeriodSeconds": 1, **spec}
    metadata = {"name": name, "namespace": "default"}
    created = kubectl.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    if bound:
        bind(kubectl, created)
    return created


def bind(kubectl: Kubectl, pod: Obj) -> None:
    """Put a pod on the node."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    body = {"metadata": {"name": name, "uid": uid}, "target": {"name": "n1"}}
    kubectl.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)


def state(pod: Obj, name: str = "main") -> Obj:
    """The state of one container: {kind: details}."""
    statuses = (dig(pod, "status.containerStatuses") or []) + (dig(pod, "status.initContainerStatuses") or [])
    return next((s["state"] for s in statuses if s["name"] == name), {})


def restarts(pod: Obj) -> int:
    """How often the first container was restarted."""
    return (dig(pod, "status.containerStatuses") or [{"restartCount": 0}])[0]["restartCount"]


def pid_of(cluster: PocketCluster, pod: Obj, name: str = "main") -> int:
    """The process of a container's last attempt."""
    directory = cluster.node("n1").pods / pod["metadata"]["uid"] / name
    reports = sorted(directory.glob("*.pid"), key=lambda path: int(path.stem))
    return int(json.loads(reports[-1].read_text())["pid"])


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
