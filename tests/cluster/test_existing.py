"""What is asked of any cluster, one that somebody has (ALIQUOT_TEST_KUBECONFIG) or else one made for it."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aliquot.sandbox.cluster.client import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.existing import VARIABLE, Existing, Json, KubeconfigError, given, written_out
from tests.cluster.helm import rendered
from tests.cluster.programs import program_or_skip
from tests.cluster.trial import WORD

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture
def existing(request: pytest.FixtureRequest) -> Iterator[Existing]:
    """The cluster that is named, else the control plane that other tests share."""
    kubeconfig = given() or request.getfixturevalue("control_plane").kubeconfig
    with Existing(kubeconfig) as cluster:
        yield cluster


def test_it_would_take_the_chart(existing: Existing):
    """Every object of it, as a dry run: nothing is installed. A nonsensical one it would not take."""
    program_or_skip("helm")
    found = rendered(namespace=existing.namespace)
    assert [words for each in found if (words := existing.refusal(each))] == []
    (policy, *_) = [each for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    policy["spec"]["validations"][0]["expression"] = "no expression ("
    assert "no expression" in existing.refusal(policy)


def test_only_the_namespace_that_was_made_is_deleted(existing: Existing):
    """Not another that has its name by then."""
    another = Existing(given() or existing.kubeconfig)
    another.__enter__()
    made, another.uid = another.uid, "another"
    with pytest.raises(ApiError, match="Precondition failed: UID"):
        another.__exit__()
    another.uid = made
    assert "deletionTimestamp" not in existing.kubectl.get("namespaces", another.namespace, "")["metadata"]
    another.__exit__()
    assert "deletionTimestamp" in existing.kubectl.get("namespaces", another.namespace, "")["metadata"]


def owned(plane: ControlPlane) -> set[str]:
    """The UIDs of what an installation, or another test, would bring to a cluster and not take away."""
    kinds = (
        "namespaces",
        "nodes",
        "clusterroles.rbac.authorization.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
    )
    found = (each["metadata"] for kind in kinds for each in plane.kubectl.list(kind))
    return {meta["uid"] for meta in found if "deletionTimestamp" not in meta}


def run(kubeconfig: Path, *tests: str, named: str = "", code: int = 0) -> str:
    """What pytest says of these tests on a cluster that is there; on one that is named they may install."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-m", "cluster", *tests]
    environ = {**os.environ, VARIABLE: str(kubeconfig), WORD: named}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def inlined(kubeconfig: Path, target: Path) -> Path:
    """The same kubeconfig with everything in it, as most clusters hand them out."""
    document = yaml.safe_load(kubeconfig.read_text())
    for settings in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for name in settings.keys() & {"certificate-authority", "client-certificate", "client-key"}:
            content = Path(settings.pop(name)).read_bytes()
            settings[f"{name}-data"] = base64.b64encode(content).decode()
    target.write_text(yaml.safe_dump(document))
    return target


@pytest.mark.skipif(given() is not None, reason="NOT RUN: it needs a control plane of its own")
def test_a_cluster_that_is_there_is_used_and_left_as_it_was(control_plane: ControlPlane, tmp_path: Path):
    """What would bring nodes, roles or resources to it is not run, and says so."""
    program_or_skip("helm")
    before = owned(control_plane)
    kubeconfig = inlined(control_plane.kubeconfig, tmp_path / "kubeconfig")
    told = run(kubeconfig, "tests/cluster/test_existing.py", "tests/cluster/test_control_plane.py")
    assert "2 passed" in told
    assert f"NOT RUN: {VARIABLE} names a cluster that is there, and it needs one of its own" in told
    assert owned(control_plane) == before


def test_the_cluster_that_people_work_with_is_not_used_unasked(monkeypatch: pytest.MonkeyPatch):
    """KUBECONFIG says nothing about tests."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("KUBECONFIG", "/home/ann/.kube/config")
    assert given() is None


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "cannot be read"),
        ({"current-context": "gone", "contexts": []}, "cannot be read"),
        (
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"exec": {"command": "login"}}}],
            },
            "has neither a token nor a client certificate",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, document: Json | None, words: str):
    """With the variable that names it."""
    path = tmp_path / "mine"
    if document is not None:
        path.write_text(yaml.safe_dump(document))
    with pytest.raises(KubeconfigError, match=words) as caught:
        written_out(path, tmp_path)
    assert VARIABLE in str(caught.value)
    assert str(path) in str(caught.value)
