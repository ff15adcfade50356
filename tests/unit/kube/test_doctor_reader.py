"""What the doctor reads of a large cluster's pods."""

import asyncio

from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.cluster_reader import Reader
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from tests.unit.kube.conftest import KubeServer


def read(pods: int, most: int, strange: str = "") -> tuple[Cluster, list[tuple[str, str]]]:
    """The facts of a cluster of so many pods, of which each five hundredth has a placement, and the pages asked for."""

    async def scene() -> tuple[Cluster, list[tuple[str, str]]]:
        async with KubeServer() as kube, Api(Access(kube.url)) as api:
            for n in range(pods):
                kube.put(f"pod-{n:04}")
            for n in range(0, pods, 500):
                kube.pods[f"pod-{n:04}"]["metadata"]["annotations"] = {"aliquot.dev/placement": "{}"}
            if strange:
                kube.pods[strange]["metadata"]["labels"] = "none"
            return await Reader(api, "aliquot-system", most).read(), kube.pages

    return asyncio.run(scene())


def test_pods_come_in_pages_and_few_are_kept():
    """Memory grows with those that some check looks at."""
    cluster, pages = read(1203, most=200_000)
    assert pages == [("500", ""), ("500", "1204:pod-0499"), ("500", "1204:pod-0999")]
    assert [pod.metadata.name for pod in cluster.pods.get().found] == ["pod-0000", "pod-0500", "pod-1000"]
    assert cluster.pods.get().left_out == ""


def test_no_more_are_read_than_is_said():
    """And who reads the facts is told; exactly so many are all."""
    cluster, pages = read(1203, most=1000)
    assert len(pages) == 3
    assert "the first 1000 pods" in cluster.pods.get().left_out
    assert [pod.metadata.name for pod in cluster.pods.get().found] == ["pod-0000", "pod-0500"]
    assert read(1000, most=1000)[0].pods.get().left_out == ""


def test_a_pod_that_cannot_be_read_is_left_out_loudly():
    """The others are there."""
    cluster, _ = read(3, most=1000, strange="pod-0001")
    assert "an object without a name" in cluster.pods.get().left_out
