"""What `kubectl get gpunodes` shows of free capacity."""

import subprocess

import pytest
from msgspec import to_builtins

from aliquot.crds.gpu_node import Card, GPUNodeStatus, Summary
from aliquot.sandbox.cluster.kubectl import Kubectl
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fleet import CRDS, GPU_NODES
from tests.cluster.programs import program_or_skip

pytestmark = pytest.mark.cluster

CARDS = tuple(Card(uuid=uuid, memory_mib=16384, model="NVIDIA H200") for uuid in ("GPU-a", "GPU-b"))
SUMMARY = Summary(
    cards=2, healthy="2/2", memory="32Gi", promised="6Gi", free="26Gi", largest_free_slice="16Gi"
)


def publish(kubectl: Kubectl, name: str, status: GPUNodeStatus) -> None:
    """What an agent does."""
    meta = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}}
    kubectl.apply(meta)
    path = f"{GPU_NODES}/{name}/status"
    body = {"status": to_builtins(status)}
    kubectl.request("PATCH", path, body, media_type="application/merge-patch+json")


def test_columns(control_plane: ControlPlane):
    """Cards, health, promised, free and the largest free slice; an older agent's node shows what it has."""
    control_plane.define(*CRDS.glob("*.yaml"))
    publish(control_plane.kubectl, "gpu-1", GPUNodeStatus(cards=CARDS, summary=SUMMARY))
    publish(control_plane.kubectl, "old", GPUNodeStatus(cards=CARDS[:1]))
    try:
        argv = [str(program_or_skip("kubectl")), "--kubeconfig", str(control_plane.kubeconfig)]
        shown = subprocess.run([*argv, "get", "gpunodes"], capture_output=True, text=True, check=True).stdout
    finally:
        for name in ("gpu-1", "old"):
            control_plane.kubectl.delete("gpunodes.aliquot.dev", name, "")
    headings, new, old = (line.split() for line in shown.splitlines())
    assert headings == [
        *("NAME", "MODEL", "CARDS", "HEALTHY", "MEMORY", "PROMISED", "FREE", "LARGEST-FREE-SLICE", "AGE")
    ]
    assert new[:-1] == ["gpu-1", "NVIDIA", "H200", "2", "2/2", "32Gi", "6Gi", "26Gi", "16Gi"]
    assert old[:-1] == ["old", "NVIDIA", "H200"]
