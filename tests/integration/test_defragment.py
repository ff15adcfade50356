"""A plan of moves, asked for over HTTP and by the command; nothing comes of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, create, fresh_nodes, manifest, no_nodes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server that knows GPUNodes."""
    with no_nodes(tmp_path_factory.mktemp("d")) as cluster:
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """An extender that spreads pods over the cards: fragments everywhere."""
    extender = Extender(cluster, "--node-policy", "Spread", "--card-policy", "Spread")
    extender.start()
    yield extender
    extender.process.stop()


@pytest.fixture(name="extender")
def see_nodes(running: Extender) -> Iterator[Extender]:
    """The extender, and two nodes with two cards of 16 GiB each."""
    with fresh_nodes(running):
        yield running


def bind(cluster: PocketCluster, extender: Extender, gib: int) -> Document:
    """A pod that has got its place."""
    pod = create(cluster, gib)
    (node,) = extender.filter(pod, "n1", "n2")["NodeNames"]
    assert extender.bind(pod, node) == ""
    return pod


def aliquot_defragment(
    cluster: PocketCluster, extender: Extender, *words: str
) -> subprocess.CompletedProcess[str]:
    """What a user types."""
    argv = [sys.executable, "-m", "aliquot.cli", "defragment", "--extender", extender.url, *words]
    whole = [*argv, "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=60)


def plan(extender: Extender, query: str) -> Document:
    """What the route answers."""
    return json.loads(extender.get(f"/defragment?{query}").data)


def test_a_plan_makes_room_once_it_is_carried_out_and_not_before(
    cluster: PocketCluster, extender: Extender
) -> None:
    """Every card has a hole of 8 GiB; a pod for 12 has room when one of its neighbours has moved to another hole."""
    pods = {
        pod["metadata"]["uid"]: pod["metadata"]["name"]
        for pod in (bind(cluster, extender, 8) for _ in range(4))
    }
    before = extender.promised()
    assert sorted(before.values()) == [8192] * 4
    told = plan(extender, "gpu-mem=12Gi")
    assert told["room"] == "moves"
    (move,) = told["moves"]
    assert {move["fromNode"], move["toNode"]} == {"n1", "n2"}
    assert "pod" not in move or not move["pod"], "names are for those who may list pods"
    said = aliquot_defragment(cluster, extender, "--mem", "12Gi")
    assert said.returncode == 0, said.stderr
    assert f"default/{pods[move['uid']]} (8Gi) to node {move['toNode']}" in said.stdout
    assert extender.promised() == before
    waiting = create(cluster, 12)
    assert extender.filter(waiting, "n1", "n2")["NodeNames"] == []
    cluster.kubectl.delete("pods", pods[move["uid"]], grace=0)
    again = create(cluster, 8)
    assert move["toNode"] in plan(extender, "gpu-mem=8Gi")["nodes"]
    wait = extender.filter(again, move["toNode"])
    assert wait["NodeNames"] == [move["toNode"]]
    wait_for("room", lambda: extender.filter(waiting, "n1", "n2")["NodeNames"] == [move["fromNode"]])


def full_but_for_holes(cluster: PocketCluster, extender: Extender, **spec: Any) -> None:
    """Two nodes, on each card of which a pod leaves a hole of 8 GiB."""
    for node in ("n1", "n1", "n2", "n2"):
        assert extender.bind(create(cluster, 8, **spec), node) == ""


def moving(extender: Extender) -> list[tuple[str, str]]:
    """From where to where pods move, to make room for one of 12 GiB."""
    return [(move["fromNode"], move["toNode"]) for move in plan(extender, "gpu-mem=12Gi").get("moves", ())]


def test_nobody_moves_to_a_node_that_would_not_have_it(cluster: PocketCluster, extender: Extender) -> None:
    """One is cordoned, so pods go to the other alone; then neither is to be had."""
    full_but_for_holes(cluster, extender)
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}, "spec": {"unschedulable": True}}
    )
    assert moving(extender) == [("n2", "n1")]
    taints = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": taints}}
    )
    assert moving(extender) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"kubernetes.io/hostname": "elsewhere"}},
        {
            "affinity": {
                "podAntiAffinity": {
                    REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]
                }
            }
        },
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
    ],
    ids=["selector", "anti-affinity", "spread"],
)
def test_nobody_moves_who_says_where_to_be(
    cluster: PocketCluster, extender: Extender, spec: Document
) -> None:
    """Its node selector is for no other node, its neighbours would be there too, or nobody can tell."""
    full_but_for_holes(cluster, extender, **spec)
    assert moving(extender) == []


def test_nobody_moves_whom_a_budget_keeps(cluster: PocketCluster, extender: Extender) -> None:
    """Nobody of those that it counts may be evicted now."""
    full_but_for_holes(cluster, extender)
    assert moving(extender)
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {}}}
    cluster.kubectl.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"} | budget)
    wait_for("the budget to be known", lambda: not moving(extender))
    cluster.kubectl.delete("poddisruptionbudgets.policy", "b")
    wait_for("the budget to be forgotten", lambda: moving(extender))


@pytest.mark.parametrize(
    ("cpu", "ask", "moved"), [("3", "1", 0), ("2500m", "1", 1), ("2500m", "2", 0), ("2", "2", 2)]
)
def test_nobody_moves_to_a_node_without_cpu_for_all(
    cluster: PocketCluster, extender: Extender, cpu: str, ask: str, moved: int
) -> None:
    """Cards are not all that they need: of 8 cores two pods have theirs already, and one or two more are to come."""
    containers = manifest(8)["spec"]["containers"]
    containers[0]["resources"]["requests"] |= {"cpu": cpu}
    full_but_for_holes(cluster, extender, containers=containers)
    assert len(plan(extender, f"gpu={ask}&gpu-mem=12Gi").get("moves", ())) == moved


def test_room_as_it_is_and_none_at_all(cluster: PocketCluster, extender: Extender) -> None:
    """Nobody has to move, or nobody could."""
    bind(cluster, extender, 8)
    assert plan(extender, "gpu-mem=12Gi")["room"] == "free"
    assert plan(extender, "gpu-mem=17Gi")["room"] == "none"
    said = aliquot_defragment(cluster, extender, "--mem", "17Gi", "--json")
    assert said.returncode == 1
    assert json.loads(said.stdout)["room"] == "none"


def test_the_command_asks_for_something(cluster: PocketCluster, extender: Extender) -> None:
    """It names its own options, and needs no extender to do so."""
    said = aliquot_defragment(cluster, extender)
    assert (said.returncode, "give at least one of --gpu, --mem and --core" in said.stderr) == (2, True)


def test_what_the_extender_refuses_is_told_in_its_words(cluster: PocketCluster, extender: Extender) -> None:
    """It does answer."""
    meta = {"name": "extender", "namespace": "default"}
    port = {"name": "https", "port": 9443}
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [port]}}
    )
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{**port, "port": extender.port}]}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": [subset]})
    argv = [sys.executable, "-m", "aliquot.cli", "defragment", "--kubeconfig", str(cluster.kubeconfig)]
    argv += ["--service", "default/http:extender:9443", "--mem", "much"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 125
    assert said.stderr.startswith("Error: the extender answers: ")
    assert "does not answer" not in said.stderr


@pytest.mark.parametrize("query", ["", "gpu-mem=much", "namespace=a"])
def test_a_request_that_is_none(extender: Extender, query: str) -> None:
    """HTTP 400 and a sentence."""
    reply = extender.get(f"/defragment?{query}")
    assert reply.status == 400
    assert json.loads(reply.data)["error"]
