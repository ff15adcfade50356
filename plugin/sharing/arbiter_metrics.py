"""What the arbiter's thread tells of itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from aliquot.arbiter import LATENESS_BOUNDS_S, Arbiter


@dataclass(frozen=True, eq=False)
class ArbiterCollector(Collector):
    """Collects how late the thread wakes that leases the cards' time."""

    arbiter: Arbiter

    def collect(self) -> Iterable[Metric]:
        """As of now."""
        late = self.arbiter.lateness()
        bounds = [*map(floatToGoString, LATENESS_BOUNDS_S), "+Inf"]
        yield HistogramMetricFamily(
            "aliquot_arbiter_wakeup_delay_seconds",
            "How much later than it wanted to the thread woke that leases the cards' time.",
            buckets=list(zip(bounds, accumulate(late.counts), strict=True)),
            sum_value=late.sum_s,
        )
