"""A service that dies or hangs is started again at once; one that cannot work, or is told to stop, ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.processes import free_port, wait_for
from aliquot.server.health import HealthClient, wait
from aliquot.server.supervisor import LOOK_SECONDS, MOST_STARTS, Child, Patience

SOON_S = 60.0
SERVICE = """
import http.server, os, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        with pathlib.Path(sys.argv[2]).open("a") as file:
            file.write(f"{os.getpid()}\\n")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
KILLS_ITSELF = (
    "import os, pathlib, sys; pathlib.Path(sys.argv[2]).open('a').write('x\\n'); os.kill(os.getpid(), 9)"
)


class Supervised:
    """A service below a supervisor."""

    def __init__(self, directory: Path, code: str = SERVICE) -> None:
        self.port = free_port()
        self.told = directory / "told"
        """The process that has answered, a line for each answer."""
        self.told.touch()
        health = f"http://127.0.0.1:{self.port}/healthz"
        service = [sys.executable, "-c", code, str(self.port), str(self.told)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aliquot.server.supervisor", "--health", health, "--", *service],
            process_group=0,
        )

    def pid(self, but: int = 0) -> int:
        """The process that has answered the supervisor, once it is another one."""

        def look() -> int:
            pids = [int(line) for line in self.told.read_text().split()]
            return pids[-1] if pids and pids[-1] != but else 0

        return wait_for("the service to answer", look, SOON_S)

    def end(self) -> None:
        """Kill all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    """A service that works."""
    service = Supervised(tmp_path)
    yield service
    service.end()


def test_a_service_that_is_killed_again_and_again_is_started_each_time(supervised: Supervised):
    """More often than it would be given up if it had never answered."""
    pid = supervised.pid()
    for _ in range(MOST_STARTS + 1):
        os.kill(pid, signal.SIGKILL)
        pid = supervised.pid(but=pid)


def test_a_service_that_hangs_is_killed_and_started(supervised: Supervised):
    """One that is stopped neither answers nor uses CPU time."""
    pid = supervised.pid()
    os.kill(pid, signal.SIGSTOP)
    assert supervised.pid(but=pid)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_supervisor_that_is_told_to_stop_ends_with_its_service(supervised: Supervised):
    """The service has the signal, and its end is not mended."""
    pid = supervised.pid()
    supervised.process.terminate()
    assert supervised.process.wait(SOON_S) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_supervisor_that_stands_still_for_a_while_goes_on(supervised: Supervised):
    """As in a container that is paused, or under a debugger: longer than it waits between two looks."""
    pid = supervised.pid()
    for _ in range(3):
        supervised.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LOOK_SECONDS)
        supervised.process.send_signal(signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    assert supervised.pid(but=pid)


@pytest.mark.parametrize(
    ("code", "status", "starts"),
    [("import sys; sys.exit(3)", 3, 0), (KILLS_ITSELF, 128 + signal.SIGKILL, MOST_STARTS)],
    ids=["by itself", "by a signal"],
)
def test_a_service_that_never_answers_is_given_up(tmp_path: Path, code: str, status: int, starts: int):
    """With its own exit status: the kubelet shows it, and waits longer each time."""
    service = Supervised(tmp_path, code)
    try:
        assert service.process.wait(SOON_S) == status
        assert len(service.told.read_text().split()) == starts
    finally:
        service.end()


def test_a_busy_service_is_not_killed_as_one_that_hangs():
    """It has answered, does not now, and uses CPU time; once it is stopped, it hangs."""
    child = Child([sys.executable, "-c", "while True: pass"])
    silent, patience = (
        HealthClient(f"http://127.0.0.1:{free_port()}"),
        Patience(silent=0.5, starting=0.5, busy=60.0),
    )
    child.answered = True
    try:
        end = time.monotonic() + 3 * patience.silent
        while time.monotonic() < end:
            assert not child.look(silent, patience)
        child.kill(signal.SIGSTOP)
        assert "nor used CPU time" in wait_for("a reason", lambda: child.look(silent, patience), SOON_S)
    finally:
        child.kill()
        wait_for("its end", lambda: child.ended() is not None, SOON_S)


def test_who_waits_for_a_service_returns_once_it_answers(supervised: Supervised):
    """And not before: nothing listens at the start."""
    assert wait(f"http://127.0.0.1:{supervised.port}/healthz", SOON_S)
    assert supervised.told.read_text()
    assert not wait(f"http://127.0.0.1:{free_port()}/", 0.2)


def test_what_is_no_url_is_refused_in_words():
    """As a wrong flag of the chart's would be."""
    with pytest.raises(ValueError, match="give a URL like"):
        HealthClient("localhost:9443")
