"""Volcano's extender plugin against the extender as a process: bodies as its Go structs are encoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import ROOT, Extender, add_node, create

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = dict[str, Any]

PLACEMENT = "aliquot.dev/placement"
PENDING, ALLOCATED, PIPELINED = 1, 2, 4
AMOUNTS = {"MilliCPU": 1000, "Memory": 1 << 30, "ScalarResources": {"aliquot.dev/gpu": 1000}, "MaxTaskNum": 0}


def task(pod: Document, node: str = "", status: int = PENDING) -> Document:
    """A TaskInfo."""
    meta = pod["metadata"]
    return {
        "UID": meta["uid"],
        "Job": f"{meta['namespace']}/train",
        "Name": meta["name"],
        "Namespace": meta["namespace"],
        "TaskRole": "worker",
        "Resreq": AMOUNTS,
        "InitResreq": AMOUNTS,
        "NodeName": node,
        "EvictionOccurred": False,
        "JobAllocatedHyperNode": "",
        "Status": status,
        "LastTransaction": None,
        "Priority": 1,
        "VolumeReady": False,
        "Preemptable": True,
        "BestEffort": False,
        "HasRestartableInitContainer": False,
        "SchGated": False,
        "RevocableZone": "",
        "NumaInfo": None,
        "Pod": pod,
        "CustomBindErrHandlerSucceeded": False,
    }


def node(name: str, *tasks: Document) -> Document:
    """A NodeInfo."""
    return {
        "Name": name,
        "Node": {"metadata": {"name": name}, "spec": {}, "status": {}},
        "State": {"Phase": 1, "Reason": ""},
        "Releasing": AMOUNTS,
        "Idle": AMOUNTS,
        "Used": AMOUNTS,
        "Allocatable": AMOUNTS,
        "Tasks": {one["UID"]: one for one in tasks},
        "Others": {"GpuShare": {}},
    }


class Volcano:
    """What Volcano's scheduler does."""

    def __init__(self, cluster: PocketCluster, extender: Extender) -> None:
        self.cluster = cluster
        self.extender = extender

    def pod(self, gib: int = 4) -> Document:
        """A pod of Volcano's."""
        return create(self.cluster, gib, schedulerName="volcano")

    def call(self, verb: str, **body: Any) -> Document:
        """One call of the plugin."""
        status, answer = self.extender.post(f"/volcano/{verb}", body)
        assert status == 200
        return answer

    def fits(self, pod: Document, name: str) -> str:
        """Why a pod cannot go to a node; the new releases' word and the old ones'."""
        answer = self.call("predicate", task=task(pod), node=node(name, task(pod)))
        assert answer["errorMessage"] == answer["status"]
        assert (answer["code"] == 0) == (answer["status"] == "")
        return str(answer["status"])

    def allocate(self, pod: Document, name: str, status: int = ALLOCATED) -> str:
        """A task gets a node in Volcano's session; the error."""
        return str(self.call("allocateFunc", task=task(pod, name, status))["errorMessage"])

    def bind(self, pod: Document, name: str) -> None:
        """Volcano's own Binding, which knows of no placements."""
        meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        body = {"metadata": meta, "target": {"kind": "Node", "name": name}}
        self.cluster.kubectl.request(
            "POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", body
        )

    def cards(self, pod: Document) -> list[str]:
        """The cards in the stored pod's placement."""
        stored = self.cluster.kubectl.get("pods", pod["metadata"]["name"])
        text = stored["metadata"].get("annotations", {}).get(PLACEMENT)
        return [s["uuid"] for c in json.loads(text)["containers"] for s in c["cards"]] if text else []


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server, and two nodes of two cards."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(ROOT / "deploy/crds/gpunodes.yaml")
        for name in ("n1", "n2"):
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """One that answers Volcano."""
    extender = Extender(cluster, "--volcano")
    extender.start()
    wait_for("the extender to know the cards", lambda: len(extender.known()) == 4)
    yield extender
    extender.process.stop()


@pytest.fixture(name="volcano")
def clear(cluster: PocketCluster, running: Extender) -> Iterator[Volcano]:
    """No pods before, and none after."""
    yield Volcano(cluster, running)
    for pod in cluster.kubectl.list("pods", "default"):
        cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    wait_for("the extender to forget", lambda: not running.places())


def test_the_journey_of_a_pod(volcano: Volcano):
    """Asked for, scored, reserved, bound by Volcano, and its placement written after that."""
    pod = volcano.pod()
    assert [volcano.fits(pod, name) for name in ("n1", "n2")] == ["", ""]
    answer = volcano.call("prioritize", task=task(pod), nodes=[node("n1"), node("n2")])
    assert answer == {"nodeScore": {"n1": 100.0, "n2": 0.0}, "errorMessage": ""}
    assert volcano.allocate(pod, "n2") == ""
    assert volcano.extender.promised() == {"n2-a": 4096}
    assert volcano.cards(pod) == []
    volcano.bind(pod, "n2")
    wait_for("the placement", lambda: volcano.cards(pod) == ["n2-a"])
    assert volcano.extender.promised() == {"n2-a": 4096}
    assert volcano.fits(pod, "n2") == volcano.allocate(pod, "n2") == ""
    assert volcano.fits(pod, "n1") == volcano.allocate(pod, "n1") == "the pod is on its way to n2"


def test_what_is_allocated_counts_and_what_is_not_any_more_does_not(volcano: Volcano):
    """Between two tasks of a session, and when Volcano takes a statement back."""
    first, second, third = (volcano.pod(16) for _ in range(3))
    assert volcano.allocate(first, "n1") == volcano.allocate(second, "n1") == ""
    assert volcano.fits(third, "n1") == "short of memory on every card"
    assert "short of memory" in volcano.allocate(third, "n1")
    assert volcano.allocate(third, "n1", PIPELINED) == ""
    assert volcano.call("deallocateFunc", task=task(second, "n1")) == {"errorMessage": ""}
    assert volcano.fits(third, "n1") == ""
    assert volcano.allocate(third, "n1") == ""
    assert volcano.extender.places() == 2


def test_a_task_may_be_allocated_again_elsewhere(volcano: Volcano):
    """Its place moves; the node that it is reserved on always has room for it."""
    pod = volcano.pod(16)
    assert volcano.allocate(volcano.pod(16), "n1") == ""
    assert volcano.allocate(pod, "n1") == volcano.allocate(pod, "n1") == ""
    assert volcano.fits(pod, "n1") == ""
    assert volcano.allocate(pod, "n2") == ""
    assert len(volcano.extender.promised()) == 2
    assert "n2-a" in volcano.extender.promised()


def test_pods_that_want_nothing_of_ours_go_anywhere(volcano: Volcano):
    """As if nobody had been asked."""
    pod = volcano.pod()
    pod["spec"]["containers"][0]["resources"] = {}
    assert volcano.fits(pod, "nowhere") == ""
    assert volcano.allocate(pod, "nowhere") == ""
    assert volcano.call("prioritize", task=task(pod), nodes=[node("n1")])["nodeScore"] == {"n1": 0.0}


def test_a_restart_between_allocating_and_binding_loses_nothing(volcano: Volcano):
    """A fresh extender places the pod on the node where Volcano has bound it."""
    pod = volcano.pod()
    assert volcano.allocate(pod, "n2") == ""
    volcano.extender.process.kill()
    volcano.bind(pod, "n2")
    volcano.extender.start()
    wait_for("the placement", lambda: volcano.cards(pod) == ["n2-a"])
    wait_for("the ledger", lambda: volcano.extender.promised() == {"n2-a": 4096})


def test_nonsense_in_a_pod_is_told(volcano: Volcano):
    """With a sentence, and a code with which Volcano evicts nobody."""
    pod = volcano.pod()
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits["aliquot.dev/gpu-mem"] = pod["spec"]["containers"][0]["resources"]["requests"][
        "aliquot.dev/gpu-mem"
    ] = "1"
    answer = volcano.call("predicate", task=task(pod), node=node("n1"))
    assert answer["code"] == 3
    assert "container 'main'" in answer["status"]


BAD = {
    "empty": b"",
    "no task": b'{"node": {"Name": "n1"}}',
    "no UID": b'{"task": {"Pod": {"metadata": {"name": "x"}}}, "node": {"Name": "n1"}}',
    "cut short": b'{"task": {"Pod": {"met',
}


@pytest.mark.parametrize("verb", ["predicate", "prioritize", "allocateFunc", "deallocateFunc"])
@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_bad_bodies_change_nothing(volcano: Volcano, verb: str, body: bytes):
    """HTTP 400, which Volcano takes for an error."""
    status, answer = volcano.extender.post(f"/volcano/{verb}", body)
    assert status == 400
    assert answer["errorMessage"]
    assert not volcano.extender.places()


def test_nobody_answers_volcano_unasked(cluster: PocketCluster):
    """Without `--volcano` there is no such path."""
    extender = Extender(cluster)
    extender.start()
    try:
        url = extender.url + "/volcano/predicate"
        assert extender.pool.request("POST", url, body=b"{}").status == 404
    finally:
        extender.process.stop()


def test_the_examples(volcano: Volcano) -> None:
    """The configuration asks what is served, and a pod of the job gets its card by these calls."""
    examples = ROOT / "examples" / "volcano"
    tiers = yaml.safe_load((examples / "volcano-scheduler.conf").read_text())["tiers"]
    plugins = {plugin["name"]: plugin for tier in tiers for plugin in tier["plugins"]}
    arguments = plugins["extender"]["arguments"]
    template = yaml.safe_load((examples / "job.yaml").read_text())["spec"]["tasks"][0]["template"]
    spec = {**template["spec"], "schedulerName": "volcano"}
    metadata = {"name": "train-worker-0", "namespace": "default"}
    pod = volcano.cluster.kubectl.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    bodies = {
        "predicate": {"task": task(pod), "node": node("n1")},
        "prioritize": {"task": task(pod), "nodes": [node("n1"), node("n2")]},
        "deallocateFunc": {"task": task(pod, "n1", ALLOCATED)},
        "allocateFunc": {"task": task(pod, "n1", ALLOCATED)},
    }
    prefix = urlsplit(arguments["extender.urlPrefix"]).path
    for call, body in bodies.items():
        status, answer = volcano.extender.post(f"{prefix}/{arguments[f'extender.{call}Verb']}", body)
        assert (status, answer["errorMessage"]) == (200, "")
    volcano.bind(pod, "n1")
    wait_for("the placement to be written", lambda: volcano.cards(pod))
