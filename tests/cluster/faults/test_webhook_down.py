"""While no webhook answers, the chart's configuration stops pods with slices on a real API server, and nobody else."""

from collections.abc import Iterator

import pytest

from sandbox.cluster.client import ApiError
from sandbox.cluster.objects import Obj
from sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program_or_skip
from tests.cluster.release import NAMESPACE, Release
from tests.cluster.test_install import pod, try_pod

pytestmark = pytest.mark.cluster

OURS = {"aliquot.dev/gpu-mem": "1Gi"}
HAMIS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot"


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """The chart with HAMi's words, and certificates; its webhook does not run yet."""
    for name in ("etcd", "kube-apiserver", "helm"):
        program_or_skip(name)
    with ControlPlane() as plane:
        plane.namespace("kube-system")
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


def calls(release: Release, port: int) -> bool:
    """Whether the API server calls a webhook at this port: one answers there, or its refusal names the port."""
    probe = asks("probe", **OURS)
    try:
        release.kubectl.request("POST", "/api/v1/namespaces/default/pods", probe, query={"dryRun": "All"})
    except ApiError as error:
        return f":{port}/" in str(error)
    return True


def lead_to(release: Release, port: int) -> None:
    """Have the Service lead to a port of this machine: no pod stands behind it.

    The API server goes on calling where it did until its watch has told it of the change.
    """
    here = {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}
    release.kubectl.patch("services", "aliquot-webhook", {"spec": here}, NAMESPACE)
    count = len(release.kubectl.request("GET", CONFIGURATION)["webhooks"])
    changes = [
        {"op": "replace", "path": f"/webhooks/{number}/clientConfig/service/port", "value": port}
        for number in range(count)
    ]
    release.kubectl.request("PATCH", CONFIGURATION, changes, media_type="application/json-patch+json")
    wait_for(f"the API server to call port {port}", lambda: calls(release, port))


@pytest.mark.parametrize("namespace", ["default", "kube-system", NAMESPACE])
def test_pods_without_slices_come_and_go(release: Release, namespace: str):
    """In every namespace, the system's and ours included."""
    release.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        }
    )
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
    lead_to(release, 1)
    with pytest.raises(ApiError, match=r'failed calling webhook ".*aliquot\.dev"'):
        release.kubectl.create(asks("waits", **limits))
    lead_to(release, release.start_webhook())
    try:
        stored = release.kubectl.create(asks("waits", **limits))
        assert stored["spec"]["schedulerName"] == "aliquot-scheduler"
    finally:
        release.kubectl.delete("pods", "waits", grace=0)
        release.plane.processes.pop("webhook").kill()
