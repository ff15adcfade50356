"""The ledger after a restart that has lost files."""

from pathlib import Path

import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION, ResourceNames
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ObjectMeta, Pod
from aliquot.libshim.control_page import CardLimit, Control
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.gate.recovery import adopt_admitted_pods, adopt_running, recover_admitted_pods
from aliquot.plugin.kubelet.pod_resources import Holder, Running
from aliquot.plugin.state.admitted_pods import AdmittedPods
from aliquot.plugin.state.node_ledger import Capacity, LedgerError, NodeLedger
from aliquot.request.core_policy import NO_POLICY, CoreMode, CorePolicy
from aliquot.request.placement import CardShare, Charge, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind

NAMES = ResourceNames()
CAPPED, BURST = CoreMode.CAPPED, CoreMode.BURST


def test_a_card_held_alone_stays_so_when_its_tenancy_is_read_off_the_pages(tmp_path: Path):
    """Pages say how much, not that nobody else may come; the placement says it once the pod is known."""
    share = CardShare("GPU-1", 4096, 100, exclusive=True)
    placement = Placement("u", "n1", (ContainerPlacement("main", ContainerKind.REGULAR, (share,)),))
    tenants, admitted_pods = TenantDirectories(tmp_path / "run"), AdmittedPods(tmp_path / "tenancies")
    tenants.prepare("u", "main", Control("default/web/main", (CardLimit("GPU-1", 6 << 30),)))
    ledger, pods = (
        NodeLedger({"GPU-1": Capacity(16384)}),
        Pods(Api(Access("http://[::1]:9")), "n1", tmp_path / "pods"),
    )
    meta = ObjectMeta(
        namespace="default",
        name="web",
        uid="u",
        annotations={PLACEMENT_ANNOTATION: encode_placement(placement)},
    )
    pods._seen(Pod(metadata=meta))
    holder = Holder("default", "web", "main", {NAMES.gpu: frozenset({"GPU-1::0"})})
    running = Running(frozenset({("default", "web")}), (holder,))
    recover_admitted_pods(admitted_pods, tenants, "n1")
    adopt_admitted_pods(ledger, admitted_pods)
    adopt_running(ledger, pods, admitted_pods, running, tmp_path / "checkpoint", NAMES)
    assert ledger.promised("GPU-1") == Charge(6144, 100, 1, exclusive=True, uncapped=1)
    with pytest.raises(LedgerError, match="would not be held alone"):
        ledger.admit("other", {"GPU-1": Charge(1024, 0, 1)})


@pytest.mark.parametrize(
    ("limit", "policy"),
    [
        (CardLimit("GPU-1", 1 << 30, 30), NO_POLICY),
        (
            CardLimit("GPU-1", 1 << 30, 30, core_share_bp=3000, core_most_percent=30),
            CorePolicy(CAPPED, None, 0),
        ),
        (CardLimit("GPU-1", 1 << 30, 30, core_share_bp=3000, core_most_percent=60), CorePolicy(BURST, 60, 0)),
        (
            CardLimit("GPU-1", 1 << 30, 30, core_share_bp=3000, core_most_percent=100, priority=4),
            CorePolicy(BURST, None, 4),
        ),
        (CardLimit("GPU-1", 1 << 30, core_share_bp=7000, core_most_percent=100), CorePolicy(None, None, 0)),
    ],
)
def test_how_time_was_held_is_read_off_the_pages(tmp_path: Path, limit: CardLimit, policy: CorePolicy):
    """A running tenant's terms are not other ones because its tenancy was lost."""
    tenants, admitted_pods = TenantDirectories(tmp_path / "run"), AdmittedPods(tmp_path / "tenancies")
    tenants.prepare("u", "main", Control("default/web/main", (limit,)))
    recover_admitted_pods(admitted_pods, tenants, "n1")
    admitted = admitted_pods.get("u")
    assert admitted
    assert admitted.placement
    assert [one.policy for one in admitted.placement.containers] == [policy]
