"""The machine of `--simulate`: two cards of 16 GiB that outlive a command, so that several runs share them.

The only module of the CLI, besides the demo, that knows the sandbox.
"""

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.cli.machine import Machine, read_cards, runtime_directory
from aliquot.cli.options import Refusal, refuse_os_errors

CARD_MIB = 16384
CARD_COUNT = 2


def simulated_machine() -> Machine:
    """The simulated machine, made on first use.

    From here on this process talks to the simulated NVML: its library is loaded under the real one's name.

    Raises:
        Refusal: the simulated driver cannot be built here.
    """
    home = runtime_directory() / "simulated"
    with refuse_os_errors("keep the simulated machine"):
        home.mkdir(mode=0o700, exist_ok=True)
    with _only_one(home / "lock-machine"):
        environment, libraries = _create(home / "machine")
    os.environ.update(environment)
    ctypes.CDLL(str(libraries / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    return Machine(home=home, cards=read_cards(), environment=environment)


def _create(root: Path) -> tuple[dict[str, str], Path]:
    """Makes the machine unless it is there; returns what a process on it needs, and where its driver is."""
    try:
        from sandbox.gpus import SimCard, SimMachine, SimulationError
    except ImportError as error:
        raise Refusal(f"the simulated driver is not part of this installation ({error})") from error
    machine = SimMachine(root, [SimCard(memory_mib=CARD_MIB) for _ in range(CARD_COUNT)])
    ready = root / "ready"
    if not ready.exists():
        try:
            machine.create()
        except (SimulationError, OSError) as error:
            raise Refusal(f"the simulated machine cannot be made: {error}") from error
        ready.touch()
    return machine.env(), machine.lib_dir


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Two commands started at once make one machine."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
