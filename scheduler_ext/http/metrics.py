"""What the extender tells Prometheus: its calls, its reservations, and what is promised on every card."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aliquot.scheduler_ext.http.card_metrics import card_metrics
from aliquot.scheduler_ext.state.ledger import Ledger, Stage
from aliquot.server.metrics import Metrics

_CALL: Final = ("forwarded", "bad")
"""How any call can end: another replica answered, or it was none."""


class ExtenderMetrics:
    """The counters and timers of the extender's calls.

    Attributes:
        cards: Tells of every card, piece by piece; None where nobody wants to know.
    """

    def __init__(self, registry: CollectorRegistry, ledger: Ledger, *, cards: bool = True) -> None:
        """Export it.

        Args:
            registry: Where.
            ledger: What is promised.
            cards: Whether every card is told of, too.
        """
        made = Metrics(registry, "")
        self.registry = registry
        self.cards = partial(card_metrics, ledger.table) if cards else None
        self.filter = made.timer("filter", "Time to answer filter", ("placed", "refused", *_CALL))
        self.preempt = made.timer("preempt", "Time to answer preempt", ("found", "none", *_CALL))
        self.bind = made.timer(
            "bind", "Time to answer bind, the API write included", ("ok", "refused", *_CALL)
        )
        self.dry_run = made.timer("filter_dryrun", "Time to answer filter-dryrun", ("room", "none", *_CALL))
        self.volcano = made.timer("volcano", "Time to answer a call of Volcano's", ("ok", *_CALL))
        self.defragment = made.timer("defragment", "Time to answer defragment", ("ok", *_CALL))
        self.why = made.timer("why", "Time to answer why", ("ok", *_CALL))
        self.resizes = made.outcomes("scheduler_resizes", "Resizes answered", ("approved", "refused"))
        self.touches = made.counter(
            "scheduler_touches", "Waiting pods touched so that kube-scheduler asks for them again."
        )
        self.evictions = made.outcomes(
            "scheduler_evictions", "Pods evicted to reclaim what they had borrowed", ("evicted", "refused")
        )
        self.preemptions = made.outcomes(
            "scheduler_preemptions", "Pods evicted for one of higher priority", ("evicted", "refused")
        )
        self.cut_searches = made.counter(
            "scheduler_cut_searches",
            "Searches for pods to evict that were broken off: they took too long, or found none that might go.",
        )
        self.group_evictions = made.outcomes(
            "scheduler_group_evictions",
            "Pods evicted of groups that ran with fewer members than they need",
            ("evicted", "refused"),
        )
        self.reclaim_rounds = made.counter(
            "scheduler_reclaim_rounds", "Looks at the pods that wait, for whom others might be evicted."
        )
        self.nodes_rate_limited = made.gauge(
            "scheduler_nodes_rate_limited",
            "Nodes that have no cards for now: they say too often that these are others.",
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
        self.forwarded = made.outcomes(
            "forwarded", "Calls passed on to the replica that leads", ("ok", "error")
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
        family = GaugeMetricFamily(
            "aliquot_scheduler_placements",
            "Pods that hold cards in the scheduler's ledger, by stage.",
            labels=["stage"],
        )
        stages = Counter(entry.stage for entry in self._ledger.unconfirmed())
        stages[Stage.BOUND] = len(self._ledger) - stages.total()
        for stage in Stage:
            family.add_metric([stage.value], stages[stage])
        yield family
