"""What Prometheus is told of cards and slices, read from the pages at each scrape.

A tenant is believed about itself only: the limit and the share come from the agent's own page, the use
from the tenant's, and of its processes only those that live count. What is not known is left out of the
scrape rather than shown as zero: a page that cannot be read, and the time of a slice without a cap, which
nobody measures.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aliquot.units import MIB
from libshim.pages import CardLimit, CardUsage, PageError, read_control, read_usage
from plugin.cards import Card
from plugin.ledger import Ledger
from plugin.processes import ProcessName, ProcessTable
from plugin.tenancies import Tenancies
from plugin.tenants import TenantPages, Tenants

log = logging.getLogger(__name__)

NS = 1e9
PERCENT = 100.0
SLICE_LABELS = ("node", "card", "namespace", "pod", "container")
CARD_LABELS = ("node", "card")

SliceRead = Callable[[CardLimit, CardUsage], float]

SLICE_GAUGES: tuple[tuple[str, str, SliceRead], ...] = (
    ("memory_limit_bytes", "Memory the slice may use.", lambda limit, _: limit.memory_bytes),
    ("memory_used_bytes", "Memory the slice's living processes use.", lambda _, use: use.memory_used_bytes),
    ("memory_peak_bytes", "Most memory the slice has used.", lambda _, use: use.memory_peak_bytes),
    (
        "core_share_ratio",
        "Share of the card's compute time the slice may use; 1 for a slice without a cap.",
        lambda limit, _: (limit.core_percent or PERCENT) / PERCENT,
    ),
)
SLICE_COUNTERS: tuple[tuple[str, str, SliceRead], ...] = (
    (
        "allocations_denied",
        "Allocations refused because they exceed the limit.",
        lambda _, u: u.allocations_denied,
    ),
)
CAPPED_COUNTERS: tuple[tuple[str, str, SliceRead], ...] = (
    ("busy_seconds", "Compute time used.", lambda _, use: use.busy_ns / NS),
    (
        "throttled_seconds",
        "Time spent waiting because the share was used up.",
        lambda _, use: use.throttled_ns / NS,
    ),
)


@dataclass(frozen=True)
class Slice:
    """One container's part of one card at the moment of a scrape."""

    labels: tuple[str, ...]
    limit: CardLimit
    usage: CardUsage


@dataclass(frozen=True)
class NodeCollector(Collector):
    """Collects cards and slices of one node. `cards`, `used_bytes` and `reasons` give what was last seen."""

    node: str
    cards: Callable[[], Iterable[Card]]
    usable_mib: Callable[[], dict[str, int]]
    used_bytes: Callable[[], dict[str, int]]
    unwell: Callable[[], Iterable[str]]
    alive: Callable[[], ProcessTable]
    ledger: Ledger
    tenancies: Tenancies
    tenants: Tenants

    def collect(self) -> Iterable[Metric]:
        """Everything, as of now."""
        slices = list(self._slices())
        capped = [one for one in slices if one.limit.core_percent]
        for name, about, read in SLICE_GAUGES:
            yield _filled(
                GaugeMetricFamily(f"aliquot_slice_{name}", about, labels=SLICE_LABELS), slices, read
            )
        for counters, told in ((SLICE_COUNTERS, slices), (CAPPED_COUNTERS, capped)):
            for name, about, read in counters:
                family = CounterMetricFamily(f"aliquot_slice_{name}", about, labels=SLICE_LABELS)
                yield _filled(family, told, read)
        yield from self._card_metrics()

    def _card_metrics(self) -> Iterator[Metric]:
        cards = [card.uuid for card in self.cards()]
        usable, used, unwell = self.usable_mib(), self.used_bytes(), set(self.unwell())
        promised = {uuid: self.ledger.promised(uuid) for uuid in cards}
        yield self._gauge(
            "memory_total_bytes", "Memory for slices.", {u: usable[u] * MIB for u in cards if u in usable}
        )
        yield self._gauge(
            "memory_promised_bytes",
            "Memory promised to slices.",
            {u: p.memory_mib * MIB for u, p in promised.items()},
        )
        yield self._gauge("memory_used_bytes", "Memory in use.", {u: used[u] for u in cards if u in used})
        yield self._gauge(
            "core_promised_ratio",
            "Compute time promised.",
            {u: p.cores / PERCENT for u, p in promised.items()},
        )
        yield self._gauge("healthy", "1 for a card that is well.", {u: float(u not in unwell) for u in cards})

    def _gauge(self, name: str, about: str, values: dict[str, float] | dict[str, int]) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"aliquot_card_{name}", about, labels=CARD_LABELS)
        for uuid, value in values.items():
            gauge.add_metric((self.node, uuid), value)
        return gauge

    def _slices(self) -> Iterator[Slice]:
        alive = self.alive().names
        for tenancy in self.tenancies:
            for tenant in self.tenants.of_pod(tenancy.pod_uid):
                labels = (tenancy.namespace, tenancy.pod, tenant.container)
                for limit, usage in read_slices(tenant, alive):
                    yield Slice((self.node, limit.uuid, *labels), limit, usage)


Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def _filled(family: Family, slices: Iterable[Slice], read: SliceRead) -> Family:
    for one in slices:
        family.add_metric(one.labels, read(one.limit, one.usage))
    return family


def read_slices(tenant: TenantPages, alive: Collection[ProcessName]) -> Iterator[tuple[CardLimit, CardUsage]]:
    """The parts of cards a container has, and what its living processes say they use of each."""
    try:
        control, usage = read_control(tenant.control), read_usage(tenant.usage)
    except (OSError, PageError) as error:
        log.debug("slice left out of the scrape: %s", error)
        return
    living = [p for p in usage.processes if ProcessName(p.pid, p.pid_namespace, p.start_time) in alive]
    for index, (limit, card) in enumerate(zip(control.cards, usage.cards, strict=False)):
        yield limit, replace(card, memory_used_bytes=sum(p.memory_bytes[index] for p in living))
