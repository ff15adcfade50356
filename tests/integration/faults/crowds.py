"""A pocket API server that begins with many bound pods: they are in its store before it starts."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.sandbox.cluster.cluster import PocketCluster
from tests.integration.extenders import MEM, Document, add_node, manifest
from tests.integration.faults.backups import store

CARDS = 8
MIB = 1536


@contextmanager
def crowd(root: Path, nodes: int, pods: int) -> Iterator[PocketCluster]:
    """So many nodes `n0` … of eight cards, and pods spread over them, ten at most on a card of 16 GiB."""
    with PocketCluster(root) as cluster:
        objects = [bound_pod(number, f"n{number % nodes}", number // nodes % CARDS) for number in range(pods)]
        store(cluster).mkdir(parents=True)
        state = {"version": pods + 1, "objects": {"pods": objects}}
        (store(cluster) / "snapshot.json").write_text(json.dumps(state))
        cluster.start_apiserver()
        cluster.kubectl.apply(*Path("deploy/crds").glob("*.yaml"))
        for number in range(nodes):
            add_node(cluster, f"n{number}", [card_of(f"n{number}", index) for index in range(CARDS)])
        yield cluster


def card_of(node: str, index: int) -> str:
    """The UUID of a node's card."""
    return f"{node}-card-{index}"


def bound_pod(number: int, node: str, card: int) -> Document:
    """A pod that runs, as the API server has stored it."""
    body = manifest(name=f"crowd-{number}")
    uid = str(uuid.UUID(int=number + 1))
    resources = body["spec"]["containers"][0]["resources"]
    resources["limits"][MEM] = resources["requests"][MEM] = f"{MIB}Mi"
    share = {"uuid": card_of(node, card), "memoryMiB": MIB, "cores": 0, "exclusive": False}
    container = {"name": "main", "kind": "regular", "cards": [share]}
    placement = {"version": 1, "podUID": uid, "node": node, "containers": [container]}
    body["metadata"] |= {
        "uid": uid,
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"aliquot.dev/placement": json.dumps(placement)},
    }
    body["spec"]["nodeName"] = node
    body["status"] = {"phase": "Running"}
    return body
