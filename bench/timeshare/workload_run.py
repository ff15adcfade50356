"""One run of a workload in one mode: its processes on a machine, and what pages and the cards' record say."""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from aliquot.arbiter import Arbiter
from aliquot.libshim.control_page import CardLimit
from aliquot.libshim.usage_page import read_card_usages

from .machines import Machine
from .places import Place, leased, settle
from .processes import Process, RunError, await_ready, kill, release, start
from .wakes import compile_program
from .workloads import Mode, Tenant, Workload

SOURCES = Path(__file__).resolve().parents[2] / "tests" / "programs"
KERNELS = Path(__file__).resolve().parents[2] / "sandbox" / "kernels"
MIB = 1 << 20
LIMIT_S = 60
SETTLE_S = 0.2
MachineMaker = Callable[[Path, Workload], Machine]
"""From a directory and what is to run."""


@dataclass(frozen=True)
class Done:
    """What one tenant did.

    Args:
        begin_ns: When its processes began.
        end_ns: When the last of them had ended.
        used_ns: How long its card, or the bus, ran it meanwhile; where nobody knows, what its programs launched.
        charged_ns: How long it was charged for: by itself in a slice, by the arbiter under leases.
        refused: How many allocations its slice refused.
        told: What its first process tells of itself.
    """

    begin_ns: int
    end_ns: int
    used_ns: int
    charged_ns: int
    refused: int
    told: dict[str, float]

    @property
    def took_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.begin_ns


class Tools:
    """Compiles the programs into a directory, each once, and makes machines for them.

    Args:
        directory: For the programs.
        driver: What they are linked to.
        machine: Makes a machine for a run.
    """

    def __init__(self, directory: Path, driver: Path | str, machine: MachineMaker) -> None:
        self._directory = directory
        self._driver = driver
        self.machine = machine
        self.program = cache(self._compile)

    def _compile(self, name: str) -> Path:
        sources = [SOURCES / f"{name}.c", SOURCES / "program.c"]
        return compile_program(self._directory / name, *sources, self._driver)


# ---- processes ----


def _environment(machine: Machine, tenant: Tenant, place: Place, mode: Mode) -> dict[str, str]:
    own = {} if mode is Mode.BARE else place.environment()
    return {**machine.environment(), "CUDA_VISIBLE_DEVICES": str(tenant.card), **own}


def _told(process: Process) -> dict[str, float]:
    """What a program tells, once it has ended its work; it still lives."""
    assert process.stdout is not None
    told: dict[str, float] = {}
    while (line := process.stdout.readline()) not in {"\n", ""}:
        name, value = line.split()
        told[name] = float(value)
    if not line:
        raise RunError(f"a program ended with {process.wait()}")
    return told


def _close(process: Process) -> None:
    """Lets a program end."""
    process.communicate()
    if process.returncode:
        raise RunError(f"a program ended with {process.returncode}")


@contextlib.contextmanager
def _time_limit(processes: list[Process]) -> Iterator[None]:
    """Kills processes that take too long."""
    timer = threading.Timer(LIMIT_S, lambda: [process.kill() for process in processes])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- the run ----


def _limit(tenant: Tenant, uuid: str, mode: Mode) -> CardLimit:
    limit = CardLimit(uuid, tenant.memory_mib * MIB, tenant.share, managed_resident=tenant.resident)
    if mode is not Mode.LEASE:
        return limit
    return replace(limit, core_share_bp=tenant.share * 100, core_most_percent=tenant.share)


@dataclass(frozen=True)
class _Stage:
    """A machine, and tenants on it: pages and processes of each."""

    workload: Workload
    mode: Mode
    machine: Machine
    places: list[Place]
    arbiter: Arbiter | None
    processes: list[list[Process]]

    def uuid(self, tenant: int) -> str:
        return self.machine.uuids[self.workload.tenants[tenant].card]

    def charged_ns(self, tenant: int) -> int:
        """By the arbiter, or without one by the tenant itself."""
        if self.arbiter:
            return self.arbiter.tenants()[self.places[tenant].name].cards[self.uuid(tenant)].used_ns
        return read_card_usages(self.places[tenant].usage)[0].busy_ns

    def settled_ns(self, tenant: int) -> int:
        """The same once it no longer changes: the arbiter reads ten times a second what tenants have used."""
        charged_ns, before_ns = self.charged_ns(tenant), 0 if self.mode is Mode.BARE else -1
        while charged_ns != before_ns:
            time.sleep(SETTLE_S)
            charged_ns, before_ns = self.charged_ns(tenant), charged_ns
        return charged_ns

    def used_ns(self, tenant: int, begin_ns: int, end_ns: int, launched_ns: float) -> int:
        """By the card, or by what was launched and fits in that time."""
        pids = [process.pid for process in self.processes[tenant]]
        known = self.machine.used_ns(self.workload.tenants[tenant].card, pids, begin_ns, end_ns)
        return round(min(launched_ns, end_ns - begin_ns)) if known is None else known

    def done(self, tenant: int, charged_ns: int) -> Done:
        """Waits until a tenant's processes have done their work, and lets them end."""
        all_told = [_told(process) for process in self.processes[tenant]]
        begin_ns = round(min(told["begin_ns"] for told in all_told))
        end_ns = round(max(told["end_ns"] for told in all_told))
        launched_ns = sum(told["launched_ns"] for told in all_told)
        used_ns = self.used_ns(tenant, begin_ns, end_ns, launched_ns)
        settled_ns = self.settled_ns(tenant)
        for process in self.processes[tenant]:
            _close(process)
        refused = read_card_usages(self.places[tenant].usage)[0].allocations_denied
        return Done(begin_ns, end_ns, used_ns, settled_ns - charged_ns, refused, all_told[0])


@contextlib.contextmanager
def _staged(tools: Tools, workload: Workload, mode: Mode) -> Iterator[_Stage]:
    """Starts a workload's processes on a machine of their own; they end with it."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as scratch, contextlib.ExitStack() as stack:
        root = Path(scratch)
        machine = tools.machine(root, workload)
        places = [
            settle(
                root,
                index,
                [_limit(tenant, machine.uuids[tenant.card], mode)],
                tenant.group,
                exempt=tenant.exempt,
            )
            for index, tenant in enumerate(workload.tenants)
        ]
        arbiter = stack.enter_context(leased(places)) if mode is Mode.LEASE else None
        stage = _Stage(workload, mode, machine, places, arbiter, [])
        for tenant, place in zip(workload.tenants, places, strict=True):
            stage.processes.append([])
            for job in tenant.jobs:
                options = [
                    f"{key}={value}".format(scratch=scratch, copy_mib=machine.copy_mib)
                    for key, value in job.options.items()
                ]
                command = [str(tools.program(job.program)), str(KERNELS), *options]
                stage.processes[-1].append(start(command, _environment(machine, tenant, place, mode)))
                stack.callback(kill, stage.processes[-1][-1])
        yield stage


def run(tools: Tools, workload: Workload, mode: Mode) -> tuple[Done, ...]:
    """Runs a workload to its end; what the tenants did of whom something is asked.

    Raises:
        RunError: a program failed, or took more than a minute.
    """
    with _staged(tools, workload, mode) as stage:
        everybody = [process for processes in stage.processes for process in processes]
        with _time_limit(everybody):
            for process in everybody:
                await_ready(process)
            before = [stage.settled_ns(tenant) for tenant in workload.measured]
            release(everybody)
            return tuple(
                stage.done(tenant, charged_ns)
                for tenant, charged_ns in zip(workload.measured, before, strict=True)
            )
