"""What Prometheus is told of cards and slices, read from the pages at each scrape.

A tenant is believed about itself only: the limit and the share come from the agent's own page, the use
from the tenant's, and of its processes only those that live count. What is not known is left out of the
scrape rather than shown as zero: a page that cannot be read, and the time of a slice that has its card alone without
a cap, which nobody measures.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aliquot.libshim.control_page import (
    OVERFLOW_CARDS,
    CardLimit,
    CardTime,
    Enforcement,
    read_control,
    read_times,
)
from aliquot.libshim.page_file import REJECTIONS, PageError
from aliquot.libshim.usage_page import CardUsage, read_usage
from aliquot.node.processes import ProcessTable
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages, living_processes
from aliquot.plugin.container.usage_bounds import TimeBounds, bounded
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.state.admitted_pods import AdmittedPods
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.request.placement import Charge
from aliquot.units import MIB

log = logging.getLogger(__name__)

NS = 1e9
PERCENT = 100.0
WHOLE_BP = 10_000
SLICE_LABELS = ("node", "card", "namespace", "pod", "container")
CARD_LABELS = ("node", "card")


@dataclass(frozen=True)
class Slice:
    """One container's part of one card at the moment of a scrape; `overflow_bytes` is what it has on the host."""

    labels: tuple[str, ...]
    limit: CardLimit
    usage: CardUsage
    time: CardTime
    enforcement: Enforcement
    overflow_bytes: int


SliceRead = Callable[[Slice], float]
Told = Sequence[tuple[str, str, SliceRead]]
ENFORCEMENT_LEVELS = tuple(Enforcement)

SLICE_GAUGES: Told = (
    ("memory_limit_bytes", "Memory the slice may use.", lambda one: one.limit.memory_bytes),
    (
        "memory_used_bytes",
        "Memory the slice's living processes use.",
        lambda one: one.usage.memory_used_bytes,
    ),
    ("memory_peak_bytes", "Most memory the slice has used.", lambda one: one.usage.memory_peak_bytes),
    (
        "memory_overhead_bytes",
        "Memory on the card beyond what the slice's processes were charged, as the driver says.",
        lambda one: one.limit.adjust_bytes,
    ),
    (
        "core_share_ratio",
        "Share of the card's compute time that is the slice's own; 1 for a slice without a cap, alone on its card.",
        lambda one: one.limit.core_share_bp / WHOLE_BP or (one.limit.core_percent or PERCENT) / PERCENT,
    ),
    (
        "core_most_ratio",
        "Share of the card's compute time the slice may have when others leave it theirs.",
        lambda one: (one.limit.core_most_percent or one.limit.core_percent or PERCENT) / PERCENT,
    ),
    (
        "trusted",
        "1 for a slice whose word of its compute time is believed.",
        lambda one: float(not one.limit.doubted),
    ),
    (
        "enforcement_level",
        "What is done about the limits: 0 nothing, 1 counted, 2 enforced.",
        lambda one: ENFORCEMENT_LEVELS.index(one.enforcement),
    ),
)
BURST_GAUGES: Told = (
    (
        "memory_granted_bytes",
        "What of its limit a burst slice may use now.",
        lambda one: one.limit.grant_bytes or 0,
    ),
    ("memory_overflow_bytes", "Memory that a burst slice has on the host.", lambda one: one.overflow_bytes),
)
SLICE_COUNTERS: Told = (
    (
        "allocations_denied",
        "Allocations refused because they exceed the limit.",
        lambda one: one.usage.allocations_denied,
    ),
)
LEASED_COUNTERS: Told = (
    (
        "core_guaranteed_seconds",
        "Compute time due to the slice by its share while it had work.",
        lambda one: one.time.guaranteed_ns / NS,
    ),
    (
        "core_used_seconds",
        "Compute time the arbiter has charged the slice for.",
        lambda one: one.time.used_ns / NS,
    ),
    (
        "core_lent_seconds",
        "Of that, time beyond the slice's own share.",
        lambda one: one.time.lent_ns / NS,
    ),
)
MEASURED_COUNTERS: Told = (
    ("busy_seconds", "Compute time used.", lambda one: one.usage.busy_ns / NS),
    (
        "throttled_seconds",
        "Time spent waiting because the share was used up.",
        lambda one: one.usage.throttled_ns / NS,
    ),
)

PromiseRead = Callable[[Charge, Capacity], float]
PROMISES: Sequence[tuple[str, str, PromiseRead]] = (
    ("memory_promised_bytes", "Memory promised to slices.", lambda promised, _: promised.memory_mib * MIB),
    (
        "memory_guaranteed_bytes",
        "Of that, memory that is not of class burst.",
        lambda promised, _: promised.guaranteed_mib * MIB,
    ),
    (
        "memory_promisable_bytes",
        "Memory that may be promised: more than there is where the pool says so.",
        lambda _, capacity: (capacity.usable_mib + capacity.extra_mib) * MIB,
    ),
    ("core_promised_ratio", "Compute time promised.", lambda promised, _: promised.cores / PERCENT),
    (
        "core_promisable_ratio",
        "Compute time that may be promised.",
        lambda _, capacity: capacity.cores / PERCENT,
    ),
)


@dataclass(frozen=True, eq=False)
class NodeCollector(Collector):
    """Collects cards and slices of one node. `cards`, `used_bytes`, `unwell` and `errors` give what was last seen.

    What tenants say of themselves is told as far as it is believed, for sums of it are told of cards and nodes.
    """

    node: str
    cards: Callable[[], Iterable[Card]]
    usable_mib: Callable[[], dict[str, int]]
    used_bytes: Callable[[], dict[str, int]]
    unwell: Callable[[], Iterable[str]]
    alive: Callable[[], ProcessTable]
    errors: Callable[[], Mapping[tuple[str, str], int]]
    ledger: NodeLedger
    admitted_pods: AdmittedPods
    tenants: TenantDirectories
    _times: dict[tuple[str, ...], TimeBounds] = field(default_factory=dict)
    """By pod, container and card, while the pod is here: a page that cannot be read for once begins nothing anew."""

    def collect(self) -> Iterable[Metric]:
        """Everything, as of now."""
        slices = list(self._slices())
        leased = [one for one in slices if one.limit.core_share_bp]
        measured = [one for one in slices if one.limit.core_percent or one.limit.core_share_bp]
        burst = [one for one in slices if one.limit.grant_bytes is not None]
        for gauges, told in ((SLICE_GAUGES, slices), (BURST_GAUGES, burst)):
            for name, about, read in gauges:
                gauge = GaugeMetricFamily(f"aliquot_slice_{name}", about, labels=SLICE_LABELS)
                yield _filled(gauge, told, read)
        for counters, told in (
            (SLICE_COUNTERS, slices),
            (MEASURED_COUNTERS, measured),
            (LEASED_COUNTERS, leased),
        ):
            for name, about, read in counters:
                family = CounterMetricFamily(f"aliquot_slice_{name}", about, labels=SLICE_LABELS)
                yield _filled(family, told, read)
        yield from self._card_metrics()
        yield self._rejections()

    def _card_metrics(self) -> Iterator[Metric]:
        cards = [card.uuid for card in self.cards()]
        usable, used, unwell = self.usable_mib(), self.used_bytes(), set(self.unwell())
        yield self._info()
        yield self._gauge(
            "memory_total_bytes", "Memory for slices.", {u: usable[u] * MIB for u in cards if u in usable}
        )
        yield self._gauge("memory_used_bytes", "Memory in use.", {u: used[u] for u in cards if u in used})
        yield self._gauge("healthy", "1 for a card that is well.", {u: float(u not in unwell) for u in cards})
        for name, about, read in PROMISES:
            told = {u: read(self.ledger.promised(u), self.ledger.capacity(u)) for u in cards}
            yield self._gauge(name, about, told)
        yield self._errors()

    def _info(self) -> GaugeMetricFamily:
        labels = (*CARD_LABELS, "index", "model", "mig")
        info = GaugeMetricFamily("aliquot_card_info", "What the card is; always 1.", labels=labels)
        for card in self.cards():
            mig = str(card.mig_enabled).lower()
            info.add_metric((self.node, card.uuid, str(card.index), card.model, mig), 1)
        return info

    def _errors(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "aliquot_card_errors", "Errors that the driver has reported.", labels=(*CARD_LABELS, "error")
        )
        for (uuid, error), count in sorted(self.errors().items()):
            family.add_metric((self.node, uuid, error), count)
        return family

    def _rejections(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "aliquot_page_rejections", "Times that a page was read and not used.", labels=("node", "reason")
        )
        for reason, count in sorted(REJECTIONS.items()):
            family.add_metric((self.node, reason), count)
        return family

    def _gauge(self, name: str, about: str, values: dict[str, float] | dict[str, int]) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"aliquot_card_{name}", about, labels=CARD_LABELS)
        for uuid, value in values.items():
            gauge.add_metric((self.node, uuid), value)
        return gauge

    def _slices(self) -> Iterator[Slice]:
        alive, sizes = self.alive(), {card.uuid: card.memory_mib * MIB for card in self.cards()}
        now_ns, here = time.monotonic_ns(), {admitted.pod_uid for admitted in self.admitted_pods}
        for key in [key for key in self._times if key[0] not in here]:
            del self._times[key]
        for admitted in self.admitted_pods:
            for tenant in self.tenants.of_pod(admitted.pod_uid):
                labels = (admitted.namespace, admitted.pod, tenant.container)
                for one in read_slices(tenant, alive):
                    key = (admitted.pod_uid, tenant.container, one.limit.uuid)
                    times = self._times.setdefault(key, TimeBounds())
                    most = sizes.get(one.limit.uuid, one.limit.memory_bytes)
                    usage = bounded(one.usage, most, times, now_ns)
                    yield replace(one, labels=(self.node, one.limit.uuid, *labels), usage=usage)


Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def _filled(family: Family, slices: Iterable[Slice], read: SliceRead) -> Family:
    for one in slices:
        family.add_metric(one.labels, read(one))
    return family


def read_slices(tenant: TenantPages, alive: ProcessTable) -> Iterator[Slice]:
    """The parts of cards a container has, and what its living processes say they use of each; without labels."""
    try:
        control, usage = read_control(tenant.control), read_usage(tenant.usage)
        times = read_times(tenant.control)
    except (OSError, PageError) as error:
        log.debug("slice left out of the scrape: %s", error)
        return
    living = living_processes(usage, tenant.pod_uid, alive)
    for index, limit in enumerate(control.cards):
        used = replace(usage.cards[index], memory_used_bytes=sum(p.memory_bytes[index] for p in living))
        overflow = min(sum(p.memory_bytes[OVERFLOW_CARDS + index] for p in living), limit.overflow_bytes or 0)
        yield Slice((), limit, used, times[index], control.enforcement, overflow)
