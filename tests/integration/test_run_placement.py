"""Which card `aliquot run` takes, where others than this user's runs are on the cards."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.api import names
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.integration.shells import TENANT, WAIT_S, Shell, Tenant, until

GIB = 1 << 30
SHOW_CARD = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


@pytest.fixture
def machine(tmp_path: Path) -> SimMachine:
    """A machine of two cards of 16 GiB, which stands for a real one."""
    machine = SimMachine(tmp_path / "machine", [SimCard(), SimCard()])
    machine.create()
    return machine


def user(machine: SimMachine, runtime: Path) -> Shell:
    """A user of that machine with a record of runs of their own; all users' claims are in one directory."""
    runtime.mkdir(mode=0o700)
    shell = Shell(runtime)
    shell.environment |= {**machine.env(), names.CLAIMS_ENV: str(machine.root / "claims")}
    return shell


@contextmanager
def outside(shell: Shell, mib: int) -> Iterator[None]:
    """A program without a slice that holds so much of card 0."""
    program = subprocess.Popen(
        [sys.executable, "-c", TENANT],
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdin
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        program.stdin.write(f"alloc {mib}\n")
        program.stdin.flush()
        assert program.stdout.readline() == "CUDA_SUCCESS\n"
        try:
            yield
        finally:
            program.stdin.close()


def cards(shell: Shell) -> list[dict[str, int]]:
    """What `aliquot cards` says of the machine."""
    done = shell.aliquot("cards", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, int]] = json.loads(done.stdout)["cards"]
    return found


def test_a_card_that_another_program_has_filled_is_passed_over(machine: SimMachine, tmp_path: Path):
    """With 10 of card 0's 16 GiB in use elsewhere, 12Gi are had on card 1, all of them, and what is left is shown."""
    shell = user(machine, tmp_path / "runtime")
    with outside(shell, 10 * 1024):
        tenant = Tenant(shell, "--mem", "12Gi", simulate=False)
        assert tenant.ask("alloc", 11 * 1024) == "CUDA_SUCCESS"
        first, second = cards(shell)
        assert (first["outsideBytes"], first["freeBytes"]) == (10 * GIB, 6 * GIB)
        assert (second["outsideBytes"], second["freeBytes"]) == (0, 4 * GIB)
        assert "10Gi used without a slice" in shell.aliquot("cards").stdout
        refused = shell.aliquot("run", "--mem", "12Gi", "--", "true")
        assert refused.returncode == 125
        assert "has 6Gi of 16Gi and 100 % of its time left (10Gi are used by programs" in refused.stderr
        tenant.end()


def test_a_run_cannot_grow_into_what_another_program_uses(machine: SimMachine, tmp_path: Path):
    """What is in use counts for a resize as it does for a start."""
    shell = user(machine, tmp_path / "runtime")
    with outside(shell, 10 * 1024):
        tenant = Tenant(shell, "--mem", "2Gi", "--card", "0", simulate=False)
        refused = shell.aliquot("resize", tenant.name, "--mem", "7Gi")
        assert refused.returncode == 125
        assert "at most 6Gi and 100 % of its time" in refused.stderr
        tenant.end()


@pytest.mark.slow
def test_the_runs_of_users_without_a_common_record_count(machine: SimMachine, tmp_path: Path):
    """What one user's runs are promised no other's get, though it is not in use yet."""
    one, other = user(machine, tmp_path / "one"), user(machine, tmp_path / "other")
    first = Tenant(one, "--mem", "12Gi", "--core", "60", "--card", "0", simulate=False)
    second = Tenant(other, "--mem", "8Gi", simulate=False)
    found = cards(other)
    assert [card["othersBytes"] for card in found] == [12 * GIB, 0]
    assert [card["promisedBytes"] for card in found] == [12 * GIB, 8 * GIB]
    assert "12Gi promised to other users" in other.aliquot("cards").stdout
    refused = other.aliquot("run", "--mem", "8Gi", "--core", "50", "--card", "0", "--", "true")
    assert "has 4Gi of 16Gi and 40 % of its time left" in refused.stderr
    assert one.aliquot("resize", first.name, "--mem", "10Gi").returncode == 0
    assert [card["othersBytes"] for card in cards(other)] == [10 * GIB, 0]
    first.end()
    assert [card["othersBytes"] for card in cards(other)] == [0, 0]
    second.end()


def test_what_another_users_run_uses_is_not_counted_twice(machine: SimMachine, tmp_path: Path):
    """Its memory in use is of its slice, so that no program without a slice is suspected."""
    one, other = user(machine, tmp_path / "one"), user(machine, tmp_path / "other")
    first = Tenant(one, "--mem", "12Gi", "--card", "0", simulate=False)
    assert first.ask("alloc", 8 * 1024) == "CUDA_SUCCESS"
    until(lambda: cards(other)[0]["outsideBytes"] == 0)
    assert cards(other)[0]["freeBytes"] == 4 * GIB
    first.end()


def test_the_claim_of_a_killed_run_lasts_as_long_as_its_command(machine: SimMachine, tmp_path: Path):
    """Other users see by a lock whether it lives, whatever has become of its `aliquot`."""
    one, other = user(machine, tmp_path / "one"), user(machine, tmp_path / "other")
    first = Tenant(one, "--mem", "12Gi", "--card", "0", simulate=False)
    first.process.kill()
    first.process.wait(WAIT_S)
    assert cards(other)[0]["othersBytes"] == 12 * GIB
    assert first.process.stdin
    first.process.stdin.close()
    until(lambda: cards(other)[0]["othersBytes"] == 0)


def test_other_accounts_can_read_and_add_claims(machine: SimMachine, tmp_path: Path):
    """The directory and its files can be read, and added to, by every user of the machine."""
    one = user(machine, tmp_path / "one")
    first = Tenant(one, "--mem", "12Gi", "--card", "0", simulate=False)
    claims = machine.root / "claims"
    assert claims.stat().st_mode & 0o7777 == 0o1777
    assert [path.stat().st_mode & 0o777 for path in claims.iterdir()] == [0o644]
    first.end()
    assert list(claims.iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [lambda path: path.mkdir(mode=0o700), lambda path: path.symlink_to("/"), lambda path: path.touch()],
    ids=["of one user", "a link", "a file"],
)
def test_without_a_common_directory_what_is_in_use_counts(machine: SimMachine, tmp_path: Path, make: object):
    """Where another user has taken its name NVML alone tells what other users have."""
    make(machine.root / "claims")  # type: ignore[operator]
    one, other = user(machine, tmp_path / "one"), user(machine, tmp_path / "other")
    first = Tenant(one, "--mem", "12Gi", "--card", "0", simulate=False)
    assert first.ask("alloc", 10 * 1024) == "CUDA_SUCCESS"
    assert [card["outsideBytes"] for card in cards(other)] == [10 * GIB, 0]
    first.end()


VISIBLE = [
    ("1", [], 0, 1),
    ("{1}", [], 0, 1),
    ("1,0", ["--card", "0"], 0, 0),
    ("1", ["--card", "0"], 125, "card 0 (GPU-{0}) is not among those of CUDA_VISIBLE_DEVICES"),
    ("", [], 125, "CUDA_VISIBLE_DEVICES= hides every card from the command; unset it"),
    ("-1", [], 125, "hides every card"),
    ("GPU-", [], 125, "names 'GPU-', which is several cards here"),
    ("7", [], 125, "CUDA_VISIBLE_DEVICES names '7', which is no card here; there are 0 = "),
    ("MIG-x", [], 125, "names 'MIG-x'"),
]


@pytest.mark.parametrize(
    ("value", "options", "outcome"),
    [(*row[:2], row[2:]) for row in VISIBLE],
    ids=[repr(row[:2]) for row in VISIBLE],
)
def test_cuda_visible_devices_is_honoured_or_refused(
    machine: SimMachine, tmp_path: Path, value: str, options: list[str], outcome: tuple[int, object]
):
    """What a batch system has chosen is the card, and never another one without a word."""
    shell, (status, told) = user(machine, tmp_path / "runtime"), outcome
    uuids = [card.uuid for card in machine.cards]
    shell.environment["CUDA_VISIBLE_DEVICES"] = value.replace("{1}", uuids[1])
    done = shell.aliquot("run", "--mem", "1Gi", *options, "--", *SHOW_CARD)
    assert done.returncode == status, done.stderr
    if isinstance(told, int):
        assert done.stdout.strip() == uuids[told]
    else:
        assert str(told).replace("GPU-{0}", uuids[0]) in done.stderr


def test_an_index_in_an_unknown_order_is_refused(tmp_path: Path):
    """Among models CUDA counts the fastest first, which is not known here; the bus's order is."""
    mixed = SimMachine(tmp_path / "machine", [SimCard(model="NVIDIA A30"), SimCard(model="NVIDIA H200")])
    mixed.create()
    shell = user(mixed, tmp_path / "runtime")
    shell.environment["CUDA_VISIBLE_DEVICES"] = "1"
    refused = shell.aliquot("run", "--mem", "1Gi", "--", *SHOW_CARD)
    assert refused.returncode == 125
    assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID to count as nvidia-smi does" in refused.stderr
    shell.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    done = shell.aliquot("run", "--mem", "1Gi", "--", *SHOW_CARD)
    assert done.stdout.strip() == mixed.cards[1].uuid


def test_one_line_says_which_slice_the_command_has(machine: SimMachine, tmp_path: Path):
    """On stderr, so that what the command prints stays its own; --quiet leaves it out."""
    shell = user(machine, tmp_path / "runtime")
    done = shell.aliquot("run", "--mem", "50%", "--core", "30", "--card", "1", "--", "echo", "x")
    (line,) = done.stderr.splitlines()
    assert line.startswith("aliquot: run ")
    assert line.endswith(": card 1 (NVIDIA H200), 8Gi of memory, 30 % of its time")
    assert done.stdout == "x\n"
    uncapped = shell.aliquot("run", "--mem", "1Gi", "--", "true").stderr
    assert uncapped.endswith(": card 0 (NVIDIA H200), 1Gi of memory, uncapped\n")
    decimal = shell.aliquot("run", "--mem", "2G", "--", "true").stderr
    assert decimal.endswith(", 1908Mi of memory (2G is decimal, unlike 2Gi), uncapped\n")
    assert shell.aliquot("run", "--quiet", "--mem", "1Gi", "--", "true").stderr == ""


@pytest.mark.slow
def test_a_held_lock_of_the_common_directory_holds_nothing_up_for_long(machine: SimMachine, tmp_path: Path):
    """Any user can lock it for ever; the start says so and goes on."""
    shell = user(machine, tmp_path / "runtime")
    assert shell.aliquot("run", "--mem", "1Gi", "--", "true").returncode == 0
    claims = machine.root / "claims"
    with subprocess.Popen(["flock", str(claims), "sleep", "1000"], start_new_session=True) as holder:
        until(lambda: subprocess.run(["flock", "-n", str(claims), "true"], check=False).returncode == 1)
        done = shell.aliquot("run", "--mem", "1Gi", "--", "true")
        os.killpg(holder.pid, signal.SIGKILL)
    assert done.returncode == 0
    assert f"another user's process holds {claims}; going on without it" in done.stderr
