"""Which hooks each test enters: the native tests run on the interceptor's tracing flavour (`make -C libshim trace`).

As a program, with the name of a file: runs them and leaves there a JSON object of test id: symbols entered.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TRACED = REPOSITORY / "libshim" / "build" / "trace" / "libaliquot.so"


class Tracer:
    """Gives every test a file for its processes to note hooks in; writes the notes of all tests as one JSON object.

    Once tests that passed have entered every symbol of `wanted`, no further test is run.
    """

    def __init__(self, result: Path, notes: Path, wanted: frozenset[str] = frozenset()) -> None:
        self._result = result
        self._notes = notes
        self._left = set(wanted)
        self._entered: dict[str, list[str]] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Before any fixture is made: processes that fixtures start are the test's."""
        path = self._notes / str(len(self._entered))
        os.environ["ALIQUOT_TRACE"] = str(path)
        try:
            return (yield)
        finally:
            found = path.read_text().split() if path.exists() else []
            self._entered[item.nodeid] = sorted(set(found))
            self._strike_off(item, found)

    def _strike_off(self, item: pytest.Item, found: list[str]) -> None:
        if self._left and item.nodeid not in self._failed:
            self._left.difference_update(found)
            if not self._left:
                item.session.shouldstop = "every hook was entered"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails has tested nothing."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Leaves the result."""
        passed = {test: hooks for test, hooks in self._entered.items() if test not in self._failed}
        self._result.write_text(json.dumps(passed, indent=1))


def build() -> Path:
    """Makes the tracing flavour."""
    subprocess.run(["make", "-s", "-C", REPOSITORY / "libshim", "trace"], check=True)
    return TRACED


def run(result: Path, *options: str) -> str:
    """Runs the tests that use the interceptor and neither judge time nor are slow; what pytest said if any failed."""
    left_out = ["-m", "not slow and not timing and not gpu", "--ignore-glob=*/test_sim_*"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", f"--trace-hooks={result}"),
            *(*options, *left_out, REPOSITORY / "tests" / "native"),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "ALIQUOT_FLAVOUR": str(build())},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode else ""


if __name__ == "__main__":
    print(run(Path(sys.argv[1])), end="", file=sys.stderr)
