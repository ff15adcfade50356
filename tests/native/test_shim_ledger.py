"""The account that a tenant's processes share stays right whatever happens to one of them, at any instruction."""

import subprocess

import pytest

from tests.native.shells import program


def steps(*arguments: str) -> int:
    """Runs a victim again and again, interfered with one instruction later each time; how many there were."""
    ran = program("ledger_steps", "advance.c", "process.c", "presence.c")
    done = subprocess.run([ran, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("operation", ["add", "subtract"])
@pytest.mark.parametrize("ending", ["kill", "meddle"])
def test_a_process_killed_at_any_instruction_leaves_nothing_behind(operation: str, ending: str):
    """All that the dead held is free again, also where its neighbour changed the account in between."""
    assert steps(operation, ending) > 100


@pytest.mark.parametrize("operation", ["add", "subtract"])
def test_a_process_stopped_at_any_instruction_blocks_nobody_and_finishes_right(operation: str):
    """Its neighbour's changes go through at once; when it goes on, its own change has happened exactly once."""
    assert steps(operation, "resume") > 100


@pytest.mark.parametrize("operation", ["add", "subtract"])
def test_a_process_that_slept_for_256_changes_takes_no_old_intent_for_a_new_one(operation: str):
    """The number of a change is 8 bits: what a sleeper read before is not completed after."""
    assert steps(operation, "age") > 100


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["kill", "meddle"])
def test_a_collector_killed_at_any_instruction_loses_nothing(ending: str):
    """What it was giving back is given back by the next."""
    assert steps("collect", ending, "11") > 100
