"""Overheads of a node: cards that are lost keep no other from being looked at."""

import os
from pathlib import Path

from aliquot.libshim.control_page import CardLimit, Control, read_control
from aliquot.node.processes import PROC, name_of
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.devices.nvml_cards import Card, CardEvent, CardsError
from aliquot.plugin.sharing.overhead import Overheads
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.card_table import CardTable
from aliquot.units import MIB
from tests.unit.plugin.usage import write_usage


class HalfADriver:
    """NVML of two cards, of which the first has fallen off the bus; this process has 300 MiB of the second."""

    def cards(self) -> tuple[Card, ...]:
        """Both."""
        return tuple(Card(f"GPU-{n}", n, n, "H200", 16384, -1, f"{n}") for n in range(2))

    def processes(self, uuid: str) -> dict[int, int]:
        """What the second card says."""
        if uuid == "GPU-0":
            raise CardsError("card GPU-0: GPU is lost")
        return {os.getpid(): 300 * MIB}

    def memory_used(self, uuid: str) -> int:
        """Nobody asks."""
        raise CardsError(uuid)

    def next_event(self, timeout_ms: int) -> CardEvent | None:
        """Nothing happens."""
        del timeout_ms

    def close(self) -> None:
        """Nothing to close."""


def test_a_lost_card_keeps_no_other_from_being_corrected(tmp_path: Path) -> None:
    """The tenant of the card that answers is charged what it has."""
    driver, cards, tenants = HalfADriver(), CardTable(0, Path("/proc")), TenantDirectories(tmp_path)
    cards.set(driver.cards())
    tenant = tenants.prepare("uid", "main", Control("a/b/main", (CardLimit("GPU-1", 1024 * MIB),)))
    own = name_of(PROC / str(os.getpid()))
    write_usage(tenant.usage, 100 * MIB, owner=(own.pid, own.pid_namespace, own.start_time))
    admitted_pods = AdmittedPods(tmp_path / "tenancies")
    admitted_pods.save(AdmittedPod("uid", "a", "b", None, {"main": ("nonce",)}))
    overheads = Overheads(driver, cards, tenants, admitted_pods)
    for _ in range(2):
        overheads._look()
    assert read_control(tenant.control).cards[0].adjust_bytes == 200 * MIB
    assert cards.context_bytes("GPU-1", "a") == 200 * MIB
    assert cards.context_bytes("GPU-1", "other") == 0
