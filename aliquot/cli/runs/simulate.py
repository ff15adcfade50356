"""The machine of `--simulate`: two cards of 16 GiB that outlive a command, so that several runs share them.

The only module of the CLI, besides the demo, that knows the sandbox.
"""

import ctypes
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.cli.options import Refusal, refuse_os_errors
from aliquot.cli.runs.machine import Machine, simulated_home, start_nvml
from aliquot.cli.runs.registry import Registry

CARD_MIB = 16384
CARD_COUNT = 2


def simulated_machine() -> Machine:
    """The simulated machine, made on first use.

    From here on this process talks to the simulated NVML: its library is loaded under the real one's name.

    Raises:
        Refusal: the simulated driver cannot be built here, or runs of another pid namespace use the machine.
    """
    home = simulated_home()
    with refuse_os_errors("keep the simulated machine", home):
        home.mkdir(mode=0o700, exist_ok=True)
        with _only_one(home / "lock-machine"):
            _discard_foreign(home)
            environment, libraries = _create(home / "machine")
    os.environ.update(environment)
    ctypes.CDLL(str(libraries / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    start_nvml()
    return Machine(home=home, environment=environment)


def _pid_namespace() -> str:
    """Where this process has its number."""
    return str(Path("/proc/self/ns/pid").readlink())


def mark_ready(root: Path) -> None:
    """Says that a simulated machine is whole, and whose it is."""
    (root / "ready").write_text(_pid_namespace())


def _discard_foreign(home: Path) -> None:
    """Removes a machine of another pid namespace, as a container that has ended leaves one behind.

    The simulated driver knows processes by their numbers. Those of another namespace would seem to hold its cards for
    ever, or to be dead.
    """
    root = home / "machine"
    ready = root / "ready"
    if not ready.exists() or ready.read_text() == _pid_namespace():
        return
    registry = Registry(home)
    with registry.locked():
        if living := len(registry.runs()):
            raise Refusal(
                f"the simulated machine in {home} is used by {living} run(s) in another pid namespace: "
                "end them, or set XDG_RUNTIME_DIR to another directory"
            )
        shutil.rmtree(root)


def _create(root: Path) -> tuple[dict[str, str], Path]:
    """Makes the machine unless it is there; returns what a process on it needs, and where its driver is."""
    try:
        from aliquot.sandbox.gpus import SimCard, SimMachine, SimulationError
    except ImportError as error:
        raise Refusal(f"the simulated driver is not part of this installation ({error})") from error
    machine = SimMachine(root, [SimCard(memory_mib=CARD_MIB) for _ in range(CARD_COUNT)])
    ready = root / "ready"
    if not ready.exists():
        try:
            machine.create()
        except SimulationError as error:
            raise Refusal(f"the simulated machine cannot be made: {error}") from error
        mark_ready(root)
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
