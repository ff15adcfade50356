"""What the extender tells Prometheus of the pods that wait; read when it asks."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aliquot.scheduler_ext.state.pending_pods import PendingPods

NOT_ASKED: Final = "not_asked"
"""Of pods that the extender before this one has refused, and that kube-scheduler has not asked for since."""


class PendingPodsCollector(Collector):
    """Counts them by namespace and reason, which are few however many pods wait."""

    def __init__(self, waiting: PendingPods, clock: Callable[[], float] = time.time) -> None:
        self._waiting = waiting
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The figures now."""
        counts: Counter[tuple[str, str]] = Counter()
        oldest: dict[str, float] = {}
        for waiter in self._waiting.all():
            namespace = waiter.request.namespace
            counts[namespace, waiter.reason or NOT_ASKED] += 1
            oldest[namespace] = min(waiter.since, oldest.get(namespace, waiter.since))
        pods = GaugeMetricFamily(
            "aliquot_scheduler_waiting_pods",
            "Pods that no place was found for, by what keeps them from the node that came nearest.",
            labels=["namespace", "reason"],
        )
        for labels, count in sorted(counts.items()):
            pods.add_metric(labels, count)
        yield pods
        longest = GaugeMetricFamily(
            "aliquot_scheduler_waiting_longest_seconds",
            "Since when the pod has been refused that waits longest.",
            labels=["namespace"],
        )
        for namespace, since in sorted(oldest.items()):
            longest.add_metric([namespace], max(0.0, self._clock() - since))
        yield longest
