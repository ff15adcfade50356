"""Collectives of two processes of one tenant, each begun on the card on which the other has not begun yet."""

import select
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

from aliquot.arbiter import Arbiter, Terms
from aliquot.sandbox.gpus import SimMachine
from tests.native.leases import MS, SECOND_NS, hear, say
from tests.native.sims import wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX
from tests.native.test_sim_meetings import MEET
from tests.native.test_tickets import PRELUDE

OWN, OTHERS = 20, 60
"""Percent. What waits for its other half takes a third of a card or more, so that its owner is never due anything."""
DEBT_NS = SECOND_NS // 2
SOON_S = 20

MEETS = (
    PRELUDE
    + """
def meeting_in(context):
    check(cuda.cuCtxSetCurrent(context))
    module = check(cuda.cuModuleLoadData(open(sys.argv[2], "rb").read() + b"\\0"))
    return check(cuda.cuModuleGetFunction(module, b"aliquot_meet"))

meetings = [meeting_in(context) for context in contexts]
page = int(check(cuda.cuMemHostAlloc(4096, 3)))  # portable and mapped
words = page, page + 64
types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)

def meet(card):
    check(cuda.cuCtxSetCurrent(contexts[card]))
    arguments = ((1_000_000, words[card], words[1 - card], 1), types)
    check(cuda.cuLaunchKernel(meetings[card], 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0))

first = int(sys.argv[3])
print("ready", flush=True)
for said, card in (("begun", first), ("met", 1 - first)):
    sys.stdin.readline()
    meet(card)
    if said == "met":
        for context in contexts:
            check(cuda.cuCtxSetCurrent(context))
            check(cuda.cuCtxSynchronize())
    print(said, flush=True)
"""
)

SPINS = (
    PRELUDE
    + """
print("ready", flush=True)
sys.stdin.readline()
while True:
    for _ in range(4):
        for context, kernel in zip(contexts, kernels):
            check(cuda.cuCtxSetCurrent(context))
            spin(kernel, 0, 1000)
    for context in contexts:
        check(cuda.cuCtxSetCurrent(context))
        check(cuda.cuCtxSynchronize())
"""
)


def begin(ends: ExitStack, tenant: Tenant, program: str, *arguments: object) -> subprocess.Popen[str]:
    """A program that is ready, and ends with the test."""
    process = tenant.start(program, SPIN_PTX, *arguments)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    hear(process, "ready")
    return process


def test_the_halves_of_crossed_collectives_are_let_in(
    machine: SimMachine, leased: Callable[..., Tenant], ends: ExitStack
):
    """Though an arbiter sees work in flight and work that waits on both cards, and owes the tenant nothing.

    To it the tenant looks like one whose work does not end. Each process knows better: what it has in flight stands
    still, and on the other card it has nothing.
    """
    arbiter = Arbiter()
    own, others = leased(2), leased(2)
    for name, tenant, share in (("own", own, OWN), ("others", others, OTHERS)):
        terms = [Terms(card.uuid, share * 100, share) for card in machine.cards]
        arbiter.enter(name, tenant.control, tenant.usage_page, terms)
    arbiter.start()
    ends.callback(arbiter.stop)

    def debt_ns() -> int:
        cards = arbiter.tenants()["own"].cards.values()
        return min(card.used_ns - card.guaranteed_ns for card in cards)

    rival = begin(ends, others, SPINS)
    halves = [begin(ends, own, MEETS, MEET, card) for card in range(2)]
    for process in halves:
        say(process, "")
        hear(process, "begun")
    say(rival, "")
    wait_for(lambda: debt_ns() > DEBT_NS, "a debt")
    began = time.monotonic_ns()
    for process in halves:
        say(process, "")
    for process in halves:
        assert select.select([process.stdout], [], [], SOON_S)[0], f"it waits still; debt {debt_ns()} ns"
        hear(process, "met")
    print((time.monotonic_ns() - began) / MS, "ms")
