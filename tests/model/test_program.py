"""A history is the same in every process, and can be named by its seed and events."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.features import FEATURES, chosen, enabled, not_run
from tests.model.generator import Generator

ROOT = Path(__file__).parents[2]


def model(*arguments: str, hash_seed: str = "") -> str:
    """What the program prints; it starts itself anew with a hash seed of its own."""
    environment = {**os.environ, **({"PYTHONHASHSEED": hash_seed} if hash_seed else {})}
    command = [sys.executable, "-m", "tests.model", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_seed_is_the_same_history_in_every_process() -> None:
    """Down to each change of an object and its moment."""
    first, second = (model("--seed", "3", hash_seed=seed) for seed in ("1", "2"))
    assert re.search(r"^digest [0-9a-f]{64}$", first, re.MULTILINE)
    assert first == second


FOUND_ONCE = {
    83: "a quota that bars a pod beside the victims that kube-scheduler names",
    483: "a plan's node that lacks CPU until its victims have ended",
    903: "CPU that kube-scheduler keeps for a nominated pod",
    960: "a last slice that is taken while others leave for a pod that borrows",
    1948: "a place that is free beside one that another has yet to leave",
    2221: "a place that is held at the expense of lower pods' holds",
    2293: "a pod that is bound before all of its plan have been told to leave",
    2492: "a reservation that kube-scheduler has forgotten",
    2598: "members of a group of whom one takes a last slice",
    2699: "a group of which a quota bears the smaller members",
    3497: "a pod that was leaving the node already, and does not end",
    3627: "what is kept for a member whose group has lost others",
    4844: "a group for whose members there is room in few arrangements",
    5609: "a group that is evicted while others leave for its last member",
    10435: "a pod that `why` would move onto the last CPU of a node",
    20220: "what is kept for a group of which a node takes no pods any more",
    20577: "CPU that a pod was left, and that another got when an answer was lost",
    30180: "a pod that was tried before the watch showed that all had left for it",
    30255: "memory of a card without a slice left",
    40705: "room that others were leaving anyhow, and that a higher pod has taken",
    41585: "compute of cards without a slice left",
    50123: "a pod whose victim for CPU is one that does not end",
    50194: "places of a group that are promised and not bound yet",
    50370: "a victim whose guarantee another one that has borrowed makes up for",
    50841: "a nomination that the watch had not shown when the pod was tried again",
    51002: "a pod that may leave for a limit only in place of a more willing one",
    61986: "an eviction for a group, told of after one from a group below its minimum",
    70078: "a group for which fewer have to leave than all, who would open guarantees",
    70546: "a higher pod that takes the room of one of several evictions for a group",
    72497: "a remedy of `why` beside a card without a slice left",
    73959: "a pod that is bound a moment after its node has gone",
    74165: "a higher pod of the quota of one that leaves, which takes the place that it was for",
    77436: "a node that is cordoned while the leader's watches lag",
    80582: "a pod that ends in the moment in which another of its quota is evicted",
    81200: "a nominated pod without CPU, for which filter is never asked",
    81947: "room that others left for a pod, which is looked at while it is reserved",
    83687: "a pod that may leave for a limit only before another of its quota",
    84244: "a place that is kept for a pod whose answer was lost, and counts against a limit",
    86481: "a group that starts before all have been told to leave for it",
    86883: "CPU that is kept for a group whose members have places that are not bound yet",
    87346: "the last CPU that others left, and that a higher pod has taken",
    98977: "a place on a cordoned node that keeps a group from the others that it needs",
    99255: "a place that is promised where another pod does not end, and is not any more",
    910078: "a group for whose quota pods have to leave a node that it may not have",
    920256: "the same where several pods of one quota together open its guarantee",
    920625: "a nominated pod whose card has failed, and that keeps CPU from others",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND_ONCE)
def test_histories_that_failed_once_do_not(seed: int) -> None:
    """Each has a test of its subject, too; these are how it was found."""
    model("--seed", str(seed))


def test_a_part_of_a_history_keeps_its_times() -> None:
    """Events that are left out leave their time behind."""
    whole = Generator(3, enabled()).story()
    part = whole.only(frozenset({whole.events[2].number, whole.events[-1].number}))
    assert [event.number for event in part.events] == [2, whole.events[-1].number]
    assert sum(event.after for event in part.events) == sum(event.after for event in whole.events)


def test_features_are_named_on_the_command_line() -> None:
    """Alone, or beside those that hold; what is left out is told."""
    assert chosen("gangs,limits") == {"gangs", "limits"}
    assert chosen("-gangs") == enabled() - {"gangs"}
    assert chosen("all") == FEATURES.keys()
    assert any(line.startswith("*** NOT RUN: gangs ") for line in not_run(chosen("limits")))
    with pytest.raises(ValueError, match="there is no feature gang;"):
        chosen("gang")
