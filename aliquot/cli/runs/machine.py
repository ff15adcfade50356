"""The cards `aliquot run` can slice: what NVML says, of this machine or of the simulated one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pynvml

from aliquot.cli.options import Refusal
from aliquot.cli.runs.claims import shared_directory


@dataclass(frozen=True)
class Card:
    """One card as NVML shows it; sizes in bytes, `memory_bytes` without what the driver keeps for itself."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    used_bytes: int
    mig_enabled: bool = False
    outside_bytes: int = 0
    """Of what is used, had by programs that no run is known of."""

    def __str__(self) -> str:
        return f"card {self.index} ({self.uuid})"

    def has_name(self, name: str) -> bool:
        """Whether it is meant by an index, by its UUID, or by the beginning of its UUID."""
        return name == str(self.index) or (name.startswith("GPU-") and self.uuid.startswith(name))


@dataclass(frozen=True)
class Machine:
    """Where the slices of its cards are recorded, for this user and for all; what a process needs to reach them."""

    home: Path
    claims: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def runtime_directory() -> Path:
    """This user's own directory for files that live as long as processes: on tmpfs, mode 0700.

    Raises:
        Refusal: somebody else owns it, or it cannot be made.
    """
    xdg = os.environ.get("XDG_RUNTIME_DIR", "")
    # XDG: a relative one is to be ignored. A command that changes directory would lose its pages.
    path = Path(xdg, "aliquot") if Path(xdg).is_absolute() else Path("/dev/shm", f"aliquot-{os.getuid()}")  # noqa: S108 -- checked below
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise Refusal(
            f"cannot make {path}: {error.strerror}; set XDG_RUNTIME_DIR to a directory of yours that can be written"
        ) from error
    if status.st_uid != os.getuid() or path.is_symlink():
        raise Refusal(f"{path} belongs to somebody else; set XDG_RUNTIME_DIR to a directory of yours")
    return path


def simulated_home() -> Path:
    """Where the simulated machine's slices are recorded, if it is there."""
    return runtime_directory() / "simulated"


def real_machine() -> Machine:
    """This machine.

    Raises:
        Refusal: there is no NVIDIA driver, or it does not answer.
    """
    start_nvml()
    return Machine(home=runtime_directory() / "machine", claims=shared_directory())


def read_cards() -> tuple[Card, ...]:
    """Every card that NVML, started, can read, in NVML's order; one that fell off the bus is left out.

    Raises:
        Refusal: the driver fails.
    """
    try:
        found = [_read_card_or_say(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise Refusal(f"the NVIDIA driver failed while its cards were read: {error}") from error
    return tuple(card for card in found if card)


def start_nvml() -> None:
    """Initialises NVML until this process ends: on a real driver that takes longer than all that is asked of it."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as error:
        raise Refusal(
            f"no NVIDIA driver answers on this machine ({error}); install one, or use --simulate"
        ) from error
    except pynvml.NVMLError as error:
        raise Refusal(f"the NVIDIA driver does not answer: {error}") from error


def _read_card_or_say(index: int) -> Card | None:
    try:
        return _read_card(index)
    except pynvml.NVMLError as error:
        click.echo(f"aliquot: card {index} is left out: {error}", err=True)
        return None


def _read_card(index: int) -> Card:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    total, used = _memory(handle)
    return Card(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        index=index,
        model=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=total,
        used_bytes=used,
        mig_enabled=_mig_enabled(handle),
    )


def _memory(handle: object) -> tuple[int, int]:
    """Usable and used bytes; an old driver's first version of the call counts its own share as used."""
    try:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return info.total - info.reserved, info.used
    except (
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_ArgumentVersionMismatch,
    ):
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return info.total, info.used


def _mig_enabled(handle: object) -> bool:
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # most cards have no such mode
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)
