"""Kernels that one call launches on several cards at once, judged by the simulated cards' own records."""

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from aliquot.arbiter import Arbiter, Terms
from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.leases import MS, SECOND_NS, SHARE, Lessor, Work, hear, say
from tests.native.sims import wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB, SPIN_PTX, TOLERANCE
from tests.native.test_sim_meetings import MEET
from tests.native.test_tickets import PRELUDE

WINDOW_S = 2
MEETING_TOLERANCE = 6.0
ORDERS = ("forwards", "backwards")

LAUNCHES = (
    PRELUDE
    + """
class Launch(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p), ("params", ctypes.POINTER(ctypes.c_void_p))]

class Part:
    def __init__(self, card, kernel, *values):
        check(cuda.cuCtxSetCurrent(contexts[card]))
        self.context, self.kernel, self.values = contexts[card], kernel, values
        self.stream = check(cuda.cuStreamCreate(1))
        pointers = [ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in values]
        self.params = (ctypes.c_void_p * len(pointers))(*pointers)
    def launch(self):
        one = (ctypes.c_uint * 3)(1, 1, 1)
        return Launch(int(self.kernel), one, one, 0, int(self.stream), self.params)

driver = ctypes.CDLL("libcuda.so.1")
def launch(*parts):
    launches = (Launch * len(parts))(*(part.launch() for part in parts))
    assert driver.cuLaunchCooperativeKernelMultiDevice(launches, len(parts), 0) == 0
def wait(*parts):
    for part in parts:
        check(cuda.cuCtxSetCurrent(part.context))
        check(cuda.cuCtxSynchronize())
"""
)

SPINS = (
    LAUNCHES
    + """
parts = [Part(card, kernels[card], ctypes.c_uint64(int(ms) * 1_000_000)) for card, ms in enumerate(sys.argv[2:])]
print("ready", flush=True)
for line in sys.stdin:
    end = time.monotonic() + float(line)
    while True:
        for _ in range(4):
            launch(*parts)
            if not float(line):
                break
        wait(*parts)
        if time.monotonic() >= end:
            break
    print("over", flush=True)
"""
)
"""A kernel of so many milliseconds on each card, again and again for so many seconds; 0: once."""

MEETINGS = (
    LAUNCHES
    + """
def meeting_in(context):
    check(cuda.cuCtxSetCurrent(context))
    module = check(cuda.cuModuleLoadData(open(sys.argv[2], "rb").read() + b"\\0"))
    return check(cuda.cuModuleGetFunction(module, b"aliquot_meet"))

page = int(check(cuda.cuMemHostAlloc(4096, 3)))  # portable and mapped
words = [ctypes.c_uint64(page + 64 * i) for i in range(2)]
turn, length = ctypes.c_uint32(0), ctypes.c_uint64(1_000_000)
parts = [Part(card, meeting_in(contexts[card]), length, words[card], words[1 - card], turn) for card in range(2)]
if sys.argv[3] == "backwards":
    parts.reverse()
print("ready", flush=True)
end = time.monotonic() + float(sys.stdin.readline())
while time.monotonic() < end:
    for _ in range(4):
        turn.value += 1
        launch(*parts)
    wait(*parts)
print("over", flush=True)
"""
)
"""Kernels on two cards that wait for each other, for so many seconds."""


def leasing(machine: SimMachine, tenants: list[Tenant]) -> Arbiter:
    """An arbiter over tenants of both cards."""
    arbiter = Arbiter()
    terms = [Terms(card.uuid, SHARE * 100, SHARE) for card in machine.cards]
    for tenant in tenants:
        arbiter.enter(tenant.directory.name, tenant.control, tenant.usage_page, terms)
    arbiter.start()
    return arbiter


def shares(machine: SimMachine, process: subprocess.Popen[str], began: int) -> list[float]:
    """Percent of each card's time that a process had, from when it first had any after an instant."""
    runs = [
        [run for run in machine.busy(card.uuid) if run.pid == process.pid and run.start_ns > began]
        for card in machine.cards
    ]
    end = min(run.start_ns for card in runs for run in card) + WINDOW_S * SECOND_NS
    had = [sum(max(0, min(run.end_ns, end) - run.start_ns) for run in card) for card in runs]
    return [100 * ns / (WINDOW_S * SECOND_NS) for ns in had]


@pytest.mark.timing
def test_each_card_is_held_to_its_share(machine: SimMachine, tenant: Callable[..., Tenant]):
    """By the kernel that is longer, whichever card the thread has for its own; and charged is what each card ran."""
    limits = [CardLimit(card.uuid, GIB, SHARE) for card in machine.cards]

    def attempt(lengths: tuple[int, int], longer: int) -> float:
        own = tenant(limits=limits)
        process = own.start(SPINS, SPIN_PTX, *lengths)
        hear(process, "ready")
        before = [card.busy_ns for card in own.usage().cards[:2]]
        began = time.monotonic_ns()
        say(process, f"{WINDOW_S + 0.3}")
        hear(process, "over")
        ran = [machine.record(card.uuid, began, time.monotonic_ns()).busy_ns() for card in machine.cards]
        process.communicate()
        found = shares(machine, process, began)
        charged = [card.busy_ns - was for card, was in zip(own.usage().cards, before, strict=False)]
        print(found, charged, ran)
        assert min(charge / truth for charge, truth in zip(charged, ran, strict=True)) > 0.9
        assert 0 < found[1 - longer] < found[longer] < SHARE + TOLERANCE
        return found[longer]

    for lengths, longer in (((1, 8), 1), ((8, 1), 0)):
        figures = attempts(lambda lengths=lengths, longer=longer: attempt(lengths, longer), SHARE, TOLERANCE)
        assert figures[-1] > SHARE - TOLERANCE


def test_it_goes_to_all_cards_or_to_none(machine: SimMachine, leased: Callable[..., Tenant], ends: ExitStack):
    """While the gate of one is closed it waits for both and takes neither, whichever it is."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process = lessor.tenant.start(SPINS, SPIN_PTX, 1, 1)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    hear(process, "ready")
    wait_for(lambda: lessor.is_drained(0) and lessor.is_drained(1), "the end of what it began with")
    lessor.close(1)
    began = time.monotonic_ns()
    say(process, "0")
    for closed in (1, 0, 1):
        lessor.close(closed)
        lessor.open(1 - closed)
        wait_for(lambda: lessor.works(0) == lessor.works(1) == [Work.WAITING], "both cards to be waited for")
    for card in machine.cards:
        assert machine.record(card.uuid, began, time.monotonic_ns()).busy_ns() == 0
    lessor.open(0)
    lessor.open(1)
    hear(process, "over")
    for card in machine.cards:
        assert machine.record(card.uuid, began, time.monotonic_ns()).busy_ns() >= MS


@pytest.mark.timing
def test_two_tenants_that_take_the_cards_in_opposite_orders_get_on(
    machine: SimMachine, leased: Callable[..., Tenant], ends: ExitStack
):
    """Under an arbiter, each with its share of either card, though its kernels wait for each other."""

    def attempt() -> float:
        own = [leased(2), leased(2)]
        arbiter = leasing(machine, own)
        ends.callback(arbiter.close)
        processes = [
            one.start(MEETINGS, SPIN_PTX, MEET, order) for one, order in zip(own, ORDERS, strict=True)
        ]
        for process in processes:
            hear(process, "ready")
        began = time.monotonic_ns()
        for process in processes:
            say(process, f"{WINDOW_S + 0.3}")
        for process in processes:
            hear(process, "over")
            process.communicate()
        arbiter.close()
        found = [share for process in processes for share in shares(machine, process, began)]
        print(found)
        assert max(found) < SHARE + MEETING_TOLERANCE
        return min(found)

    assert attempts(attempt, SHARE, MEETING_TOLERANCE)[-1] > SHARE - MEETING_TOLERANCE
