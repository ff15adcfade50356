"""What the extender tells Prometheus of namespaces and quotas; read when it asks."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aliquot.crds.gpu_quota import Most
from aliquot.request.amounts import Amounts
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.namespace_usage import ALL
from aliquot.units import MIB

PERCENT = 100
SHOWN = {
    "memory_mib": ("memory", "_bytes", MIB, "memory, on all cards together"),
    "cores": ("core", "_ratio", 1 / PERCENT, "compute time, 1 is a whole card"),
    "cards": ("cards", "", 1, "cards, one for each that a container has a part of"),
}
"""Amount → its part of a metric's name, unit, factor, and what it is."""


class QuotaCollector(Collector):
    """Adds up nothing that is not added up already."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[Metric]:
        """The figures now."""
        yield from self._namespaces()
        yield from self._bounds()
        refused = CounterMetricFamily(
            "aliquot_quota_refusals", "Filter calls refused for a quota.", labels=["namespace"]
        )
        for namespace, count in sorted(self._quotas.refusals.items()):
            refused.add_metric([namespace], count)
        yield refused

    def _namespaces(self) -> Iterator[Metric]:
        accounts = self._quotas.accounts
        for amount, (name, unit, factor, about) in SHOWN.items():
            family = GaugeMetricFamily(
                f"aliquot_namespace_{name}_promised{unit}",
                f"Promised to a namespace's pods, reservations included: {about}.",
                labels=["namespace"],
            )
            for namespace in accounts.namespaces():
                family.add_metric([namespace], accounts.used(ALL, namespace).of(amount) * factor)
            yield family

    def _bounds(self) -> Iterator[Metric]:
        for amount, (name, unit, factor, about) in SHOWN.items():
            families = {
                word: GaugeMetricFamily(
                    f"aliquot_quota_{name}_{word}{unit}", f"{text}: {about}.", labels=["kind", "quota"]
                )
                for word, text in WORDS.items()
            }
            for bound, used in self._quotas.report():
                kind, _, quota = bound.title.partition(" ")
                for word, value in _values(used, bound.guaranteed, bound.limit, amount).items():
                    families[word].add_metric([kind, quota], value * factor)
            yield from families.values()


WORDS = {
    "used": "What a quota's namespaces have",
    "guaranteed": "What is guaranteed to them",
    "limit": "What they may have at most, where that is bounded",
}


def _values(used: Amounts, guaranteed: Amounts, limit: Most, amount: str) -> dict[str, int]:
    values = {"used": used.of(amount), "guaranteed": guaranteed.of(amount)}
    most = limit.of(amount)
    return values if most is None else {**values, "limit": most}
