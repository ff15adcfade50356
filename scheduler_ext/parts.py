"""One extender's parts, put together: who reads, who decides, and who works beside."""

import argparse
import time

from prometheus_client import CollectorRegistry

from aliquot.certificate_metrics import CertificateCollector
from aliquot.guard import OPEN, Guard
from aliquot.kube.api import Api
from scheduler_ext.bind import Binder
from scheduler_ext.defragment import Defragmenter
from scheduler_ext.displacement import Displacement
from scheduler_ext.disruption import BudgetFeed
from scheduler_ext.dryrun import DryRun
from scheduler_ext.evictor import Evictor, Ground
from scheduler_ext.feed import Feed
from scheduler_ext.filter import Filter
from scheduler_ext.forward import Forwarder
from scheduler_ext.gang_feed import GangFeed
from scheduler_ext.gang_metrics import GangCollector
from scheduler_ext.imagined import Imagination
from scheduler_ext.keeper import Keeper
from scheduler_ext.late import LatePlacements
from scheduler_ext.learner import Learner, Quiet
from scheduler_ext.memory import Memory
from scheduler_ext.metrics import ExtenderMetrics
from scheduler_ext.office import Worker
from scheduler_ext.options import BY_EXTENDER, BY_NOBODY
from scheduler_ext.plans import PREEMPTION, RECLAIM
from scheduler_ext.preempt import Preemption
from scheduler_ext.questions import Questions
from scheduler_ext.quota_feed import QuotaFeed
from scheduler_ext.quota_metrics import QuotaCollector
from scheduler_ext.quota_status import QuotaReporter
from scheduler_ext.reclaim import Reclaim
from scheduler_ext.resize import Resizer
from scheduler_ext.server import Extender
from scheduler_ext.volcano import Volcano
from scheduler_ext.waiting import Waker
from scheduler_ext.waiting_metrics import WaitingCollector
from scheduler_ext.why import Why


class Parts:
    """An extender that is not running yet.

    Attributes:
        registry: Its metrics.
        feeds: What reads the cluster.
        workers: What else goes on while it answers calls: they tidy, and write to the cluster.
    """

    def __init__(self, api: Api, options: argparse.Namespace) -> None:
        """Put it together.

        Args:
            api: The cluster.
            options: The command line.
        """
        self._api, self._options = api, options
        self._memory = memory = Memory.of(options)
        self._metrics = ExtenderMetrics(CollectorRegistry(), memory.ledger, cards=options.card_metrics)
        self.registry = self._metrics.registry
        for collector in (
            QuotaCollector(memory.quotas),
            WaitingCollector(memory.waiting),
            CertificateCollector(options.tls_cert, options.tls_ca, options.client_ca),
            GangCollector(memory.gangs),
        ):
            self.registry.register(collector)
        self._resizer = Resizer(api, memory.ledger, self._metrics.resizes, memory.quotas)
        self._late = LatePlacements(api, memory.ledger, memory.read, options.volcano)
        self._binder = Binder(
            api,
            memory.ledger,
            memory.placer,
            dialects=memory.dialects,
            quotas=memory.quotas,
            gangs=memory.gangs,
        )
        self._decide = self._make_filter()
        self._late.place_by(self._decide)
        self._quiet = Quiet()
        self._feed = self._make_feed()
        self.feeds = (
            self._feed,
            QuotaFeed(api, memory.quotas, self._feed.pools_known),
            GangFeed(api, memory.gangs),
            BudgetFeed(api, memory.budgets),
        )
        memory.ledger.on_change(memory.waiting.something_changed)
        memory.quotas.on_change(memory.waiting.something_changed)
        self.workers = self._make_workers()

    def _make_filter(self) -> Filter:
        memory = self._memory
        return Filter(
            memory.ledger,
            memory.foreign,
            memory.placer,
            dialects=memory.dialects,
            passed_over=memory.passed_over,
            quotas=memory.quotas,
            waiting=memory.waiting,
            gangs=memory.gangs,
            holds=memory.holds,
            all_pods=self._options.place_all_pods,
        )

    def _make_feed(self) -> Feed:
        memory = self._memory
        return Feed(
            self._api,
            memory.ledger,
            memory.foreign,
            self._resizer,
            waiting=memory.waiting,
            gangs=memory.gangs,
            residents=memory.residents,
            holds=memory.holds,
            late=self._late,
            demand=memory.placer.demand,
        )

    def _make_workers(self) -> tuple[Worker, ...]:
        """In the order in which they are started."""
        api, memory = self._api, self._memory
        patience = self._options.reservation_seconds
        waker = Waker(api, memory.waiting, self._decide, self.feeds, touched=self._metrics.touches.inc)
        return (
            QuotaReporter(api, memory.quotas),
            Keeper(memory.ledger, self._binder, time.monotonic, reservation_seconds=patience),
            self._resizer,
            waker,
            memory.gangs,
            self._late,
            Learner(memory.placer, self._quiet),
            Evictor(
                api,
                memory.waiting,
                self._decide,
                memory.evictable,
                memory.holds,
                grounds=self._grounds(),
                touch=waker.touch,
                feeds=self.feeds,
                looked=self._metrics.reclaim_rounds.inc,
                counted=self._count_eviction,
            ),
        )

    def _grounds(self) -> list[Ground]:
        """Why pods may be evicted here: what borrowers have goes first."""
        memory, options = self._memory, self._options
        grounds: list[Ground] = []
        if options.reclaims_per_minute:
            grounds.append(Reclaim(memory.evictable, options.reclaims_per_minute))
        if options.preemption == BY_EXTENDER:
            grounds.append(
                Displacement(memory.evictable, memory.holds, memory.waiting, options.preemption_seconds)
            )
        return grounds

    def _count_eviction(self, ground: str, outcome: str) -> None:
        counters = {RECLAIM: self._metrics.evictions, PREEMPTION: self._metrics.preemptions}
        counters[ground].labels(outcome).inc()

    def missing(self) -> str:
        """What has not been read yet, in words."""
        return next((what for feed in self.feeds if (what := feed.missing())), "")

    async def catch_up(self) -> None:
        """Bring the ledger to what the pods say now; ApiError when that fails."""
        await self._feed.catch_up()

    def extender(self, forwarder: Forwarder | None = None, guard: Guard = OPEN) -> Extender:
        """Who answers calls."""
        dry_run = DryRun(self._decide, Imagination(self._feed.known))
        kept = self._memory.evictable.kept
        why = Why(self._api, self._decide, self._feed.known, kept)
        defragmenter = Defragmenter(self._api, self._decide, kept)
        questions = Questions(dry_run, why, defragmenter, self._metrics)
        return Extender(
            self._decide,
            self._binder,
            self._metrics,
            self.missing,
            preemption=Preemption(
                self._decide,
                self._memory.evictable,
                self._memory.holds,
                enabled=self._options.preemption != BY_NOBODY,
            ),
            questions=questions,
            forwarder=forwarder,
            volcano=Volcano(self._decide) if self._options.volcano else None,
            quiet=self._quiet,
            guard=guard,
        )
