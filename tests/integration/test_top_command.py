"""`aliquot top`, as a person starts it, beside a run on the simulated machine."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.integration.shells import ALIQUOT, Shell

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def running(shell: Shell) -> Iterator[Shell]:
    """A shell in which a run of 30 % waits."""
    with shell.start("--mem", "2Gi", "--core", "30", "--", sys.executable, "-c", WAIT) as run:
        assert run.stdout
        assert run.stdout.readline() == "ready\n"
        yield shell
        run.communicate("")


@contextmanager
def watching(environment: Mapping[str, str], stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    """A `top` that goes on, and heeds SIGINT even where the tests are run in a shell's background, which ignores it."""
    command = [*ALIQUOT, "top", "--interval", "0.1"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        top = subprocess.Popen(command, env=environment, stdout=stdout)
    finally:
        signal.signal(signal.SIGINT, before)
    with top:
        try:
            yield top
        finally:
            top.kill()


def test_one_document_for_programs(running: Shell) -> None:
    """Ratios from 0 to 1, sizes in bytes; a run is leased its share even when it is alone with it."""
    done = running.aliquot("top", "--json", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ((tenant,),) = [card["tenants"] for card in told["cards"]]
    assert told["seconds"] >= 0.2
    assert tenant.pop("tenant").startswith("run/")
    assert tenant.pop("usedBytes") == 0
    assert tenant == {
        "mode": "capped",
        "priority": 0,
        "share": 0.3,
        "most": 0.3,
        "guaranteed": 0.0,
        "used": 0.0,
        "lent": 0.0,
        "waiting": 0.0,
        "memoryBytes": 2 << 30,
        "deniedAllocations": 0,
        "trusted": True,
    }


def test_one_table_for_people(running: Shell) -> None:
    """A line for each tenant below its card; and words where there is nobody."""
    done = running.aliquot("top", "--once", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    title, headings, line = done.stdout.splitlines()
    assert title.startswith("card GPU-")
    assert headings.split()[:3] == ["tenant", "mode", "prio"]
    assert headings.split()[-2:] == ["denied", "trusted"]
    assert line.split()[-2:] == ["0", "yes"]
    assert line.split()[1:5] == ["capped", "0", "30.0", "%"]


def test_nobody_is_told_in_words(shell: Shell) -> None:
    """An empty table would look like a fault."""
    done = shell.aliquot("top", "--once", "--interval", "0.1")
    assert (done.returncode, done.stdout) == (0, "nobody has a slice of this machine's cards\n")


def test_tables_follow_each_other_where_there_is_no_terminal(running: Shell) -> None:
    """Until it is interrupted, which is no failure."""
    with watching(running.environment, subprocess.PIPE) as top:
        assert top.stdout
        titles = [line for line in (top.stdout.readline() for _ in range(9)) if line.startswith(b"card")]
        assert len(titles) == 3
        top.send_signal(signal.SIGINT)
        assert top.wait(60) == 0


def test_a_terminal_has_one_table_that_changes(running: Shell) -> None:
    """On a screen of its own, which is given back."""
    here, there = pty.openpty()
    with watching({**running.environment, "TERM": "xterm", "COLUMNS": "160"}, there) as top:
        os.close(there)
        seen = b""
        while seen.count(b"capped") < 2:
            seen += os.read(here, 4096)
        top.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in seen:
            seen += os.read(here, 4096)
        assert b"\x1b[?1049h" in seen
        assert top.wait(60) == 0
    os.close(here)
