"""The core limit, judged by the simulated card's own record of who ran when, never by the interceptor's accounts."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, Enforcement, update_control
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.tenants import Tenant

GIB = 1 << 30
SECOND_NS = 1_000_000_000
WINDOW_S = 3
SEQUENCE_OFFSET = 16
TOLERANCE = 3.0
"""Points of a card. Rounding to whole kernels and the burst at the start are worth one of them."""

SPIN_PTX = Path(__file__).resolve().parents[2] / "sandbox" / "kernels" / "spin.ptx"

WORK = """
import ctypes, os, sys, time
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]

path, how = sys.argv[1:3]
microseconds, seconds, together = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
cuda.cuInit(0)
device = check(cuda.cuDeviceGet(0))
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(device))))
module = check(cuda.cuModuleLoadData(open(path, "rb").read() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
streams = [check(cuda.cuStreamCreate(1)) for _ in range(2)]
arguments = ((microseconds * 1000,), (ctypes.c_uint64,))

def spin(stream, arguments=arguments):
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))

def graph_of(count):
    for _ in range(3):  # watched while the capture goes on
        spin(streams[1])
    check(cuda.cuStreamBeginCapture(streams[0], cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    for _ in range(count):
        spin(streams[0])
    graph = check(cuda.cuStreamEndCapture(streams[0]))
    return check(cuda.cuGraphInstantiate(graph, 0))

FILL_BYTES = microseconds * 4_295_000  # takes so long at 4000 GiB/s
memory = check(cuda.cuMemAlloc(FILL_BYTES)) if how == "fill" else 0
graph = graph_of(4) if how == "graph" else None
if how == "fork":
    spin(streams[0])
    child = os.fork()
    if not child:
        sys.exit(7)  # through every exit handler
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
if how == "once":
    spin(streams[0])
if how in ("varying", "behind", "left"):
    for _ in range(300):  # known to be short
        spin(streams[0], ((10_000,), (ctypes.c_uint64,)))
    check(cuda.cuCtxSynchronize())
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds
while time.monotonic() < end:
    for i in range(together):
        if how == "left":
            streams[0] = check(cuda.cuStreamCreate(1))
        if how in ("behind", "left"):
            spin(streams[0], ((10_000,), (ctypes.c_uint64,)))
        if graph is not None:
            check(cuda.cuGraphLaunch(graph, streams[0]))
        elif how == "fill":
            check((*cuda.cuMemsetD8Async(memory, 0, FILL_BYTES, streams[0]), None))
        else:
            spin(streams[i % 2] if how == "streams" else streams[0])
        if how == "left":
            check((*cuda.cuStreamDestroy(streams[0]), None))
    check(cuda.cuCtxSynchronize())
threads = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(threads.count("aliquot-core"))
"""


def start(
    tenant: Tenant, how: str, microseconds: int, together: int = 4, seconds: float = WINDOW_S, **extra: str
) -> subprocess.Popen[str]:
    """A process that keeps the card busy so long and a bit, once it is told to go."""
    process = tenant.start(WORK, SPIN_PTX, how, microseconds, seconds + 0.3, together, **extra)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@contextlib.contextmanager
def working(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Lets processes go together, and waits for their end."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    yield
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0


def share(machine: SimMachine, *processes: subprocess.Popen[str], seconds: int = WINDOW_S) -> float:
    """Percent of the first card's time that it ran the processes, in the time after the first of them began."""
    pids = {process.pid for process in processes}
    runs = [(start, end) for pid, start, end in machine.busy(machine.cards[0].uuid) if pid in pids]
    begin = min(start for start, _ in runs)
    limit = begin + seconds * SECOND_NS
    busy = sum(min(end, limit) - start for start, end in runs if start < limit)
    return 100 * busy / (limit - begin)


def had(machine: SimMachine, *processes: subprocess.Popen[str]) -> int:
    """For how many nanoseconds the first card ran the processes."""
    pids = {process.pid for process in processes}
    return sum(run.end_ns - run.start_ns for run in machine.busy(machine.cards[0].uuid) if run.pid in pids)


def gets(percent: int, attempt: Callable[[], float]) -> None:
    """The tenant never gets more than its share; less when the machine has no CPU for it, but not each time."""
    shares = attempts(attempt, percent, TOLERANCE)
    assert max(shares) < percent + TOLERANCE
    assert shares[-1] > percent - TOLERANCE


@dataclass(frozen=True)
class Case:
    """A share, and the work that is submitted under it."""

    percent: int
    how: str
    microseconds: int
    together: int

    def __str__(self) -> str:
        return f"{self.percent}%-{self.how}-{self.microseconds}us"


CASES = [
    Case(30, "kernel", 1000, 4),
    Case(30, "kernel", 20_000, 4),
    Case(60, "graph", 1000, 2),
    Case(30, "fill", 200, 32),
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in (Case(30, "kernel", 100, 64), Case(30, "streams", 1000, 4), Case(10, "kernel", 5000, 1))
    ),
]


@pytest.mark.timing
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_tenant_gets_its_share_of_time(machine: SimMachine, tenant: Callable[..., Tenant], case: Case):
    """Whatever a kernel's length and however work is submitted, the card runs it for the share and no more."""

    def attempt() -> float:
        process = start(tenant(GIB, case.percent), case.how, case.microseconds, case.together)
        with working(process):
            pass
        return share(machine, process)

    gets(case.percent, attempt)


@pytest.mark.timing
@pytest.mark.parametrize("how", ["varying", "behind", "left"])
def test_a_kernel_known_to_be_short_is_measured_when_it_is_long(
    machine: SimMachine, tenant: Callable[..., Tenant], how: str
):
    """A long run of it is charged in full: alone, behind a short one, or on a stream that is left."""

    def attempt() -> float:
        process = start(tenant(GIB, 30), how, 50_000, 1)
        with working(process):
            pass
        return share(machine, process)

    gets(30, attempt)


@pytest.mark.timing
def test_a_launch_while_limits_are_half_written_opens_no_gate(
    machine: SimMachine, tenant: Callable[..., Tenant]
):
    """Once the agent has written them whole, the cap holds for the program that could not read them."""

    def attempt() -> float:
        own = tenant(GIB, 30)
        with own.control.open("r+b") as page:
            page.seek(SEQUENCE_OFFSET)
            page.write((7).to_bytes(4, "little"))
        process = start(own, "once", 1000)
        update_control(own.control, Control("test/tenant", (CardLimit(machine.cards[0].uuid, GIB, 30),)))
        with working(process):
            pass
        return share(machine, process)

    gets(30, attempt)


@pytest.mark.timing
def test_the_processes_of_a_container_share_its_time(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Two processes with kernels of 1 and 20 ms get 30 % together, not each."""

    def attempt() -> float:
        own = tenant(GIB, 30)
        first, second = start(own, "kernel", 1000), start(own, "kernel", 20_000)
        with working(first, second):
            pass
        assert share(machine, first) > 0
        assert share(machine, second) > 0
        return share(machine, first, second)

    gets(30, attempt)


def test_a_program_that_forks_goes_on_and_its_child_ends(machine: SimMachine, tenant: Callable[..., Tenant]):
    """A child without a monitor leaves by exit, and its parent stays capped."""
    process = start(tenant(GIB, 30), "fork", 1000, seconds=1)
    with working(process):
        pass
    assert 0 < share(machine, process, seconds=1) < 40


@pytest.mark.timing
@pytest.mark.slow
def test_hami_cores_environment_caps_time_too(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Without a control page CUDA_DEVICE_SM_LIMIT is the share."""

    def attempt() -> float:
        own = tenant(GIB)
        environment = {
            "ALIQUOT_CONTROL_PAGE": "",
            "ALIQUOT_USAGE_PAGE": "",
            "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(own.directory / "hami.usage"),
        }
        process = start(own, "kernel", 1000, **environment)
        with working(process):
            pass
        return share(machine, process)

    gets(30, attempt)


@pytest.mark.timing
def test_time_used_and_waited_is_on_the_usage_page(machine: SimMachine, tenant: Callable[..., Tenant]):
    """The page says how long the card ran the tenant's work, within a kernel or two of the truth."""

    def attempt() -> float:
        own = tenant(GIB, 30)
        process = start(own, "kernel", 1000, seconds=1)
        with working(process):
            pass
        truth = had(machine, process)
        card = own.usage().cards[0]
        assert card.throttled_ns > SECOND_NS // 2
        return card.busy_ns / truth

    charged = attempts(attempt, 1, 0.02)
    assert min(charged) > 0.98
    assert charged[-1] < 1.02  # more is charged to a program that is kept from running between two events


@pytest.mark.timing
def test_time_in_which_processes_take_turns_is_counted_once(
    machine: SimMachine, tenant: Callable[..., Tenant]
):
    """Each of four sees its own work take four times as long, and is told late when it was over."""

    def attempt() -> float:
        own = tenant(GIB, 30)
        processes = [start(own, "kernel", 1000, 8) for _ in range(4)]
        with working(*processes):
            pass
        return own.usage().cards[0].busy_ns / had(machine, *processes)

    assert attempts(attempt, 1, 0.04)[-1] == pytest.approx(1, abs=0.04)


@pytest.mark.timing
def test_without_a_cap_work_is_neither_held_up_nor_watched(
    machine: SimMachine, tenant: Callable[..., Tenant]
):
    """An uncapped tenant has the card to itself and no thread of ours in its process."""
    own = tenant(GIB)
    process = start(own, "kernel", 5000, seconds=1)
    assert process.stdin is not None
    output, _ = process.communicate("go\n", timeout=60)
    assert output == "0\n"
    assert share(machine, process, seconds=1) > 80


@pytest.mark.timing
def test_a_cap_that_comes_while_a_program_runs_is_kept(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Changing the control page caps a running process."""

    def attempt() -> float:
        own = tenant(GIB)
        process = start(own, "kernel", 1000)
        update_control(own.control, Control("test/tenant", (CardLimit(machine.cards[0].uuid, GIB, 30),)))
        with working(process):
            pass
        return share(machine, process)

    gets(30, attempt)


@pytest.mark.timing
def test_where_limits_are_only_observed_work_is_measured_and_not_held_up(
    machine: SimMachine, tenant: Callable[..., Tenant]
):
    """`observe` counts the time and closes no gate."""
    own = tenant(GIB, 30)
    limits = (CardLimit(machine.cards[0].uuid, GIB, 30),)
    update_control(own.control, Control("test/tenant", limits, Enforcement.OBSERVE))
    process = start(own, "kernel", 5000, seconds=1)
    with working(process):
        pass
    assert share(machine, process, seconds=1) > 80
    assert own.usage().cards[0].throttled_ns == 0
    assert own.usage().cards[0].busy_ns > SECOND_NS // 2
