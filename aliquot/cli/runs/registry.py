"""Who holds a slice of this machine's cards: one directory a run, on tmpfs.

    <home>/lock                 held (flock) while a slice is chosen, changed, given back or listed
    <home>/contexts.json        what a process's context costs, by card
    <home>/arbiter              a lock on it is held by the run that leases the cards' time to all (arbiter_election.py)
    <home>/runs/<id>/run.json   what was given, to whom
                     alive      a lock on it is inherited by the command and whatever it starts
                     control, usage   the pages

The lock on `alive` says whether a run still lives: it ends with the last process that inherited it, also
when this command itself was killed, and no pid can be mistaken for another's. Processes that closed every
file they inherited are found by their slots in the usage page. Another user has another <home>; what the runs of
all users have of a card is told by their claims (claims.py).
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from aliquot.cli.options import refuse_os_errors
from aliquot.cli.runs.claims import Claims
from aliquot.cli.runs.slices import Slice, promised
from aliquot.libshim.control_page import CardLimit, Control, change_control, create_control, read_control
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import Usage, create_usage, read_usage
from aliquot.request.core_shares import Promised
from aliquot.units import MIB

TENANT_PREFIX = "run/"
"""Stands before the id in a run's control page, where a pod's has its namespace."""
ID_LENGTH = 4
FIRST_OF_ID = "abcdefghjkmnpqrstuvwxyz"
OTHERS_OF_ID = FIRST_OF_ID + "23456789"
"""No id is a number, which would be taken for a pid, and no two characters look alike."""


class Run(msgspec.Struct, frozen=True):
    """One run as its run.json says; `pid`, started at `start_time`, is the `aliquot run` that supervises it.

    `card_index` and `card_model` are for people; the card itself is named by the slice.
    """

    id: str
    pid: int
    command: tuple[str, ...]
    slice: Slice
    start_time: int | None = None
    card_index: int | None = None
    card_model: str = ""

    def supervised(self) -> bool:
        """Whether that `aliquot run` still lives; a younger process with its pid is another."""
        return self.start_time is not None and _start_time(self.pid) == self.start_time


@dataclass(frozen=True)
class Holding:
    """A run of ours while it lasts: its pages, and the files whose locks say that it lives."""

    run: Run
    directory: Path
    alive: int
    claim: int | None = None

    @property
    def kept(self) -> tuple[int, ...]:
        """The descriptors that the command inherits."""
        return (self.alive,) if self.claim is None else (self.alive, self.claim)

    @property
    def control(self) -> Path:
        """The control page."""
        return self.directory / "control"

    @property
    def usage(self) -> Path:
        """The usage page."""
        return self.directory / "usage"


class Registry:
    """The runs of one machine. Everything but `release` expects to be called inside `locked()`."""

    def __init__(self, home: Path, claims: Claims | None = None) -> None:
        self._home = home
        self.claims = claims or Claims(None)
        self._runs = home / "runs"
        self._contexts_file = home / "contexts.json"
        self.arbiter_lock = home / "arbiter"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the registry; what dead runs left is gone when it is entered.

        Raises:
            Refusal: its files cannot be read or written, here or inside.
        """
        with refuse_os_errors("keep the record of runs", self._home):
            self._runs.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self._collect()
                yield
            finally:
                os.close(descriptor)

    def directory(self, run: str) -> Path:
        """Where the files of a run are."""
        return self._runs / run

    def runs(self) -> tuple[Run, ...]:
        """The living runs, oldest first."""
        found = [
            (path.with_name("alive").stat().st_mtime_ns, _read_run(path))
            for path in self._runs.glob("*/run.json")
        ]
        return tuple(run for _, run in sorted(found, key=lambda pair: pair[0]))

    def usage(self, run: Run) -> Usage | None:
        """What a run's processes use; None when its page is gone or cannot be believed."""
        try:
            return read_usage(self.directory(run.id) / "usage")
        except (PageError, OSError):
            return None

    def in_use_bytes(self, run: Run) -> int | None:
        """What a run has on its card: what its processes were charged, corrected by what the driver says."""
        usage = self.usage(run)
        if usage is None:
            return None
        try:
            (limit,) = read_control(self.directory(run.id) / "control").cards
        except (PageError, OSError):
            return usage.cards[0].memory_used_bytes
        return max(0, usage.cards[0].memory_used_bytes + limit.adjust_bytes)

    def add(
        self, share: Slice, command: Sequence[str], card_index: int | None = None, card_model: str = ""
    ) -> Holding:
        """Records a run with this slice and makes its pages."""
        pid, name = os.getpid(), self._new_id()
        run = Run(name, pid, tuple(map(_readable, command)), share, _start_time(pid), card_index, card_model)
        directory = self.directory(run.id)
        alive = os.open(directory / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(alive, fcntl.LOCK_EX)
        control = _control(run.id, share, self._contexts().get(share.card, 0))
        create_control(directory / "control", control)
        create_usage(directory / "usage")
        claim = self.claims.add(run.id, share)
        _record(directory, run)
        self.settle()
        return Holding(run, directory, alive, claim)

    def _new_id(self) -> str:
        """An id that no other run of this record has, and its directory."""
        while True:
            rest = (secrets.choice(OTHERS_OF_ID) for _ in range(ID_LENGTH - 1))
            name = secrets.choice(FIRST_OF_ID) + "".join(rest)
            with suppress(FileExistsError):
                self.directory(name).mkdir(mode=0o700)
                return name

    def resize(self, run: Run, share: Slice) -> None:
        """Changes a living run's limits in place; its processes follow at their next call.

        The record never says less than the page: killed between the two, this has promised too much to nobody.

        Raises:
            PageError: the control page is of no use; nothing was changed.
        """
        most = msgspec.structs.replace(
            share,
            memory_bytes=max(run.slice.memory_bytes, share.memory_bytes),
            core_percent=max(run.slice.core_percent, share.core_percent),
        )
        directory, wanted = self.directory(run.id), msgspec.structs.replace(run, slice=share)
        used = self.in_use_bytes(run) or 0
        _record(directory, msgspec.structs.replace(run, slice=most))
        self.claims.change(run.id, most, used)
        others = [one.slice for one in self.runs() if one.id != run.id]
        self._bring(wanted, promised([*others, share], share.card))
        _record(directory, wanted)
        self.claims.change(run.id, share, used)
        self.settle()
        os.utime(self._runs)

    def find(self, run: str) -> Run | None:
        """A living run by its id."""
        return run_in(self.directory(run))

    def tell_use(self, holding: Holding) -> None:
        """Lets other users know what a run of ours uses now, to a MiB; its record says what it has.

        To be called outside of `locked()`, which is entered where something has changed.
        """
        used = (self.in_use_bytes(holding.run) or 0) // MIB * MIB
        if holding.claim is None or used == self.claims.told(holding.claim):
            return
        with self.locked():
            run = self.find(holding.run.id)
            if run:
                self.claims.change(run.id, run.slice, used)

    def settle(self) -> dict[str, CardLimit]:
        """Has the page of every run say what it has beside the others; returns the limits by run.

        Runs whose pages are of no use are left out.
        """
        runs = self.runs()
        slices, found = [run.slice for run in runs], {}
        for run in runs:
            with suppress(PageError, OSError):
                found[run.id] = self._bring(run, promised(slices, run.slice.card))
        return found

    def _bring(self, run: Run, promised: Promised) -> CardLimit:
        """Writes what differs in one page. Where a writer died half-way it is written anew."""
        path = self.directory(run.id) / "control"
        with suppress(PageError):
            control = read_control(path)
            if _limited(control, run.slice, promised) == control:
                return control.cards[0]
        control = change_control(
            path, lambda now: _limited(now or _control(run.id, run.slice), run.slice, promised)
        )
        return control.cards[0]

    def changed_ns(self) -> int:
        """Another number after a run has come, gone or been resized; of two changes at once, perhaps the same."""
        return self._runs.stat().st_mtime_ns

    def learn_context(self, card: str, cost_bytes: int) -> None:
        """Keeps what a process's context costs on a card for the runs to come: the least that was seen."""
        known = self._contexts()
        if cost_bytes < known.get(card, cost_bytes + 1):
            with self.locked():
                self._contexts_file.write_bytes(msgspec.json.encode({**self._contexts(), card: cost_bytes}))

    def _contexts(self) -> dict[str, int]:
        """Bytes by card; what cannot be read is learned again."""
        try:
            return msgspec.json.decode(self._contexts_file.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError):
            return {}

    def release(self, holding: Holding) -> None:
        """Gives a slice back; processes that the command left behind keep it until they end."""
        for descriptor in holding.kept:
            os.close(descriptor)
        with self.locked():
            self.settle()

    def _collect(self) -> None:
        """Removes the runs nobody lives in any more; one without run.json was killed while it was made."""
        for directory in self._runs.iterdir():
            if not _lives(directory):
                self.claims.remove(directory.name)
                shutil.rmtree(directory, ignore_errors=True)


def _control(run: str, share: Slice, context_bytes: int = 0) -> Control:
    """The limits of a run that starts; what it has of the time is known when it is beside the others."""
    limit = CardLimit(share.card, share.memory_bytes, share.core_percent, context_bytes=context_bytes)
    return Control(f"{TENANT_PREFIX}{run}", (limit,))


def _limited(control: Control, share: Slice, promised: Promised) -> Control:
    """The same page with other limits; what was measured of the run stays."""
    return replace(control, cards=tuple(share.limits(card, promised) for card in control.cards))


def _record(directory: Path, run: Run) -> None:
    """Writes run.json whole, so that no reader finds half of it."""
    fresh = directory / ".run.json"
    fresh.write_bytes(msgspec.json.encode(run))
    fresh.replace(directory / "run.json")


def _readable(argument: str) -> str:
    """A command's argument as JSON holds it: bytes of another encoding than UTF-8 become escapes."""
    return os.fsencode(argument).decode(errors="backslashreplace")


def run_in(directory: Path) -> Run | None:
    """The run whose files are in a directory; None: they are a pod's. Raises OSError where they cannot be read."""
    path = directory / "run.json"
    return _read_run(path) if path.exists() else None


def _read_run(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def _lives(directory: Path) -> bool:
    """Whether somebody holds the run's lock, or a process of its usage page is there."""
    try:
        descriptor = os.open(directory / "alive", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return _has_processes(directory / "usage")


def _has_processes(usage: Path) -> bool:
    try:
        return bool(living_processes(read_usage(usage)))
    except (PageError, OSError):
        return False


def living_processes(usage: Usage) -> tuple[int, ...]:
    """Pids of the page's processes that live; those of other pid namespaces cannot be known."""
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return tuple(
        process.pid
        for process in usage.processes
        if process.pid_namespace == namespace and _start_time(process.pid) == process.start_time
    )


def processes_of(run: Run, directory: Path, usage: Usage | None) -> tuple[int, ...]:
    """Pids by which a run is known beside its `aliquot`: those that use the card; of an orphan with none, all."""
    using = living_processes(usage) if usage else ()
    return using or (() if run.supervised() else _holders(directory))


def _holders(directory: Path) -> tuple[int, ...]:
    """Pids of this user's processes that have inherited the lock of the run in this directory."""
    lock = str(directory.resolve() / "alive")
    return tuple(sorted(int(path.name) for path in Path("/proc").glob("[0-9]*") if lock in _open_files(path)))


def _open_files(process: Path) -> Iterator[str]:
    """What a process has open, as far as this user may see it."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())


def find(registry: Registry, runs: Sequence[Run], name: str) -> Run | None:
    """The run of an id, with or without `run/` before it, or of a pid: its `aliquot run`'s or its processes'."""
    for run in runs:
        if name.removeprefix(TENANT_PREFIX) == run.id or (name == str(run.pid) and run.supervised()):
            return run
    for run in runs:
        if name in map(str, processes_of(run, registry.directory(run.id), registry.usage(run))):
            return run
    return None


def _start_time(pid: int) -> int | None:
    """When it started, in clock ticks since boot (field 22 of /proc/PID/stat); None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
