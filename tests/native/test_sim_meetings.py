"""Kernels that wait for others, as those of collectives do: they hold the card, and lose it when their turn ends."""

import subprocess
import sys
import time

import pytest

from aliquot.sandbox.gpus import SOURCES, SimMachine
from tests.native.sims import PRELUDE, ask, environment, run_python, start, wait_for

MS = 1_000_000
MEET = SOURCES.parent / "kernels" / "meet.ptx"
SPIN = SOURCES.parent / "kernels" / "spin.ptx"

PROGRAM = """
import ctypes, time
from pathlib import Path
cuda.cuInit(0)
U64, U32 = ctypes.c_uint64, ctypes.c_uint32
class Card:
    def __init__(self, ordinal):
        self.context = check(cuda.cuDevicePrimaryCtxRetain(ordinal))
        self.enter()
        kernels = [(sys.argv[1], b"aliquot_meet"), (sys.argv[2], b"aliquot_spin")]
        modules = [(check(cuda.cuModuleLoadData(Path(path).read_bytes() + b"\\0")), name) for path, name in kernels]
        self.meeting, self.spinning = (check(cuda.cuModuleGetFunction(*module)) for module in modules)
        self.streams = [check(cuda.cuStreamCreate(1)) for _ in range(2)]
    def enter(self):
        check(cuda.cuCtxSetCurrent(self.context))
    def meet(self, arrive, await_, value=1, ms=0, blocks=1):
        self.enter()
        arguments = ((int(ms * 1e6), arrive, await_, value), (U64, U64, U64, U32))
        check(cuda.cuLaunchKernel(self.meeting, blocks, 1, 1, 1024, 1, 1, 0, self.streams[0], arguments, 0))
    def spin(self, ms, blocks=1, stream=1):
        self.enter()
        arguments = ((int(ms * 1e6),), (U64,))
        check(cuda.cuLaunchKernel(self.spinning, blocks, 1, 1, 1024, 1, 1, 0, self.streams[stream], arguments, 0))
    def wait(self, stream=0):
        check(cuda.cuStreamSynchronize(self.streams[stream]))
    def done(self, stream=0):
        return cuda.cuStreamQuery(self.streams[stream])[0] == cuda.CUresult.CUDA_SUCCESS
def words(count=2):
    page = int(check(cuda.cuMemHostAlloc(4096, 3)))  # portable and mapped
    return [page + 64 * i for i in range(count)]
def word(address):
    return U32.from_address(address)
def hear():
    return sys.stdin.readline()
def say(*what):
    print(*what, flush=True)
"""


def run(machine: SimMachine, program: str) -> list[str]:
    """Runs a program to its end; returns the words that it printed."""
    return run_python(machine, PROGRAM + program, MEET, SPIN).split()


def spawn(machine: SimMachine, program: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts a program that talks by lines."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + PROGRAM + program, MEET, SPIN, *map(str, arguments)],
        env=environment(machine),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(process: subprocess.Popen[str], line: str = "go") -> None:
    """Says a line to a program."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> list[str]:
    """The words of its next line."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_kernels_on_two_cards_meet(machine: SimMachine):
    """The first to come holds its card until the other has come too."""
    begin = time.monotonic_ns()
    run(
        machine,
        """
first, second = Card(0), Card(1)
here, there = words()
first.meet(here, there, ms=5)
second.enter()
second.spin(30, stream=0)
second.meet(there, here, ms=5)
first.enter(); first.wait()
second.enter(); second.wait()
""",
    )
    one, two = (machine.record(card.uuid, begin, time.monotonic_ns()).intervals() for card in machine.cards)
    assert len(one) == len(two) == 1
    assert two[0].end_ns - two[0].start_ns >= 35 * MS
    assert one[0].end_ns - one[0].start_ns >= 35 * MS
    assert abs(one[0].end_ns - two[0].end_ns) < 300 * MS  # ten times what it takes a quiet machine


BESIDE = {
    "fits beside": ("card.spin(1, blocks=131)", True),
    "does not fit": ("card.spin(1, blocks=264)", False),
    "is behind it": ("card.spin(1, stream=0)", False),
}


@pytest.mark.parametrize("case", BESIDE)
def test_what_runs_beside_a_kernel_that_waits(machine: SimMachine, case: str):
    """Other streams go on where their grids fit; the rest runs when the wait is over."""
    launch, beside = BESIDE[case]
    printed = run(
        machine,
        f"""
card = Card(0)
here, there = words()
card.meet(here, there, blocks=133)
while not word(here).value:
    pass
{launch}
stream = {int("stream=0" not in launch)}
end = time.monotonic() + (10 if {beside} else 0.05)
while time.monotonic() < end and not card.done(stream):
    pass
print(card.done(stream))
word(there).value = 1
check(cuda.cuCtxSynchronize())
""",
    )
    assert printed == [str(beside)]


@pytest.mark.timing
def test_a_kernel_that_waits_shares_the_card_in_turns(machine: SimMachine):
    """It has half of it beside a neighbour, and its neighbour the other half."""
    waiting = spawn(
        machine, "card = Card(0); here, there = words(); card.meet(here, there); say('in'); hear()"
    )
    assert hear(waiting) == ["in"]
    begin = time.monotonic_ns()
    neighbour = start(machine, "launch", MS, 100, "sync")
    neighbour.communicate(timeout=60)
    record = machine.record(machine.cards[0].uuid, begin, time.monotonic_ns())
    runs = [run for run in record.intervals() if run.pid == neighbour.pid]
    first, last = runs[0].start_ns, runs[-1].end_ns
    together = machine.record(machine.cards[0].uuid, first, last)
    assert together.busy_ns(waiting.pid) / (last - first) == pytest.approx(0.5, abs=0.03)
    assert together.idle_ns() == 0
    waiting.kill()
    waiting.communicate()


def test_a_kernel_comes_in_its_own_turn(machine: SimMachine):
    """Its word is not written before the process has the card, and what it waits for is no help before either."""
    neighbour = start(machine, "launch", 3_600_000 * MS, 1, "wait")
    wait_for(lambda: len(machine.busy(machine.cards[0].uuid)) == 1, "the neighbour's kernel")
    program = """
card = Card(0)
addresses = words(2 * 20)
times = []
for i in range(20):
    here, there = addresses[2 * i : 2 * i + 2]
    word(there).value = 1
    times.append(time.monotonic_ns())
    card.meet(here, there, ms=1)
    while not word(here).value:
        pass
    times.append(time.monotonic_ns())
    card.wait()
say(*times)
hear()
"""
    process = spawn(machine, program)
    times = [int(each) for each in hear(process)]
    starts = [run.start_ns for run in machine.busy(machine.cards[0].uuid) if run.pid == process.pid]
    for launched, came in zip(times[::2], times[1::2], strict=True):
        assert any(launched <= start <= came for start in starts)
    for each in (process, neighbour):
        each.kill()
        each.communicate()


COLLECTIVE = """
cards = [Card(0), Card(1)]
addresses = words()
say("ready")
hear()
for turn in range(1, 41):
    for card, here, there in zip(cards, addresses, reversed(addresses)):
        card.meet(here, there, value=turn, ms=1, blocks=264)
for card in cards:
    card.enter()
    check(cuda.cuCtxSynchronize())
say("done")
"""


def test_collectives_of_two_tenants_share_two_cards(machine: SimMachine):
    """Whichever has the one card while the other has the other, both get on."""
    tenants = [spawn(machine, COLLECTIVE) for _ in range(2)]
    assert all(hear(tenant) == ["ready"] for tenant in tenants)
    begin = time.monotonic_ns()
    for tenant in tenants:
        tell(tenant)
    for tenant in tenants:
        tenant.communicate(timeout=60)
        assert tenant.returncode == 0
    for card in machine.cards:
        record = machine.record(card.uuid, begin, time.monotonic_ns())
        assert all(record.busy_ns(tenant.pid) >= 40 * MS for tenant in tenants)


def test_kernels_of_two_processes_meet_in_a_card_s_memory(machine: SimMachine):
    """A word of device memory that both have mapped will do."""
    first = spawn(
        machine,
        """
card = Card(0)
base = int(check(cuda.cuMemAlloc(2 << 20)))
check(cuda.cuMemsetD8(base, 0, 2 << 20))
say(ctypes.string_at(check(cuda.cuIpcGetMemHandle(base)).getPtr(), 64).hex())
card.meet(base, base + 64)
card.wait()
say("met")
hear()
""",
    )
    handle = hear(first)[0]
    second = spawn(
        machine,
        """
card = Card(1)
handle = cuda.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[3]), 64)
Card(0)
base = int(check(cuda.cuIpcOpenMemHandle(handle, 1)))
card.meet(base + 64, base)
card.wait()
say("met")
""",
        handle,
    )
    assert hear(first) == hear(second) == ["met"]
    tell(first)
    for process in (first, second):
        process.communicate(timeout=60)


def test_words_that_are_no_memory_are_refused(machine: SimMachine):
    """A real card would fail the context when the kernel runs."""
    program = """
card = Card(0)
here, _ = words()
for arguments in ((0, here, 4096, 1), (0, 4096, here, 1)):
    packed = (arguments, (U64, U64, U64, U32))
    print(int(cuda.cuLaunchKernel(card.meeting, 1, 1, 1, 1, 1, 1, 0, 0, packed, 0)[0]))
"""
    assert run(machine, program) == ["700", "700"]


def test_a_process_that_dies_while_its_kernel_waits_leaves_the_card(machine: SimMachine):
    """The card is free for the next one at once."""
    victim = spawn(
        machine, "card = Card(0); here, there = words(); card.meet(here, there); say('in'); hear()"
    )
    assert hear(victim) == ["in"]
    victim.kill()
    victim.communicate()
    begin = time.monotonic_ns()
    assert ask(machine, "launch", MS, 20, "sync")[1]["result"] == 0
    record = machine.record(machine.cards[0].uuid, begin, time.monotonic_ns())
    runs = [run for run in record.intervals() if run.pid != victim.pid]
    assert [run.end_ns - run.start_ns for run in runs] == [20 * MS]
