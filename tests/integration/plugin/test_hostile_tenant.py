"""A minute of a hostile tenant beside a measuring neighbour. SEED repeats a run, MINUTES lengthens it.

What the neighbour would notice is measured again and again: its part of the card, the arbiter's word, a scrape, and how
long another pod takes to start.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from aliquot.api.names import CONTROL_ENV, USAGE_ENV
from aliquot.libshim.control_page import read_control
from aliquot.libshim.library import library_path
from aliquot.libshim.usage_page import read_card_usages
from aliquot.sandbox.gpus import SimCard
from tests.integration.plugin.small_kubelet import Held, until
from tests.integration.plugin.test_plugin_metrics import fetch, start_and_serve
from tests.integration.plugin.test_plugin_watchdog import KERNEL, SPIN
from tests.integration.plugin.waits import longest_silence_s, seconds_of
from tests.integration.plugin.world import REPOSITORY, MakeWorld, World

LASTS_S = 60 * float(os.environ.get("MINUTES", "1"))
SHORT_S = 12.0
SEED = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
ROUND_S = 2.0
LONGEST_S = 5.0
"""A scrape or a start: ten times what they should be on a quiet machine, and more."""
LEAST_SHARE = 0.3
"""Of the card, for who has half of it, on however busy a machine; what it has on a quiet one is printed."""
MOST_GROWTH_MIB = 48
PROGRAM = "tests.integration.plugin.hostile_tenant"


@dataclass
class Figures:
    """What was measured, round by round; seconds, and the share as a part of one."""

    share: list[float] = field(default_factory=list)
    silence: list[float] = field(default_factory=list)
    scrape: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        longest = {name: max(getattr(self, name)) for name in ("silence", "scrape", "start")}
        told = ", ".join(f"longest {name} {value:.3f} s" for name, value in longest.items())
        return f"share least {min(self.share):.3f}, median {median(self.share):.3f}; {told}; {len(self.share)} rounds"


@contextmanager
def working(world: World, held: Held) -> Iterator[subprocess.Popen[bytes]]:
    """A program that always has work, in its slice."""
    env = {
        **world.env(),
        "CUDA_VISIBLE_DEVICES": world.uuids[0],
        "LD_PRELOAD": str(library_path()),
        CONTROL_ENV: str(world.control(held.nonce)),
        USAGE_ENV: str(world.usage(held.nonce)),
    }
    with subprocess.Popen(
        [sys.executable, "-c", SPIN, str(KERNEL)], env=env, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def hostile(world: World, held: Held, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    """The tenant that means harm, with its pages as mounts would show them."""
    files = [os.open(world.usage(held.nonce), os.O_RDWR), os.open(world.control(held.nonce), os.O_RDONLY)]
    command = [sys.executable, "-m", PROGRAM, *map(str, files), str(seed)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=files
    ) as process:
        for file in files:
            os.close(file)
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def watch(held: Held, world: World, figures: Figures) -> None:
    """A round in which the neighbour only works."""
    usage, control = world.usage(held.nonce), world.control(held.nonce)
    begin, had = time.monotonic_ns(), read_card_usages(usage)[0].busy_ns
    figures.silence.append(longest_silence_s(control, ROUND_S))
    figures.share.append((read_card_usages(usage)[0].busy_ns - had) / (time.monotonic_ns() - begin))


def another_pod(world: World, figures: Figures) -> None:
    """Comes, starts and goes."""
    name = f"pod-{len(figures.start)}"
    held = world.admit(name, 1024, 1)
    figures.start.append(seconds_of(lambda: world.kubelet.pre_start(held)))
    world.delete(name)
    world.kubelet.forget(held.uid)


def size_mib(pid: int) -> int:
    """The memory of a process, which the kernel counts in KiB."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


def besiege(node: World, seed: int, lasts_s: float) -> tuple[Held, Figures]:
    """Has a tenant of 40 % do harm beside a neighbour of 50 %; the hostile one, and what the neighbour measured."""
    print(f"SEED={seed}")
    url, figures = start_and_serve(node), Figures()
    harms, neighbour = node.admit("harms", 1024, 40), node.admit("neighbour", 1024, 50)
    for held in (harms, neighbour):
        node.kubelet.pre_start(held)
    limits = read_control(node.control(neighbour.nonce)).cards
    assert node.process is not None
    with working(node, neighbour) as own, working(node, harms), hostile(node, harms, seed) as process:
        watch(neighbour, node, Figures())
        before_mib, end = size_mib(node.process.pid), time.monotonic() + lasts_s
        while time.monotonic() < end:
            watch(neighbour, node, figures)
            figures.scrape.append(seconds_of(lambda: fetch(url)))
            another_pod(node, figures)
        assert [one.poll() for one in (own, process, node.process)] == [None] * 3
        print(process.communicate()[0].splitlines()[-1].decode(), figures, sep="\n")
        assert size_mib(node.process.pid) < before_mib + MOST_GROWTH_MIB
    assert "Traceback" not in node.log
    (before,), (now,) = limits, read_control(node.control(neighbour.nonce)).cards
    assert (now.memory_bytes, now.core_share_bp, now.doubted) == (
        before.memory_bytes,
        before.core_share_bp,
        False,
    )
    return harms, figures


@pytest.mark.slow
@pytest.mark.timeout(3 * LASTS_S + 120)
def test_a_hostile_tenant_harms_nobody_but_itself(make_world: MakeWorld) -> None:
    """The agent lives on and does not grow, the neighbour's limits stay, and the slice is given back in the end."""
    node = make_world(SimCard(), start=False)
    harms, figures = besiege(node, SEED, LASTS_S)
    assert max(figures.silence) < ROUND_S / 2
    assert max(figures.scrape + figures.start) < LONGEST_S
    assert median(figures.share) > LEAST_SHARE
    node.restart_plugin()
    node.ready()
    another_pod(node, figures)
    node.delete("harms")
    node.kubelet.forget(harms.uid)
    until(lambda: not (node.root / "run" / "tenants" / harms.uid).exists(), "given back")


@pytest.mark.timing
def test_a_neighbour_of_a_hostile_tenant_has_its_share(make_world: MakeWorld) -> None:
    """Within two points, and nobody waits for a second."""
    _, figures = besiege(make_world(SimCard(), start=False), SEED, SHORT_S)
    assert median(figures.share) == pytest.approx(0.5, abs=0.02)
    assert max(figures.silence + figures.scrape + figures.start) < 1.0
