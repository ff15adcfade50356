"""One run of a case: a simulated card, tenants with pages, perhaps an arbiter, and the card's record afterwards."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimCard, SimMachine
from aliquot.sandbox.record import SWITCHED, Record

from .busy import OTHERS_PERCENT, beside
from .cases import Case, Law, Load, Mode, Tenant
from .fitting import looked_at
from .places import Place, leased, settle
from .processes import Process, RunError, await_ready, kill, release, start
from .timeline import Timeline
from .wakes import QUIET_US, SOURCE, compile_program, watched

NATIVE = Path(__file__).resolve().parents[1] / "native"
KERNELS = Path(__file__).resolve().parents[2] / "sandbox" / "kernels"
MIB = 1 << 20
PATIENCE_S = 60


@dataclass(frozen=True)
class Period:
    """From a process's first submission after a pause until it had waited for the last, CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    launches: int = 0

    def until(self, end_ns: int) -> "Period":
        """As much of it as was measured; nothing is left out of what was launched."""
        return replace(self, end_ns=min(self.end_ns, end_ns))


@dataclass(frozen=True)
class Seen:
    """What the cards say of one tenant, each, and the tenant of its own pauses."""

    timelines: tuple[Timeline, ...]
    periods: tuple[Period, ...]

    @property
    def timeline(self) -> Timeline:
        """The first card's."""
        return self.timelines[0]


@dataclass(frozen=True)
class Run:
    """What was seen between two instants of CLOCK_MONOTONIC.

    Args:
        begin_ns: When the processes were let go.
        end_ns: The end of the measurement.
        tenants: In the case's order.
        cards: When anybody ran, on each.
        wake_p99_us: How late sleeping threads were woken meanwhile.
        others_percent: Of the CPUs' time, what others had of it, if busy loops took what was left.
    """

    begin_ns: int
    end_ns: int
    tenants: tuple[Seen, ...]
    cards: tuple[Timeline, ...]
    wake_p99_us: float
    others_percent: float | None = None

    def percent(self, tenant: int, card: int = 0) -> float:
        """Of the time, what a tenant had of a card."""
        return self.tenants[tenant].timelines[card].percent(self.begin_ns, self.end_ns)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing took the processor from the programs but what was to."""
        if self.others_percent is not None:
            return self.others_percent <= OTHERS_PERCENT
        return self.wake_p99_us <= QUIET_US

    @property
    def idle_percent(self) -> float:
        """Of the time, what nobody had of the first card."""
        return 100 - self.cards[0].percent(self.begin_ns, self.end_ns)


@dataclass(frozen=True)
class Programs:
    """The compiled programs of `native/`."""

    load: Path
    wakes: Path


@contextlib.contextmanager
def programs() -> Iterator[Programs]:
    """Compiles them; they go afterwards."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as scratch:
        root = Path(scratch)
        machine = SimMachine(root / "machine", [SimCard()])
        machine.create()
        yield Programs(
            compile_program(root / "load", NATIVE / "load.c", machine.lib_dir / "libcuda.so.1", "-lm"),
            compile_program(root / "wakes", SOURCE),
        )


# ---- tenants ----


def _limit(case: Case, tenant: Tenant, uuid: str) -> CardLimit:
    cap = 0 if tenant.mode is Mode.UNCAPPED else round(tenant.share)
    memory = case.card_mib * MIB
    if case.law is Law.FREE:
        return CardLimit(uuid, memory, cap)
    return CardLimit(
        uuid,
        memory,
        cap,
        grant_bytes=tenant.grant_mib * MIB if tenant.grant_mib is not None else None,
        overflow_bytes=memory if tenant.grant_mib is not None else None,
        core_share_bp=round(tenant.share * 100),
        core_most_percent=round(tenant.most),
        priority=tenant.priority,
    )


@contextlib.contextmanager
def _leased(case: Case, root: Path, places: list[Place], uuids: list[str]) -> Iterator[None]:
    """An arbiter over the tenants, and somebody who looks at their memory, if the case wants them."""
    if case.law is not Law.LEASED:
        yield
        return
    with contextlib.ExitStack() as stack:
        arbiter = stack.enter_context(leased(places))
        if case.quanta:
            stack.enter_context(looked_at(arbiter, root, uuids, case.card_mib))
        yield


# ---- processes ----


def _arguments(load: Load, seed: int, seconds: float) -> list[str]:
    options = {name: f"{value:d}" for name, value in asdict(load).items() if isinstance(value, int)}
    options |= {"seed": f"{load.seed * 1000 + seed}", "for_ms": f"{round(seconds * 1000)}"}
    options |= {"kernel_us": ",".join(map(str, load.kernel_us)), "what": load.what.value}
    return [str(KERNELS), *(f"{name}={value}" for name, value in options.items())]


def _periods(process: Process) -> tuple[Period, ...]:
    output, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise RunError(f"a tenant's program ended with {process.returncode}")
    return tuple(Period(*map(int, line.split())) for line in output.splitlines())


def _sleep_until(when_ns: int) -> None:
    time.sleep(max(0, when_ns - time.monotonic_ns()) / 1e9)


# ---- the run ----


@dataclass(frozen=True)
class _Stage:
    """A machine, and a case's tenants that wait to be let go: pages and processes of each."""

    case: Case
    root: Path
    machine: SimMachine
    places: list[Place]
    processes: list[list[Process]]

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in self.machine.cards]

    def release(self) -> int:
        """Has every process begin at the same instant, which it returns."""
        everybody = [process for processes in self.processes for process in processes]
        for process in everybody:
            await_ready(process)
        return release(everybody)

    def periods(self, end_ns: int) -> list[tuple[Period, ...]]:
        """By tenant, of those of its processes whose end is waited for: up to an instant."""
        return [
            tuple(
                period.until(end_ns)
                for load, process in zip(tenant.loads, processes, strict=True)
                if load.is_awaited
                for period in _periods(process)
                if period.begin_ns < end_ns
            )
            for tenant, processes in zip(self.case.tenants, self.processes, strict=True)
        ]


def _card(case: Case) -> SimCard:
    return SimCard(
        memory_mib=case.card_mib,
        concurrent=case.concurrent,
        copy_gib_s=case.bus_gib_s,
        memory_gib_s=case.memory_gib_s,
    )


@contextlib.contextmanager
def _staged(tools: Programs, case: Case, seconds: float) -> Iterator[_Stage]:
    """Sets a case up in a directory of its own; its processes end with it."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as scratch, contextlib.ExitStack() as stack:
        root = Path(scratch)
        machine = SimMachine(root / "machine", [_card(case)] * case.cards)
        machine.create()
        uuids = [card.uuid for card in machine.cards]
        places = [
            settle(root, index, [_limit(case, tenant, uuid) for uuid in uuids])
            for index, tenant in enumerate(case.tenants)
        ]
        stage = _Stage(case, root, machine, places, [])
        for tenant, place in zip(case.tenants, stage.places, strict=True):
            own = {} if tenant.bare else place.environment()
            stage.processes.append([])
            for seed, load in enumerate(tenant.loads, start=10 * len(stage.processes)):
                command = [str(tools.load), *_arguments(load, seed, seconds)]
                stage.processes[-1].append(start(command, {**machine.env(), **own}))
                stack.callback(kill, stage.processes[-1][-1])
        yield stage


def run(tools: Programs, case: Case, seconds: float, busy: int = 0) -> Run:
    """Lets a case's processes loose for so long, with so many busy loops a core beside them.

    Raises:
        RunError: a program failed.
        SimulationError: the card's record does not reach back to the beginning.
    """
    with beside(busy) as others:
        seen = _run(tools, case, seconds)
    return replace(seen, others_percent=others[0]) if others else seen


def _run(tools: Programs, case: Case, seconds: float) -> Run:
    with _staged(tools, case, seconds) as stage:
        with _leased(case, stage.root, stage.places, stage.uuids), watched(tools.wakes) as wake_p99_us:
            begin = stage.release()
            end = begin + round(seconds * 1e9)
            _sleep_until(end)
            records = [stage.machine.record(uuid, begin, end) for uuid in stage.uuids]
            periods = stage.periods(end)
        pids = [[process.pid for process in processes] for processes in stage.processes]
    seen = tuple(
        Seen(tuple(_timeline(record, own) for record in records), paused)
        for own, paused in zip(pids, periods, strict=True)
    )
    everybody = [pid for own in pids for pid in own]
    return Run(begin, end, seen, tuple(_timeline(record, everybody) for record in records), wake_p99_us[0])


def _timeline(record: Record, pids: list[int]) -> Timeline:
    """When processes had the card or its bus."""
    entries = record.entries
    return Timeline.of(entries[np.isin(entries["pid"], pids) & (entries["kind"] != SWITCHED)])
