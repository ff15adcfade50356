"""A pretend machine with GPUs: the simulated driver's libraries, scenario, device nodes and a judge.

The C libraries in `sandbox/driver` read the machine from a directory named by `SIMGPU_DIR`: `scenario` says
what cards there are, `state` (a mapped file) is what the drivers of all processes share, and what the judge reads
to know the truth. Nothing runs in the background. NumPy is imported by who reads a card's record only: it takes longer
than all else that `aliquot run --simulate` does before the program starts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import time
import uuid as uuids
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.sandbox.sysfs import PciPlace, write_sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from aliquot.sandbox.record import Busy, Record
    from aliquot.sandbox.sysfs import SimNic

SOURCES = Path(__file__).parent / "driver"
BUILT = SOURCES / "build"
MIB = 1024 * 1024
SLOTS = 256  # processes on a card at a time


class SimulationError(Exception):
    """The simulated machine cannot be built or read; the message names the path and the reason."""


@dataclass(frozen=True)
class SimMig:
    """One MIG instance. `memory_mib` 0: what the profile's name says."""

    profile: str
    uuid: str = ""
    memory_mib: int = 0
    gi: int = 1
    ci: int = 0


@dataclass(frozen=True)
class SimCard:
    """One card. Empty `uuid` and `minor` None are derived from the card's index."""

    model: str = "NVIDIA H200"
    memory_mib: int = 16384
    reserved_mib: int = 0
    """What the driver keeps for itself; NVML's first memory query counts it as used."""
    uuid: str = ""
    minor: int | None = None
    numa_node: int = 0
    pcie_path: str = ""
    """Its root complex and the switches above it, as in sysfs: `pci0000:15/0000:16:00.0`."""
    nvlinks: Mapping[int | str, int] = field(default_factory=dict)
    """How many go to each card, by index, and to switches (`switch`)."""
    nvlinks_down: int = 0
    """So many of them are down."""
    concurrent: bool = False
    """Contexts run side by side, as under MPS, instead of in turns of 2 ms."""
    switch_us: float = 0
    """What it takes to hand the card from one process to another, in which nobody has it."""
    context_mib: int = 0
    """What every context costs."""
    green_mib: int = 0
    """What a green context costs besides."""
    module_mib: int = 0
    """What a module costs in every context that it is loaded in: at once, or with CUDA's default of loading lazily
    when its first function is asked for or launched."""
    copy_gib_s: float = 50
    """What the bus takes in each direction, to the host and to other cards."""
    memory_gib_s: float = 4000
    """What the card's memory takes: a fill's bytes once, those of a copy within it twice."""
    mig: tuple[SimMig, ...] = ()
    mig_enabled: bool | None = None
    """None: enabled when there are instances."""
    lost: bool = False
    """Fell off the bus: NVML answers NVML_ERROR_GPU_IS_LOST."""
    stuck: bool = False
    """NVML's calls about it do not return while it is."""
    ecc_errors: int = 0
    """Uncorrected ECC errors so far; one more makes an event."""
    xids: tuple[int, ...] = ()
    """XID errors so far; appending one makes an event."""
    temperature: int = 35


def build_driver() -> None:
    """Builds the libraries if they are missing or out of date; an installation holds them built.

    Raises:
        SimulationError: they cannot be built.
    """
    if not (SOURCES / "Makefile").exists():
        return
    with (SOURCES / "Makefile").open() as lock:  # several test processes may start at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["make", "-C", str(SOURCES)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SimulationError(f"cannot build {SOURCES}: {done.stderr.strip()}")


@dataclass(frozen=True)
class _Device:
    """Where a UUID lives: a card, or one MIG instance (mig >= 0) of it."""

    card: int
    mig: int = -1


class SimMachine:
    """A machine in a directory. `create` builds it; `env` tells how to run programs on it."""

    def __init__(
        self,
        root: Path,
        cards: Sequence[SimCard],
        missing: Sequence[str] = (),
        nics: Sequence[SimNic] = (),
    ) -> None:
        """`missing`: ABI symbols that this machine's libcuda.so.1 is to lack, as older drivers lack newer ones."""
        self.root = Path(root)
        self.nics = tuple(nics)
        self.missing = tuple(missing)
        self.driver_version = "615.71.05"
        self.cards: tuple[SimCard, ...] = tuple(_complete(card, index) for index, card in enumerate(cards))

    @property
    def lib_dir(self) -> Path:
        """Holds libcuda.so.1 and libnvidia-ml.so.1."""
        return self.root / "driver"

    @property
    def dev_dir(self) -> Path:
        """Stands for the host's /dev."""
        return self.root / "dev"

    @property
    def sys_dir(self) -> Path:
        """Stands for the host's /sys."""
        return self.root / "sys"

    def env(self) -> dict[str, str]:
        """What a host process needs to find this machine. Libraries on the caller's path stay behind ours."""
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return {
            "SIMGPU_DIR": str(self.root),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self.lib_dir), path])),
        }

    def create(self) -> None:
        """Builds the libraries if needed and writes the machine's files. Raises SimulationError."""
        build_driver()
        for directory in (self.lib_dir, self.dev_dir):
            directory.mkdir(parents=True, exist_ok=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            _copy(BUILT / name, self.lib_dir / name, self.missing if name == "libcuda.so.1" else ())
        self._write_scenario()
        self._write_nodes()
        places = [PciPlace(_bus_id(n), card.pcie_path, card.numa_node) for n, card in enumerate(self.cards)]
        write_sysfs(self.sys_dir, places, self.nics)

    def update(self, index: int, **changes: object) -> None:
        """Changes a card while programs run: `lost`, `stuck`, `xids` … NVML sees it at its next call."""
        cards = list(self.cards)
        cards[index] = replace(cards[index], **changes)  # type: ignore[arg-type]
        self.cards = tuple(cards)
        self._write_scenario()

    def divide(self, index: int, *instances: SimMig) -> None:
        """Turns MIG on, with these instances; without any it is turned off."""
        cards = list(self.cards)
        cards[index] = _complete(replace(cards[index], mig=instances, mig_enabled=bool(instances)), index)
        self.cards = tuple(cards)
        self._write_nodes()
        self._write_scenario()

    def raise_xid(self, index: int, xid: int) -> None:
        """Reports an XID error on a card to everybody who waits for events."""
        self.update(index, xids=(*self.cards[index].xids, xid))

    def raise_ecc(self, index: int) -> None:
        """Reports an uncorrected ECC error on a card."""
        self.update(index, ecc_errors=self.cards[index].ecc_errors + 1)

    def replace_driver(self, version: str) -> None:
        """Another driver: NVML answers processes that began with the old one that versions do not match."""
        self.driver_version = version
        self._write_scenario()

    def rearrange(self, order: Sequence[int]) -> None:
        """What a reboot may do: finds the cards in another order, so that indexes, minors and bus ids are others."""
        self.cards = tuple(replace(self.cards[old], minor=new) for new, old in enumerate(order))
        self._write_scenario()

    def memory_used(self, uuid: str) -> int:
        """Bytes in use on a card or MIG instance by all processes: the driver's own truth."""
        device = self._find(uuid)
        with self._judge() as (library, machine):
            return int(library.judge_memory_used(machine, device.card, device.mig))

    def memory_highest(self, uuid: str, seconds: float) -> int:
        """The most bytes in use at any moment of the next so many seconds, watched without a pause."""
        device = self._find(uuid)
        with self._judge() as (library, machine):
            return int(library.judge_memory_highest(machine, device.card, device.mig, int(seconds * 1e9)))

    def processes(self, uuid: str) -> dict[int, int]:
        """Living processes on a card or MIG instance: pid -> bytes."""
        device = self._find(uuid)
        pids, sizes = (ctypes.c_int32 * SLOTS)(), (ctypes.c_uint64 * SLOTS)()
        with self._judge() as (library, machine):
            count = library.judge_processes(machine, device.card, device.mig, pids, sizes)
        return dict(zip(pids[:count], sizes[:count], strict=True))

    def busy(self, uuid: str) -> list[Busy]:
        """Who ran when, oldest first, as far back as the record goes: 524,288 intervals at least."""
        from aliquot.sandbox.record import Record

        entries, _ = self._entries(uuid, 0, time.monotonic_ns())
        return Record(0, 0, entries).intervals()

    def record(self, uuid: str, from_ns: int, to_ns: int) -> Record:
        """What the card did in an interval: the judge of compute shares.

        Raises SimulationError if the interval is not over, or some of it is no longer on the record.
        """
        from aliquot.sandbox.record import Record

        now = time.monotonic_ns()
        if not from_ns <= to_ns <= now:
            raise SimulationError(
                f"no record of {uuid} until {to_ns} ns: from {from_ns} ns, and now is {now} ns"
            )
        entries, lost = self._entries(uuid, from_ns, to_ns)
        if lost > from_ns:
            raise SimulationError(
                f"the record of {uuid} goes back to {lost} ns only, {(lost - from_ns) / 1e9:.3f} s too late"
            )
        return Record.clipped(from_ns, to_ns, entries)

    def _entries(self, uuid: str, from_ns: int, to_ns: int) -> tuple[NDArray[np.void], int]:
        """The entries that overlap an interval, and an instant up to which some may be lost."""
        import numpy as np

        from aliquot.sandbox.record import ENTRY

        device = self._find(uuid)
        lost = ctypes.c_uint64()
        entries = np.empty(0, ENTRY)
        with self._judge() as (library, machine):
            while True:
                count = library.judge_record(
                    machine,
                    device.card,
                    device.mig,
                    from_ns,
                    to_ns,
                    ctypes.c_void_p(entries.ctypes.data),
                    len(entries),
                    ctypes.byref(lost),
                )
                if count <= len(entries):
                    return entries[:count], lost.value
                entries = np.empty(count + SLOTS, ENTRY)

    def _find(self, uuid: str) -> _Device:
        for index, card in enumerate(self.cards):
            if card.uuid == uuid:
                return _Device(index)
            for number, mig in enumerate(card.mig):
                if mig.uuid == uuid:
                    return _Device(index, number)
        raise SimulationError(f"{self.root} has no card {uuid}")

    @contextmanager
    def _judge(self) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
        library = ctypes.CDLL(str(BUILT / "libjudge.so"))
        library.judge_open.restype = ctypes.c_void_p
        library.judge_memory_used.restype = library.judge_memory_highest.restype = ctypes.c_uint64
        library.judge_memory_highest.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64)
        library.judge_record.restype = ctypes.c_uint64
        library.judge_record.argtypes = (
            *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
            *(ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)),
        )
        machine = ctypes.c_void_p(library.judge_open(os.fsencode(self.root)))
        if not machine:
            raise SimulationError(f"{self.root} is no simulated machine")
        try:
            yield library, machine
        finally:
            library.judge_close(machine)

    def _write_scenario(self) -> None:
        lines = [f"driver_version = {self.driver_version}", "cuda_version = 13050"]
        for index, card in enumerate(self.cards):
            lines += _card_lines(index, card)
        temporary = self.root / f".scenario.{os.getpid()}"
        temporary.write_text("\n".join(lines) + "\n")
        temporary.rename(self.root / "scenario")

    def _write_nodes(self) -> None:
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
            (self.dev_dir / name).touch()
        for card in self.cards:
            (self.dev_dir / f"nvidia{card.minor}").touch()
        if any(card.mig for card in self.cards):
            self._write_caps()

    def _write_caps(self) -> None:
        """The capability nodes of MIG, and the file of /proc that tells their minor numbers."""
        caps, proc = self.dev_dir / "nvidia-caps", self.root / "proc" / "driver" / "nvidia-caps"
        caps.mkdir(exist_ok=True)
        proc.mkdir(parents=True, exist_ok=True)
        lines = ["config 1", "monitor 2"]
        for index, card in enumerate(self.cards):
            for mig in card.mig:
                gi_minor, ci_minor = _mig_minors(index, mig)
                lines.append(f"gpu{card.minor}/gi{mig.gi}/access {gi_minor}")
                lines.append(f"gpu{card.minor}/gi{mig.gi}/ci{mig.ci}/access {ci_minor}")
                (caps / f"nvidia-cap{gi_minor}").touch()
                (caps / f"nvidia-cap{ci_minor}").touch()
        for minor in (1, 2):
            (caps / f"nvidia-cap{minor}").touch()
        (proc / "mig-minors").write_text("\n".join(dict.fromkeys(lines)) + "\n")


def _copy(source: Path, target: Path, missing: Sequence[str]) -> None:
    """Replaces a library by rename: processes that have the old one mapped keep it whole."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    library = source.read_bytes()
    for symbol in missing:
        library = _without(library, symbol.encode())
    try:
        temporary.write_bytes(library)
        temporary.rename(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _without(library: bytes, symbol: bytes) -> bytes:
    """Blots a symbol out of the names that the dynamic linker sees, which come first, and of the table of entries."""
    name, mark = b"\0" + symbol + b"\0", b"=" + symbol + b"\0"
    if name not in library or mark not in library:
        raise SimulationError(f"the simulated driver has no entry {symbol.decode()}")
    return library.replace(name, name.replace(b"\0cu", b"\0--"), 1).replace(mark, mark.replace(b"=", b"-"))


def _uuid(prefix: str, name: str) -> str:
    return f"{prefix}-{uuids.uuid5(uuids.NAMESPACE_DNS, name)}"


def _complete(card: SimCard, index: int) -> SimCard:
    """Fills in what is derived from the index."""
    uuid = card.uuid or _uuid("GPU", f"card-{index}.sandbox")
    migs = tuple(
        replace(
            mig,
            uuid=mig.uuid or _uuid("MIG", f"{uuid}/{mig.gi}/{mig.ci}"),
            memory_mib=mig.memory_mib or _profile_mib(mig.profile),
        )
        for mig in card.mig
    )
    minor = index if card.minor is None else card.minor
    enabled = bool(migs) if card.mig_enabled is None else card.mig_enabled
    return replace(card, uuid=uuid, minor=minor, mig=migs, mig_enabled=enabled)


def _profile_mib(profile: str) -> int:
    """1g.18gb has 18 GiB, as its name says; attributes behind a plus sign do not matter."""
    size = profile.partition("+")[0].rpartition(".")[2]
    if not size.endswith("gb") or not size[:-2].isdigit():
        raise SimulationError(f"{profile!r} is no MIG profile: expected a name like 1g.18gb")
    return int(size[:-2]) * 1024


def _mig_minors(card: int, mig: SimMig) -> tuple[int, int]:
    """Minor numbers of an instance's two capability nodes, laid out as the driver does."""
    base = 3 + card * 135 + mig.gi * 9
    return base, base + 1 + mig.ci


def _bus_id(index: int) -> str:
    return f"00000000:{0x18 + index:02X}:00.0"


def _card_lines(index: int, card: SimCard) -> list[str]:
    values = {
        "model": card.model,
        "uuid": card.uuid,
        "memory_mib": card.memory_mib,
        "reserved_mib": card.reserved_mib,
        "context_mib": card.context_mib,
        "green_mib": card.green_mib,
        "module_mib": card.module_mib,
        "switch_us": card.switch_us,
        "copy_gib_s": card.copy_gib_s,
        "memory_gib_s": card.memory_gib_s,
        "minor": card.minor,
        "numa_node": card.numa_node,
        "temperature": card.temperature,
        "bus_id": _bus_id(index),
        "pcie_path": card.pcie_path,
        "nvlinks_down": card.nvlinks_down,
        "nvlinks": ",".join(f"{peer}:{count}" for peer, count in card.nvlinks.items()),
        "concurrent": int(card.concurrent),
        "lost": int(card.lost),
        "stuck": int(card.stuck),
        "ecc_errors": card.ecc_errors,
        "mig_enabled": int(bool(card.mig_enabled)),
        "xids": ",".join(map(str, card.xids)),
    }
    lines = [f"card.{index}.{key} = {value}" for key, value in values.items()]
    for number, mig in enumerate(card.mig):
        gi_minor, ci_minor = _mig_minors(index, mig)
        fields = {
            "profile": mig.profile,
            "uuid": mig.uuid,
            "memory_mib": mig.memory_mib,
            "gi": mig.gi,
            "ci": mig.ci,
            "gi_minor": gi_minor,
            "ci_minor": ci_minor,
        }
        lines += [f"card.{index}.mig.{number}.{key} = {value}" for key, value in fields.items()]
    return lines
