"""`aliquot top`, as a person starts it, beside a run on the simulated machine."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.shells import ALIQUOT, WAIT_S, Shell, until
from tests.integration.terminals import CTRL_Z, Terminal, terminal

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
def watching(
    environment: Mapping[str, str], stdout: int, stdin: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A `top` that goes on, and heeds SIGINT even where the tests are run in a shell's background, which ignores it."""
    command = [*ALIQUOT, "top", "--simulate", "--interval", "0.1"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        top = subprocess.Popen(command, env=environment, stdin=stdin, stdout=stdout)
    finally:
        signal.signal(signal.SIGINT, before)
    with top:
        try:
            yield top
        finally:
            top.kill()


def test_one_document_for_programs(running: Shell) -> None:
    """Ratios from 0 to 1, sizes in bytes; a run is leased its share even when it is alone with it."""
    done = running.aliquot("top", "--simulate", "--json", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ((tenant,),) = [card["tenants"] for card in told["cards"]]
    assert told["seconds"] >= 0.2
    name = tenant.pop("tenant")
    assert tenant.pop("usedBytes") == 0
    assert (f"run/{tenant.pop('id')}", len(tenant.pop("command"))) == (name, 3)
    assert tenant.pop("processes") == []
    assert tenant.pop("pid") == running.cards()[0]["slices"][0]["pid"]  # type: ignore[index]
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
    done = running.aliquot("top", "--simulate", "--once", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    title, headings, line = done.stdout.splitlines()
    assert title.startswith("card 0  NVIDIA H200  GPU-")
    assert headings.split()[:4] == ["id", "pid", "command", "memory"]
    assert headings.split()[-2:] == ["denied", "trusted"]
    assert line.split()[-2:] == ["0", "yes"]
    assert line.split()[:2] == [*running.run_directories(), str(running.cards()[0]["slices"][0]["pid"])]  # type: ignore[index]
    assert "0 of 2Gi  capped  30.0 %" in line


def test_nobody_is_told_in_words(shell: Shell) -> None:
    """An empty table would look like a fault."""
    done = shell.aliquot("top", "--once", "--interval", "0.1")
    assert (done.returncode, done.stdout) == (
        0,
        "no run of yours and no pod has a slice of this machine's cards\n",
    )


def test_the_simulated_machines_runs_are_found(running: Shell) -> None:
    """Without --simulate they are not of this machine; where they are is said."""
    done = running.aliquot("top", "--once", "--interval", "0.1")
    assert done.stdout.splitlines()[1:] == ["there are runs on the simulated machine: aliquot top --simulate"]


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


LOOP = (sys.executable, str(Path(__file__).parents[2] / "examples" / "run" / "loop.py"))


def told(shell: Shell) -> dict[str, Any]:
    """The only card that has tenants, as soon as one has."""
    until(lambda: bool(seen(shell)))
    (card,) = seen(shell)
    return card


def seen(shell: Shell) -> list[dict[str, Any]]:
    """The cards that have tenants."""
    done = shell.aliquot("top", "--simulate", "--json", "--interval", "0.5")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["cards"]
    return found


@pytest.mark.slow
def test_what_an_uncapped_run_uses_is_shown(shell: Shell) -> None:
    """Nothing measures a run that is alone with its card, but NVML knows what it does there."""
    with shell.start("--mem", "2Gi", "--", *LOOP) as run:
        until(lambda: told(shell)["tenants"][0]["used"])
        (tenant,) = told(shell)["tenants"]
        assert (tenant["mode"], tenant["guaranteed"], tenant["command"]) == ("free", None, list(LOOP))
        run.terminate()
        run.communicate(timeout=WAIT_S)


@pytest.mark.slow
def test_where_no_arbiter_leases_nothing_is_made_up(shell: Shell) -> None:
    """After every `aliquot` was killed the commands go on; their use is by their own clocks, and the table says why."""
    with shell.start("--mem", "2Gi", "--core", "30", "--", *LOOP) as run:
        until(lambda: told(shell)["tenants"][0]["guaranteed"])
        run.kill()
        until(lambda: not told(shell)["leased"])
        until(lambda: told(shell)["tenants"][0]["used"] > 0)
        (tenant,) = told(shell)["tenants"]
        assert (tenant["guaranteed"], tenant["lent"], tenant["pid"]) == (None, None, None)
        lines = shell.aliquot("top", "--simulate", "--once").stdout.splitlines()
        assert lines[-1] == "  nothing leases this card's time now: each keeps to its share by its own clock"
        (slice_,) = shell.cards()[0]["slices"]  # type: ignore[misc]
        assert lines[2].split()[:2] == [slice_["run"], str(slice_["processes"][0])], "as in cards"
        os.kill(slice_["processes"][0], signal.SIGKILL)


def test_a_terminal_that_cannot_move_its_cursor_has_one_table_after_the_other(running: Shell) -> None:
    """TERM=dumb, as in an editor's shell: no escape sequences, no traceback."""
    here, there = pty.openpty()
    with watching({**running.environment, "TERM": "dumb", "COLUMNS": "160"}, there) as top:
        os.close(there)
        seen = b""
        while seen.count(b"capped") < 3:
            seen += os.read(here, 4096)
        top.send_signal(signal.SIGINT)
        assert top.wait(60) == 0
    os.close(here)
    assert b"\x1b" not in seen


TOP = shlex.join([*ALIQUOT, "top", "--simulate"])


def keys_come_singly(screen: Terminal) -> bool:
    """Whether a program has the terminal's keys one by one, and does not have them shown."""
    return not screen.modes() & (termios.ICANON | termios.ECHO)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_key_q_ends_it(running: Shell, tmp_path: Path, term: str) -> None:
    """Other keys do nothing; afterwards the terminal is as it was."""
    with terminal(running.environment, tmp_path) as screen:
        screen.type(f"TERM={term} {TOP} --interval 0.1\n")
        screen.wait_for("capped")
        assert keys_come_singly(screen)
        screen.type("x")
        screen.wait_for("capped")
        screen.wait_for("capped")
        screen.type("q")
        screen.type("echo status $?; stty -a\n")
        screen.wait_for("status 0")
        screen.wait_for(r"[^-]icanon iexten echo")


def test_q_is_heeded_at_once(running: Shell, tmp_path: Path) -> None:
    """Nobody waits for the end of an interval."""
    with terminal(running.environment, tmp_path) as screen:
        screen.type(f"{TOP} --interval 3600\n")
        until(lambda: screen.foreground() != screen.shell and keys_come_singly(screen))
        screen.type("q")
        screen.type("echo status $?\n")
        screen.wait_for("status 0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(running: Shell, number: signal.Signals) -> None:
    """Its modes, its first screen and its cursor."""
    here, there = pty.openpty()
    before = termios.tcgetattr(there)
    with watching({**running.environment, "TERM": "xterm", "COLUMNS": "160"}, there, stdin=there) as top:
        seen = b""
        while b"capped" not in seen:
            seen += os.read(here, 4096)
        assert termios.tcgetattr(there) != before
        top.send_signal(number)
        while not {b"\x1b[?1049l", b"\x1b[?25h"} <= set(re.findall(rb"\x1b\[\?\d+\w", seen)):
            seen += os.read(here, 4096)
        assert top.wait(60) == (143 if number == signal.SIGTERM else 0)
    assert termios.tcgetattr(there) == before
    os.close(there)
    os.close(here)


def test_repeated_signals_do_not_keep_the_terminal(running: Shell) -> None:
    """As an impatient user's Ctrl-C, again and again until it has ended."""
    here, there = pty.openpty()
    before = termios.tcgetattr(there)
    with watching({**running.environment, "TERM": "xterm", "COLUMNS": "160"}, there, stdin=there) as top:
        while b"capped" not in os.read(here, 4096):
            pass
        while top.poll() is None:
            top.send_signal(signal.SIGINT)
        assert top.returncode in {0, -signal.SIGINT}, "Python's own end does not heed any more"
    assert termios.tcgetattr(there) == before
    os.close(there)
    os.close(here)


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(running: Shell, tmp_path: Path) -> None:
    """As an editor does: the shell has its screen and its keys meanwhile."""
    with terminal(running.environment, tmp_path) as screen:
        screen.type(f"{TOP} --interval 0.1\n")
        screen.wait_for("capped")
        screen.type(CTRL_Z)
        screen.wait_for("Stopped")
        screen.type("echo here; stty -a\n")
        screen.wait_for("here")
        screen.wait_for(r"[^-]icanon iexten echo")
        screen.type("fg\n")
        screen.wait_for("capped")
        screen.type("q")
        screen.type("echo status $?\n")
        screen.wait_for("status 0")


def test_a_narrow_terminal_has_a_line_a_run(running: Shell) -> None:
    """Rows are cut at its edge; folded ones could not be told apart."""
    here, there = pty.openpty()
    command = [*ALIQUOT, "top", "--simulate", "--once", "--interval", "0.2"]
    environment = {**running.environment, "TERM": "dumb", "COLUMNS": "80"}
    done = subprocess.run(command, env=environment, stdout=there, stderr=subprocess.PIPE, check=True)
    os.close(there)
    lines = os.read(here, 4096).decode().splitlines()
    os.close(here)
    assert done.stderr == b""
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
