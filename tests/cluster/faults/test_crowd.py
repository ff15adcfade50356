"""As many pods at once as a real node has slices, of every shape that asks for them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from aliquot.libshim.control_page import read_control
from tests.cluster.auditor import audit
from tests.cluster.installation import RUN, Installation
from tests.cluster.test_journey import PATIENCE_S
from tests.integration.faults.test_crowd import one_of
from tests.integration.journey.auditor import MIB, placement_of

pytestmark = pytest.mark.cluster

CROWD = 14
"""Three pods of each of four shapes, and two more: together they hold all the ids that the kubelet has."""


def test_each_of_a_crowd_of_pods_at_once_has_what_it_asked_for(installed: Installation):
    """Their amounts all differ: containers that run and those that have ended were held to what was granted."""
    with ThreadPoolExecutor(CROWD) as users:
        list(users.map(lambda number: installed.kubectl.create(one_of(number, cards=1)), range(CROWD)))
    for number in range(CROWD):
        installed.kubectl.wait_phase(f"crowd-{number}", "Running", deadline=PATIENCE_S)
    for pod in installed.kubectl.list("pods", "default"):
        placement = placement_of(pod)
        assert placement
        for granted in placement["containers"]:
            page = f"{RUN}/tenants/{pod['metadata']['uid']}/{granted['name']}/control"
            control = read_control(installed.node.box.path(page))
            applied = [(card.uuid, card.memory_bytes) for card in control.cards]
            assert applied == [(card["uuid"], card["memoryMiB"] * MIB) for card in granted["cards"]]
    audit(installed)
