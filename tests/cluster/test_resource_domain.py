"""Another domain is chosen for the resources of a real cluster: what runs goes on, what comes uses the new names."""

import pytest

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import START_S
from tests.cluster.installation import Installation
from tests.cluster.test_journey import client, said
from tests.cluster.traffic import Steady

pytestmark = pytest.mark.cluster

DOMAIN = "gpu.example.com"


def choose(installed: Installation, domain: str) -> None:
    """Return once all of Aliquot uses this domain."""
    installed.release.upgrade("--set", f"resourceDomain={domain}")
    installed.release.domain = domain
    installed.await_services()


def logs(installed: Installation, name: str) -> str:
    """What a pod has printed; empty while its kubelet does not serve that yet."""
    try:
        return installed.kubectl.logs(name)
    except ApiError:
        return ""


def test_another_domain_is_chosen_while_a_pod_runs(installed: Installation):
    """A real kubelet has the resources of both; a kubelet that restarts fails no pod of either."""
    before = Steady(installed, "before")
    before.begin()
    choose(installed, DOMAIN)
    try:
        after = client("after")
        resources = after["spec"]["containers"][0]["resources"]
        resources["limits"] = {f"{DOMAIN}/gpu-mem": "2Gi", f"{DOMAIN}/gpu-core": "30"}
        installed.kubectl.apply(after)
        assert said(installed, "after", "ready").split("\n")[:3] == [
            "total 2048",
            "1024 CUDA_SUCCESS",
            "2048 CUDA_ERROR_OUT_OF_MEMORY",
        ]
        with pytest.raises(ApiError, match=f"here this resource is called {DOMAIN}/gpu-"):
            installed.kubectl.apply(client("old"))
        installed.restart_kubelet()
        installed.await_services()
        wait_for("the kubelet to serve logs again", lambda: logs(installed, "before"), START_S)
        before.check_time()
        before.check()
        assert installed.kubectl.get("pods", "after")["status"]["phase"] == "Running"
    finally:
        installed.kubectl.delete("pods", "after", grace=1)
        installed.kubectl.wait_gone("pods", "after")
        choose(installed, "aliquot.dev")
    before.check()
