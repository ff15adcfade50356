"""A driver that hangs is left alone about what hangs, and about nothing else."""

import threading
import time

import pytest

from aliquot.plugin.devices.nvml_timeout import NoAnswerError, NvmlTimeout


def test_an_answer_and_an_error_come_back():
    """As if the question had been asked at once."""
    patience = NvmlTimeout(10)
    assert patience.ask("card", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        patience.ask("card", lambda: 1 // 0)


def test_what_hangs_is_not_asked_again_before_it_has_returned():
    """The first to ask waits; later ones are told at once, add no thread, and are answered when it is over."""
    patience, free = NvmlTimeout(0.05), threading.Event()
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.05 s"):
        patience.ask("stuck", free.wait)
    threads = threading.active_count()
    begun = time.monotonic()
    for _ in range(1000):
        with pytest.raises(NoAnswerError):
            patience.ask("stuck", lambda: pytest.fail("asked though it hangs"))
    assert time.monotonic() - begun < 1000 * 0.05 / 2
    assert patience.ask("well", lambda: 7) == 7
    assert threading.active_count() <= threads + 1
    free.set()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            assert patience.ask("stuck", lambda: 8) == 8
            return
        except NoAnswerError:
            continue
    pytest.fail("it hangs for ever")


def test_who_waits_behind_a_question_that_hangs_waits_no_longer_either():
    """Two callers at once, about one card."""
    patience, free = NvmlTimeout(0.05), threading.Event()
    told: list[str] = []

    def ask() -> None:
        try:
            patience.ask("stuck", free.wait)
        except NoAnswerError as error:
            told.append(str(error))

    callers = [threading.Thread(target=ask) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(10)
    free.set()
    assert len(told) == 2
