"""Limit, grant and what the agent measured make the room of a slice; beyond the grant a program waits for the agent."""

import dataclasses
import time
from collections.abc import Callable

import pytest

from aliquot.libshim.control_page import CardLimit, Control, Enforcement, change_control, touch_granter
from aliquot.libshim.usage_page import CardUsage
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, two_cards
from tests.native.sims import wait_for
from tests.native.tenants import Tenant

MIB = 1 << 20
LIMIT = 64 * MIB

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


class Agent:
    """What the node agent does to one tenant's control page."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant

    def set(self, enforcement: Enforcement = Enforcement.ENFORCE, **words: int | None) -> None:
        """Changes words of the first card."""

        def change(control: Control | None) -> Control:
            assert control is not None
            first, *others = control.cards
            cards = (dataclasses.replace(first, **words), *others)
            return Control(control.tenant, cards, enforcement)

        change_control(self.tenant.control, change)

    def look(self) -> CardUsage:
        """Looks for wishes, and says so on the page."""
        touch_granter(self.tenant.control, time.monotonic_ns())
        return self.tenant.usage().cards[0]

    def grant_what_is_wanted(self) -> int:
        """Waits for a wish and fulfils it."""
        wait_for(lambda: self.look().wanted_ns > 0, "a wish")
        wanted = self.look().wanted_bytes
        self.set(grant_bytes=wanted)
        return wanted


@pytest.fixture
def agent(slice64: Tenant) -> Agent:
    """Its node agent."""
    return Agent(slice64)


def test_what_the_agent_measured_beyond_the_tally_is_in_use(slice64: Tenant, agent: Agent):
    """It leaves that much less to allocate and to see, to the byte, and no more once it is gone."""
    with Shell(slice64).begin() as shell:
        agent.set(adjust_bytes=10 * MIB)
        assert shell.memory_info() == (LIMIT - 10 * MIB, LIMIT)
        assert shell.call("cuMemAlloc_v2", OUT, LIMIT - 10 * MIB + 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemAlloc_v2", OUT, LIMIT - 10 * MIB)
        assert shell.memory_info() == (0, LIMIT)
        agent.set(adjust_bytes=0)
        shell.ok("cuMemAlloc_v2", OUT, 10 * MIB)


def test_what_the_tally_says_too_much_is_room(slice64: Tenant, agent: Agent):
    """A negative correction gives back what was estimated too high."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        agent.set(adjust_bytes=-8 * MIB)
        assert shell.memory_info() == (8 * MIB, LIMIT)
        shell.ok("cuMemAlloc_v2", OUT, 8 * MIB)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("adjust", "room"), [(2 * LIMIT, 0), (-2 * LIMIT, LIMIT), (2**63 - 1, 0), (-(2**63), LIMIT)]
)
def test_no_correction_makes_use_negative_or_wrap(slice64: Tenant, agent: Agent, adjust: int, room: int):
    """Beyond either end it is clamped: nothing is free, or all of the slice is."""
    with Shell(slice64).begin() as shell:
        agent.set(adjust_bytes=adjust)
        assert shell.memory_info() == (room, LIMIT)
        assert shell.call("cuMemAlloc_v2", OUT, LIMIT + 1)[0] == OUT_OF_MEMORY
        assert shell.call("cuMemAlloc_v2", OUT, LIMIT)[0] == (SUCCESS if room else OUT_OF_MEMORY)


def test_a_graph_waits_for_its_grant(slice64: Tenant, agent: Agent):
    """Its launch is the call in which memory comes; a pool's step more than the grant is wished for."""
    agent.set(grant_bytes=MIB)
    with Shell(slice64).begin() as shell:
        stream = shell.ok("cuStreamCreate", OUT, 1)
        shell.ok("cuStreamBeginCapture_v2", stream, 0)
        shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, LIMIT // 2, stream), stream)
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, shell.ok("cuStreamEndCapture", stream, OUT), 0)
        agent.look()
        shell.say(f"cuGraphLaunch {run} {stream}")
        assert agent.grant_what_is_wanted() == LIMIT // 2
        assert shell.hear() == str(SUCCESS)


def test_a_grant_is_what_may_be_used_of_the_slice(slice64: Tenant, agent: Agent):
    """Where no agent looks for wishes, what the grant does not hold is refused; the slice is shown whole."""
    agent.set(grant_bytes=16 * MIB)
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, 16 * MIB)
        assert shell.memory_info() == (LIMIT - 16 * MIB, LIMIT)
        assert shell.call("cuMemAlloc_v2", OUT, MIB)[0] == OUT_OF_MEMORY
        assert slice64.usage().cards[0].wanted_bytes == 17 * MIB
        agent.set(grant_bytes=17 * MIB)
        shell.ok("cuMemAlloc_v2", OUT, MIB)


def test_a_request_beyond_the_grant_waits_for_the_agent(slice64: Tenant, agent: Agent):
    """The wish counts all that is in use; the grant comes and the call succeeds without a refusal."""
    agent.set(grant_bytes=16 * MIB, adjust_bytes=4 * MIB)
    agent.look()
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, 12 * MIB)
        shell.say(f"cuMemAlloc_v2 & {20 * MIB}")
        assert agent.grant_what_is_wanted() == 36 * MIB
        assert shell.hear().split()[0] == str(SUCCESS)
        assert slice64.usage().cards[0].allocations_denied == 0
        assert slice64.usage().cards[0].memory_used_bytes == 32 * MIB


def test_room_that_a_neighbour_makes_ends_the_wait(slice64: Tenant, agent: Agent):
    """A request that waits for a grant takes what is freed under the old one."""
    agent.set(grant_bytes=16 * MIB)
    with Shell(slice64).begin() as holder, Shell(slice64).begin() as waiter:
        block = holder.ok("cuMemAlloc_v2", OUT, 16 * MIB)
        agent.look()
        waiter.say(f"cuMemAlloc_v2 & {16 * MIB}")
        wait_for(lambda: agent.look().wanted_ns > 0, "a wish")
        holder.ok("cuMemFree_v2", block)
        assert waiter.hear().split()[0] == str(SUCCESS)


def test_an_agent_that_looks_and_grants_nothing_is_waited_for_a_second(slice64: Tenant, agent: Agent):
    """Then the request is refused and counted."""
    agent.set(grant_bytes=16 * MIB)
    agent.look()
    with Shell(slice64).begin() as shell:
        began = time.monotonic()
        shell.say(f"cuMemAlloc_v2 & {17 * MIB}")
        for _ in range(6):
            wished_ns = agent.look().wanted_ns
            wait_for(lambda ns=wished_ns: slice64.usage().cards[0].wanted_ns > ns, "a wish after a look")
        assert shell.hear().split()[0] == str(OUT_OF_MEMORY)
        assert 0.9 < time.monotonic() - began < 10
        assert slice64.usage().cards[0].allocations_denied == 1


def test_an_agent_that_was_held_up_gets_the_time_to_answer(slice64: Tenant, agent: Agent):
    """A second is over before its next look; it then takes back from others first, and grants with the fourth."""
    agent.set(grant_bytes=16 * MIB)
    agent.look()
    with Shell(slice64).begin() as shell:
        began = time.monotonic()
        shell.say(f"cuMemAlloc_v2 & {18 * MIB}")
        wait_for(lambda: time.monotonic() - began > 1.3, "more than a second")
        for looks in range(1, 4):
            wished_ns = agent.look().wanted_ns
            wait_for(
                lambda ns=wished_ns: slice64.usage().cards[0].wanted_ns > ns, f"a wish after {looks} looks"
            )
        agent.set(grant_bytes=18 * MIB)
        agent.look()
        assert shell.hear().split()[0] == str(SUCCESS)


@pytest.mark.timing
@pytest.mark.parametrize("looked_ns_ago", [None, 6_000_000_000])
def test_an_agent_that_does_not_look_is_not_waited_for(
    slice64: Tenant, agent: Agent, looked_ns_ago: int | None
):
    """Never, or not for five seconds: the refusal comes at once."""
    agent.set(grant_bytes=16 * MIB)
    if looked_ns_ago is not None:
        touch_granter(slice64.control, time.monotonic_ns() - looked_ns_ago)
    with Shell(slice64).begin() as shell:
        began = time.monotonic()
        assert shell.call("cuMemAlloc_v2", OUT, 17 * MIB)[0] == OUT_OF_MEMORY
        assert time.monotonic() - began < 0.9


def test_what_the_slice_itself_does_not_hold_is_no_wish(slice64: Tenant, agent: Agent):
    """No grant would help, so nobody is asked."""
    agent.set(grant_bytes=16 * MIB)
    agent.look()
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, 16 * MIB)
        for size in (LIMIT + 1, LIMIT - 15 * MIB):
            assert shell.call("cuMemAlloc_v2", OUT, size)[0] == OUT_OF_MEMORY
        assert slice64.usage().cards[0].wanted_ns == 0


def test_a_grant_that_shrinks_takes_nothing_away(slice64: Tenant, agent: Agent):
    """What is in use stays; what is new is refused until there is room again."""
    agent.set(grant_bytes=32 * MIB)
    with Shell(slice64).begin() as shell:
        block = shell.ok("cuMemAlloc_v2", OUT, 32 * MIB)
        agent.set(grant_bytes=8 * MIB)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemFree_v2", block)
        shell.ok("cuMemAlloc_v2", OUT, 8 * MIB)


def test_where_limits_are_only_observed_no_grant_is_waited_for(slice64: Tenant, agent: Agent):
    """Only what the slice does not hold is counted: a grant would have been raised."""
    agent.set(Enforcement.OBSERVE, grant_bytes=16 * MIB, adjust_bytes=4 * MIB)
    agent.look()
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, 60 * MIB)
        assert slice64.usage().cards[0].allocations_denied == 0
        shell.ok("cuMemAlloc_v2", OUT, 1)
        assert slice64.usage().cards[0].allocations_denied == 1
        assert slice64.usage().cards[0].wanted_ns == 0


def test_a_card_without_a_grant_uses_its_slice(machine: SimMachine, tenant: TenantMaker):
    """The word for the grant means nothing where the memory is guaranteed."""
    guaranteed = tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT, grant_bytes=0)])
    Agent(guaranteed).set(grant_bytes=None)
    with Shell(guaranteed).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
