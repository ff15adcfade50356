"""Who says to have work on a card, and is not seen there, is found; who is seen there is not."""

import random

import pytest

from aliquot.plugin.sharing.absent_work import FOUND_AFTER_S, AbsentWork

LOOK_S = 0.25
WORKING = {"A"}


def looks_until_absent(seen: float, in_flight: float = 1.0, most: int = 1000) -> int | None:
    """After how many looks a tenant is absent that has these parts of a card and of time with work; None: never."""
    absent, rng = AbsentWork(), random.Random(1)
    for look in range(1, most + 1):
        absent.enter({"A": LOOK_S}, {"A": seen * LOOK_S}, WORKING if rng.random() < in_flight else ())
        if absent.cards:
            return look
    return None


def test_who_only_says_to_have_work_is_found() -> None:
    """In the time that is told."""
    found = looks_until_absent(0.0)
    assert found is not None
    assert found * LOOK_S == pytest.approx(FOUND_AFTER_S, abs=LOOK_S)


@pytest.mark.parametrize(("seen", "in_flight"), [(1.0, 1.0), (0.2, 1.0), (0.01, 0.01), (0.0, 0.0)])
def test_who_has_what_it_says_is_not(seen: float, in_flight: float) -> None:
    """For minutes, with much work or little."""
    assert looks_until_absent(seen, in_flight) is None


def test_it_is_there_as_soon_as_it_is_seen_and_for_ten_times_as_long() -> None:
    """However long it was absent."""
    absent = AbsentWork()
    for _ in range(100):
        absent.enter({"A": LOOK_S}, {}, WORKING)
    assert absent.cards == WORKING
    absent.enter({"A": LOOK_S}, {"A": 0.4 * LOOK_S}, WORKING)
    after = []
    for _ in range(5):
        after.append(bool(absent.cards))
        absent.enter({"A": LOOK_S}, {}, WORKING)
    assert (any(after[:3]), after[-1]) == (False, True)


def test_a_card_of_which_the_driver_tells_nothing_has_nobody_absent() -> None:
    """Nor one on which nobody works, for then there are no samples."""
    absent = AbsentWork()
    for _ in range(100):
        absent.enter({}, {}, WORKING)
        absent.enter({"A": 0.0}, {}, WORKING)
    assert not absent.cards
    absent.enter({"A": 100 * LOOK_S}, {}, WORKING)
    assert absent.cards
    absent.enter({}, {}, WORKING)
    assert not absent.cards
