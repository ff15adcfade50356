"""A program that looks the driver up exactly as libcudart does, in a slice: quota, work and account are right."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native import sims
from tests.native.shells import OUT_OF_MEMORY
from tests.native.tenants import Tenant, interceptor

MIB = 1 << 20
SLICE, PART = 80 * MIB, 32 * MIB
ORDERS = sorted((Path(__file__).parents[1] / "data" / "cudart").iterdir())
HOOKS = Path(__file__).parents[2] / "libshim" / "src" / "hooks"

each_release = pytest.mark.parametrize("order", ORDERS, ids=lambda path: path.name)


def hooked() -> set[str]:
    """The symbols that have a hook."""
    return set(re.findall(r"AQ_HOOK\((\w+),", "".join(path.read_text() for path in HOOKS.glob("*.def"))))


def ask(tenant: Tenant, order: Path, *commands: object) -> list[dict[str, Any]]:
    """Runs the client in the slice; its answers but for the one to its start."""
    command = [sims.client(), "--order", order, *map(str, commands)]
    done = subprocess.run(command, env=tenant.env(), capture_output=True, text=True, timeout=60, check=False)
    first, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert first == {"do": "start", "result": 0}, done.stderr
    return answers


@each_release
def test_every_look_up_finds_the_function_that_it_finds_without_us(
    tenant: Callable[..., Tenant], machine: SimMachine, order: Path
):
    """Name, version and flavour of stream: where that very function has a hook it is the hook, else the driver's."""
    bare = sims.ask(machine, "--order", order, "looked")
    ours = ask(tenant(64 * MIB), order, "looked")
    assert [answer | {"file": ""} for answer in ours] == [answer | {"file": ""} for answer in bare]
    hooks, library = hooked(), str(interceptor())
    assert {a["symbol"] for a in ours if a["file"] == library} == {a["symbol"] for a in bare} & hooks


@each_release
@pytest.mark.parametrize("streams", [(), ("--per-thread",)], ids=["legacy", "per-thread"])
def test_it_fills_its_slice_and_again_and_works_all_the_while(
    flavoured: Callable[..., Tenant], order: Path, streams: tuple[str, ...]
):
    """To the quota, refused beyond it, freed, and once more; kernels and graphs run, and nothing is left over."""
    for kind in (("alloc", PART), ("managed", PART), ("async", PART), ("pitch", 32 << 10, 1 << 10)):
        full = ["alloc", PART, *kind, "info", "alloc", PART, "free", "sync", "free", "launch", 1000, 3]
        work = ["launchex", 1000, 3, "graph", 1000, 2, "sync", "info"]
        answers = ask(flavoured(SLICE), order, *streams, "launch", 0, 1, "info", *full, *full, *work)
        wanted = [0, 0, 0, OUT_OF_MEMORY, 0, 0, 0, 0]
        assert [answer["result"] for answer in answers] == [0, 0, *wanted, *wanted, 0, 0, 0, 0]
        before, *meanwhile, after = [answer for answer in answers if answer["do"] == "info"]
        assert {answer["total"] for answer in (before, *meanwhile, after)} == {SLICE}
        assert {before["free"] - answer["free"] for answer in meanwhile} == {2 * PART}
        assert after["free"] == before["free"]
