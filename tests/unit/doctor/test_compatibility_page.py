"""docs/compatibility.md says what the code, the chart and the test cluster say."""

import re
from pathlib import Path

import yaml

from aliquot.doctor.all_checks import CLUSTER_CHECKS, NODE_CHECKS
from aliquot.doctor.facts.versions import (
    CDI_CONTAINERD,
    NEWEST_CUDA,
    NEWEST_KUBERNETES,
    OLDEST_CONTAINERD,
    OLDEST_CRIO,
    OLDEST_DRIVER,
    OLDEST_KUBERNETES,
    SAFE_TOOLKIT,
    written,
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/compatibility.md").read_text()
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) > 3
}


def test_supported_versions_are_those_that_are_checked():
    """Each number stands in its row."""
    assert (
        ROWS["Kubernetes: API server"][0] == f"{written(OLDEST_KUBERNETES)} to {written(NEWEST_KUBERNETES)}"
    )
    assert ROWS["containerd"][0].startswith(f"≥ {written(CDI_CONTAINERD)}; {written(OLDEST_CONTAINERD)} with")
    assert ROWS["CRI-O"][0] == f"≥ {written(OLDEST_CRIO)}"
    cuda = f"{NEWEST_CUDA // 1000}.{NEWEST_CUDA % 1000 // 10}"
    assert ROWS["NVIDIA driver"][0] == f"≥ {written(OLDEST_DRIVER)} (CUDA 11.6), up to CUDA {cuda}"
    assert ROWS["NVIDIA Container Toolkit"][0].startswith(f"≥ {written(SAFE_TOOLKIT)},")
    chart = yaml.safe_load((ROOT / "deploy/charts/aliquot/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={written(OLDEST_KUBERNETES)}.0-0"


def test_what_is_said_to_run_is_what_the_test_cluster_is_made_of():
    """A new version there is a new one here."""
    modules = dict(re.findall(r"^\t(\S+) v(\S+)$", (ROOT / "tests/cluster/go.mod").read_text(), re.MULTILINE))
    run = {
        "Kubernetes: API server": ("k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"),
        "kubelet": ("k8s.io/kubernetes",),
        "kube-scheduler": ("k8s.io/kubernetes",),
        "containerd": ("github.com/containerd/containerd/v2",),
        "Helm": ("helm.sh/helm/v4",),
    }
    for row, names in run.items():
        assert all(modules[name] in ROWS[row][1] for name in names), row


def test_checks_that_are_named_exist():
    """In the last column of each table."""
    known = {check.name for check in (*CLUSTER_CHECKS, *NODE_CHECKS)}
    named = {name for cells in ROWS.values() for name in re.findall(r"`([a-z-]+)`", cells[-1])}
    assert named <= known
    assert {"neighbours", "bypasses", "processes", "registered", "driver", "runtimes"} <= named
