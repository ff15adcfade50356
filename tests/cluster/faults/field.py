"""Nodes that are mere objects, an extender, a kube-scheduler, and a proxy between the two, on a real control plane."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import yaml

from aliquot.crds.gpu_node import HEALTHY, UNHEALTHY
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import ControlPlane
from tests.integration.extenders import Document, Extender, add_node, manifest, publish
from tests.integration.faults.living import promised_by
from tests.integration.journey.auditor import check_cards, check_promise, placement_of
from tests.integration.proxies import Proxy

ROOT = Path(__file__).parents[3]
SCHEDULER = "aliquot-scheduler"
NODES = {"n1": ["n1-a", "n1-b"], "n2": ["n2-a"]}
Nodes = Mapping[str, list[str]]
"""Each with the UUIDs of its cards."""
CARD_MIB = 16384
SOON_S = 60.0
CALL_S = 1.5
"""How long kube-scheduler waits for the extender."""


class Field:
    """What a test does with it."""

    def __init__(self, plane: ControlPlane, extender: Extender, proxy: Proxy, nodes: Nodes) -> None:
        self.plane = plane
        self.extender = extender
        self.proxy = proxy
        self.nodes = nodes

    @property
    def kubectl(self) -> Kubectl:
        """The admin's client."""
        return self.plane.kubectl

    @property
    def cluster(self) -> PocketCluster:
        """The same control plane, as what tests ask of any cluster."""
        return cast("PocketCluster", self.plane)

    def create(self, gib: int, name: str, node: str = "n1", priority: str = "", cpu: int = 0) -> Document:
        """A pod for one node, with as much memory of a card, and CPUs."""
        body = manifest(gib, name, nodeSelector={"kubernetes.io/hostname": node})
        if priority:
            body["spec"]["priorityClassName"] = priority
        if cpu:
            body["spec"]["containers"][0]["resources"]["limits"]["cpu"] = str(cpu)
            body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
        return self.kubectl.create(body)

    def pod(self, name: str) -> Document:
        """A pod as it is."""
        return self.kubectl.get("pods", name)

    def card_of(self, name: str) -> str:
        """The card of a pod's only container."""
        placement = placement_of(self.pod(name))
        assert placement
        return str(placement["containers"][0]["cards"][0]["uuid"])

    def is_leaving(self, name: str) -> bool:
        """Whether a pod is being deleted."""
        return bool(self.pod(name)["metadata"].get("deletionTimestamp"))

    def leaving(self, *names: str) -> set[str]:
        """Those of these pods that are being deleted."""
        return {name for name in names if self.is_leaving(name)}

    def add_priorities(self, **values: int) -> None:
        """Priorities have names on a real API server."""
        for name, value in values.items():
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            self.kubectl.apply({**kind, "metadata": {"name": name}, "value": value})
        self.plane.await_priorities(*values)

    def cards_fail(self, *sick: str) -> None:
        """These cards do not work any more, and all others do."""
        for node, uuids in self.nodes.items():
            cards = [
                {
                    "uuid": uuid,
                    "index": number,
                    "memoryMiB": CARD_MIB,
                    "health": UNHEALTHY if uuid in sick else HEALTHY,
                }
                for number, uuid in enumerate(uuids)
            ]
            publish(self.cluster, node, cards)

    def await_looks(self, more: float) -> None:
        """Return once the extender has looked so many times more whom to evict: about once a second."""
        enough = self.extender.looks() + more
        wait_for("the extender to look", lambda: self.extender.looks() > enough, SOON_S)

    def gone(self, name: str) -> None:
        """The kubelet has ended a pod, or nobody has begun it."""
        self.kubectl.delete("pods", name, grace=0)

    def said(self, name: str) -> str:
        """Why a pod waits: reason and message."""
        conditions = self.pod(name)["status"].get("conditions", ())
        return next(
            (f"{c.get('reason')}: {c.get('message')}" for c in conditions if c["type"] == "PodScheduled"), ""
        )

    def is_bound(self, name: str) -> bool:
        """Whether a pod has its node, and its cards with it."""
        pod = self.pod(name)
        return bool(pod["spec"].get("nodeName") and placement_of(pod))

    def await_bound(self, *names: str) -> None:
        """Return once all these pods have their places."""
        for name in names:
            wait_for(f"pod {name} to be bound", lambda n=name: self.is_bound(n), SOON_S)

    def await_call(self, path: str) -> None:
        """Return once kube-scheduler has called."""
        wait_for(f"a call of {path}", lambda: path in self.proxy.seen, SOON_S)

    def audit(self) -> None:
        """No card is promised twice, promises are what was asked for, and the extender comes to count just these."""
        pods = self.kubectl.list("pods", "default")
        sizes = dict.fromkeys((uuid for uuids in self.nodes.values() for uuid in uuids), CARD_MIB)
        check_cards(sizes, [placement for placement in map(placement_of, pods) if placement])
        for pod in pods:
            if placement_of(pod):
                check_promise(pod)
        wait_for("the extender to count what is bound", self._agrees, SOON_S)

    def _agrees(self) -> bool:
        return self.extender.promised() == promised_by(self.cluster)


@contextmanager
def field(plane: ControlPlane, directory: Path, *flags: str, nodes: Nodes = NODES) -> Iterator[Field]:
    """All of it, on a control plane that others use, too; `flags`: more of the extender's."""
    plane.define(*(ROOT / "deploy/crds").glob("*.yaml"))
    cluster = cast("PocketCluster", plane)
    for name, uuids in nodes.items():
        add_node(cluster, name, uuids)
        ready = {"spec": {"taints": None}, "metadata": {"labels": {"kubernetes.io/hostname": name}}}
        plane.kubectl.patch("nodes", name, ready, "")
    extender = Extender(cluster, "--reservation-seconds", "5", *flags)
    proxy = Proxy(extender.url, directory / "proxy")
    configuration = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
    entry = configuration["extenders"][0]
    entry |= {"urlPrefix": proxy.url, "enableHTTPS": True, "httpTimeout": f"{CALL_S}s"}
    entry["tlsConfig"] = {"caFile": str(proxy.tls.ca)}
    try:
        extender.start()
        wait_for(
            "the cards to be known", lambda: len(extender.known()) == sum(map(len, nodes.values())), SOON_S
        )
        plane.start_scheduler({**configuration, "podMaxBackoffSeconds": 2}, SCHEDULER)
        yield Field(plane, extender, proxy, nodes)
    finally:
        if SCHEDULER in plane.processes:
            plane.processes.pop(SCHEDULER).kill()
        proxy.close()
        extender.process.stop()
        for name in nodes:
            for resource in ("nodes", "gpunodes.aliquot.dev"):
                _forget(plane.kubectl, resource, name)


def _forget(kubectl: Kubectl, resource: str, name: str) -> None:
    try:
        kubectl.delete(resource, name, "")
    except ApiError as error:
        if error.status != 404:
            raise
