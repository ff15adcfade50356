"""Which rows have changed since when."""

import random

import pytest

from aliquot.scheduler_ext.cards.change_log import RECENT, ChangeLog


@pytest.mark.parametrize("seed", range(10))
def test_every_row_that_has_changed_is_told_and_no_other(seed: int):
    """After any moment, near or far, of a trail that grows, and of a copy that goes its own way."""
    dice = random.Random(seed)
    rows = 40
    change_log, changes = ChangeLog(rows), list[int]()

    def go_on() -> None:
        for _ in range(dice.randint(1, RECENT // 3)):
            changes.append(dice.randrange(rows))
            change_log.touch(changes[-1])

    for _ in range(40):
        go_on()
        if dice.random() < 0.1:
            rows += 10
            change_log.grow(rows)
        if dice.random() < 0.1:
            left, change_log = change_log, change_log.copy()
            left.touch(0)
        tick = dice.choice([0, len(changes), dice.randint(0, len(changes)), max(0, len(changes) - 3)])
        assert change_log.tick == len(changes)
        assert change_log.since(tick).tolist() == sorted(set(changes[tick:]))
