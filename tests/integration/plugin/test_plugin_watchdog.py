"""A tenant whose page says less than its card saw: found by the driver's samples, told of, and believed by nobody."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.libshim._pages import ffi
from aliquot.libshim.control_page import read_control, read_times
from tests.integration.plugin.small_kubelet import Held, until
from tests.integration.plugin.world import REPOSITORY, World, occupy

KERNEL = REPOSITORY / "sandbox" / "kernels" / "spin.ptx"
BUSY_OFFSET = ffi.offsetof("aq_usage_page", "cards") + ffi.offsetof("aq_usage_card", "busy_ns")
SPIN = """
import sys
import numpy as np
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
driver.cuCtxSetCurrent(context)
module = driver.cuModuleLoadData(open(sys.argv[1], "rb").read() + bytes(1))[1]
spin = driver.cuModuleGetFunction(module, b"aliquot_spin")[1]
length = np.array([10_000_000], np.uint64)
arguments = np.array([length.ctypes.data], np.uint64)
print("ready", flush=True)
while True:
    for _ in range(4):
        driver.cuLaunchKernel(spin, 64, 1, 1, 32, 1, 1, 0, 0, arguments.ctypes.data, 0)
    driver.cuCtxSynchronize()
"""


@contextmanager
def spinning(world: World) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps the first card busy and goes around the interceptor."""
    command = [sys.executable, "-c", SPIN, str(KERNEL)]
    env = {**world.env(), "CUDA_VISIBLE_DEVICES": world.uuids[0]}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def let_in(world: World, name: str) -> Held:
    """A pod with 30 % of the first card."""
    held = world.admit(name, 1024, 30)
    world.kubelet.pre_start(held)
    return held


def say(page: Path, busy_ns: int) -> None:
    """What the interceptor would say of the time that the tenant had."""
    with page.open("r+b") as file:
        file.seek(BUSY_OFFSET)
        file.write(busy_ns.to_bytes(8, sys.byteorder))


def is_doubted(world: World, held: Held) -> bool:
    """Whether the page tells that its tenant is not believed."""
    (card,) = read_control(world.control(held.nonce)).cards
    return card.doubted


def test_a_tenant_that_says_nothing_of_its_time_is_found(world: World) -> None:
    """From its first kernel on; event and page name it, and it is charged for what it holds."""
    held = let_in(world, "quiet")
    with spinning(world) as process:
        occupy(world.usage(held.nonce), process, 1 << 20)
        begin = time.monotonic()
        until(lambda: is_doubted(world, held), "found")
        print(f"found after {time.monotonic() - begin:.2f} s")
        reasons = {"UsageNotBelieved"}
        until(lambda: reasons <= {one["reason"] for one in events(world, "quiet")}, "the event")
        (event,) = [one for one in events(world, "quiet") if one["reason"] in reasons]
        assert event["message"] == (
            "container main: it says to have had less of a card's time than the driver saw it have; until it is "
            "believed again it is lent no time"
        )


@pytest.mark.timing
def test_a_tenant_that_says_what_it_had_is_believed(world: World) -> None:
    """Beside one that does not: who is found is found by its own processes."""
    honest, quiet = let_in(world, "honest"), let_in(world, "silent")
    with spinning(world) as open_one, spinning(world) as secret:
        occupy(world.usage(honest.nonce), open_one, 1 << 20)
        begin = time.monotonic_ns()

        def found() -> bool:
            say(world.usage(honest.nonce), (time.monotonic_ns() - begin) // 2)  # they have the card in turns
            return is_doubted(world, quiet)

        occupy(world.usage(quiet.nonce), secret, 1 << 20)
        until(found, "the other one found")
        assert not is_doubted(world, honest)
        assert read_times(world.control(honest.nonce))[0].used_ns > 0


def test_a_tenant_that_cuts_its_page_short_is_not_believed(world: World) -> None:
    """What it had cannot be read any more."""
    held = let_in(world, "cut")
    world.usage(held.nonce).write_bytes(b"nothing")
    until(lambda: is_doubted(world, held), "found")
    until(lambda: events(world, "cut"), "the event")
    assert "UsageNotBelieved" in {one["reason"] for one in events(world, "cut")}


def events(world: World, name: str) -> list[dict[str, str]]:
    """What was said of a pod."""
    found = world.api.request("GET", "/api/v1/namespaces/default/events")["items"]
    return [one for one in found if one["involvedObject"]["name"] == name]
