"""What other projects leave on a node and in a cluster, so that one can move away from them where they do not run.

HAMi's and NVIDIA's device plugins are not here. Their labels, annotations and counts are, as they write them.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.cluster.installation import Installation
from tests.cluster.node import NAME

GPU = "nvidia.com/gpu"
TEAM = "team-a"
CARD = (
    '{"id": "GPU-0", "index": 0, "count": 10, "devmem": 16384, "devcore": 100, '
    '"type": "NVIDIA H200", "numa": 0, "mode": "hami-core", "health": true}'
)
HAMI = {
    "labels": {"gpu": "on"},
    "annotations": {
        "hami.io/node-nvidia-register": f"[{CARD}]",
        "hami.io/node-handshake": "Reported 2026-11-23 08:00:00",
    },
}
NVIDIA = {
    "labels": {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.memory": "16384",
    }
}


@contextlib.contextmanager
def hami(cleared: Installation) -> Iterator[None]:
    """A node that HAMi serves, and a namespace with a pod that its scheduler has placed there."""
    with _written(cleared, HAMI):
        _count(cleared, "20")
        cleared.plane.namespace(TEAM)
        cleared.kubectl.create(_placed_by_hami())
        yield


@contextlib.contextmanager
def nvidia(cleared: Installation) -> Iterator[None]:
    """A node that NVIDIA's device plugin serves, with the labels of GPU Feature Discovery."""
    with _written(cleared, NVIDIA):
        _count(cleared, "2")
        yield


def leave_node(cleared: Installation) -> None:
    """What a kubelet does when a device plugin has gone."""
    _count(cleared, "0")


@contextlib.contextmanager
def _written(cleared: Installation, metadata: dict[str, dict[str, str]]) -> Iterator[None]:
    """Labels and annotations of the node; afterwards they are gone, and the namespace and the count, too."""
    cleared.kubectl.patch("nodes", NAME, {"metadata": metadata}, namespace="")
    try:
        yield
    finally:
        removed = {kind: dict.fromkeys(values) for kind, values in metadata.items()}
        cleared.kubectl.patch("nodes", NAME, {"metadata": removed}, namespace="")
        cleared.run_kubectl("uncordon", NAME)
        cleared.run_kubectl("delete", "namespace", TEAM, "--ignore-not-found")
        _count(cleared, None)


def _count(cleared: Installation, count: str | None) -> None:
    """Have the node say how many there are; None: that it knows of none."""
    said = {"capacity": {GPU: count}, "allocatable": {GPU: count}}
    path = f"/api/v1/nodes/{NAME}/status"
    cleared.kubectl.request("PATCH", path, {"status": said}, media_type="application/merge-patch+json")


def _placed_by_hami() -> dict[str, Any]:
    """A pod as HAMi's scheduler leaves it."""
    main = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}},
    }
    given = "GPU-0,NVIDIA,3000,0:;"
    metadata = {
        "name": "trainer",
        "namespace": TEAM,
        "labels": {"hami.io/vgpu-node": NAME},
        "annotations": {"hami.io/vgpu-node": NAME, "hami.io/vgpu-devices-allocated": given},
    }
    spec = {"nodeName": NAME, "terminationGracePeriodSeconds": 1, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
