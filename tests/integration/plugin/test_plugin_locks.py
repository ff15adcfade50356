"""A tenant that holds a million locks on its pages: nobody waits until the kernel has looked at each of them."""

import os
import resource
from pathlib import Path

from aliquot.arbiter import Terms
from aliquot.libshim._pages import lib
from tests.integration.plugin.hostile_locks import locking
from tests.integration.plugin.test_plugin_metrics import fetch, start_and_serve
from tests.integration.plugin.waits import longest_silence_s, seconds_of
from tests.integration.plugin.world import MakeWorld
from tests.unit.arbiter.house import house
from tests.unit.arbiter.player import Player

LOCKS = 500_000
PATIENCE_S = 5.0
WATCHED_S = 2.0


def test_locks_on_its_own_pages_hold_up_nobody(make_world: MakeWorld) -> None:
    """Neither the arbiter's word to a neighbour, nor a scrape, nor the start of another pod, nor that of its own."""
    node = make_world(start=False)
    url = start_and_serve(node)
    hostile, neighbour, new = (node.admit(name, 1024, 30) for name in ("hostile", "neighbour", "new"))
    for held in (hostile, neighbour):
        node.kubelet.pre_start(held)
    usage, control = node.usage(hostile.nonce), node.control(hostile.nonce)
    waiting = Player(node.control(neighbour.nonce), node.usage(neighbour.nonce), 0)
    with locking(usage, control, LOCKS), waiting as player:
        player.say(
            0, lib.AQ_WORK_WAITING
        )  # so that the arbiter wants to know whether the hostile tenant's processes live
        player.ring(0)
        silence_s = longest_silence_s(node.control(neighbour.nonce), WATCHED_S)
        waits_s = {
            "scrape": seconds_of(lambda: fetch(url)),
            "start": seconds_of(lambda: node.kubelet.pre_start(new)),
            "restart": seconds_of(lambda: node.kubelet.pre_start(hostile)),
        }
    print({"silence": silence_s, **waits_s})
    assert silence_s < WATCHED_S / 2
    assert max(waits_s.values()) < PATIENCE_S


def test_an_agent_may_keep_the_pages_of_many_containers_open(make_world: MakeWorld) -> None:
    """As many files as it may at all, however few a container runtime starts it with."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    try:
        node = make_world()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert node.process is not None
    assert resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE) == (most, most)


def test_nobody_waits_until_the_kernel_has_looked_at_the_locks_of_who_leaves(tmp_path: Path) -> None:
    """It looks at each when a page is closed, here for some milliseconds: in a thread that nobody waits for."""
    waits_s = []
    with house(tmp_path) as home:
        tenant = home.tenant("a", Terms("GPU-0", 5000, 100))
        with locking(tenant.usage, tenant.control, LOCKS // 5):
            for _ in range(5):
                page = os.open(tenant.usage, os.O_RDONLY)
                closing_s = seconds_of(lambda page=page: os.close(page))  # type: ignore[misc]
                leaving_s = seconds_of(lambda: home.arbiter.leave("a"))
                waits_s.append((leaving_s, closing_s))
                home.arbiter.enter("a", tenant.control, tenant.usage, tenant.terms)
    print(waits_s)
    assert min(leaving / closing for leaving, closing in waits_s) < 0.2
