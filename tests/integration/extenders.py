"""The extender as a process, and what it needs of a cluster: nodes with cards, and pods that wait."""

import itertools
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from aliquot.sandbox.cluster.cluster import FRUGAL, PocketCluster
from aliquot.sandbox.cluster.processes import Process, free_port, wait_for

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
GPU, MEM = "aliquot.dev/gpu", "aliquot.dev/gpu-mem"
MIB = 1 << 20


class Extender:
    """An extender process and a client that keeps its connection, as kube-scheduler does."""

    def __init__(self, cluster: PocketCluster, *flags: str, scheme: str = "http") -> None:
        self.cluster = cluster
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.pool = urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False)
        argv = [sys.executable, "-m", "aliquot.scheduler_ext", "--kubeconfig", str(cluster.kubeconfig)]
        self.process = Process(
            "extender",
            [*argv, "--port", str(self.port), *flags],
            cluster.root / f"extender-{self.port}.log",
            {**FRUGAL, "PYTHONPATH": str(ROOT)},
            self.listens,
        )

    def listens(self) -> bool:
        """Whether it takes connections."""
        try:
            return self.get("/healthz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def start(self) -> None:
        """Start it and wait until it knows the cluster."""
        self.process.start()
        wait_for("the extender to be ready", lambda: self.get("/readyz").status == 200)

    def get(self, path: str) -> urllib3.BaseHTTPResponse:
        """One GET."""
        return self.pool.request("GET", self.url + path, timeout=5)

    def post(self, path: str, body: bytes | Document) -> tuple[int, Document]:
        """One POST: status and answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        reply = self.pool.request("POST", self.url + path, body=content, headers=headers, timeout=10)
        return reply.status, json.loads(reply.data)

    def filter(self, pod: Document, *nodes: str) -> Document:
        """Ask where a pod may go."""
        status, answer = self.post("/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        assert status == 200
        return answer

    def bind(self, pod: Document, node: str) -> str:
        """Bind a pod; the error, empty on success."""
        status, answer = self.post("/bind", binding(pod, node))
        assert status == 200
        return str(answer["Error"])

    def send_bind(self, pod: Document, node: str) -> socket.socket:
        """Call bind over plain HTTP, and do not wait for the answer; the connection is the caller's to close."""
        body = json.dumps(binding(pod, node)).encode()
        call = socket.create_connection(("127.0.0.1", self.port))
        call.sendall(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return call

    def promised(self) -> dict[str, int]:
        """Card → MiB promised, as its metrics say; cards without any promise are left out."""
        return {card: mib for card, mib in self._cards("promised").items() if mib}

    def sample(self, start: str) -> float:
        """The sum of its metrics' samples whose lines start so."""
        lines = self.get("/metrics").data.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start))

    def places(self) -> float:
        """Pods in its ledger."""
        return self.sample("aliquot_scheduler_placements{")

    def looks(self) -> float:
        """How often it has looked whom to evict since it was started."""
        return self.sample("aliquot_scheduler_reclaim_rounds_total ")

    def known(self) -> dict[str, int]:
        """Card → MiB that may be promised."""
        return self._cards("usable")

    def _cards(self, what: str) -> dict[str, int]:
        start = f"aliquot_scheduler_card_memory_{what}_bytes{{"
        lines = [line for line in self.get("/metrics").data.decode().splitlines() if line.startswith(start)]
        return {
            line.split('card="')[1].split('"')[0]: int(float(line.rsplit(" ", 1)[1])) // MIB for line in lines
        }


def binding(pod: Document, node: str) -> Document:
    """A bind call."""
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


def add_node(cluster: PocketCluster, name: str, uuids: list[str], **card: Any) -> None:
    """A node with cards, as kubelet and agent publish it."""
    room = {GPU: str(10 * len(uuids)), "cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    patch_status(cluster, f"/api/v1/nodes/{name}", status)
    if uuids:
        gpu_node = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}}
        cluster.kubectl.apply(gpu_node)
        cards = [{"uuid": uuid, "index": n, "memoryMiB": 16384, **card} for n, uuid in enumerate(uuids)]
        publish(cluster, name, cards)


@contextmanager
def no_nodes(root: Path) -> Iterator[PocketCluster]:
    """An API server that knows GPUNodes."""
    with PocketCluster(root) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(ROOT / "deploy/crds/gpunodes.yaml")
        yield cluster


def add_two_nodes(cluster: PocketCluster) -> list[str]:
    """Nodes `n1` and `n2` with two cards of 16 GiB each (`n1-a`, …)."""
    names = ["n1", "n2"]
    for name in names:
        add_node(cluster, name, [f"{name}-a", f"{name}-b"])
    return names


@contextmanager
def two_nodes(root: Path) -> Iterator[PocketCluster]:
    """An API server and two nodes."""
    with no_nodes(root) as cluster:
        add_two_nodes(cluster)
        yield cluster


@contextmanager
def fresh_nodes(running: Extender) -> Iterator[list[str]]:
    """Two nodes for one test, known to an extender that runs; no node and no pod is left afterwards."""
    kubectl, names = running.cluster.kubectl, add_two_nodes(running.cluster)
    wait_for("the extender to know the cards", lambda: len(running.known()) == 2 * len(names))
    yield names
    for pod in kubectl.list("pods", "default"):
        kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    for kind in ("nodes", "gpunodes.aliquot.dev"):
        for node in kubectl.list(kind):
            kubectl.delete(kind, node["metadata"]["name"])
    wait_for("the extender to forget", lambda: not running.known() and not running.places())


def publish(cluster: PocketCluster, name: str, cards: list[Document]) -> None:
    """The agent writes its GPUNode's status."""
    path = f"/apis/aliquot.dev/v1alpha1/gpunodes/{name}"
    patch_status(cluster, path, {"slicesPerCard": 10, "cards": cards})


def patch_status(cluster: PocketCluster, path: str, status: Document) -> None:
    """Merge-patch a status subresource."""
    merge = "application/merge-patch+json"
    cluster.kubectl.request("PATCH", f"{path}/status", {"status": status}, media_type=merge)


NUMBER = itertools.count()


def create(
    cluster: PocketCluster, gib: int = 4, name: str = "", namespace: str = "default", **spec: Any
) -> Document:
    """A waiting pod with one slice, as stored."""
    return cluster.kubectl.create(manifest(gib, name, namespace, **spec))


def manifest(gib: int = 4, name: str = "", namespace: str = "default", **spec: Any) -> Document:
    """A pod with one slice, as the webhook leaves it."""
    limits = {GPU: "1", MEM: f"{gib}Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name or f"p{next(NUMBER)}", "namespace": namespace},
        "spec": {
            "schedulerName": "aliquot-scheduler",
            "containers": [
                {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
            ],
        }
        | spec,
    }
