"""What is believed of a tenant's overhead, and when."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control, read_control
from aliquot.libshim.overhead import MIB, Held, Identity, Overhead, context_cost, sample
from aliquot.libshim.usage_page import CardUsage, ProcessUsage, Usage

ONE, OTHER = (7, 1, 70), (8, 1, 80)
CARD = "GPU-a"


def usage(**said: int) -> Usage:
    """A usage page on which process `one` or `other` says to hold some MiB, and the tally is their sum."""
    identities = {"one": ONE, "other": OTHER}
    processes = tuple(ProcessUsage(*identities[name], (mib * MIB,)) for name, mib in said.items())
    return Usage((CardUsage(memory_used_bytes=sum(said.values()) * MIB),), processes)


def held(**mib: int) -> Held:
    """What the driver says of the same processes."""
    return {CARD: {{"one": ONE, "other": OTHER}[name]: size * MIB for name, size in mib.items()}}


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """A control page of 8 GiB."""
    create_control(tmp_path / "control", Control("a/b/c", (CardLimit(CARD, 8 << 30),)))
    return tmp_path / "control"


def adjusted(control: Path) -> int:
    """The correction in force, in MiB."""
    return read_control(control).cards[0].adjust_bytes // MIB


def test_what_the_driver_says_more_is_charged_when_it_is_seen_twice(control: Path) -> None:
    """One look may have fallen into a call; the second that says the same is believed."""
    overhead, now = Overhead(control), usage(one=512)
    overhead.look(now, held(one=812), now)
    assert adjusted(control) == 0
    overhead.look(now, held(one=812), now)
    assert adjusted(control) == 300
    overhead.look(usage(), held(), usage())
    overhead.look(usage(), held(), usage())
    assert adjusted(control) == 0


def test_what_was_estimated_too_high_is_taken_back_and_no_more(control: Path) -> None:
    """What the driver counts less beyond that is managed memory, which may come to the card at any moment."""
    process = replace(usage(one=512).processes[0], estimated_bytes=(32 * MIB,))
    overhead, now = Overhead(control), replace(usage(one=512), processes=(process,))
    for _ in range(2):
        overhead.look(now, held(one=500), now)
    assert adjusted(control) == -12
    for _ in range(2):
        overhead.look(now, held(one=400), now)
    assert adjusted(control) == -32


def test_less_than_a_mebibyte_is_not_worth_a_write(control: Path) -> None:
    """The page does not change with every rounding."""
    overhead, now = Overhead(control), usage(one=512)
    for _ in range(2):
        overhead.look(now, {CARD: {ONE: 512 * MIB + MIB - 1}}, now)
    assert read_control(control).cards[0].adjust_bytes == 0


def test_limits_changed_meanwhile_stay(control: Path) -> None:
    """The correction changes one word of the page."""
    before = read_control(control).cards[0]
    overhead, now = Overhead(control), usage(one=1)
    for _ in range(2):
        overhead.look(now, held(one=11), now)
    assert read_control(control).cards[0] == replace(before, adjust_bytes=10 * MIB)


@pytest.mark.parametrize(
    ("before", "driver", "after"),
    [
        pytest.param(usage(one=512), held(one=812), usage(one=513), id="the tally moved"),
        pytest.param(
            usage(one=5, other=6), held(one=7, other=8), usage(one=6, other=5), id="it moved between two"
        ),
        pytest.param(usage(one=512, other=1), held(one=812), usage(one=512, other=1), id="somebody has died"),
        pytest.param(
            replace(usage(one=512), cards=(CardUsage(memory_used_bytes=513 * MIB),)),
            held(one=812),
            replace(usage(one=512), cards=(CardUsage(memory_used_bytes=513 * MIB),)),
            id="the slots do not add up",
        ),
    ],
)
def test_nothing_is_certain_while_something_moves(before: Usage, driver: Held, after: Usage) -> None:
    """Such a look says nothing."""
    assert sample(0, before, driver[CARD], after) is None


def test_processes_of_others_do_not_count(control: Path) -> None:
    """What a neighbour has on the card is not this tenant's."""
    overhead, now = Overhead(control), usage(one=512)
    for _ in range(2):
        overhead.look(now, held(one=512, other=4096), now)
    assert adjusted(control) == 0


def test_managed_memory_that_is_on_the_host_stays_charged(control: Path) -> None:
    """The driver does not count it, and it may come to the card at any moment."""
    overhead, now = Overhead(control), usage(one=2048)
    for _ in range(2):
        overhead.look(now, held(one=300), now)
    assert adjusted(control) == 0


def test_an_estimate_that_is_too_high_is_corrected(tmp_path: Path) -> None:
    """As far as contexts were estimated, a process each."""
    create_control(
        tmp_path / "control", Control("a/b/c", (CardLimit(CARD, 8 << 30, context_bytes=300 * MIB),))
    )
    overhead, now = Overhead(tmp_path / "control"), usage(one=812, other=300)
    for _ in range(2):
        overhead.look(now, held(one=612, other=100), now)
    assert adjusted(tmp_path / "control") == -400
    for _ in range(2):
        overhead.look(now, held(one=100, other=100), now)
    assert adjusted(tmp_path / "control") == -600


def cost(said: dict[Identity, int], driver: dict[Identity, int], charged: int = 0) -> int | None:
    """What is learned of a context, in MiB."""
    processes = tuple(ProcessUsage(*one, (mib * MIB,)) for one, mib in said.items())
    page = Usage((CardUsage(memory_used_bytes=sum(said.values()) * MIB),), processes)
    certain = sample(0, page, {one: mib * MIB for one, mib in driver.items()}, page)
    assert certain is not None
    learned = context_cost(certain, charged * MIB)
    return None if learned is None else learned // MIB


def test_a_contexts_cost_is_that_of_the_cheapest_process() -> None:
    """What others have beyond it is their modules; what the page charged already is part of it."""
    assert cost({ONE: 100, OTHER: 0}, {ONE: 420, OTHER: 300}) == 300
    assert cost({ONE: 400}, {ONE: 410}, charged=290) == 300


def test_a_process_with_managed_memory_on_the_host_tells_nothing_of_contexts() -> None:
    """Less than it was charged is no cost."""
    assert cost({ONE: 2048}, {ONE: 300}) is None
    assert cost({ONE: 2048, OTHER: 0}, {ONE: 300, OTHER: 310}) == 310
    assert cost({}, {}) is None
