"""Replays a trace through a real extender process: pods in a pocket cluster's API server, filter and bind over HTTP.

Slower by far than calling the placing code, and no other figures: it shows that nothing is lost on the way.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import urllib3

from aliquot.api.names import CARD_MODEL_ANNOTATION, PLACEMENT_ANNOTATION, ResourceNames
from aliquot.request.placement_policy import Preference
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import free_port
from aliquot.scheduler_ext.replay.trace import TraceNode, TracePod

CRDS = Path(__file__).parents[1] / "demo" / "manifests" / "crds"
MERGE = "application/merge-patch+json"
NAMES = ResourceNames()


class ReplayError(Exception):
    """The extender did not do what kube-scheduler relies on; the message has its words."""


class OverHttp:
    """A pocket cluster with these nodes, and an extender; leaving the context ends both."""

    def __init__(self, nodes: dict[str, TraceNode], preference: Preference) -> None:
        self._nodes = nodes
        self._preference = preference
        self._root = Path(tempfile.mkdtemp(prefix="aliquot-replay-"))
        port = partial(free_port, self._root / "ports")
        self._cluster = PocketCluster(self._root / "c", port=port)
        self._url = f"http://127.0.0.1:{port()}"
        self._pool = urllib3.PoolManager(retries=False)

    def __enter__(self) -> Self:
        self._cluster.start_apiserver()
        for crd in sorted(CRDS.glob("*.yaml")):
            self._cluster.kubectl.apply(crd)
        for name, node in self._nodes.items():
            self._add(name, node)
        flags = ["--node-policy", str(self._preference.node), "--card-policy", str(self._preference.card)]
        argv = [
            sys.executable,
            "-P",
            "-m",
            "aliquot.scheduler_ext",
            "--kubeconfig",
            str(self._cluster.kubeconfig),
        ]
        port = self._url.rpartition(":")[2]
        self._cluster.start(
            "extender",
            [*argv, "--port", port, "--place-all-pods", "--learn-at-once", *flags],
            ready_url=f"{self._url}/readyz",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.down()
        shutil.rmtree(self._root, ignore_errors=True)

    def place(self, uid: str, pod: TracePod, names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """Create a pod, ask where it may go, and have it bound there."""
        created = self._cluster.kubectl.create(_manifest(uid, pod))
        found = self._post("/filter", {"Pod": created, "Nodes": None, "NodeNames": list(names)})
        chosen = found.get("NodeNames") or []
        if not chosen:
            return None
        if len(chosen) > 1:
            raise ReplayError(f"filter leaves {len(chosen)} nodes for pod {uid}")
        meta = created["metadata"]
        who = {"PodName": uid, "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        self._post("/bind", {**who, "Node": chosen[0]})
        return str(chosen[0]), self._cards_of(uid)

    def leave(self, uid: str) -> None:
        """A pod goes."""
        self._cluster.kubectl.delete("pods", uid, grace=0)

    def _cards_of(self, name: str) -> tuple[str, ...]:
        annotations = self._cluster.kubectl.get("pods", name)["metadata"].get("annotations") or {}
        placement = json.loads(annotations.get(PLACEMENT_ANNOTATION, '{"containers": []}'))
        return tuple(share["uuid"] for container in placement["containers"] for share in container["cards"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        # Without spaces, as Go writes it: names are counted and looked up in that text, and in no other.
        content, kind = json.dumps(body, separators=(",", ":")).encode(), {"Content-Type": "application/json"}
        reply = self._pool.request("POST", self._url + path, body=content, headers=kind, timeout=60)
        answer: dict[str, Any] = json.loads(reply.data)
        if reply.status != 200 or answer.get("Error"):  # noqa: PLR2004 - OK
            raise ReplayError(f"{path}: {answer.get('Error') or reply.status}")
        return answer

    def _add(self, name: str, node: TraceNode) -> None:
        """A node as its kubelet and its agent publish it."""
        kubectl, status = self._cluster.kubectl, node.status(name)
        room = {"cpu": f"{node.host.cpu_milli}m", "memory": f"{node.host.memory_mib}Mi", "pods": "10000"}
        room[NAMES.gpu] = str(status.slices_per_card * len(status.cards))
        kubectl.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        body = {"capacity": room, "allocatable": room}
        kubectl.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": body}, media_type=MERGE)
        kubectl.create({"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}})
        cards = [
            {"uuid": c.uuid, "index": c.index, "model": c.model, "memoryMiB": c.memory_mib}
            for c in status.cards
        ]
        published = {"slicesPerCard": status.slices_per_card, "cards": cards}
        path = f"/apis/aliquot.dev/v1alpha1/gpunodes/{name}/status"
        kubectl.request("PATCH", path, {"status": published}, media_type=MERGE)


def _manifest(name: str, pod: TracePod) -> dict[str, Any]:
    limits = {"cpu": f"{pod.host.cpu_milli}m", "memory": f"{pod.host.memory_mib}Mi"}
    if pod.cards:
        limits |= {NAMES.gpu: str(pod.cards), NAMES.memory: f"{pod.milli}Mi"}
    annotations = {CARD_MODEL_ANNOTATION: ",".join(sorted(pod.models))} if pod.models else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "schedulerName": "aliquot-scheduler",
            "containers": [
                {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
            ],
        },
    }
