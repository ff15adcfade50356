"""A tenant that lets its usage page grow fills a volume of its own, and such volumes keep no pod from going."""

import time

import pytest

from aliquot.libshim.usage_page import read_usage
from tests.cluster.faults.pods import (
    LATER_S,
    LIMIT_HOLDS,
    hostile,
    is_second_start,
    living,
    seconds_to_start,
)
from tests.cluster.installation import RUN, Installation
from tests.cluster.test_journey import ALLOCATE, PATIENCE_S, client, said
from tests.cluster.test_upgrade import begin
from tests.cluster.traffic import await_its_share, usage_page

pytestmark = pytest.mark.cluster

GROW = """
with open("/run/aliquot/usage", "ab", buffering=0) as page:
    try:
        while page.write(bytes(4096)): pass
    except OSError as error:
        print("grown to", page.tell(), error.strerror, flush=True)
"""
GONE_S = 20.0


def test_a_page_that_grows_fills_its_own_volume(installed: Installation):
    """Its neighbour computes on, the next pod starts, and its own container starts again with its limit."""
    (steady,) = begin(installed, "steady-0")
    before = seconds_to_start(installed, "before")
    installed.kubectl.apply(hostile("grows", GROW + ALLOCATE))
    log = said(installed, "grows", "ready")
    assert f"grown to {128 << 10} No space left on device" in log
    assert LIMIT_HOLDS in log
    after = seconds_to_start(installed, "next")
    print("seconds to start:", before, after)
    assert after < before + LATER_S
    await_its_share(steady)
    steady.check()
    uid = str(installed.kubectl.get("pods", "grows")["metadata"]["uid"])
    page = usage_page(installed, uid)
    assert page.stat().st_dev != installed.node.box.path(RUN).stat().st_dev
    assert read_usage(page).cards[0].memory_used_bytes >= 1 << 30
    for process in living(installed, uid):
        installed.node.box.run("kill", "-KILL", str(process.pid))
    installed.kubectl.wait_for("pods", "grows", is_second_start, PATIENCE_S)
    assert LIMIT_HOLDS in said(installed, "grows", "ready")


def test_pods_with_such_volumes_go_soon(installed: Installation):
    """Nothing keeps their volumes mounted, whether the agent was started before them or after."""
    for name in ("first", "second"):
        installed.kubectl.apply(client(name, core="5"))
        said(installed, name, "ready")
    page = usage_page(installed, str(installed.kubectl.get("pods", "second")["metadata"]["uid"]))
    took = [seconds_to_go(installed, "first")]
    installed.kill_agent()
    installed.await_agent()
    assert page.exists()
    took.append(seconds_to_go(installed, "second"))
    print("seconds to go:", took)
    assert max(took) < GONE_S
    assert not page.parent.exists()


def seconds_to_go(installed: Installation, name: str) -> float:
    """How long it takes to delete a pod whose program ends for no SIGTERM, with a second of grace."""
    begun = time.monotonic()
    installed.kubectl.delete("pods", name, grace=1)
    installed.kubectl.wait_gone("pods", name, PATIENCE_S)
    return time.monotonic() - begun
