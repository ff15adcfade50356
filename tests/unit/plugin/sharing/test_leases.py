"""Who is leased time, by what the control pages say."""

import struct
from pathlib import Path

import pytest

from aliquot.api.pod_groups import PLUGINS, VOLCANO, GroupKey
from aliquot.arbiter import Arbiter, Terms
from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.control_page import CardLimit, Control
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages
from aliquot.plugin.sharing.leases import Leases, Membership

ALONE = CardLimit("GPU-a", 1 << 30)
SHARED = CardLimit("GPU-b", 1 << 30, 30, core_share_bp=3000, core_most_percent=60, priority=2)
NAME = "uid/main"


@pytest.fixture
def tenants(tmp_path: Path) -> TenantDirectories:
    """The pages of a node."""
    return TenantDirectories(tmp_path)


@pytest.fixture
def leases() -> Leases:
    """Nobody is leased anything yet."""
    return Leases(Arbiter())


def prepared(tenants: TenantDirectories, *cards: CardLimit) -> tuple[TenantPages, Control]:
    """Pages that say this."""
    control = Control("default/p/main", cards)
    return tenants.prepare("uid", "main", control), control


def leased_cards(leases: Leases) -> dict[str, set[str]]:
    """Who is leased which cards."""
    return {name: set(state.cards) for name, state in leases.states().items()}


def test_only_cards_with_others_on_them_are_leased(tenants: TenantDirectories, leases: Leases) -> None:
    """And none any more when the others have gone, or the pod has."""
    tenant, control = prepared(tenants, ALONE, SHARED)
    leases.follow(tenant, control)
    assert leased_cards(leases) == {NAME: {"GPU-b"}}
    leases.follow(tenant, Control("default/p/main", (ALONE,)))
    assert leased_cards(leases) == {}
    leases.follow(tenant, control)
    leases.leave(NAME)
    assert leased_cards(leases) == {}


def test_pages_that_were_made_anew_are_leased_by_the_new_ones(
    tenants: TenantDirectories, leases: Leases
) -> None:
    """A container has the inode: gates in a file that was replaced would be heard by nobody."""
    leases.follow(*prepared(tenants, SHARED))
    tenant, control = prepared(tenants, ALONE, SHARED)
    leases.follow(tenant, control)
    assert leases.arbiter
    inode = tenant.control.path.stat().st_ino
    assert leases.arbiter._clients[NAME].files[0][1] == inode


def test_doubt_outlives_other_terms_and_other_pages(tenants: TenantDirectories, leases: Leases) -> None:
    """Until it is taken back."""
    tenant, control = prepared(tenants, SHARED)
    leases.follow(tenant, control)
    leases.doubt(NAME, "it lies")
    leases.follow(tenant, control)
    assert not leases.states()[NAME].trusted
    leases.follow(*prepared(tenants, ALONE, SHARED))
    assert leases.states()[NAME].reason == "it lies"
    leases.doubt(NAME, None)
    assert leases.states()[NAME].trusted


def test_a_page_that_no_lease_fits_in_stays_a_hard_cap(
    tenants: TenantDirectories, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    """A container of an older agent has such a page; that is said once."""
    tenant, control = prepared(tenants, SHARED)
    old = bytearray(tenant.usage.path.read_bytes()[: lib.AQ_USAGE_SIZE])
    struct.pack_into("=I", old, ffi.offsetof("aq_usage_page", "size"), len(old))
    tenant.usage.path.write_bytes(old)
    for _ in range(2):
        leases.follow(tenant, control)
    assert leased_cards(leases) == {}
    assert [record.message for record in caplog.records] == [
        "the share of a tenant is a hard cap: uid/main: its usage page has no room for what a lease needs"
    ]


def test_without_an_arbiter_nobody_is_leased_anything(tenants: TenantDirectories) -> None:
    """And nothing fails."""
    leases = Leases(None)
    leases.follow(*prepared(tenants, SHARED))
    leases.doubt(NAME, "it lies")
    leases.leave(NAME)
    leases.quantum("GPU-b", 1)
    assert leases.states() == {}


def test_terms_are_the_pages_words(
    tenants: TenantDirectories, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Share, bound and priority."""
    entered: list[Terms] = []
    assert leases.arbiter
    monkeypatch.setattr(leases.arbiter, "enter", lambda *words, **_: entered.extend(words[3]))
    leases.follow(*prepared(tenants, ALONE, SHARED))
    assert entered == [Terms("GPU-b", 3000, 60, 2)]


def test_groups_of_one_name_are_one_within_a_namespace_and_a_convention_alone(
    tenants: TenantDirectories, leases: Leases
) -> None:
    """Or a stranger's pods would have their cards at the same time."""
    assert leases.arbiter
    groups = [
        GroupKey("a", "train", PLUGINS),
        GroupKey("b", "train", PLUGINS),
        GroupKey("a", "train", VOLCANO),
    ]
    names = []
    for group in (None, *groups, groups[0]):
        leases.follow(*prepared(tenants, SHARED), Membership(group))
        names.append(leases.arbiter._clients[NAME].group)
    assert names[0] == ""
    assert names[1] == names[4]
    assert len(set(names)) == 4
