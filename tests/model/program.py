"""The command line: plays histories of a range of seeds, and makes short what fails."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tests.model.fairness import CONTESTS, print_shares
from tests.model.features import chosen, not_run
from tests.model.generator import Generator
from tests.model.history import Outcome, play
from tests.model.shrink import shrunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.model.events import Story


def main(arguments: Sequence[str]) -> int:
    """Play; the number of failing histories is in what is printed, and 1 is returned where there are any."""
    options = _parse(arguments)
    if options.fairness:
        print_shares(options.fairness)
        return 0
    for line in not_run(options.features):
        print(line)
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--histories", type=int, default=200, help="how many; default: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default: %(default)s")
    parser.add_argument("--seed", type=int, help="this history alone, with all that happens in it")
    parser.add_argument("--events", default="", help="of this history these events alone, by number: 3,7,12")
    parser.add_argument(
        "--features",
        type=chosen,
        metavar="NAMES",
        default=chosen(""),
        help="all, names, or +name,-name beside those that hold",
    )
    parser.add_argument("--fairness", choices=[*CONTESTS], help="measure shares of the cards' time instead")
    parser.add_argument(
        "--keep-going", action="store_true", help="do not end at the first history that fails"
    )
    parser.add_argument("--no-shrink", action="store_true", help="do not make a failing history short")
    return parser.parse_args(arguments)


def _many(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.histories)
    total, failed, begin = Outcome(), [], time.process_time()
    for seed in seeds:
        story = Generator(seed, options.features).story()
        outcome = play(story)
        _add(total, outcome)
        if outcome.findings:
            failed.append(seed)
            _report(story, outcome, options)
            if not options.keep_going:
                break
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}: {total.steps} events in {total.seconds / 3600:.1f} virtual hours, "
        f"{total.quiet_ends} quiet ends, {total.evictions} evictions, {total.dry_runs} dry runs compared, "
        f"{total.remedies} remedies tried, {len(failed)} histories failed; {time.process_time() - begin:.0f} s"
    )
    return 1 if failed else 0


def _add(total: Outcome, one: Outcome) -> None:
    for name in ("steps", "seconds", "quiet_ends", "evictions", "dry_runs", "remedies"):
        setattr(total, name, getattr(total, name) + getattr(one, name))


def _one(options: argparse.Namespace) -> int:
    story = Generator(options.seed, options.features).story()
    if options.events:
        story = story.only(frozenset(map(int, options.events.split(","))))
    print("\n".join(story.lines()))
    outcome = play(story, log=True)
    print("\n".join(outcome.log))
    print(f"digest {outcome.digest}")
    for finding in outcome.findings:
        print(f"FOUND {finding}")
    return 1 if outcome.findings else 0


def _report(story: Story, outcome: Outcome, options: argparse.Namespace) -> None:
    print(f"seed {story.seed} fails: {outcome.findings[0]}")
    if not options.no_shrink:
        story, outcome = shrunk(story, outcome)
    for line in story.lines():
        print(f"  {line}")
    print(f"  FOUND {outcome.findings[0]}")
    numbers = ",".join(str(event.number) for event in story.events)
    names = ",".join(sorted(options.features))
    print(
        f"  again: .venv/bin/python -m tests.model --seed {story.seed} --events {numbers} --features {names}"
    )
    sys.stdout.flush()
