"""While no webhook answers, the chart's configuration stops pods with slices on a real API server, and nobody else."""

from collections.abc import Iterator

import pytest

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program_or_skip
from tests.cluster.release import NAMESPACE, Release
from tests.cluster.test_install import pod, try_pod

pytestmark = pytest.mark.cluster

OURS = {"aliquot.dev/gpu-mem": "1Gi"}
HAMIS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """The chart with HAMi's words, and certificates; its webhook does not run yet."""
    for name in ("etcd", "kube-apiserver", "helm"):
        program_or_skip(name)
    with ControlPlane() as plane:
        for namespace in ("default", "kube-system", NAMESPACE):
            plane.namespace(namespace)
        release = Release(plane)
        release.install("--set", "dialects={hami}")
        release.keep_certificates()
        yield release


def asks(name: str, **limits: str) -> Obj:
    """A pod as people write it."""
    one = pod(name)
    one["metadata"] = {"name": name}
    one["spec"] = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
    return one


@pytest.mark.parametrize("namespace", ["default", "kube-system", NAMESPACE])
def test_pods_without_slices_come_and_go(release: Release, namespace: str):
    """In every namespace, the system's and ours included."""
    plain = asks("plain", cpu="1")
    plain["metadata"]["namespace"] = namespace
    release.kubectl.create(plain)
    release.kubectl.patch("pods", "plain", {"metadata": {"labels": {"a": "b"}}}, namespace)
    release.kubectl.delete("pods", "plain", namespace, grace=0)


def test_all_of_aliquots_own_pods_can_start(release: Release):
    """The webhook's first, else nobody could ever bring it back."""
    workloads = [each for each in release.objects() if each["kind"] in {"Deployment", "DaemonSet"}]
    assert "aliquot-webhook" in {each["metadata"]["name"] for each in workloads}
    for each in workloads:
        try_pod(release, each, NAMESPACE)


@pytest.mark.parametrize("limits", [OURS, HAMIS], ids=["ours", "HAMi's"])
def test_pods_with_slices_are_refused_until_it_is_back(release: Release, limits: dict[str, str]):
    """In words that name the webhook, and made as they should be as soon as it answers."""
    release.lead_webhook_to(1)
    with pytest.raises(ApiError, match=r'failed calling webhook ".*aliquot\.dev"'):
        release.kubectl.create(asks("waits", **limits))
    release.lead_webhook_to(release.start_webhook())
    try:
        stored = release.kubectl.create(asks("waits", **limits))
        assert stored["spec"]["schedulerName"] == "aliquot-scheduler"
    finally:
        release.kubectl.delete("pods", "waits", grace=0)
        release.plane.processes.pop("webhook").kill()
