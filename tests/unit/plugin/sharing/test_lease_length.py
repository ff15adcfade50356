"""Long leases where tenants' memory does not fit on their card together."""

from pathlib import Path

import pytest

from aliquot.arbiter import Arbiter
from aliquot.libshim.control_page import CardLimit, Control
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.sharing.lease_length import MOST_NS, LeaseLength, quantum_ns
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.state.card_table import CardTable
from tests.unit.plugin.usage import write_usage

GIB = 1 << 30
UUID = "GPU-a"


@pytest.fixture
def lease_length(tmp_path: Path) -> LeaseLength:
    """A node with a card of 16 GiB."""
    cards = CardTable(0, Path("/proc"))
    cards.set([Card(UUID, 0, 0, "H200", 16384, -1, "0")])
    return LeaseLength(cards, TenantDirectories(tmp_path), Leases(Arbiter()))


def holds(lease_length: LeaseLength, name: str, size: int, share_bp: int = 5000, host: int = 0) -> None:
    """A tenant uses so much memory, and for want of a grant so much of the host's."""
    limit = CardLimit(
        UUID, 32 * GIB, grant_bytes=size, overflow_bytes=host, core_share_bp=share_bp, core_most_percent=100
    )
    lease_length.tenants.remove(name)  # a page that is there keeps its grant
    tenant = lease_length.tenants.prepare(name, "main", Control(f"default/{name}/main", (limit,)))
    write_usage(tenant.usage, size, host_bytes=host)


def asked(lease_length: LeaseLength) -> int | None:
    """What the arbiter was asked for."""
    lease_length.look()
    assert lease_length.leases.arbiter
    return lease_length.leases.arbiter._quanta.get(UUID)


def test_a_card_is_leased_for_long_while_its_tenants_do_not_fit(lease_length: LeaseLength) -> None:
    """By how much more they have than there is, and as usual when they fit again."""
    holds(lease_length, "one", 10 * GIB)
    assert asked(lease_length) is None
    holds(lease_length, "two", 10 * GIB)
    longer = asked(lease_length)
    assert longer == quantum_ns(4 * GIB)
    holds(lease_length, "two", 12 * GIB)
    assert (asked(lease_length) or 0) > longer
    holds(lease_length, "two", 6 * GIB)
    assert asked(lease_length) is None


def test_who_does_not_fit_alone_has_nobody_to_be_kept_from(lease_length: LeaseLength) -> None:
    """Its own memory moves whoever has the card for however long."""
    holds(lease_length, "one", 20 * GIB)
    holds(lease_length, "free", GIB, share_bp=0)
    assert asked(lease_length) is None


def test_what_has_overflowed_to_the_host_is_not_waited_for(lease_length: LeaseLength) -> None:
    """It is read from there, whoever has the card for however long; what may move is waited for as ever."""
    holds(lease_length, "one", 8 * GIB, host=12 * GIB)
    holds(lease_length, "two", 8 * GIB, host=12 * GIB)
    assert asked(lease_length) is None
    holds(lease_length, "two", 12 * GIB, host=12 * GIB)
    assert asked(lease_length) == quantum_ns(4 * GIB)


def test_what_a_tenant_says_beyond_its_grant_lengthens_no_lease(lease_length: LeaseLength) -> None:
    """Its neighbour would wait for that."""
    limit = CardLimit(UUID, 10 * GIB, core_share_bp=5000, core_most_percent=100)
    for name, says in (("liar", 1 << 47), ("neighbour", 6 * GIB)):
        tenant = lease_length.tenants.prepare(name, "main", Control(f"default/{name}/main", (limit,)))
        write_usage(tenant.usage, says)
    assert asked(lease_length) is None
    write_usage(lease_length.tenants.pages("neighbour", "main").usage, 8 * GIB)
    assert asked(lease_length) == quantum_ns(2 * GIB)


def test_a_quantum_is_worth_the_moving() -> None:
    """4 GiB out and in take 0.7 s at 12 GB/s; and nobody is kept waiting for minutes."""
    assert quantum_ns(1) == 500_000_000
    assert quantum_ns(4 * GIB) == 7_500_000_000
    assert quantum_ns(1 << 40) == MOST_NS
