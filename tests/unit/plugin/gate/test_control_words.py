"""What a control page says: enforcement where pools differ, and the card's time by who else is there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.arbiter import Arbiter
from aliquot.crds.gpu_pool import NO_POOL, Enforcement, PoolSpec
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.libshim.control_page import CardLimit
from aliquot.libshim.control_page import Enforcement as PageEnforcement
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.gate.control_words import ControlWords
from aliquot.plugin.kubelet.container_identity import PodName
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.state.card_table import CardTable
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.request.core_policy import NO_POLICY, CoreMode, CorePolicy
from aliquot.request.placement import CardShare, Charge, ContainerPlacement
from aliquot.request.pod_request import ContainerKind

POD = PodName("default", "p", "u")
KNOWN = {"namespace": POD.namespace, "name": POD.name, "uid": POD.uid}
BURST, NEIGHBOUR = CorePolicy(CoreMode.BURST), Charge(1, 20, 1)
POOLS = {
    "H200": PoolSpec(enforcement=Enforcement.OBSERVE),
    "L4": PoolSpec(),
    "T4": PoolSpec(enforcement=Enforcement.OFF),
}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ControlWords]:
    """Makes the terms of a node with three cards, named by their models."""

    def terms(
        pools: dict[str, PoolSpec], *, leased: bool = True, annotations: Mapping[str, str] | None = None
    ) -> ControlWords:
        cards = CardTable(0, Path("/proc"), lambda model: pools.get(model, NO_POOL))
        cards.set([Card(model, n, n, model, 16384, -1, f"{n}") for n, model in enumerate(POOLS)])
        ledger = NodeLedger({model: Capacity(16384) for model in POOLS})
        document = {"metadata": {**KNOWN, "annotations": annotations or {}}}
        (tmp_path / "pods").mkdir(exist_ok=True)
        (tmp_path / "pods" / "u.json").write_text(json.dumps(document))
        pods = Pods(Api(Access("http://127.0.0.1:1")), "n1", tmp_path / "pods")
        return ControlWords(cards, pods, ledger, Leases(Arbiter() if leased else None))

    return terms


def test_the_strictest_pool_of_a_containers_cards_counts(make: Callable[..., ControlWords]) -> None:
    """Whatever the order of the cards: a page has one word for all of them."""
    terms = make(POOLS)

    def enforcement(*models: str) -> PageEnforcement:
        shares = tuple(CardShare(model, 1024, 0) for model in models)
        container = ContainerPlacement("main", ContainerKind.REGULAR, shares)
        return terms.control_of(POD, container).enforcement

    assert enforcement("T4", "L4") is enforcement("L4", "T4") is PageEnforcement.ENFORCE
    assert enforcement("T4", "H200") is enforcement("H200", "T4") is PageEnforcement.OBSERVE
    assert enforcement("T4") is PageEnforcement.OFF


def limit(
    terms: ControlWords, cores: int, policy: CorePolicy = NO_POLICY, *, exclusive: bool = False
) -> CardLimit:
    """What the page of a container on the card L4 says once its pod is let in."""
    share = CardShare("L4", 1024, cores, exclusive=exclusive)
    container = ContainerPlacement("main", ContainerKind.REGULAR, (share,), policy=policy)
    terms.ledger.adopt("u", {"L4": Charge(1024, cores, 1, exclusive, uncapped=int(not cores))})
    (card,) = terms.control_of(POD, container).cards
    return card


def test_a_context_costs_what_its_own_namespace_has_shown(make: Callable[..., ControlWords]) -> None:
    """Another namespace may have made contexts look dear."""
    terms = make({})
    terms.cards.learn_context("L4", "default", 300 << 20)
    assert limit(terms, 0).context_bytes == 300 << 20
    terms = make({})
    terms.cards.learn_context("L4", "other", 300 << 20)
    assert limit(terms, 0).context_bytes == 0


def core_words(card: CardLimit) -> tuple[int, int, int, int]:
    """The words of a page that speak of time: cap, own share, most, priority."""
    return card.core_percent, card.core_share_bp, card.core_most_percent, card.priority


@pytest.mark.parametrize(
    ("cores", "policy", "alone", "beside"),
    [
        pytest.param(30, NO_POLICY, (30, 3000, 30, 0), (30, 3000, 30, 0), id="capped"),
        pytest.param(30, BURST, (0, 0, 0, 0), (30, 3000, 100, 0), id="burst"),
        pytest.param(
            30, CorePolicy(None, 60, 5), (30, 3000, 60, 5), (30, 3000, 60, 5), id="burst within a bound"
        ),
        pytest.param(0, NO_POLICY, (0, 0, 0, 0), (0, 8000, 100, 0), id="uncapped"),
    ],
)
def test_who_else_is_there_makes_the_terms(
    make: Callable[..., ControlWords],
    cores: int,
    policy: CorePolicy,
    alone: tuple[int, ...],
    beside: tuple[int, ...],
) -> None:
    """Alone and with all of the card to have: free; else an own share and a bound, until the neighbour has gone."""
    terms = make({})
    assert core_words(limit(terms, cores, policy)) == alone
    terms.ledger.adopt("neighbour", {"L4": NEIGHBOUR})
    assert core_words(limit(terms, cores, policy)) == beside
    terms.ledger.release("neighbour")
    assert core_words(limit(terms, cores, policy)) == alone


def test_a_pool_holds_time_for_pods_that_do_not_say(make: Callable[..., ControlWords]) -> None:
    """And where more is promised than there is, everybody has less and may still burst to what was promised."""
    terms = make({"L4": PoolSpec(core_mode=CoreMode.BURST, core_limit=50, priority=2)})
    terms.ledger.adopt("neighbour", {"L4": replace(NEIGHBOUR, cores=120)})
    assert core_words(limit(terms, 30)) == (30, 2000, 50, 2)


def test_a_card_of_ones_own_is_free(make: Callable[..., ControlWords]) -> None:
    """There is nobody to be fair to."""
    assert core_words(limit(make({}), 100, exclusive=True)) == (0, 0, 0, 0)


@pytest.mark.parametrize("weaker", [Enforcement.OBSERVE, Enforcement.OFF])
def test_time_that_is_not_enforced_is_not_leased(
    make: Callable[..., ControlWords], weaker: Enforcement
) -> None:
    """Nobody would keep to the leases."""
    terms = make({"L4": PoolSpec(enforcement=weaker)})
    terms.ledger.adopt("neighbour", {"L4": NEIGHBOUR})
    assert core_words(limit(terms, 30, BURST)) == (30, 0, 0, 0)


def test_without_an_arbiter_every_share_is_a_cap(make: Callable[..., ControlWords]) -> None:
    """Whatever the mode."""
    assert core_words(limit(make({}, leased=False), 30, BURST)) == (30, 0, 0, 0)


def test_whose_word_is_not_believed_is_told_so_in_the_page(make: Callable[..., ControlWords]) -> None:
    """For those who look at the page; alone on the card nobody asks."""
    terms = make({})
    terms.leases.doubt("u/main", "it lies")
    assert limit(terms, 30).doubted
    assert not limit(terms, 0).doubted
    terms.leases.doubt("u/main", None)
    assert not limit(terms, 30).doubted


@pytest.mark.parametrize(
    ("annotations", "resident"),
    [
        ({}, False),
        ({"aliquot.dev/managed": "reserve"}, False),
        ({"aliquot.dev/managed": "resident"}, True),
        ({"aliquot.dev/managed": "resident", "main.aliquot.dev/managed": "reserve"}, False),
        ({"main.aliquot.dev/managed": "resident"}, True),
        ({"other.aliquot.dev/managed": "resident"}, False),
    ],
)
def test_a_pod_says_how_its_managed_memory_counts(
    make: Callable[..., ControlWords], annotations: Mapping[str, str], resident: bool
) -> None:
    """For all its containers, or for one."""
    assert limit(make({}, annotations=annotations), 0).managed_resident is resident
