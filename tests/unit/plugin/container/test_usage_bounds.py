"""What a tenant's page says moves what others see of cards and nodes no further than can be true."""

from aliquot.libshim.usage_page import CardUsage
from aliquot.plugin.container.usage_bounds import SPARE_MOST_NS, TimeBounds, bounded

S = 10**9
CARD = 16 << 30
UP = 1000 * S
"""Since the machine has begun, when the page is read first."""
ABSURD = 2**63


def told(*said_ns: int, every_ns: int = 15 * S) -> list[int]:
    """The time busy that is believed, of a page that is read every so often."""
    times = TimeBounds()
    return [
        bounded(CardUsage(busy_ns=said), CARD, times, UP + turn * every_ns).busy_ns
        for turn, said in enumerate(said_ns)
    ]


def test_more_memory_than_a_card_has_is_told_as_all_of_it() -> None:
    """In use, and at its peak."""
    found = bounded(CardUsage(memory_used_bytes=ABSURD, memory_peak_bytes=ABSURD), CARD, TimeBounds(), UP)
    assert (found.memory_used_bytes, found.memory_peak_bytes) == (CARD, CARD)
    honest = CardUsage(memory_used_bytes=1 << 30, memory_peak_bytes=2 << 30, allocations_denied=3)
    assert bounded(honest, CARD, TimeBounds(), UP) == honest


def test_time_grows_no_faster_than_time() -> None:
    """Neither at the first look nor at a later one, whatever is said then."""
    assert told(0, 0, ABSURD, ABSURD)[-1] <= 1.25 * (UP + 45 * S)
    first, second, third = told(ABSURD, ABSURD + ABSURD // 2, ABSURD + ABSURD // 2)
    assert first <= 1.25 * UP
    assert second - first <= 1.25 * 15 * S
    assert third == second


def test_time_that_can_have_been_is_told_as_it_is_said() -> None:
    """From before the agent's start, of kernels of half an hour, and from nothing on in a page that was emptied."""
    assert told(900 * S, 910 * S, 925 * S) == [900 * S, 910 * S, 925 * S]
    half_an_hour = 1800 * S
    assert told(0, 0, 0, half_an_hour, every_ns=half_an_hour // 2)[-1] == half_an_hour
    assert told(900 * S, 5 * S, 9 * S) == [900 * S, 5 * S, 9 * S]


def test_what_was_not_used_for_long_is_not_saved_up() -> None:
    """A day without work makes no jump of a day believable."""
    day = 86_400 * S
    assert told(0, 0, ABSURD, every_ns=day)[-1] <= SPARE_MOST_NS


def test_many_processes_may_wait_at_once() -> None:
    """Each of them waits as long as time passes."""
    times = TimeBounds()
    for turn in range(3):
        usage = CardUsage(throttled_ns=turn * 200 * 15 * S)
        assert bounded(usage, CARD, times, UP + turn * 15 * S).throttled_ns == usage.throttled_ns
