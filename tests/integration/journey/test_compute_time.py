"""A card's time between pods, by the simulated card's own record: lent, guaranteed, and capped without an agent."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from aliquot.cli.demo.checks import time_share
from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import CardLimit, read_control
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.pods import container, pod
from tests.integration.journey.spinners import spin
from tests.integration.shells import ALIQUOT

pytestmark = pytest.mark.timing

WINDOW_S = 2.0


def page(node: Node, meta: dict[str, Any]) -> CardLimit:
    """What a pod's page says of its card."""
    (card,) = read_control(node.tenants / meta["uid"] / "main" / "control").cards
    return card


def settles(node: Node, meta: dict[str, Any], wanted: Callable[[float], bool], what: str) -> None:
    """Waits until a pod's percentage of its card over a while is as wanted."""
    card, since = page(node, meta).uuid, time.monotonic()

    def share() -> bool:
        whole = time.monotonic() - since > WINDOW_S
        return whole and wanted(time_share(node, card, meta["uid"], WINDOW_S))

    wait_for(f"{meta['name']} to have {what}", share)


def with_one_card(stack: Stack) -> None:
    """All but one card is held alone by somebody else."""
    stack.kubectl.apply(pod("away", container("main", {"gpu": "1"})))
    stack.kubectl.wait_phase("away", "Running")


def test_idle_time_is_lent_while_the_agent_lives_and_shares_are_caps_while_it_does_not(
    stack: Stack, node: Node
) -> None:
    """One is capped at 30 %, the other has 30 % and bursts: it has the rest, and its 30 % while the agent is dead."""
    with_one_card(stack)
    capped = spin(stack, "capped", {"core": "30"})
    bursts = spin(stack, "bursts", {"core": "30"}, core_mode="burst")
    settles(node, bursts, lambda share: share > 55, "what the other leaves")
    settles(node, capped, lambda share: 20 < share < 36, "its 30 %")
    check_top(node)
    stack.cluster.kill(node.agent)
    settles(node, bursts, lambda share: 15 < share < 36, "its own share alone")
    stack.cluster.restart(node.agent)
    settles(node, bursts, lambda share: share > 55, "what the other leaves, again")


def check_top(node: Node) -> None:
    """`aliquot top` shows what the card's record says, as near as the while it looks allows."""
    command = [*ALIQUOT, "top", "--json", "--interval", "3", "--run-dir", str(node.directory / "run")]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    tenants = {one["tenant"]: one for card in told["cards"] for one in card["tenants"]}
    bursts, capped = tenants["default/bursts/main"], tenants["default/capped/main"]
    assert (bursts["mode"], capped["mode"]) == ("burst", "capped")
    assert bursts["used"] > 0.5
    assert bursts["lent"] > 0.2
    assert abs(bursts["used"] - bursts["lent"] - 0.3) < 0.1
    assert abs(capped["used"] - 0.3) < 0.1
    assert capped["lent"] < 0.05
    assert abs(capped["guaranteed"] - 0.3) < 0.1
    assert capped["waiting"] > 0.3
    assert bursts["trusted"]


def test_who_lies_about_its_time_is_found_and_loses_its_burst(stack: Stack, node: Node) -> None:
    """Event, metric and page tell of it; the honest neighbour has its share."""
    with_one_card(stack)
    honest = spin(stack, "honest", {"core": "50"}, core_mode="burst")
    liar = spin(stack, "liar", {"core": "20"}, "lies", core_mode="burst")
    begin = time.monotonic()
    wait_for("the liar to be found", lambda: page(node, liar).doubted)
    print(f"found {time.monotonic() - begin:.2f} s after it began")
    event = wait_for("the event", lambda: warnings_of(stack, "liar"))[0]
    assert "it says to have had more of a card's time than passed" in event
    metrics = stack.metrics("node-1")
    assert re.search(r'aliquot_slice_trusted\{.*pod="liar"\} 0.0', metrics)
    assert re.search(r'aliquot_slice_trusted\{.*pod="honest"\} 1.0', metrics)
    settles(node, liar, lambda share: share < 30, "no more than its share")
    settles(node, honest, lambda share: share > 45, "its share")
    assert not page(node, honest).doubted


def warnings_of(stack: Stack, name: str) -> list[str]:
    """Why a pod is not believed."""
    told = [one for one in stack.kubectl.list("events") if one["involvedObject"]["name"] == name]
    return [one["message"] for one in told if one["reason"] == "UsageNotBelieved"]
