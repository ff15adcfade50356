"""Tenants that die, stop, or fill their pages with noise: the others have what is theirs."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.arbiter import Terms
from aliquot.libshim._pages import lib
from aliquot.libshim.usage_page import read_card_usages
from tests.unit.arbiter.house import MS, House, Tenant, house, spans, time_in, until
from tests.unit.arbiter.player import Player

CARD = "GPU-0"
SEED = int(os.environ.get("SEED", str(time.time_ns())))


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path) as made:
        yield made


def busy_ns(tenant: Tenant) -> int:
    """What its processes say to have had."""
    return read_card_usages(tenant.usage)[0].busy_ns


def pair(home: House) -> tuple[list[Tenant], list[subprocess.Popen[str]]]:
    """Two tenants that take turns."""
    tenants = [home.tenant(name, Terms(CARD, 5000, 100)) for name in "ab"]
    players = [home.play(tenant, MS) for tenant in tenants]
    for tenant in tenants:
        until(lambda tenant=tenant: busy_ns(tenant) > 20 * MS)
    return tenants, players


def hold(tenant: Tenant) -> None:
    """Waits until a tenant has the card and works."""
    words = tenant.player(9)
    until(lambda: words.is_open(0) and words.line(0)[0] == lib.AQ_WORK_IN_FLIGHT)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_holder_keeps_nobody_out(home: House, blow: signal.Signals):
    """Its neighbour goes on, with more than its share."""
    (victim, _), players = pair(home)
    hold(victim)
    players[0].send_signal(blow)
    lent = home.arbiter.tenants()["b"].cards[CARD].lent_ns
    until(lambda: home.arbiter.tenants()["b"].cards[CARD].lent_ns > lent + 100 * MS)


@pytest.mark.timing
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_holder_is_out(home: House, blow: signal.Signals):
    """Its neighbour has the card soon, and from then on nearly all of it."""
    (victim, _), players = pair(home)
    hold(victim)
    players[0].send_signal(blow)
    struck = time.monotonic_ns()
    time.sleep(1.5)
    end = time.monotonic_ns()
    had = spans(players[1])
    assert min(start for start, _ in had if start > struck) - struck < 1000 * MS
    assert time_in(had, struck + 500 * MS, end) / (end - struck - 500 * MS) > 0.8


def test_what_a_dead_process_said_is_forgotten(home: House):
    """It waited for a lease; nobody waits any more."""
    tenant = home.tenant("a", Terms(CARD, 5000, 50))
    with tenant.player() as player:
        player.say(0, lib.AQ_WORK_WAITING)
        player.ring(0)
        until(lambda: home.arbiter.tenants()["a"].cards[CARD].waiting)
    until(lambda: not home.arbiter.tenants()["a"].cards[CARD].waiting)


@pytest.mark.timing
def test_a_stopped_tenant_that_goes_on_has_its_share_again(home: House):
    """As if nothing had been."""
    (victim, _), players = pair(home)
    hold(victim)
    players[0].send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    players[0].send_signal(signal.SIGCONT)
    time.sleep(0.5)
    begin = time.monotonic_ns()
    time.sleep(1.5)
    end = time.monotonic_ns()
    assert time_in(spans(players[0]), begin, end) / (end - begin) > 0.35


def noise(rng: random.Random, usage: Path) -> None:
    """Overwrites all of a page."""
    with usage.open("r+b") as file:
        file.write(rng.randbytes(lib.AQ_USAGE_FILE_SIZE))


def clock_noise(rng: random.Random, usage: Path) -> None:
    """Overwrites the words of time."""
    with usage.open("r+b") as file:
        file.seek(2048 + 64)
        file.write(rng.randbytes(48))


def blank(_: random.Random, usage: Path) -> None:
    """Overwrites all of a page with nothing."""
    usage.write_bytes(bytes(lib.AQ_USAGE_FILE_SIZE))


def cut(_: random.Random, usage: Path) -> None:
    """Makes a page end before its first word."""
    os.truncate(usage, 0)


def cut_annex(_: random.Random, usage: Path) -> None:
    """Takes away the words of work."""
    os.truncate(usage, lib.AQ_USAGE_SIZE)


@pytest.mark.parametrize("damage", [noise, clock_noise, blank, cut, cut_annex])
def test_a_damaged_page_is_not_believed(home: House, damage: Callable[[random.Random, Path], None]):
    """Its owner is named, with the reason, and lent nothing; the other goes on."""
    print(f"SEED={SEED}")
    vandal = home.tenant("vandal", Terms(CARD, 3000, 100))
    other = home.tenant("other", Terms(CARD, 5000, 50))
    home.play(other, MS)
    damage(random.Random(SEED), vandal.usage)
    until(lambda: not home.arbiter.tenants()["vandal"].trusted)
    assert home.arbiter.tenants()["vandal"].reason
    lent, had = home.arbiter.tenants()["vandal"].cards[CARD].lent_ns, busy_ns(other)
    until(lambda: busy_ns(other) > had + 100 * MS)
    assert home.arbiter.tenants()["vandal"].cards[CARD].lent_ns == lent
    assert home.arbiter.tenants()["other"].trusted


@pytest.mark.timing
@pytest.mark.parametrize("damage", [noise, clock_noise, blank, cut, cut_annex])
def test_a_damaged_page_hurts_its_owner_only(home: House, damage: Callable[[random.Random, Path], None]):
    """Its owner is leased no more than its share; the other has its own."""
    print(f"SEED={SEED}")
    rng = random.Random(SEED)
    vandal = home.tenant("vandal", Terms(CARD, 3000, 100))
    other = home.tenant("other", Terms(CARD, 5000, 50))
    player = home.play(other, MS)
    damage(rng, vandal.usage)
    until(lambda: not home.arbiter.tenants()["vandal"].trusted)
    begin, before = time.monotonic_ns(), home.arbiter.tenants()["vandal"].cards[CARD]
    time.sleep(2)
    end, after = time.monotonic_ns(), home.arbiter.tenants()["vandal"].cards[CARD]
    assert (after.held_ns - before.held_ns) / (end - begin) < 0.36
    assert time_in(spans(player), begin, end) / (end - begin) == pytest.approx(0.5, abs=0.08)


def comes_late(home: House, work: int) -> Player:
    """One at work, or not, that its arbiter comes to only now."""
    tenant = home.tenant("a", Terms(CARD, 5000, 100))
    home.arbiter.leave("a")
    player = tenant.player()
    player.say(0, work, time.monotonic_ns())
    home.arbiter.enter("a", tenant.control, tenant.usage, tenant.terms)
    return player


def test_what_began_before_the_arbiter_is_believed(home: House):
    """It is said to have been had when it ends, which may be long after an agent has restarted."""
    player = comes_late(home, lib.AQ_WORK_IN_FLIGHT)
    player.usage.cards[0].busy_ns += 60_000 * MS
    player.rest(0)
    until(lambda: home.arbiter.tenants()["a"].cards[CARD].used_ns >= 60_000 * MS)
    assert home.arbiter.tenants()["a"].trusted


def test_of_who_was_idle_when_the_arbiter_came_nothing_long_is_believed(home: House):
    """It cannot have begun before."""
    player = comes_late(home, 0)
    player.usage.cards[0].busy_ns += 60_000 * MS
    until(lambda: not home.arbiter.tenants()["a"].trusted)


def test_a_mended_page_is_believed_when_the_agent_says_so(home: House):
    """Not before: of itself the arbiter does not trust twice."""
    tenant = home.tenant("a", Terms(CARD, 5000, 100))
    whole = tenant.usage.read_bytes()
    tenant.usage.write_bytes(b"")
    until(lambda: not home.arbiter.tenants()["a"].trusted)
    tenant.usage.write_bytes(whole)
    time.sleep(0.1)
    assert not home.arbiter.tenants()["a"].trusted
    home.arbiter.distrust("a", None)
    until(lambda: home.arbiter.tenants()["a"].trusted)
    tenant.player().run(0, MS)
    until(lambda: home.arbiter.tenants()["a"].cards[CARD].used_ns >= MS)


@pytest.mark.timing
def test_who_is_distrusted_is_charged_for_what_it_holds(home: House):
    """It is lent nothing, whatever it says to have used."""
    tenant = home.tenant("a", Terms(CARD, 2000, 100))
    home.arbiter.distrust("a", "it was seen to use more than it says")
    assert home.arbiter.tenants()["a"].reason == "it was seen to use more than it says"
    player = home.play(tenant, MS)
    time.sleep(0.5)
    begin = time.monotonic_ns()
    time.sleep(2)
    end = time.monotonic_ns()
    assert time_in(spans(player), begin, end) / (end - begin) < 0.26


@pytest.mark.slow
def test_tenants_come_and_go_while_others_work(home: House):
    """Nobody waits for ever for a gate that nobody opens."""
    print(f"SEED={SEED}")
    rng = random.Random(SEED)
    steady = home.play(home.tenant("steady", Terms(CARD, 3000, 30)), MS)
    clients = [home.tenant(f"client{i}", Terms(CARD, 500, 100, priority=i % 3)) for i in range(6)]
    players = [home.play(client, MS) for client in clients]
    until_ns = time.monotonic_ns() + 2000 * MS
    begin = time.monotonic_ns()
    while time.monotonic_ns() < until_ns:
        client = rng.choice(clients)
        action = rng.choice(["leave", "enter", "change", "quantum", "distrust"])
        if action == "leave":
            home.arbiter.leave(client.name)
        elif action == "quantum":
            home.arbiter.quantum(CARD, rng.choice([None, 30 * MS]))
        elif action == "distrust":
            home.arbiter.distrust(client.name, rng.choice([None, "on suspicion"]))
        else:
            most = rng.choice([5, 50, 100])
            home.arbiter.enter(client.name, client.control, client.usage, [Terms(CARD, 500, most)])
        home.arbiter.tenants()
    end = time.monotonic_ns()
    for client in clients:
        home.arbiter.enter(client.name, client.control, client.usage, client.terms)
    for client, before in [(client, busy_ns(client)) for client in clients]:
        until(lambda client=client, before=before: busy_ns(client) > before)
    assert time_in(spans(steady), begin, end) > 0
    for player in players:
        spans(player)


RINGER = """
import sys
from pathlib import Path
from tests.unit.arbiter.player import Player
player = Player(Path(sys.argv[1]), Path(sys.argv[2]), 0)
print("ready", flush=True)
while True:
    player.{}(0)
"""


def cpu_s() -> float:
    """What the arbiter's thread has used of a CPU."""
    (thread,) = (
        task
        for task in Path("/proc/self/task").iterdir()
        if (task / "comm").read_text() == "aliquot-arbiter\n"
    )
    fields = (thread / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("how", ["ring", "wake"])
def test_a_bell_that_never_rests_keeps_the_arbiter_from_nothing(home: House, how: str):
    """It rings two thousand times a second at most, and a neighbour's bell is heard as before."""
    ringer, other = (home.tenant(name, Terms(CARD, 5000, 100)) for name in ("rings", "b"))
    command = [sys.executable, "-c", RINGER.format(how), str(ringer.control), str(ringer.usage)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, other.player() as player:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        begin, had_s = time.monotonic(), cpu_s()
        while time.monotonic() < begin + 2:
            player.run(0, MS)
        share = (cpu_s() - had_s) / (time.monotonic() - begin)
        process.kill()
    print(f"{share:.3f} of a CPU")
    assert share < 0.3


def test_more_bells_than_the_kernel_waits_for(home: House):
    """Twelve tenants of twelve cards each: all get to work."""
    cards = [f"GPU-{i}" for i in range(12)]
    tenants = [home.tenant(f"t{i}", *(Terms(card, 800, 100) for card in cards)) for i in range(12)]
    for place, tenant in enumerate(tenants):
        tenant.player().run(place, MS)
    for tenant in tenants:
        until(
            lambda name=tenant.name: any(card.used_ns for card in home.arbiter.tenants()[name].cards.values())
        )
