"""`aliquot nodes` against a cluster over HTTP: a table, a document, and what it says where there is nothing to show."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from tests.integration.identities import make_account, token_of

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
SUMMARY = {"cards": 2, "healthy": "1/2", "memory": "32Gi", "promised": "4Gi", "free": "12Gi"}
TABLE = """\
NODE     CARDS  HEALTHY  MEMORY  PROMISED  FREE  LARGEST FREE SLICE  MODEL
gpu-1    2      1/2      32Gi    4Gi       12Gi  8Gi                 NVIDIA H200
old      1      1/1      16Gi    -         -     -                   NVIDIA L4
2 nodes  3      2/3      48Gi    4Gi       12Gi  8Gi
"""


@pytest.fixture(scope="module", name="cluster")
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        cluster.start_apiserver()
        yield cluster


def publish(cluster: PocketCluster, name: str, status: dict[str, Any]) -> None:
    """What an agent does."""
    meta = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}}
    cluster.kubectl.apply(meta)
    path = f"/apis/aliquot.dev/v1alpha1/gpunodes/{name}/status"
    cluster.kubectl.request("PATCH", path, {"status": status}, media_type="application/merge-patch+json")


def card(uuid: str, model: str, health: str = "Healthy") -> dict[str, Any]:
    """A card of 16Gi."""
    return {"uuid": uuid, "memoryMiB": 16384, "model": model, "health": health}


def nodes(cluster: PocketCluster, *words: str, kubeconfig: Path | None = None) -> Any:
    """The command and how it ended."""
    argv = [
        sys.executable,
        "-m",
        "aliquot.cli",
        "nodes",
        "--kubeconfig",
        str(kubeconfig or cluster.kubeconfig),
    ]
    return subprocess.run([*argv, *words], capture_output=True, text=True, timeout=120, check=False)


def test_nodes(cluster: PocketCluster, tmp_path: Path):
    """No CRD, no node, nodes of a new and of an old agent, and a user who may not see them."""
    done = nodes(cluster)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert "the cluster has no GPUNodes: Aliquot is not installed there" in done.stderr
    cluster.kubectl.apply(ROOT / "deploy/crds/gpunodes.yaml")
    assert "no node shares its cards yet" in nodes(cluster).stdout
    summary = {**SUMMARY, "largestFreeSlice": "8Gi"}
    cards = [card("a", "NVIDIA H200"), card("b", "NVIDIA H200", "Unhealthy")]
    publish(cluster, "gpu-1", {"cards": cards, "summary": summary})
    publish(cluster, "old", {"cards": [card("c", "NVIDIA L4")]})
    assert nodes(cluster).stdout == TABLE
    told = json.loads(nodes(cluster, "--json").stdout)
    assert [one["freeBytes"] for one in told["nodes"]] == [12 * GIB, None]
    assert told["nodes"][0]["largestFreeSliceBytes"] == 8 * GIB
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token_of(cluster, make_account(cluster, "tenant"))}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    done = nodes(cluster, kubeconfig=tmp_path / "kubeconfig")
    assert (done.returncode, "you lack the right to list gpunodes.aliquot.dev" in done.stderr) == (125, True)
    assert "kubectl create clusterrole gpunodes-reader --verb=get,list,watch" in done.stderr
