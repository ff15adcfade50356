"""What other tests rely on: who callers are, that rights are asked for, and that nothing is left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program_or_skip
from tests.integration.test_cluster_apiserver import UNSERVED

pytestmark = pytest.mark.cluster

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    """A node that is a mere object."""
    control_plane.kubectl.create(NODE)
    yield "n1"
    control_plane.kubectl.delete("nodes", "n1")


def whoami(kubeconfig: Path) -> dict[str, object]:
    """Who the API server takes the caller for."""
    user: dict[str, object] = Kubectl(kubeconfig).create(REVIEW)["status"]["userInfo"]
    return user


def test_a_certificate_says_user_and_groups(control_plane: ControlPlane):
    """Who calls so is nobody else."""
    user = whoami(control_plane.user("ann", "developers", "night shift"))
    assert user["username"] == "ann"
    assert user["groups"] == ["developers", "night shift", "system:authenticated"]


def test_without_rights_nothing_is_told(control_plane: ControlPlane):
    """RBAC decides, and system:masters may all."""
    with pytest.raises(ApiError, match='User "bob" cannot list resource "secrets"') as caught:
        Kubectl(control_plane.user("bob")).list("secrets", "kube-system")
    assert caught.value.status == 403
    assert control_plane.kubectl.list("secrets", "kube-system") == []


def test_a_pods_token_names_its_node(control_plane: ControlPlane, node: str):
    """Admission policies tell a node's own agent from another's by this claim."""
    control_plane.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "agent"},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "agent"}]},
        }
    )
    bound = whoami(control_plane.service_account("default", "default", pod="agent"))
    assert bound["username"] == "system:serviceaccount:default:default"
    extra = bound["extra"]
    assert isinstance(extra, dict)
    assert extra["authentication.kubernetes.io/node-name"] == [node]
    assert extra["authentication.kubernetes.io/pod-name"] == ["agent"]
    control_plane.kubectl.delete("pods", "agent", grace=0)


def test_a_node_may_not_write_another(control_plane: ControlPlane, node: str):
    """The Node authorizer and NodeRestriction are at work."""
    other = Kubectl(control_plane.user("system:node:n2", "system:nodes"))
    with pytest.raises(ApiError, match='"n2" is not allowed to modify node "n1"') as caught:
        other.patch("nodes", node, {"metadata": {"labels": {"a": "b"}}}, namespace="")
    assert caught.value.status == 403


def test_applying_twice_changes_what_is_there(control_plane: ControlPlane):
    """The client that tests use speaks to a real API server as to the pocket cluster's."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    for value in ("1", "2"):
        control_plane.kubectl.apply({**settings, "data": {"a": value}})
    assert control_plane.kubectl.get("configmaps", "settings")["data"] == {"a": "2"}
    control_plane.kubectl.delete("configmaps", "settings")


@pytest.mark.parametrize(("path", "said"), UNSERVED)
def test_a_path_that_is_not_served(control_plane: ControlPlane, path: str, said: str):
    """A definition is applied a moment before its group is served; the pocket cluster answers in the same words."""
    with pytest.raises(ApiError) as caught:
        control_plane.kubectl.request("GET", path)
    assert (caught.value.status, str(caught.value)) == (404, said)


def test_apply_without_a_manager_is_refused(control_plane: ControlPlane):
    """In the words that the pocket cluster has of it."""
    path = "/api/v1/namespaces/default/configmaps/nobody"
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody"}}
    with pytest.raises(ApiError, match="fieldManager: Required value: is required for apply patch") as caught:
        control_plane.kubectl.request("PATCH", path, settings, media_type="application/apply-patch+yaml")
    assert caught.value.status == 422


OWNER = """
import os, sys, time
from tests.cluster.control_plane import ControlPlane
with ControlPlane() as plane:
    print(*[process.pid for process in plane.processes.values()], plane.root, flush=True)
    time.sleep(600)
"""


def test_nothing_outlives_a_killed_test_run():
    """Who is killed with SIGKILL cannot clean up; the kernel ends the processes."""
    for name in ("etcd", "kube-apiserver"):
        program_or_skip(name)
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], env=environ, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        *pids, root = run.stdout.readline().split()
        assert len(pids) == 2
        run.send_signal(signal.SIGKILL)
    wait_for("its processes to end", lambda: not any(_lives(pid) for pid in pids))
    subprocess.run(["rm", "-r", root], check=True)


def _lives(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
