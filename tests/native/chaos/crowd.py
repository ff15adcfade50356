"""The processes of one tenant: chaos clients, their children, and what becomes of them."""

import os
import random
import select
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.native.chaos.watch import Watch
from tests.native.tenants import Tenant

PLACES = 3
STOPPED_AT_MOST_S = 1.0
ANSWERS_WITHIN_S = 30.0


class ViolationError(Exception):
    """A promise was broken; the message says which, and by whom."""


@dataclass
class Crowd:
    """So many clients of one tenant, each at a place of its own; whoever ends is our doing."""

    tenant: Tenant
    client: Path
    dice: random.Random
    places: list[subprocess.Popen[str]] = field(default_factory=list)
    sessions: set[int] = field(default_factory=set)
    stopped: dict[int, threading.Timer] = field(default_factory=dict)
    disturbed: float = 0.0
    """When a process was last killed."""

    def __post_init__(self) -> None:
        self.watch = Watch(self.tenant.directory / "watch")
        self.words = self.tenant.directory / "words"
        self.places = [self._start(place) for place in range(PLACES)]

    def _start(self, place: int) -> subprocess.Popen[str]:
        name = f"{self.tenant.directory.name}.{os.getpid()}"
        shape = [place, PLACES, self.dice.randrange(1 << 20), self.dice.choice([1, 2, 3]), 0]
        with self.words.open("a") as words:
            process = subprocess.Popen(
                [self.client, self.watch.path, name, *map(str, shape)],
                env=self.tenant.env(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
                start_new_session=True,  # its children are known by it
            )
        self.sessions.add(process.pid)
        return process

    def owns(self, pid: int) -> bool:
        """Whether a process is one of these, or a child of one."""
        try:
            return os.getsid(pid) in self.sessions
        except ProcessLookupError:
            return False

    def alive(self) -> set[int]:
        """All of them that can still do something."""
        return {pid for pid in self.watch.entries() if self.owns(pid) and not _is_dead(pid)}

    # ---- what is done to them ----

    def replace(self) -> str:
        """Kills one, wherever it is just now, and lets another take its place."""
        place = self.dice.randrange(PLACES)
        self._kill(self.places[place])
        self.places[place] = self._start(place)
        return f"kill {place}"

    def _kill(self, process: subprocess.Popen[str]) -> None:
        self.disturbed = time.monotonic()
        process.kill()
        process.communicate()

    def stop(self) -> str:
        """Stops one, wherever it is, for up to a second; it goes on even if it keeps the auditor from looking."""
        process = self.dice.choice(self.places)
        timer = threading.Timer(self.dice.uniform(0, STOPPED_AT_MOST_S), self._go_on, [process])
        self.stopped[process.pid] = timer
        process.send_signal(signal.SIGSTOP)
        timer.start()
        return f"stop {process.pid}"

    def _go_on(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGCONT)
        self.stopped.pop(process.pid, None)

    def _all_go_on(self) -> None:
        for timer in list(self.stopped.values()):
            timer.join()

    def check_living(self) -> None:
        """Raises ViolationError if one has ended by itself."""
        for process in self.places:
            if process.poll() is not None:
                raise ViolationError(f"process {process.pid} ended with {process.returncode}: {self.said()}")

    def said(self) -> str:
        """The latest words of all."""
        return self.words.read_text()[-2000:]

    # ---- their end ----

    def give_all_back(self) -> None:
        """Everybody gives back what it has, then leaves the card, but lives on."""
        self._all_go_on()
        for order, answer in (("g", "given"), ("s", "settled")):
            for process in self.places:
                _say(process, order)
            for process in self.places:
                if _hear(process) != answer:
                    raise ViolationError(f"process {process.pid} has not {answer}: {self.said()}")

    def leave(self) -> None:
        """Everybody returns from main."""
        for process in self.places:
            _say(process, "r")
            if process.wait() != 0:
                raise ViolationError(f"process {process.pid} ended with {process.returncode}: {self.said()}")
        self.kill_all()

    def kill_all(self) -> None:
        """Everybody dies, children too."""
        for process in self.places:
            self._kill(process)
        for session in self.sessions:
            _kill_group(session)


def _say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word)
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], ANSWERS_WITHIN_S)
    return process.stdout.readline().strip() if ready else "answered"


def _kill_group(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_dead(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text[text.rindex(")") + 2] in "ZX"
