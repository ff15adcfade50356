"""Aliquot on a cluster that somebody lends (ALIQUOT_TEST_INSTALL_ON): refused, or installed and taken away whole.

Where nobody lends one, a control plane with its controllers stands for it.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import lent
from tests.cluster.contents import contents
from tests.cluster.control_plane import ControlPlane
from tests.cluster.helm import HelmRelease, Json, rendered, resource_of
from tests.cluster.policies.catalogue import ATTEMPTS
from tests.cluster.policies.manifests import TEAM
from tests.cluster.policies.rights import ACCOUNTS
from tests.cluster.policies.test_policies_legal import DONE, PODS
from tests.cluster.policies.world import World
from tests.cluster.programs import program_or_skip
from tests.cluster.test_existing import inlined, run
from tests.cluster.trial import PREFIX, WORD, RefusedError, Trial, asked_for

pytestmark = pytest.mark.cluster

NAMED = "c"
"""The context of our kubeconfigs."""
MADE_BY_ITSELF = (
    *(("serviceaccounts", "default", place) for place in ("default", "kube-system", "kube-public")),
    *(("configmaps", "kube-root-ca.crt", place) for place in ("default", "kube-system", "kube-public")),
    ("configmaps", "extension-apiserver-authentication", "kube-system"),
    ("configmaps", "kube-apiserver-legacy-service-account-token-tracking", "kube-system"),
)


@pytest.fixture(scope="module", name="neighbour")
def start_neighbour() -> Iterator[ControlPlane]:
    """A cluster of somebody else's, as it is when nothing happens on it."""
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "helm"):
        program_or_skip(name)
    with ControlPlane() as plane:
        plane.start_controllers()
        for resource, name, namespace in MADE_BY_ITSELF:
            plane.kubectl.wait_for(resource, name, lambda _: True, 60, namespace)
        yield plane


@pytest.fixture(name="borrowed")
def borrow(request: pytest.FixtureRequest) -> Iterator[Trial]:
    """The one that is lent, else the neighbour's."""
    program_or_skip("helm")
    if asked_for():
        with lent() as trial:
            yield trial
    else:
        with Trial(request.getfixturevalue("neighbour").kubeconfig, NAMED) as trial:
            yield trial


@pytest.mark.parametrize("which", ["helm", "helm3"])
def test_it_is_installed_upgraded_rolled_back_and_taken_away(borrowed: Trial, which: str):
    """By Helm, every object of it; of what Helm has made nothing is left, without the steps of a trial's end."""
    program_or_skip(which)
    release = HelmRelease(borrowed, which)
    release.install_idle()
    first = release.objects()
    assert [each for each in first if not release.find(each)] == []
    release.upgrade("--set", "agent.slicesPerCard=20", "--set", "networkPolicies.enabled=false")
    (agent,) = [each for each in release.objects() if each["kind"] == "DaemonSet"]
    assert "--slices-per-card=20" in str(release.find(agent))
    assert {each["kind"] for each in first if not release.find(each)} == {"NetworkPolicy"}
    release.helm("rollback", "aliquot")
    assert [each for each in first if not release.find(each)] == []
    release.helm("uninstall", "aliquot", "--wait")
    assert [each for each in first if release.find(each)] == []


@pytest.mark.timeout(900)
def test_a_cluster_that_is_lent_is_left_as_it_was(alone: None, neighbour: ControlPlane, tmp_path: Path):
    """All attempts, rights and what is legal are asked of it; what needs a cluster of its own is not run."""
    before = contents(neighbour.kubectl)
    kubeconfig = inlined(neighbour.kubeconfig, tmp_path / "kubeconfig")
    told = run(kubeconfig, "tests/cluster/policies", "tests/cluster/test_trial.py", named=NAMED)
    assert contents(neighbour.kubectl) == before
    (passed,) = re.findall(r"(\d+) passed", told)
    assert int(passed) > len(ATTEMPTS) + len(PODS) + len(DONE) + len(ACCOUNTS)
    skipped = [line for line in told.splitlines() if line.startswith("SKIPPED")]
    assert skipped
    assert all(": NOT RUN: " in line for line in skipped), skipped


def fail_in(world: World) -> None:
    """As a test does."""
    assert not world.admin.list("pods", TEAM), "half-way"


def test_it_is_left_as_it_was_by_a_test_that_fails(alone: None, neighbour: ControlPlane):
    """Half-way, with everything in place, and pods that nobody has taken away."""
    before = contents(neighbour.kubectl)
    with pytest.raises(AssertionError, match="half-way"), Trial(neighbour.kubeconfig, NAMED) as cluster:
        fail_in(World(cluster, ()))
    assert contents(neighbour.kubectl) == before


def test_it_is_left_as_it_was_by_an_installation_that_fails(alone: None, neighbour: ControlPlane):
    """Something of it is there that Helm has not made, and does not take away."""
    before = contents(neighbour.kubectl)
    with Trial(neighbour.kubeconfig, NAMED) as cluster:
        neighbour.kubectl.create(of_the_chart("ValidatingAdmissionPolicy"))
        with pytest.raises(AssertionError, match="helm install"):
            cluster.release.install_idle()
        assert contents(neighbour.kubectl) != before
    assert contents(neighbour.kubectl) == before


def refusal(kubeconfig: Path, named: str = NAMED) -> str:
    """Why it is refused to install there."""
    with pytest.raises(RefusedError) as caught, Trial(kubeconfig, named):
        pass
    return str(caught.value)


def test_another_cluster_than_the_one_that_was_named_is_refused(alone: None, neighbour: ControlPlane):
    """A word that was left behind in the environment harms nobody."""
    assert refusal(neighbour.kubeconfig, "staging") == (
        f"{WORD}: nothing was installed: it names staging, and the current context of ALIQUOT_TEST_KUBECONFIG is c"
    )


def test_somebody_who_may_not_do_everything_is_refused(alone: None, neighbour: ControlPlane):
    """An installation would end half-way, and so would its removal."""
    assert "may not do everything there" in refusal(neighbour.user("ann", "developers"))


def of_the_chart(kind: str) -> Json:
    """The first of its objects of this kind."""
    return next(each for each in rendered() if each["kind"] == kind)


LABELS = {"owner": "helm", "name": "aliquot"}
THERE: dict[str, Callable[[], Json]] = {
    "GPUPools": lambda: of_the_chart("CustomResourceDefinition"),
    "a policy of ours": lambda: of_the_chart("ValidatingAdmissionPolicy"),
    "our namespace": lambda: {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "aliquot-system"},
    },
    "an earlier trial": lambda: {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"{PREFIX}node-a"},
    },
    "a release elsewhere": lambda: {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "sh.helm.release.v1.aliquot.v1", "namespace": "default", "labels": LABELS},
    },
}


@pytest.mark.parametrize("there", THERE.values(), ids=THERE.keys())
def test_a_cluster_that_has_part_of_it_is_refused(
    alone: None, neighbour: ControlPlane, there: Callable[[], Json]
):
    """In words that name it, and it stays."""
    made = neighbour.kubectl.create(there())
    resource, name = resource_of(made), made["metadata"]["name"]
    namespace = made["metadata"].get("namespace", "")
    said = refusal(neighbour.kubeconfig)
    found = neighbour.kubectl.get(resource, name, namespace)
    neighbour.kubectl.delete(resource, name, namespace)
    neighbour.kubectl.wait_gone(resource, name, 60, namespace)
    assert "there is already" in said
    assert (name if made["kind"] != "Secret" else "default/aliquot") in said
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in found["metadata"]


def test_a_cluster_that_has_aliquot_is_left_untouched(alone: None, neighbour: ControlPlane, tmp_path: Path):
    """The run ends at once, and says why."""
    release = HelmRelease(neighbour)
    release.install_idle()
    before = contents(neighbour.kubectl)
    kubeconfig = inlined(neighbour.kubeconfig, tmp_path / "kubeconfig")
    told = run(kubeconfig, "tests/cluster/policies/test_policies.py", named=NAMED, code=1)
    assert f"{WORD}: nothing was installed: there is already " in told
    assert "ClusterRole aliquot-agent" in told
    assert "passed" not in told
    assert (
        contents(neighbour.kubectl).items() >= before.items()
    )  # workloads may have got their pods meanwhile
    release.helm("uninstall", "aliquot", "--wait")
    neighbour.kubectl.delete("namespaces", "aliquot-system", "")
    neighbour.kubectl.wait_gone("namespaces", "aliquot-system", 60, "")
