"""An arbiter that was held up for so long that tenants went by their own clocks, and comes back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.libshim._pages import lib
from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage
from tests.unit.arbiter.player import Player

MS = 1_000_000
CARD = "GPU-11111111-1111-1111-1111-111111111111"
PATIENCE_S = 60.0
WAITED_FOR_NS = 200 * MS
"""What is in flight and does not end is waited for so long."""
NAMES = ("a", "b")

AGENT = """
import sys
from pathlib import Path
from aliquot.arbiter import Arbiter, Terms
arbiter = Arbiter()
arbiter.start()
for name in sys.argv[3:]:
    pages = (Path(sys.argv[1]) / f"{name}.{page}" for page in ("control", "usage"))
    arbiter.enter(name, *pages, [Terms(sys.argv[2], share_bp=5000, most_percent=100, priority=0)])
print("ready", flush=True)
sys.stdin.read()
"""


def until(happens: Callable[[], bool]) -> None:
    """Waits for something."""
    end = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end


@contextmanager
def agent(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with an arbiter of two tenants of half a card."""
    for name in NAMES:
        limit = CardLimit(CARD, 0, core_share_bp=5000, core_most_percent=100)
        create_control(directory / f"{name}.control", Control(f"test/{name}/main", (limit,)))
        create_usage(directory / f"{name}.usage")
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, directory, CARD, *NAMES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def is_silent(player: Player) -> bool:
    """Whether a tenant goes by its own clock."""
    return time.monotonic_ns() - player.control.heartbeat_ns > 60 * MS


def test_no_lease_is_good_any_more_and_nobody_is_let_in_beside_what_is_in_flight(tmp_path: Path):
    """Though the holder still has work, and the other, which had none, has begun some by its own clock."""
    with agent(tmp_path) as process:
        holder, other = (
            Player(tmp_path / f"{name}.control", tmp_path / f"{name}.usage", 0) for name in NAMES
        )
        with holder, other:
            holder.pass_gate(0, 1000 * MS)
            gates = [player.control.cards[0].gate for player in (holder, other)]
            os.kill(process.pid, signal.SIGSTOP)
            until(lambda: is_silent(holder))
            other.say(0, lib.AQ_WORK_IN_FLIGHT, time.monotonic_ns() + 60_000 * MS)
            continued = time.monotonic_ns()
            os.kill(process.pid, signal.SIGCONT)
            until(lambda: not is_silent(holder))
            until(lambda: holder.control.cards[0].gate != gates[0])
            holder.say(0, lib.AQ_WORK_WAITING)
            holder.ring(0)
            while time.monotonic_ns() < continued + 150 * MS:
                is_open = holder.is_open(0) or other.is_open(0)
                assert not is_open or time.monotonic_ns() > continued + WAITED_FOR_NS
            assert other.control.cards[0].gate != gates[1]
            other.rest(0)
            until(lambda: holder.is_open(0))


def test_where_threads_are_woken_late_more_work_may_be_in_flight(tmp_path: Path):
    """A process that is stopped for a moment finds its sleeps late, as on a node whose CPUs are busy."""
    with agent(tmp_path) as process:
        players = [Player(tmp_path / f"{name}.control", tmp_path / f"{name}.usage", 0) for name in NAMES]
        with players[0], players[1]:

            def most_in_flight_us() -> int:
                for player in players:
                    player.run(0, MS)
                return max(int(player.control.cards[0].window_us) for player in players)

            most_in_flight_us()
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.05)
            os.kill(process.pid, signal.SIGCONT)
            until(lambda: most_in_flight_us() > 4000)
