"""What a control page says: enforcement where pools differ."""

from pathlib import Path

from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.placement import CardShare, ContainerPlacement
from aliquot.pool import Enforcement, PoolSpec
from aliquot.request import ContainerKind
from libshim.pages import Enforcement as PageEnforcement
from plugin.card_table import CardTable
from plugin.cards import Card
from plugin.identity import PodName
from plugin.pods import Pods
from plugin.terms import Terms

POOLS = {
    "H200": PoolSpec(enforcement=Enforcement.OBSERVE),
    "L4": PoolSpec(),
    "T4": PoolSpec(enforcement=Enforcement.OFF),
}


def test_the_strictest_pool_of_a_containers_cards_counts(tmp_path: Path) -> None:
    """Whatever the order of the cards: a page has one word for all of them."""
    cards = CardTable(0, Path("/proc"), POOLS.__getitem__)
    cards.set([Card(model, n, n, model, 16384, -1, f"{n}") for n, model in enumerate(POOLS)])
    terms = Terms(cards, Pods(Api(Access("http://127.0.0.1:1")), "n1", tmp_path / "pods"))

    def enforcement(*models: str) -> PageEnforcement:
        shares = tuple(CardShare(model, 1024, 0) for model in models)
        container = ContainerPlacement("main", ContainerKind.REGULAR, shares)
        return terms.control_of(PodName("default", "p", "u"), container).enforcement

    assert enforcement("T4", "L4") is enforcement("L4", "T4") is PageEnforcement.ENFORCE
    assert enforcement("T4", "H200") is enforcement("H200", "T4") is PageEnforcement.OBSERVE
    assert enforcement("T4") is PageEnforcement.OFF
