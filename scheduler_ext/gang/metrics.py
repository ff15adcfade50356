"""What the extender tells Prometheus of groups; read when it asks."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aliquot.scheduler_ext.gang.coscheduling import Gangs

STATES = ("waiting", "saving", "holding", "resting", "running")


class GangCollector(Collector):
    """Counts them."""

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs

    def collect(self) -> Iterator[Metric]:
        """The figures now."""
        family = GaugeMetricFamily("aliquot_scheduler_groups", "Groups of pods, by state.", labels=["state"])
        found = self._gangs.states()
        for state in STATES:
            family.add_metric([state], found[state])
        yield family
        yield CounterMetricFamily(
            "aliquot_scheduler_groups_given_back",
            "How often a group has given its places back.",
            value=self._gangs.given_back,
        )
