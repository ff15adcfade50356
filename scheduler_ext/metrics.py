"""What the extender tells Prometheus: its calls, its reservations, and what is promised on every card."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aliquot.metrics import Metrics
from aliquot.units import MIB
from scheduler_ext.cards import CardState
from scheduler_ext.ledger import Ledger, Stage

PERCENT = 100


class ExtenderMetrics:
    """The counters and timers of the extender's calls."""

    def __init__(self, registry: CollectorRegistry, ledger: Ledger) -> None:
        made = Metrics(registry, "")
        self.registry = registry
        self.filter = made.timer("filter", "Time to answer filter: placed, refused, error or bad.")
        self.preempt = made.timer("preempt", "Time to answer preempt: found, none, error or bad.")
        self.bind = made.timer("bind", "Time to answer bind, the API write included: ok, refused or bad.")
        self.dry_run = made.timer("filter_dryrun", "Time to answer filter-dryrun: room, none, error or bad.")
        self.volcano = made.timer("volcano", "Time to answer a call of Volcano's: ok, error or bad.")
        self.defragment = made.timer("defragment", "Time to answer defragment: ok, error or bad.")
        self.why = made.timer("why", "Time to answer why: ok, error or bad.")
        self.resizes = made.counter(
            "scheduler_resizes", "Resizes answered, by outcome: approved or refused.", ["outcome"]
        )
        self.touches = made.counter(
            "scheduler_touches", "Waiting pods touched so that kube-scheduler asks for them again."
        )
        self.evictions = made.counter(
            "scheduler_evictions", "Pods evicted to reclaim what they had borrowed, by outcome.", ["outcome"]
        )
        self.reclaim_rounds = made.counter(
            "scheduler_reclaim_rounds", "Looks at the pods that wait, for whom others might be evicted."
        )
        registry.register(LedgerCollector(ledger))


class ReplicaMetrics:
    """What a replica says of itself and of the calls that it passes on."""

    def __init__(
        self, registry: CollectorRegistry, *, leads: Callable[[], bool], transitions: Callable[[], int]
    ) -> None:
        """Export it.

        Args:
            registry: The replica's metrics.
            leads: Whether it answers calls itself.
            transitions: How often another replica has come to lead.
        """
        made = Metrics(registry, "scheduler")
        self.forwarded = made.counter(
            "forwarded", "Calls passed on to the replica that leads, by outcome: ok or error.", ["outcome"]
        )
        leader = made.gauge("leader", "1 while this replica answers calls itself.")
        leader.set_function(lambda: float(leads()))
        changes = made.gauge("leader_transitions", "How often another replica has come to lead.")
        changes.set_function(lambda: float(transitions()))


class LedgerCollector(Collector):
    """Reads the ledger when Prometheus asks, so that keeping count costs nothing between."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """The ledger's figures now."""
        yield self._placements()
        yield from self._cards()

    def _placements(self) -> Metric:
        family = GaugeMetricFamily(
            "aliquot_scheduler_placements",
            "Pods that hold cards in the scheduler's ledger, by stage.",
            labels=["stage"],
        )
        stages = Counter(entry.stage for entry in self._ledger.unconfirmed())
        stages[Stage.BOUND] = len(self._ledger) - stages.total()
        for stage in Stage:
            family.add_metric([stage.value], stages[stage])
        return family

    def _cards(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"aliquot_scheduler_card_{name}", about, labels=["node", "card"])
            for name, about in _CARD_FAMILIES.items()
        }
        for node in self._ledger.table.nodes():
            for card in self._ledger.table.cards(node):
                for name, value in _figures(card).items():
                    families[name].add_metric([node, card.uuid], value)
        yield from families.values()


_CARD_FAMILIES = {
    "memory_usable_bytes": "Memory of a card that may be promised.",
    "memory_promised_bytes": "Memory of a card that is promised to pods, reservations included.",
    "core_promised_ratio": "Compute time of a card that is promised to pods, 1 is the whole card.",
    "slices_promised": "Slices of a card that are taken.",
}


def _figures(card: CardState) -> dict[str, float]:
    return {
        "memory_usable_bytes": card.usable_mib * MIB,
        "memory_promised_bytes": card.used_mib * MIB,
        "core_promised_ratio": card.used_cores / PERCENT,
        "slices_promised": card.used_slots,
    }
