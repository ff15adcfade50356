"""The ledger after a restart that has lost files."""

from pathlib import Path

import pytest

from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ObjectMeta, Pod
from aliquot.names import PLACEMENT_ANNOTATION, ResourceNames
from aliquot.placement import CardShare, Charge, ContainerPlacement, Placement, encode_placement
from aliquot.request import ContainerKind
from libshim.pages import CardLimit, Control
from plugin.ledger import Capacity, Ledger, LedgerError
from plugin.pod_resources import Holder, Running
from plugin.pods import Pods
from plugin.recovery import adopt_running, adopt_tenancies, recover_tenancies
from plugin.tenancies import Tenancies
from plugin.tenants import Tenants

NAMES = ResourceNames()


def test_a_card_held_alone_stays_so_when_its_tenancy_is_read_off_the_pages(tmp_path: Path):
    """Pages say how much, not that nobody else may come; the placement says it once the pod is known."""
    share = CardShare("GPU-1", 4096, 100, exclusive=True)
    placement = Placement("u", "n1", (ContainerPlacement("main", ContainerKind.REGULAR, (share,)),))
    tenants, tenancies = Tenants(tmp_path / "run"), Tenancies(tmp_path / "tenancies")
    tenants.prepare("u", "main", Control("default/web/main", (CardLimit("GPU-1", 6 << 30),)))
    ledger, pods = (
        Ledger({"GPU-1": Capacity(16384)}),
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
    recover_tenancies(tenancies, tenants, "n1")
    adopt_tenancies(ledger, tenancies)
    adopt_running(ledger, pods, tenancies, running, tmp_path / "checkpoint", NAMES)
    assert ledger.promised("GPU-1") == Charge(6144, 100, 1, exclusive=True)
    with pytest.raises(LedgerError, match="would not be held alone"):
        ledger.admit("other", {"GPU-1": Charge(1024, 0, 1)})
