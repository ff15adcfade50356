"""Cards that fail, beside cards that work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.world import GPU, REPOSITORY, MakeWorld, World

LIST_TWICE = """
from aliquot.plugin.devices.nvml_cards import PyNvml
nvml = PyNvml()
print(*(card.uuid for card in nvml.cards()), flush=True)
input()
print(*(card.uuid for card in nvml.cards()), flush=True)
"""


def published(world: World) -> dict[str, str]:
    """Card → health, as the cluster sees it; empty while nothing is published."""
    found = world.api.request("GET", "/apis/aliquot.dev/v1alpha1/gpunodes")["items"]
    cards = [
        card
        for node in found
        if node["metadata"]["name"] == world.node
        for card in node.get("status", {}).get("cards", ())
    ]
    return {card["uuid"]: card["health"] for card in cards}


def test_a_lost_card_does_not_keep_the_others_from_being_served(make_world: MakeWorld) -> None:
    """An agent that starts on a node with one lost card offers the cards that answer."""
    world = make_world(SimCard(lost=True), SimCard(), start=False)
    world.start_plugin()
    devices = world.kubelet.wait_for(GPU).devices
    until(lambda: published(world) == {world.uuids[1]: "Healthy"}, "the card that works is published")
    assert {one.partition("::")[0] for one in devices} == {world.uuids[1]}
    assert "card 0 is left out" in world.log


@pytest.mark.slow
def test_a_card_that_is_lost_and_found_is_unhealthy_meanwhile(make_world: MakeWorld) -> None:
    """The cluster is told of a card that no longer answers, and of its return; the other stays well."""
    world = make_world()
    lost, well = world.uuids
    until(lambda: published(world) == {lost: "Healthy", well: "Healthy"}, "both cards are published")
    world.machine.update(0, lost=True)
    until(lambda: published(world) == {lost: "Unhealthy", well: "Healthy"}, "the lost card is unhealthy")
    world.machine.update(0, lost=False)
    until(lambda: published(world) == {lost: "Healthy", well: "Healthy"}, "it answers again")


def test_a_lost_card_stays_in_the_list_of_those_that_knew_it(tmp_path: Path) -> None:
    """Tenants of a card hold what they hold while it is lost, so it is listed as it was."""
    machine = SimMachine(tmp_path, [SimCard(), SimCard()])
    machine.create()
    environment = {**os.environ, **machine.env(), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", LIST_TWICE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        before = child.stdout.readline().split()
        machine.update(1, lost=True)
        after = child.communicate("\n", timeout=60)[0].split()
    assert before == after == [card.uuid for card in machine.cards]


def test_a_card_with_a_fault_of_its_own_takes_nobody_new(make_world: MakeWorld) -> None:
    """An XID that a program can cause says nothing of the card; another one withdraws its slices, and only its."""
    world = make_world()
    sick, well = world.uuids
    devices = world.kubelet.wait_for(GPU)

    def health() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one, state in devices.devices.items():
            found.setdefault(one.partition("::")[0], set()).add(state)
        return found

    until(lambda: len(published(world)) == 2, "both cards are published")
    world.machine.raise_xid(1, 31)
    world.machine.raise_xid(0, 79)
    until(lambda: published(world) == {sick: "Unhealthy", well: "Healthy"}, "the card is unhealthy")
    until(lambda: health() == {sick: {"Unhealthy"}, well: {"Healthy"}}, "the kubelet knows")
