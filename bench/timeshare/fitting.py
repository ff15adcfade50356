"""The part of the node agent that looks whether tenants' memory fits on their card, over the pages of a run."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliquot.arbiter import Arbiter
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.sharing.lease_length import LOOK_EVERY_S, LeaseLength
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.state.card_table import CardTable


def quanta_over(arbiter: Arbiter, run_dir: Path, uuids: Sequence[str], card_mib: int) -> LeaseLength:
    """The agent's own, for tenants whose pages are below `<run_dir>/tenants`."""
    cards = CardTable(0, Path("/proc"))
    cards.set([Card(uuid, index, index, "simulated", card_mib, -1, "0") for index, uuid in enumerate(uuids)])
    return LeaseLength(cards, TenantDirectories(run_dir), Leases(arbiter))


@contextlib.contextmanager
def looked_at(arbiter: Arbiter, run_dir: Path, uuids: Sequence[str], card_mib: int) -> Iterator[None]:
    """Has it look as often as the agent does."""
    quanta, over = quanta_over(arbiter, run_dir, uuids, card_mib), threading.Event()

    def look() -> None:
        quanta.look()
        while not over.wait(LOOK_EVERY_S):
            quanta.look()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
