"""Groups of pods on the pocket cluster: its scheduler asks the extender over TLS, pod by pod."""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster, extender_entry
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.server.certs import write_pair
from tests.integration.extenders import GPU, MEM, ROOT, Extender, add_node, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = dict[str, Any]

LABEL = "scheduling.x-k8s.io/pod-group"
KIND = "podgroups.scheduling.x-k8s.io"
NUMBERS = itertools.count()
SOON_S = 60.0


def crd(group: str, version: str) -> Document:
    """A CustomResourceDefinition of PodGroups, as far as the pocket cluster reads it."""
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


class Field:
    """A cluster of two nodes with two cards each, a scheduler and an extender."""

    def __init__(self, cluster: PocketCluster, extender: Extender) -> None:
        self.cluster = cluster
        self.extender = extender

    def needs(self, group: str, members: int, **spec: Any) -> None:
        """Apply a PodGroup."""
        self.cluster.kubectl.apply(
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": group, "namespace": "default"},
                "spec": {"minMember": members, **spec},
            }
        )

    def create(self, group: str = "", gib: int = 16) -> str:
        """Create a pod; its name."""
        body = manifest(gib, f"{group or 'lone'}-{next(NUMBERS)}")
        if group:
            body["metadata"]["labels"] = {LABEL: group}
        self.cluster.kubectl.create(body)
        return str(body["metadata"]["name"])

    def bound(self) -> set[str]:
        """The names of the pods that have a node."""
        pods = self.cluster.kubectl.list("pods", "default")
        return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}

    def said(self, pod: str) -> str:
        """Why a pod waits."""
        conditions = self.cluster.kubectl.get("pods", pod)["status"].get("conditions") or []
        return str(next((c["message"] for c in conditions if c["type"] == "PodScheduled"), ""))

    def serve(self, name: str, size: int | None) -> bool:
        """Delete the pods of this name that are bound, of a group once all are; whether none is left."""
        there = self.cluster.kubectl.list("pods", "default")
        mine = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in there}
        mine = {pod: node for pod, node in mine.items() if pod.rpartition("-")[0] == name}
        bound = [pod for pod, node in mine.items() if node]
        if size is None or len(bound) == size:
            self.delete(*bound)
        return not mine

    def delete(self, *pods: str) -> None:
        """Delete pods."""
        for pod in pods:
            self.cluster.kubectl.delete("pods", pod, grace=0)


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server that knows GPUNodes and PodGroups, an extender with TLS, and a scheduler."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(ROOT / "deploy/crds/gpunodes.yaml")
        cluster.kubectl.apply(crd("scheduling.x-k8s.io", "v1alpha1"))
        yield cluster


@pytest.fixture(scope="module", name="started")
def start(cluster: PocketCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """All of it."""
    pair = write_pair(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])
    flags = ["--tls-cert", pair.cert, "--tls-key", pair.key, "--group-seconds", "2"]
    extender = Extender(cluster, *map(str, flags), scheme="https")
    extender.start()
    for name in ("n1", "n2"):
        add_node(cluster, name, [f"{name}-a", f"{name}-b"])
    wait_for("the extender to know the cards", lambda: len(extender.known()) == 4)
    entry = extender_entry(
        extender.url, {GPU: False, MEM: True}, enableHTTPS=True, tlsConfig={"caFile": str(pair.ca)}
    )
    cluster.start_scheduler([entry], "--backoff", "0.2", "--longest-backoff", "1")
    yield Field(cluster, extender)
    extender.process.stop()


@pytest.fixture(name="field")
def sweep(started: Field) -> Iterator[Field]:
    """No pods before, and none after."""
    yield started
    started.delete(*(p["metadata"]["name"] for p in started.cluster.kubectl.list("pods", "default")))
    wait_for("the extender to forget", lambda: not started.extender.places())


def test_a_group_starts_together(field: Field):
    """Nobody is bound while one is missing; all are once it comes."""
    field.needs("whole", 3)
    early = [field.create("whole") for _ in range(2)]
    wait_for("a reason", lambda: "2 of the 3 members that it needs exist" in field.said(early[0]), SOON_S)
    assert field.bound() == set()
    last = field.create("whole")
    wait_for("all to be bound", lambda: field.bound() == {*early, last}, SOON_S)


def test_a_group_without_room_leaves_it_to_others(field: Field):
    """Every member comes to say how many fit, whenever it was tried; the group starts when those have gone."""
    field.needs("large", 4)
    lone = field.create()
    wait_for("the lone pod", lambda: field.bound() == {lone}, SOON_S)
    members = [field.create("large") for _ in range(4)]
    text = "2 group default/large: 3 of the 4 members that it needs fit at once"
    wait_for("all to be told", lambda: all(text in field.said(member) for member in members), SOON_S)
    other = field.create(gib=8)
    wait_for("another pod", lambda: field.bound() == {lone, other}, SOON_S)
    field.delete(lone, other)
    wait_for("all to be bound", lambda: field.bound() == set(members), SOON_S)


def test_a_group_waits_for_its_object(field: Field):
    """A label says that there is a group, and not how large it is."""
    pod = field.create("later")
    wait_for("a reason", lambda: "no PodGroup and no annotation says" in field.said(pod), SOON_S)
    field.needs("later", 1)
    wait_for("the pod", lambda: field.bound() == {pod}, SOON_S)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [0, 3])
def test_groups_race(field: Field, kills: int):
    """Six groups and lone pods for four cards, and an extender that is killed: everybody has a turn, groups as one."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    sizes = {f"race{kills}-{n}": choose.randint(2, 4) for n in range(6)}
    for name, size in sizes.items():
        field.needs(name, size)
    jobs = [name for name, size in sizes.items() for _ in range(size)] + [""] * 4
    choose.shuffle(jobs)
    for name in jobs:
        field.create(name)
    left, deadline = {*sizes, "lone"}, time.monotonic() + 10 * SOON_S
    while left and time.monotonic() < deadline:
        if kills and choose.random() < 0.2:
            kills -= 1
            field.extender.process.kill()
            field.extender.start()
        for name in tuple(left):
            if field.serve(name, sizes.get(name)):
                left.remove(name)
    assert left == set()
