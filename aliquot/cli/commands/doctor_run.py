"""What `aliquot doctor --run` looks at: all that `aliquot run` needs of this machine, and a slice that is tried.

Unlike the other checks these do something: each is a step of `aliquot run`, and the last starts one for a moment.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from aliquot.cli.commands.run import preloadable
from aliquot.cli.display.wording import size
from aliquot.cli.options import Refusal, confined
from aliquot.cli.runs.claims import is_usable, shared_directory
from aliquot.cli.runs.environment_limits import CORE, MEMORY
from aliquot.cli.runs.machine import read_cards, real_machine, runtime_directory
from aliquot.cli.runs.simulate import simulated_machine
from aliquot.doctor.check import Check, run
from aliquot.doctor.finding import Finding, Told, count, failure, not_checked, ok, warning
from aliquot.libshim.library import library_path
from aliquot.units import MIB

GROUP: Final = "aliquot run"
LEAST_FREE: Final = 16 * MIB
"""A run keeps less than one MiB there, a simulated machine some more."""
TRIAL_MIB: Final = 256
TRIAL_S: Final = 60
SHOW_TOTAL: Final = """
import ctypes
driver, device, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t()
for result in (
    driver.cuInit(0),
    driver.cuDeviceGet(ctypes.byref(device), 0),
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), device),
):
    if result:
        raise SystemExit(f"the driver answers error {result}")
print(total.value)
"""


@dataclass(frozen=True)
class Setup:
    """Which machine `aliquot run` would use."""

    simulate: bool


def examine(*, simulate: bool) -> tuple[Finding, ...]:
    """What all checks of `aliquot run` find on this machine, or on the simulated one."""
    return run(RUN_CHECKS, Setup(simulate=simulate))


def interceptor(_setup: Setup) -> Iterator[Told]:
    """Whether there is a library that LD_PRELOAD can name."""
    yield _told(lambda: f"{preloadable(library_path())} can be preloaded")


def directory(_setup: Setup) -> Iterator[Told]:
    """Whether pages and the record of runs can be kept."""
    yield _told(_try_directory)


def _try_directory() -> str:
    path = runtime_directory()
    remedy = "set XDG_RUNTIME_DIR to a directory of yours on tmpfs that can be written and has room"
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(MIB))
        free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}; {remedy}") from error
    if free < LEAST_FREE:
        raise Refusal(f"{path} has {size(free)} left; {remedy}")
    return f"{path} can be written"


def others(setup: Setup) -> Iterator[Told]:
    """Whether the runs of all users know of each other."""
    path = shared_directory()
    if setup.simulate:
        yield ok("nobody else uses your simulated machine")
    elif is_usable(path):
        yield ok(f"the runs of all users are seen in {path}")
    else:
        yield warning(
            f"{path} cannot be shared by all users: runs of others are seen only by what NVML says is in use",
            f"As root: mkdir -m 1777 {path}",
        )


def driver(setup: Setup) -> Iterator[Told]:
    """Whether the driver answers, and which cards can be divided."""
    yield _told(partial(_cards, setup))


def _cards(setup: Setup) -> str:
    if setup.simulate:
        simulated_machine()
    else:
        real_machine()
    cards = read_cards()
    if not any(not card.mig_enabled for card in cards):
        raise Refusal(f"{count(len(cards), 'card')}, none of which can be divided; switch MIG mode off")
    words = (f"card {card.index} ({card.model}, {size(card.memory_bytes)})" for card in cards)
    return ", ".join(words)


def trial(setup: Setup) -> Iterator[Told]:
    """Whether a program in a slice sees the slice."""
    if confined():
        yield not_checked("this shell is confined to a slice itself")
        return
    options = ["--quiet", "--mem", f"{TRIAL_MIB}Mi", *(["--simulate"] if setup.simulate else [])]
    python = [sys.executable, "-P"]  # what lies in the current directory is not ours to run
    command = [*python, "-m", "aliquot.cli", "run", *options, "--", *python, "-c", SHOW_TOTAL]
    try:
        done = subprocess.run(
            command, env=_without_limits(), capture_output=True, text=True, timeout=TRIAL_S, check=False
        )
    except subprocess.TimeoutExpired:
        yield failure(f"a slice that was tried has not ended for {TRIAL_S} s", "See which check above fails.")
        return
    yield _judge(done)


def _without_limits() -> dict[str, str]:
    """The environment without limits of its own, which a slice of another size would contradict."""
    return {key: value for key, value in os.environ.items() if not key.startswith((MEMORY, CORE))}


def _judge(done: subprocess.CompletedProcess[str]) -> Told:
    """What a trial has shown."""
    if done.returncode or not done.stdout.strip().isdigit():
        why = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        refused, _, remedy = why.removeprefix("Error: ").partition("; ")
        return failure(f"a slice that was tried: {refused}", remedy or "Mend what else fails here first.")
    seen = int(done.stdout)
    if seen > TRIAL_MIB * MIB:
        return failure(
            f"a program in a slice of {TRIAL_MIB}Mi sees {size(seen)}: it is not confined",
            "Look whether something takes LD_PRELOAD out of its environment.",
        )
    return ok(f"a program in a slice of {TRIAL_MIB}Mi sees {size(seen)}")


def _told(look: Callable[[], str]) -> Told:
    """What a step of `aliquot run` says; its refusals have the remedy behind a semicolon."""
    try:
        return ok(look())
    except Refusal as refusal:
        seen, _, remedy = str(refusal.message).partition("; ")
        return failure(seen, remedy)


RUN_CHECKS: Final[tuple[Check[Setup], ...]] = (
    Check("driver", GROUP, "the driver answers and has a card to divide", driver),
    Check("interceptor", GROUP, "the interceptor can be preloaded", interceptor),
    Check("directory", GROUP, "the record of runs can be kept", directory),
    Check("others", GROUP, "runs of other users are seen", others),
    Check("slice", GROUP, "a program in a slice sees the slice", trial),
)
