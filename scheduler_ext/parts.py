"""One extender's parts, put together: who reads, who decides, and who works beside."""

import argparse
import time

from prometheus_client import CollectorRegistry

from aliquot.certificate_metrics import CertificateCollector
from aliquot.guard import OPEN, Guard
from aliquot.kube.api import Api
from aliquot.scheduler_ext.bind import Binder
from aliquot.scheduler_ext.defragment import Defragmenter
from aliquot.scheduler_ext.displacement import Displacement
from aliquot.scheduler_ext.disruption import BudgetFeed
from aliquot.scheduler_ext.dryrun import DryRun
from aliquot.scheduler_ext.evictions import Evictions
from aliquot.scheduler_ext.evictor import Evictor, Ground
from aliquot.scheduler_ext.feed import Feed
from aliquot.scheduler_ext.filter import Filter
from aliquot.scheduler_ext.forward import Forwarder
from aliquot.scheduler_ext.gang_feed import GangFeed
from aliquot.scheduler_ext.gang_grounds import GangDisplacement, GangGround, GangReclaim
from aliquot.scheduler_ext.gang_metrics import GangCollector
from aliquot.scheduler_ext.gang_preemption import GangPreemption
from aliquot.scheduler_ext.imagined import Imagination
from aliquot.scheduler_ext.keeper import Keeper
from aliquot.scheduler_ext.kube_scheduler import KubeSchedulerHealth
from aliquot.scheduler_ext.late import LatePlacements
from aliquot.scheduler_ext.learner import Learner, Quiet
from aliquot.scheduler_ext.memory import Memory
from aliquot.scheduler_ext.metrics import ExtenderMetrics
from aliquot.scheduler_ext.missed import Missed
from aliquot.scheduler_ext.office import Worker
from aliquot.scheduler_ext.options import BY_EXTENDER, BY_NOBODY
from aliquot.scheduler_ext.plans import PREEMPTION, RECLAIM
from aliquot.scheduler_ext.preempt import Preemption
from aliquot.scheduler_ext.questions import Questions
from aliquot.scheduler_ext.quota_feed import QuotaFeed
from aliquot.scheduler_ext.quota_metrics import QuotaCollector
from aliquot.scheduler_ext.quota_status import QuotaReporter
from aliquot.scheduler_ext.reclaim import Reclaim
from aliquot.scheduler_ext.resize import Resizer
from aliquot.scheduler_ext.server import Extender
from aliquot.scheduler_ext.stale_gangs import StaleGangs
from aliquot.scheduler_ext.status_rate_limit import StatusRateLimit
from aliquot.scheduler_ext.volcano import Volcano
from aliquot.scheduler_ext.waiting import Waker
from aliquot.scheduler_ext.waiting_metrics import WaitingCollector
from aliquot.scheduler_ext.why import Why


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
        memory.evictable.cut = self._metrics.cut_searches.inc
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
            names=memory.names,
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
        self.workers = self._make_workers()

    def _make_filter(self) -> Filter:
        memory = self._memory
        return Filter(
            memory.ledger,
            memory.foreign,
            memory.placer,
            names=memory.names,
            dialects=memory.dialects,
            passed_over=memory.passed_over,
            quotas=memory.quotas,
            waiting=memory.waiting,
            gangs=memory.gangs,
            holds=memory.holds,
            all_pods=self._options.place_all_pods,
        )

    def _make_feed(self) -> Feed:
        memory, statuses = self._memory, StatusRateLimit()
        self._metrics.nodes_rate_limited.set_function(lambda: float(len(statuses.over)))
        return Feed(
            self._api,
            memory.ledger,
            memory.foreign,
            self._resizer,
            names=memory.names,
            waiting=memory.waiting,
            gangs=memory.gangs,
            residents=memory.residents,
            holds=memory.holds,
            late=self._late,
            demand=memory.placer.demand,
            statuses=statuses,
        )

    def _make_workers(self) -> tuple[Worker, ...]:
        """In the order in which they are started."""
        api, memory = self._api, self._memory
        patience = self._options.reservation_seconds
        evictions = Evictions(api, memory.evictable, time.monotonic, self._count_eviction)
        waker = Waker(
            api,
            memory.waiting,
            self._decide,
            self.feeds,
            touched=self._metrics.touches.inc,
            missed=Missed(api, memory.names).tell,
        )
        return (
            QuotaReporter(api, memory.quotas),
            Keeper(
                memory.ledger,
                self._binder,
                time.monotonic,
                reservation_seconds=patience,
                keeps=memory.gangs.keeps,
            ),
            self._resizer,
            waker,
            memory.gangs,
            StaleGangs(
                api,
                memory.gangs,
                self._decide,
                memory.evictable,
                grace_seconds=self._options.group_grace_seconds,
                others=self._options.volcano,
                feeds=self.feeds,
                counted=lambda outcome: self._metrics.group_evictions.labels(outcome).inc(),
            ),
            self._late,
            Learner(memory.placer, self._quiet),
            GangPreemption(
                memory.gangs,
                self._decide,
                memory.evictable,
                memory.holds,
                evictions=evictions,
                grounds=self._gang_grounds(),
                feeds=self.feeds,
                patience_seconds=self._options.preemption_seconds,
            ),
            Evictor(
                api,
                memory.waiting,
                self._decide,
                memory.evictable,
                memory.holds,
                evictions=evictions,
                grounds=self._grounds(),
                touch=waker.touch,
                feeds=self.feeds,
                looked=self._metrics.reclaim_rounds.inc,
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

    def _gang_grounds(self) -> list[GangGround]:
        """The same for groups."""
        options = self._options
        grounds: list[GangGround] = []
        if options.reclaims_per_minute:
            grounds.append(GangReclaim(options.reclaims_per_minute))
        if options.preemption == BY_EXTENDER:
            grounds.append(GangDisplacement())
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
        dry_run = DryRun(self._decide, Imagination(self._feed.known, self._memory.names))
        kept = self._memory.evictable.kept
        why = Why(self._api, self._decide, self._feed.known, kept)
        defragmenter = Defragmenter(self._api, self._decide, kept)
        questions = Questions(dry_run, why, defragmenter, self._metrics)
        beside = self._options.kube_scheduler_health
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
            kube_scheduler=KubeSchedulerHealth(beside, authorities=self._options.tls_ca) if beside else None,
        )
