"""Grants where tenants lie, hide, or have been lowered: nobody else waits for it, and nothing is granted twice."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.libshim._pages import ffi
from aliquot.libshim.control_page import CardLimit, Control, read_control
from aliquot.plugin.container.tenant_pages import TenantDirectories, limit
from aliquot.plugin.sharing.burst_grants import BurstGrants
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind
from aliquot.units import MIB
from tests.unit.plugin.usage import write_usage

CARD_MIB, LIMIT_MIB = 16384, 12288
AN_HOUR_NS = 3600 * 10**9


@dataclass
class Node:
    """A card of 16 GiB with burst tenants of 12 GiB each."""

    burst_grants: BurstGrants

    def tenant(self, name: str) -> Path:
        """One of them; its usage page."""
        share = CardShare("GPU-a", LIMIT_MIB, 0)
        container = ContainerPlacement("main", ContainerKind.REGULAR, (share,), burst=True)
        placement = Placement(name, "n1", (container,))
        self.burst_grants.admitted_pods.save(AdmittedPod(name, "default", name, placement))
        self.burst_grants.ledger.adopt(name, placement.charges())
        self.burst_grants.tenants.prepare(name, "main", control(LIMIT_MIB))
        return self.burst_grants.tenants.pages(name, "main").usage

    def wants(self, name: str, used_mib: int, wanted_mib: int) -> None:
        """A tenant says what it uses, and what it would use; a wish stays fresh however slow the machine."""
        usage = self.burst_grants.tenants.pages(name, "main").usage
        write_usage(usage, used_mib * MIB, (wanted_mib * MIB, time.monotonic_ns() + AN_HOUR_NS))

    def grant(self, name: str) -> int:
        """MiB granted to a tenant after two looks."""
        self.burst_grants._raised.clear()
        self.burst_grants.look()
        self.burst_grants._raised.clear()
        self.burst_grants.look()
        return (
            read_control(self.burst_grants.tenants.pages(name, "main").control).cards[0].grant_bytes or 0
        ) // MIB


def control(mib: int) -> Control:
    """A burst container's page."""
    return Control("default/x/main", (CardLimit("GPU-a", mib * MIB, grant_bytes=0),))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without tenants."""
    ledger = NodeLedger({"GPU-a": Capacity(CARD_MIB, extra_mib=CARD_MIB)})
    return Node(BurstGrants(ledger, AdmittedPods(tmp_path / "tenancies"), TenantDirectories(tmp_path)))


def test_a_tenants_page_says_from_the_beginning_that_an_agent_looks(node: Node) -> None:
    """Its program may ask before the first look, and would be refused by a page that nobody looks at."""
    before = time.monotonic_ns()
    control = Path(node.tenant("early")).with_name("control")
    offset = ffi.offsetof("aq_control_page", "granter_ns")
    looked = int.from_bytes(control.read_bytes()[offset : offset + 8], sys.byteorder)
    assert before <= looked <= time.monotonic_ns()


def test_who_says_to_use_more_than_it_can_have_takes_no_more_from_others(node: Node) -> None:
    """A forged tally is worth what the tenant could have taken, and not the whole node."""
    node.tenant("liar")
    node.tenant("honest")
    node.wants("liar", 1 << 24, 0)
    node.wants("honest", 0, 4096)
    assert node.grant("honest") == 4096
    assert node.burst_grants.held_mib("GPU-a") == LIMIT_MIB + 4096


@pytest.mark.parametrize(
    "hide", [lambda page: os.truncate(page, 10), lambda page: page.path.write_bytes(b"")]
)
def test_what_was_granted_to_who_hides_its_use_is_granted_to_nobody_else(node: Node, hide: object) -> None:
    """A page cut short must not free what its tenant has on the card."""
    page = node.tenant("hides")
    node.tenant("other")
    node.wants("hides", 0, 10240)
    assert node.grant("hides") == 10240
    hide(page)  # type: ignore[operator]
    node.wants("other", 0, 8192)
    assert node.grant("other") == 0
    assert node.burst_grants.held_mib("GPU-a") == 10240


def test_who_is_lowered_below_its_grant_holds_what_it_uses(node: Node) -> None:
    """A smaller limit frees nothing by itself; what is freed then goes to others."""
    node.tenant("lowered")
    node.tenant("other")
    node.wants("lowered", 0, 12288)
    assert node.grant("lowered") == 12288
    limit(node.burst_grants.tenants.pages("lowered", "main"), control(2048))
    node.wants("lowered", 12288, 0)
    node.wants("other", 0, 8192)
    assert node.grant("other") == 0
    node.wants("lowered", 1024, 0)
    node.wants("other", 0, 8192)
    assert node.grant("other") == 8192


def test_a_wish_is_met_at_once_and_nobody_is_looked_at_for_nothing(node: Node) -> None:
    """What everybody uses is read when somebody waits; a wish from the future is none."""
    usage = node.tenant("waits")
    assert not node.burst_grants._wished(time.monotonic_ns())
    now_ns = time.monotonic_ns()
    write_usage(usage, 0, (4096 * MIB, now_ns))
    assert node.burst_grants._wished(now_ns)
    write_usage(usage, 0, (4096 * MIB, time.monotonic_ns() + 10**12))
    assert not node.burst_grants._wished(time.monotonic_ns())
    os.truncate(usage, 10)
    assert not node.burst_grants._wished(time.monotonic_ns())
    usage.path.unlink()
    assert not node.burst_grants._wished(time.monotonic_ns())
