"""Who keeps quiet about a card's time is found within two seconds; who is honest never is."""

import random
from collections.abc import Iterator

import pytest

from aliquot.plugin.sharing.unreported_time import DOUBT_S, FORGIVEN_AFTER_S, LONGEST_S, UnreportedTime

LOOK_S = 0.25


def looks_until_doubted(seen: float, said: float, most: int = 1000) -> int | None:
    """After how many looks a tenant is found that had `seen` of a card's time and says `said`; None: never."""
    arrears = UnreportedTime()
    for look in range(1, most + 1):
        arrears.enter(LOOK_S, {"A": seen * LOOK_S}, {"A": said * LOOK_S})
        if arrears.doubtful:
            return look
    return None


@pytest.mark.parametrize(("seen", "said"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.5), (0.8, 0.1)])
def test_a_liar_is_found_within_two_seconds(seen: float, said: float) -> None:
    """One look before the two seconds are over, since a look may come late."""
    found = looks_until_doubted(seen, said)
    assert found is not None
    assert found * LOOK_S <= 2 - LOOK_S


@pytest.mark.parametrize(("seen", "said"), [(1.0, 1.0), (1.0, 0.9), (0.3, 0.25), (0.05, 0.0), (0.0, 1.0)])
def test_measurements_that_differ_a_little_are_believed(seen: float, said: float) -> None:
    """For minutes: small differences do not add up."""
    assert looks_until_doubted(seen, said) is None


def test_work_is_believed_that_is_said_when_it_ends() -> None:
    """Pieces as long as the bound, said all at once; the driver sees them while they run."""
    arrears = UnreportedTime()
    for _ in range(1000):
        arrears.enter(DOUBT_S, {"A": DOUBT_S}, {"A": 0.0})
        assert not arrears.doubtful
        arrears.enter(LOOK_S, {"A": 0.0}, {"A": DOUBT_S})


def looks_at_work(seconds: float, arrears: UnreportedTime) -> Iterator[bool]:
    """Whether a tenant is doubted at each look at a piece of work that takes so long, said to be in flight."""
    for _ in range(int(seconds / LOOK_S)):
        arrears.enter(LOOK_S, {"A": LOOK_S}, {"A": 0.0}, {"A"})
        yield arrears.doubtful


@pytest.mark.parametrize("late", [0, 1])
def test_long_work_that_is_in_flight_is_believed_until_it_is_said(late: int) -> None:
    """Twenty seconds each, again and again; what is had is said with the end of it, or a look later."""
    arrears = UnreportedTime()
    for _ in range(5):
        assert not any(looks_at_work(20, arrears))
        for _ in range(late):
            arrears.enter(LOOK_S, {"A": 0.0}, {"A": 0.0})
            assert not arrears.doubtful
        arrears.enter(LOOK_S, {"A": 0.0}, {"A": 20.0})
        assert not arrears.doubtful


def test_long_work_of_which_nothing_is_said_in_the_end_is_found() -> None:
    """Within two looks after it was in flight."""
    arrears = UnreportedTime()
    assert not any(looks_at_work(20, arrears))
    for _ in range(2):
        arrears.enter(LOOK_S, {"A": 0.0}, {"A": 0.0})
    assert arrears.doubtful


def test_long_work_of_which_little_is_said_is_found() -> None:
    """Who always says to have work in flight is not believed for saying a little of it now and then."""
    arrears = UnreportedTime()
    assert not any(looks_at_work(5, arrears))
    for _ in range(2):
        arrears.enter(LOOK_S, {"A": LOOK_S}, {"A": 0.01}, {"A"})
    assert arrears.doubtful


def test_work_that_never_ends_is_not_believed_for_ever() -> None:
    """Not much longer than work may take."""
    doubted = list(looks_at_work(2 * LONGEST_S, UnreportedTime()))
    assert doubted.index(True) * LOOK_S == pytest.approx(LONGEST_S, abs=2 * LOOK_S)


def test_honest_tenants_whose_samples_come_at_other_times_are_believed() -> None:
    """What is seen in one look may be said in a later one, while no more than the bound is owed."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice, arrears, owed = random.Random(seed), UnreportedTime(), 0.0
    for _ in range(10_000):
        busy = dice.random() * LOOK_S
        owed += busy
        said = max(owed * dice.random(), owed - DOUBT_S)
        owed -= said
        arrears.enter(LOOK_S, {"A": busy}, {"A": said})
        assert not arrears.doubtful


def test_silence_about_one_of_two_cards_is_found() -> None:
    """What is said of the other does not make up for it."""
    arrears = UnreportedTime()
    for _ in range(8):
        arrears.enter(LOOK_S, {"A": LOOK_S, "B": LOOK_S}, {"A": LOOK_S * 2, "B": 0.0})
    assert arrears.doubtful


def test_who_was_found_is_believed_again_after_a_minute() -> None:
    """Without a difference; the next one starts it anew."""
    arrears = UnreportedTime()
    arrears.damaged()
    honest = [LOOK_S] * int(FORGIVEN_AFTER_S / LOOK_S)
    for passed in honest[:-1]:
        arrears.enter(passed, {}, {"A": 0.0})
        assert arrears.doubtful
    arrears.enter(LOOK_S, {}, {"A": 0.0})
    assert not arrears.doubtful
