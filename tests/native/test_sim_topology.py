"""How the simulated cards are linked, as NVIDIA's own Python client reads it."""

import json
from pathlib import Path

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.sims import run_python

PROGRAM = """
import json
import sys
import pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in map(int, sys.argv[1:])]
def answer(call, *args):
    try:
        return call(*args)
    except pynvml.NVMLError as error:
        return type(error).__name__.removeprefix("NVMLError_")
def links(card):
    found = []
    for link in range(4):
        state = answer(pynvml.nvmlDeviceGetNvLinkState, card, link)
        if state not in (0, 1):
            return [*found, state]
        kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(card, link)
        found.append([state, kind, pynvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId])
    return found
levels = [answer(pynvml.nvmlDeviceGetTopologyCommonAncestor, cards[0], other) for other in cards]
print(json.dumps({"levels": levels, "links": [links(card) for card in cards]}))
"""


def test_nvml_tells_what_cards_share_and_where_their_nvlinks_end(tmp_path: Path):
    """Levels by the path from the root complex down; each link by itself; a link that is not there by its error."""
    switch = "pci0000:15/0000:16:00.0/0000:17:00.0"
    cards = [
        SimCard(pcie_path=switch, nvlinks={1: 1, "switch": 1}),
        SimCard(pcie_path=switch, nvlinks={0: 1}),
        SimCard(pcie_path="pci0000:15/0000:16:00.0/0000:18:00.0"),
        SimCard(pcie_path="pci0000:15/0000:19:00.0"),
        SimCard(pcie_path="pci0000:80"),
        SimCard(pcie_path="pci0000:c0", numa_node=1),
    ]
    machine = SimMachine(tmp_path / "linked", cards)
    machine.create()
    found = json.loads(run_python(machine, PROGRAM, *range(6)))
    assert found["levels"][1:] == [10, 20, 30, 40, 50]
    assert found["links"] == [
        [[1, 0, "00000000:19:00.0"], [1, 2, "00000000:C0:00.0"], "InvalidArgument"],
        [[1, 0, "00000000:18:00.0"], "InvalidArgument"],
        *[["NotSupported"]] * 4,
    ]
    machine.update(1, lost=True)
    found = json.loads(run_python(machine, PROGRAM, 0, 2))
    assert [state for state, *_ in found["links"][0][:2]] == [0, 1]
