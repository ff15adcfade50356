"""What the pages of a user's runs say of a card's time, by who there is."""

import os
from pathlib import Path

import pytest

from aliquot.cli.runs.arbiter_host import ArbiterHost
from aliquot.cli.runs.registry import Holding, Registry
from aliquot.cli.runs.slices import Slice
from aliquot.libshim._pages import ffi
from aliquot.libshim.control_page import CardLimit, read_control
from aliquot.request.core_policy import CoreMode, CorePolicy

GIB = 1 << 30
BURST = CorePolicy(CoreMode.BURST, 60, 5)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Nobody runs."""
    return Registry(tmp_path)


def started(registry: Registry, cores: int, policy: CorePolicy | None = None, card: str = "GPU-a") -> Holding:
    """A run with this share."""
    with registry.locked():
        return registry.add(Slice(card, GIB, cores, policy or CorePolicy()), ["sleep"])


def times(registry: Registry) -> list[tuple[int, int, int, int]]:
    """Cap, share, most and priority in the page of each run, oldest first."""
    with registry.locked():
        limits = [read_control(registry.directory(run.id) / "control").cards[0] for run in registry.runs()]
    return [(one.core_percent, one.core_share_bp, one.core_most_percent, one.priority) for one in limits]


def test_pages_say_what_each_has_beside_the_others(registry: Registry):
    """Who comes or goes changes what the others' pages say; those of another card stay as they are."""
    alone = started(registry, 0, card="GPU-b")
    free = started(registry, 0)
    assert times(registry) == [(0, 0, 0, 0), (0, 0, 0, 0)]
    bursting, capped = started(registry, 30, BURST), started(registry, 20)
    assert times(registry)[0] == (0, 0, 0, 0)
    assert times(registry)[1:] == [(0, 5000, 100, 0), (30, 3000, 60, 5), (20, 2000, 20, 0)]
    registry.release(capped)
    assert times(registry)[1:] == [(0, 7000, 100, 0), (30, 3000, 60, 5)]
    registry.release(bursting)
    assert times(registry) == [(0, 0, 0, 0), (0, 0, 0, 0)]
    for holding in (alone, free):
        registry.release(holding)


def test_a_resize_is_in_the_others_pages_too(registry: Registry):
    """A share that grows takes from those who have what the shares leave; a bound below it counts no more."""
    started(registry, 0)
    started(registry, 30, BURST)
    with registry.locked():
        registry.resize(registry.runs()[1], Slice("GPU-a", 2 * GIB, 70, BURST))
    assert times(registry) == [(0, 3000, 100, 0), (70, 7000, 70, 5)]


def test_a_page_whose_writer_died_half_way_is_written_anew(registry: Registry):
    """By the next one that looks."""
    holding = started(registry, 30)
    with holding.control.open("r+b") as page:
        os.pwrite(page.fileno(), (7).to_bytes(4, "little"), ffi.offsetof("aq_control_page", "sequence"))
    with registry.locked():
        assert registry.settle() == {
            holding.run.id: CardLimit("GPU-a", GIB, 30, core_share_bp=3000, core_most_percent=30)
        }
    assert times(registry) == [(30, 3000, 30, 0)]


def test_runs_without_pages_keep_nobody_else_from_a_lease(registry: Registry):
    """Whatever has become of their files, and however often one looks."""
    broken, gone, fine = started(registry, 10), started(registry, 20), started(registry, 30)
    lessor = ArbiterHost(registry)
    broken.control.write_bytes(b"")
    gone.usage.unlink()
    for _ in range(3):
        with registry.locked():
            lessor.follow(registry.settle())
        assert lessor.leased == {fine.run.id}
    registry.release(fine)
    with registry.locked():
        lessor.follow(registry.settle())
    assert lessor.leased == set()
    lessor.stop()
