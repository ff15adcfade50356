"""What `aliquot top` makes of pages."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.cli.display.tenants import Look, Part, TenantReport, look, mode_of, report
from aliquot.libshim.control_page import CardLimit, CardTime, Control, create_control
from aliquot.libshim.usage_page import CardUsage, create_usage

LEASED = CardLimit(
    "GPU-a", 4 << 30, 30, core_share_bp=3000, core_most_percent=60, priority=5, adjust_bytes=1 << 20
)
KEY = (Path("p"), "GPU-a")
NOTHING = CardTime(0, 0, 0, is_open=False)


def between(
    limit: CardLimit, time: CardTime, usage: CardUsage, seconds: float = 2.0, *, beating: bool = True
) -> TenantReport:
    """What is told of a tenant that began with nothing and had this after a while."""
    before = Part("default/p/main", limit, NOTHING, CardUsage())
    time = replace(time, heartbeat_ns=int((9.9 + seconds) * 1e9) if beating else 0)
    told = report(
        Look(10.0, {KEY: before}), Look(10.0 + seconds, {KEY: Part("default/p/main", limit, time, usage)})
    )
    ((card,), (tenant,)) = told.cards, told.cards[0].tenants
    assert (told.seconds, card.uuid) == (seconds, "GPU-a")
    return tenant


def test_a_leased_tenant_has_ratios_of_the_while() -> None:
    """Guaranteed, used and lent as the arbiter says, waiting and memory as the tenant does."""
    time = CardTime(600_000_000, 1_000_000_000, 400_000_000, is_open=True)
    usage = CardUsage(
        memory_used_bytes=1 << 30, busy_ns=1_900_000_000, throttled_ns=500_000_000, allocations_denied=3
    )
    assert between(LEASED, time, usage) == TenantReport(
        tenant="default/p/main",
        mode="burst",
        priority=5,
        share=0.3,
        most=0.6,
        guaranteed=0.3,
        used=0.5,
        lent=0.2,
        waiting=0.25,
        memory_bytes=4 << 30,
        used_bytes=(1 << 30) + (1 << 20),
        denied_allocations=3,
        trusted=True,
    )


def test_what_nobody_measures_is_not_told() -> None:
    """Of who is free nothing; of who is capped without an arbiter what it says itself."""
    usage = CardUsage(busy_ns=1_000_000_000, throttled_ns=500_000_000)
    free = between(CardLimit("GPU-a", 1), NOTHING, usage)
    assert (free.mode, free.share, free.guaranteed, free.used, free.lent, free.waiting) == (
        "free", 1.0, None, None, None, None,
    )  # fmt: skip
    capped = between(CardLimit("GPU-a", 1, 30), NOTHING, usage)
    assert (capped.share, capped.used, capped.waiting, capped.guaranteed) == (0.3, 0.5, 0.25, None)
    assert not between(replace(LEASED, doubted=True), NOTHING, usage).trusted


def test_a_tenant_that_asked_for_no_time_has_none_guaranteed() -> None:
    """It shares what the others leave: that is no guarantee of nothing."""
    uncapped = CardLimit("GPU-a", 1, core_share_bp=7000, core_most_percent=100)
    told = between(uncapped, CardTime(0, 1_000_000_000, 0, is_open=True), CardUsage())
    assert (told.mode, told.guaranteed, told.used, told.lent) == ("uncapped", None, 0.5, 0.0)


def test_without_an_arbiter_nothing_is_said_to_be_guaranteed_or_lent() -> None:
    """What an arbiter that is gone has written last is no measure; the tenant's own clock is."""
    usage = CardUsage(busy_ns=600_000_000, throttled_ns=500_000_000)
    told = between(LEASED, NOTHING, usage, beating=False)
    assert (told.guaranteed, told.used, told.lent, told.waiting) == (None, 0.3, None, 0.25)
    part = Part("default/p/main", LEASED, NOTHING, usage)
    (card,) = report(Look(10.0, {KEY: part}), Look(11.0, {KEY: part})).cards
    assert not card.leased


def test_what_no_page_measures_is_measured_otherwise() -> None:
    """Of a tenant that is free, by what is asked about it."""
    part = Part("run/kx7f", CardLimit("GPU-a", 1), NOTHING, CardUsage())
    (card,) = report(Look(10.0, {KEY: part}), Look(11.0, {KEY: part}), lambda _: 0.95).cards
    assert [one.used for one in card.tenants] == [0.95]
    assert card.leased


@pytest.mark.parametrize(
    ("limit", "mode"),
    [
        (CardLimit("a", 1), "free"),
        (CardLimit("a", 1, 30), "capped"),
        (CardLimit("a", 1, 30, core_share_bp=3000, core_most_percent=30), "capped"),
        (CardLimit("a", 1, 30, core_share_bp=2000, core_most_percent=30), "capped"),
        (CardLimit("a", 1, 30, core_share_bp=3000, core_most_percent=31), "burst"),
        (CardLimit("a", 1, core_share_bp=7000, core_most_percent=100), "uncapped"),
    ],
)
def test_modes_are_read_off_the_pages(limit: CardLimit, mode: str) -> None:
    """A share that is smaller because more was promised than there is stays a cap."""
    assert mode_of(limit) == mode


def test_who_comes_goes_or_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """Nobody is told of by one look alone."""
    for name in ("stays", "comes", "goes", "broken"):
        (tmp_path / name).mkdir()
        create_control(tmp_path / name / "control", Control(f"default/{name}/main", (LEASED,)))
        create_usage(tmp_path / name / "usage")
    before = look(tmp_path / name for name in ("stays", "goes", "broken"))
    (tmp_path / "broken" / "usage").write_bytes(b"")
    (card,) = report(before, look(tmp_path / name for name in ("stays", "comes", "broken"))).cards
    assert [one.tenant for one in card.tenants] == ["default/stays/main"]
