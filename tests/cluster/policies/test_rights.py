"""What each of Aliquot's accounts may do, as a real API server answers, is what is written down, and no more.

`tests/data/rights.yaml` is read by people: every line of it is a right that somebody has to defend.
"""

from collections.abc import Iterator

import pytest
import yaml

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.access import Cluster
from tests.cluster.policies.conftest import any_cluster
from tests.cluster.policies.manifests import SYSTEM, TEAM
from tests.cluster.policies.rights import ACCOUNTS, VERBS, Rights, install
from tests.cluster.policies.world import ROOT

pytestmark = pytest.mark.cluster

GOLDEN = yaml.safe_load((ROOT / "tests" / "data" / "rights.yaml").read_text())


@pytest.fixture(scope="module", name="borrowed")
def borrow() -> Iterator[Cluster]:
    """A cluster that knows nothing but the chart's accounts."""
    with any_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module", name="rights")
def install_chart(borrowed: Cluster) -> Rights:
    """The chart's roles, and whom to ask about them."""
    return install(borrowed)


def test_every_account_is_written_down(rights: Rights):
    """A new account needs a line for each of its rights."""
    assert sorted(GOLDEN) == sorted(ACCOUNTS)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_may_do_what_is_written_down(rights: Rights, account: str):
    """Every verb on every resource and subresource that the API server serves, everywhere and by name."""
    assert rights.of(account) == GOLDEN[account]


OURS = [
    (f"{name}.aliquot.dev/{part}".removesuffix("/"), verb)
    for name in ("gpunodes", "gpupools", "gpuquotas")
    for part in ("", "status")
    for verb in VERBS
    if verb not in ("get", "list", "watch")
]
NOT_FOR_TEAMS = [
    *OURS,
    *(
        (f"pods/{part}", verb)
        for part in ("status", "ephemeralcontainers", "resize")
        for verb in ("patch", "update")
    ),
    ("pods/binding", "create"),
    ("bindings", "create"),
    ("nodes", "patch"),
    ("nodes/status", "patch"),
    ("validatingadmissionpolicies.admissionregistration.k8s.io", "delete"),
    ("validatingadmissionpolicybindings.admissionregistration.k8s.io", "delete"),
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", "patch"),
]


SHOWS = {
    "view": ("pods", "list"),
    "edit": ("pods", "create"),
    "admin": ("localsubjectaccessreviews.authorization.k8s.io", "create"),
}
"""What each role gives and none before it: it shows that the API server has heard of the binding."""


@pytest.mark.parametrize("role", SHOWS)
def test_who_has_a_namespace_has_no_part_of_aliquot(borrowed: Cluster, rights: Rights, role: str):
    """Kubernetes' roles for teams give nothing that the policies rely on nobody having."""
    borrowed.namespace(TEAM)
    account = f"team-{role}"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}
    roles = tuple(SHOWS)
    for number, part in enumerate(roles[: roles.index(role) + 1]):
        borrowed.kubectl.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"{account}-{number}", "namespace": TEAM},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": f"system:aggregate-to-{part}",
                },
                "subjects": [subject],
            }
        )
        wait_for(f"{part} to hold", lambda right=SHOWS[part]: rights.may(account, *right, TEAM))
    assert [one for one in NOT_FOR_TEAMS if rights.may(account, *one, TEAM)] == []
