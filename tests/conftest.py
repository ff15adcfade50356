"""Tests marked `timing` judge time: a run on a machine that was too busy is discarded and repeated.

The rule is that of bench/compute.py. A test that found no quiet machine in TRIES runs is *not judged*: it neither
passed nor failed. It is reported as skipped, and named at the end.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from bench.timeshare.wakes import QUIET_US, SOURCE, compile_program, watched

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
"""Read when gRPC is imported, which nothing above does. Its handlers run in every child that is forked, and may crash
there while other threads use gRPC. Whatever is started as another user, or to own a terminal, is forked."""
TRIES = 4
REASON = "NOT JUDGED: "
LATE_US = pytest.StashKey[float]()


@cache
def wakes() -> Path:
    """The program that measures wake-ups, compiled. It lives as long as the test run."""
    directory = Path(tempfile.mkdtemp(prefix="aliquot-wakes-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return compile_program(directory / "wakes", SOURCE)


def judges_time(item: pytest.Item) -> bool:
    """Whether a test is marked `timing`."""
    return item.get_closest_marker("timing") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Measures wake-ups while a test that judges time runs; not while its fixtures are set up, which may compile."""
    if not judges_time(item):
        return (yield)
    late_us: list[float] = []
    try:
        with watched(wakes()) as late_us:
            return (yield)
    finally:
        item.stash[LATE_US] = late_us[0]


def discarded(item: pytest.Item, reports: Sequence[pytest.TestReport]) -> bool:
    """Whether the machine was too busy for this run to count. One whose fixtures failed counts."""
    was_called = any(report.when == "call" for report in reports)
    return was_called and item.stash[LATE_US] > QUIET_US


def not_judged(item: pytest.Item, reports: Sequence[pytest.TestReport], failures: int) -> None:
    """Makes the last of several discarded runs neither passed nor failed."""
    last_ms = item.stash[LATE_US] / 1000
    late = f"in each of {TRIES} runs this machine woke threads too late ({last_ms:.1f} ms in the last)"
    path, line, _ = item.location
    for report in reports:
        if report.when == "call":
            report.outcome = "skipped"
            report.longrepr = (path, line or 0, f"{REASON}{late}; {failures} of them failed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test that judges time until a run counts."""
    if not judges_time(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    failures = 0
    for _ in range(TRIES):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not discarded(item, reports):
            break
        failures += any(report.failed for report in reports)
    else:
        not_judged(item, reports, failures)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says loudly which tests were not judged."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and report.longrepr[2].startswith(REASON):
            terminalreporter.write_line(
                f"*** {REASON}{report.nodeid}: {report.longrepr[2].removeprefix(REASON)}", yellow=True
            )
