"""Links from a GPUNode's status to the placement in the pod, through the real extender and the API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import GPU, Document, Extender, add_node, manifest, publish

ROOT = Path(__file__).parents[2]
CROSSED = ["", "SYS", "SYS NODE4", "NODE4 SYS SYS"]
"""Of four cards: the first and the last have NVLink between them, and the two in the middle."""


@pytest.fixture(name="cluster")
def run_cluster(tmp_path: Path) -> Iterator[PocketCluster]:
    """An API server that knows GPUNodes."""
    with PocketCluster(tmp_path) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(ROOT / "deploy/crds/gpunodes.yaml")
        yield cluster


def asking(cluster: PocketCluster, topology: str) -> Document:
    """A waiting pod of two whole cards, linked like this."""
    pod = manifest()
    pod["metadata"]["annotations"] = {"aliquot.dev/topology": topology}
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "2"}, "requests": {GPU: "2"}}
    return cluster.kubectl.create(pod)


def test_links_that_a_node_publishes_decide_and_are_followed(cluster: PocketCluster):
    """A pod gets cards with NVLink between them; when the links are gone, the next one waits and is told why."""
    links = [{"links": words} for words in CROSSED]
    cards = [{"uuid": f"g{n}", "index": n, "memoryMiB": 16384, **more} for n, more in enumerate(links)]
    extender = Extender(cluster)
    extender.start()
    try:
        add_node(cluster, "n1", ["g0"])
        publish(cluster, "n1", cards)
        wait_for("the extender to know the cards", lambda: len(extender.known()) == 4)
        first, second = asking(cluster, "nvlink"), asking(cluster, "nvlink")
        assert extender.filter(first, "n1") == {"NodeNames": ["n1"]}
        assert extender.bind(first, "n1") == ""
        bound = cluster.kubectl.get("pods", first["metadata"]["name"])
        placement = json.loads(bound["metadata"]["annotations"]["aliquot.dev/placement"])
        assert [share["uuid"] for share in placement["containers"][0]["cards"]] == ["g0", "g3"]
        publish(cluster, "n1", [{**card, "links": card["links"].replace("4", "")} for card in cards])

        def told() -> bool:
            answer = extender.filter(second, "n1")
            return answer.get("FailedAndUnresolvableNodes") == {"n1": "no cards linked as demanded"}

        wait_for("the extender to know that the links are gone", told)
    finally:
        extender.process.stop()
