"""The node agent reads how cards are linked and where NICs hang, and publishes it; from the driver to the extender."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from aliquot.api.links import Level, Link
from aliquot.crds.gpu_node import GPUNodeStatus
from aliquot.sandbox.gpus import SimCard, SimMachine
from aliquot.sandbox.sysfs import PciPlace, SimNic, write_sysfs
from aliquot.scheduler_ext.cards.topology import Shape, shape_of
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.test_plugin_registration import published
from tests.integration.plugin.world import REPOSITORY, MakeWorld, World

NICS = (
    SimNic("mlx5_0", PciPlace("00000000:16:00.0", "pci0000:15", 0)),
    SimNic("mlx5_1", PciPlace("00000000:98:00.0", "pci0000:97", 1)),
    SimNic("mlx5_2", PciPlace("00000000:98:00.1", "pci0000:97", 1), physical="mlx5_1"),
)

LIST_LINKS = """
import json
import sys
from aliquot.api.links import write_links
from aliquot.plugin.devices.nvml_cards import PyNvml
nvml = PyNvml()
more = "first"
while more:
    print(json.dumps([write_links(card.links) for card in nvml.cards()]), flush=True)
    more = sys.stdin.readline()
"""


def words(world: World) -> list[str]:
    """The links that each card publishes."""
    return [card["links"] for card in published(world).get("cards", [])]


def test_links_roots_and_nics_are_published(make_world: MakeWorld) -> None:
    """Direct links that are up add to those by way of switches; what two cards share comes with them."""
    switch = "pci0000:15/0000:17:00.0"
    world = make_world(
        SimCard(pcie_path=switch, nvlinks={1: 2, "switch": 5}, nvlinks_down=1),
        SimCard(pcie_path=switch, nvlinks={0: 2, "switch": 4}, nvlinks_down=2),
        SimCard(pcie_path="pci0000:97", numa_node=1, nvlinks={"switch": 4}),
        SimCard(pcie_path="pci0000:97", numa_node=1),
        start=False,
    )
    write_sysfs(world.machine.sys_dir, [], NICS)
    world.start_plugin()
    status = until(functools.partial(published, world), "published")
    assert words(world) == ["", "PIX4", "SYS4 SYS4", "SYS SYS PHB"]
    assert [card["pcieRoot"] for card in status["cards"]] == ["pci0000:15"] * 2 + ["pci0000:97"] * 2
    assert status["nics"] == [
        {"name": "mlx5_0", "numaNode": 0, "pcieRoot": "pci0000:15"},
        {"name": "mlx5_1", "numaNode": 1, "pcieRoot": "pci0000:97"},
    ]
    near, far, board = Link(Level.PIX, 4), Link(Level.SYS), Link(Level.PHB)
    links = (near, Link(Level.SYS, 4), Link(Level.SYS, 4), far, far, board)
    groups = ((0b11, 1), (0b1100, 1))
    assert shape_of(msgspec.convert(status, GPUNodeStatus)) == Shape(4, links, groups, groups)


def test_a_lost_card_keeps_its_links(tmp_path: Path) -> None:
    """The others' words stay in their places, and the node is of one shape meanwhile; a link that goes down is told."""
    machine = SimMachine(
        tmp_path, [SimCard(nvlinks={2: 1, 1: 1}), SimCard(nvlinks={0: 1}), SimCard(nvlinks={0: 1})]
    )
    machine.create()
    environment = {**os.environ, **machine.env(), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", LIST_LINKS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        before = json.loads(child.stdout.readline())
        machine.update(1, lost=True)
        child.stdin.write("\n")
        child.stdin.flush()
        lost = json.loads(child.stdout.readline())
        machine.update(1, lost=False)
        machine.update(0, nvlinks={1: 1})
        machine.update(2, nvlinks={})
        after = json.loads(child.communicate("\n", timeout=60)[0])
    assert before == lost == ["", "NODE1", "NODE1 NODE"]
    assert after == ["", "NODE1", "NODE NODE"]


def test_a_machine_that_tells_nothing_is_served_all_the_same(make_world: MakeWorld) -> None:
    """Without a tree below --sys-root."""
    world = make_world(SimCard(), SimCard(), flags=["--placement-wait", "8", "--sys-root", "/nowhere"])
    status = until(functools.partial(published, world), "published")
    assert [card["pcieRoot"] for card in status["cards"]] == ["", ""]
    assert status["nics"] == []
