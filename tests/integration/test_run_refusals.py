"""What a run's user is told when its slice has no room: once, on stderr, with the command that helps."""

import re
import subprocess
import sys

import pytest

from tests.integration.shells import Shell, Tenant, line_with

REFUSALS = """
import os, sys
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
for word in sys.argv[1:]:
    print(driver.cuMemAlloc(int(word))[0].name)
if os.fork() == 0:
    os._exit(0)
"""
MIB = 1 << 20
TOLD = re.compile(
    r"aliquot: run (\w{4}): the slice, not the card, refused (\w+): (\w+) of (\w+) left; "
    r"to enlarge it: aliquot resize (\w{4}) --mem \+(\w+)"
)


def refused(shell: Shell, *sizes: int, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A program in a run of 1Gi that asks for memory of each size."""
    program = (sys.executable, "-c", REFUSALS, *map(str, sizes))
    done = shell.aliquot("run", "--simulate", "--mem", "1Gi", *options, "--", *program)
    assert done.returncode == 0, done.stderr
    return done


def test_it_is_told_once_with_what_was_asked_and_what_is_left(shell: Shell):
    """Of three refusals the first one is told, in whole MiB: 768Mi of the slice are taken before."""
    done = refused(shell, 768 * MIB, 512 * MIB - 1, 2048 * MIB, 512 * MIB)
    assert done.stdout.split() == ["CUDA_SUCCESS", *["CUDA_ERROR_OUT_OF_MEMORY"] * 3]
    given, told = done.stderr.splitlines()
    words = TOLD.fullmatch(told)
    assert words, told
    run = given.split()[2].rstrip(":")
    assert words.groups() == (run, "512Mi", "256Mi", "1Gi", run, "256Mi")


@pytest.mark.parametrize(("asked", "left"), [(17, "1Gi"), (16, "768Mi")])
def test_no_resize_is_proposed_that_would_be_more_than_a_card(shell: Shell, asked: int, left: str):
    """The card has 16Gi: what the slice has given out already counts, too."""
    before = [] if left == "1Gi" else [256 * MIB]
    told = refused(shell, *before, asked * 1024 * MIB).stderr.splitlines()[1]
    assert told.partition(": ")[2].partition(": ")[2] == (
        f"refused {asked}Gi: {left} of 1Gi left, and the whole card has 16Gi"
    )


@pytest.mark.parametrize("size", [1 << 60, (1 << 64) - 1])
def test_what_no_card_could_have_is_not_told(shell: Shell, size: int):
    """A size that is a mistake of the program's is answered by the error alone."""
    assert len(refused(shell, size).stderr.splitlines()) == 1


def test_nothing_is_told_of_memory_that_is_given(shell: Shell):
    """All of the slice is had without a word."""
    assert len(refused(shell, 1024 * MIB).stderr.splitlines()) == 1


@pytest.mark.parametrize(("options", "quiet"), [(("--quiet",), ""), ((), "1")])
def test_it_can_be_silenced(shell: Shell, options: tuple[str, ...], quiet: str):
    """By the option or by the variable, which a program of many processes inherits."""
    shell.environment["ALIQUOT_QUIET"] = quiet
    done = refused(shell, 2048 * MIB, options=options)
    assert (done.stdout, done.stderr) == ("CUDA_ERROR_OUT_OF_MEMORY\n", "")


def test_a_variable_of_0_silences_nothing(shell: Shell):
    """As if it were not set."""
    shell.environment["ALIQUOT_QUIET"] = "0"
    assert len(refused(shell, 2048 * MIB).stderr.splitlines()) == 2


@pytest.mark.parametrize("kind", ["alloc", "alloc-in-pool"])
def test_the_command_that_is_told_makes_the_room(shell: Shell, kind: str):
    """Typed as it stands, after which the same request is granted, in whatever blocks the driver takes memory."""
    tenant = Tenant(shell, "--mem", "1Gi", stderr=subprocess.PIPE)
    assert tenant.ask(kind, 301) == "CUDA_SUCCESS"
    assert shell.aliquot("resize", tenant.name, "--mem", "256Mi").returncode == 0, "less than it has"
    assert tenant.ask(kind, 1500) == "CUDA_ERROR_OUT_OF_MEMORY"
    told = line_with(tenant.process.stderr, "refused")
    command = told.partition(": aliquot ")[2].split()
    done = shell.aliquot(*command)
    assert done.returncode == 0, done.stderr
    assert tenant.ask(kind, 1500) == "CUDA_SUCCESS"
    assert tenant.ask(kind, 1500) == "CUDA_ERROR_OUT_OF_MEMORY", "and that is told again, of the new limit"
    assert " resize " in line_with(tenant.process.stderr, "refused")
    tenant.end()
