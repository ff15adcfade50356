"""The demo is a witness, not a show: it fails when what it shows is not true."""

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from aliquot.cli.demo import CARDS, EXAMPLES
from aliquot.cli.demo.scenario import Scenario
from aliquot.cli.demo.stack import SOURCE_ROOT
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.stacks import one_node


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """Unix sockets can live below it."""
    with tempfile.TemporaryDirectory(prefix="aq-") as directory:
        yield Path(directory)


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "✓"), ("ascii", " ok")])
def test_the_demo_succeeds_and_fits_a_screen(short_directory: Path, encoding: str, mark: str) -> None:
    """`aliquot demo` ends with status 0, six checked rows, and no more than a screen of text; it leaves no file."""
    done = subprocess.run(
        [sys.executable, "-m", "aliquot.cli", "demo"],
        capture_output=True,
        encoding="utf-8",
        cwd=SOURCE_ROOT,
        env={**os.environ, "TMPDIR": str(short_directory), "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(short_directory.iterdir()) == []
    lines = done.stdout.splitlines()
    assert sum(line.rstrip().endswith(mark) for line in lines) == 6
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 110
    assert encoding != "ascii" or done.stdout.isascii()
    assert done.stderr == ""


@pytest.mark.slow
def test_a_demo_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle: 130, as of any program, and no directory that nobody looks at."""
    places = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "aliquot.cli", "demo"]
    with subprocess.Popen(command, cwd=SOURCE_ROOT, env=places, start_new_session=True) as demo:
        wait_for("the cluster", lambda: any(tmp_path.glob("aliquot-*/c/*")))
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_temporary_directory_of_a_long_path_is_named_with_what_helps(tmp_path: Path) -> None:
    """As batch systems make one for each job; sockets cannot live in it."""
    long = tmp_path / ("job-" + "1" * 60)
    long.mkdir()
    places = {**os.environ, "TMPDIR": str(long)}
    command = [sys.executable, "-m", "aliquot.cli", "demo"]
    done = subprocess.run(
        command, cwd=SOURCE_ROOT, env=places, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 125
    assert done.stderr.startswith(f"Error: {long}/aliquot-")
    assert done.stderr.endswith("set TMPDIR to a directory of a shorter path, such as /tmp\n")
    assert len(done.stderr.splitlines()) == 1
    assert list(long.iterdir()) == []


@pytest.fixture
def nothing_injected(tmp_path: Path) -> Path:
    """A library that can be preloaded and does nothing."""
    library = tmp_path / "libnothing.so"
    subprocess.run(["cc", "-shared", "-o", library, "-xc", "/dev/null"], check=True)
    return library


@pytest.mark.slow
def test_the_demo_fails_without_the_interceptor(nothing_injected: Path) -> None:
    """With a library in the interceptor's place that enforces nothing, it says so and does not succeed."""
    told = io.StringIO()
    roomy = [replace(card, memory_mib=4 * card.memory_mib) for card in CARDS]  # whose own end nobody gets to
    with one_node(roomy, ["--library", str(nothing_injected), "--no-forwarders"]) as stack:
        assert not Scenario(stack, Console(file=told, width=100), EXAMPLES).tell()
    assert "greedy: was not denied 4096 MiB" in told.getvalue()
    assert "chat: saw another size" in told.getvalue()
