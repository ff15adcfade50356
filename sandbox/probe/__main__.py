"""`python -m aliquot.sandbox.probe run` and `python -m aliquot.sandbox.probe compare A B`."""

import argparse
import sys
from pathlib import Path

from aliquot.sandbox.probe import Difference, ProbeError, compare, run


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m aliquot.sandbox.probe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="ask this machine's driver and print the transcript")
    two = commands.add_parser("compare", help="hold two transcripts against each other")
    two.add_argument("left", type=Path)
    two.add_argument("right", type=Path)
    return parser.parse_args(arguments)


def describe(difference: Difference) -> str:
    """One line for a person."""
    mark = "card  " if difference.is_card else "DIFFER"
    return f"{mark} {difference.probe}: {difference.left!r} -> {difference.right!r}"


def main(arguments: list[str]) -> int:
    """Returns 1 when drivers differ (cards may), 2 when something cannot be read or run."""
    options = parse(arguments)
    try:
        if options.command == "run":
            sys.stdout.write(run())
            return 0
        differences = compare(options.left.read_text(), options.right.read_text())
    except (ProbeError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for difference in differences:
        sys.stdout.write(describe(difference) + "\n")
    return int(any(not difference.is_card for difference in differences))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
