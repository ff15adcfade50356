"""Pods that come faster than they can be bound one after the other, on many nodes: nothing is promised twice."""

import json
from collections.abc import Iterator

import pytest

from tests.cluster.fleet import CARD_GIB, PLACEMENT, Fleet, asked_mib
from tests.integration.extenders import manifest
from tests.tools.debian import NotAvailableError

pytestmark = pytest.mark.cluster

NODES, PODS, PER_SECOND = 50, 200, 100


@pytest.fixture(scope="module", name="fleet")
def flooded() -> Iterator[Fleet]:
    """Fifty nodes, nine tenths full."""
    try:
        fleet = Fleet(NODES)
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    with fleet:
        fleet.flood(PODS, PER_SECOND)
        yield fleet


def test_nothing_is_promised_twice(fleet: Fleet):
    """All pods are bound, and each card and kubelet has what was promised of it."""
    assert sum(fleet.audit().values()) == PODS


def test_the_auditor_finds_a_card_that_was_promised_twice(fleet: Fleet):
    """Two pods with the forged placement of another that has half of its card."""
    kubectl = fleet.plane.kubectl
    half = CARD_GIB // 2
    pod = next(pod for pod in kubectl.list("pods", "default") if asked_mib(pod) == half << 10)
    for name in ("twin", "triplet"):
        made = kubectl.create(manifest(half, name, schedulerName="nobody"))
        placement = json.loads(pod["metadata"]["annotations"][PLACEMENT]) | {
            "podUID": made["metadata"]["uid"]
        }
        binding = {
            "metadata": {"name": name, "annotations": {PLACEMENT: json.dumps(placement)}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": pod["spec"]["nodeName"]},
        }
        kubectl.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding)
    with pytest.raises(AssertionError, match="of 16384 MiB is promised to"):
        fleet.audit()
