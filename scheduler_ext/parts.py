"""One extender's parts, put together: who reads, who decides, and who works beside."""

import argparse
import time
from functools import partial

from prometheus_client import CollectorRegistry

from aliquot.dialects import load_dialects
from aliquot.kube.api import Api
from aliquot.policy import Preference
from aliquot.request import read_pod_request
from scheduler_ext.bind import Binder
from scheduler_ext.choose import Placer
from scheduler_ext.defragment import Defragmenter
from scheduler_ext.disruption import BudgetFeed, Budgets
from scheduler_ext.dryrun import DryRun
from scheduler_ext.evictable import Evictable
from scheduler_ext.feed import Feed
from scheduler_ext.filter import Filter
from scheduler_ext.foreign import ForeignAgents
from scheduler_ext.forward import Forwarder
from scheduler_ext.gang_feed import GangFeed
from scheduler_ext.gang_metrics import GangCollector
from scheduler_ext.gangs import Gangs
from scheduler_ext.holds import Holds
from scheduler_ext.imagined import Imagination
from scheduler_ext.keeper import Keeper
from scheduler_ext.late import LatePlacements
from scheduler_ext.learner import Learner, Quiet
from scheduler_ext.ledger import Ledger
from scheduler_ext.metrics import ExtenderMetrics
from scheduler_ext.passed_over import PassedOver
from scheduler_ext.preempt import Preemption
from scheduler_ext.questions import Questions
from scheduler_ext.quota_feed import QuotaFeed
from scheduler_ext.quota_metrics import QuotaCollector
from scheduler_ext.quota_status import QuotaReporter
from scheduler_ext.quotas import Quotas
from scheduler_ext.reclaim import Reclaimer
from scheduler_ext.residents import Residents
from scheduler_ext.resize import Resizer
from scheduler_ext.server import Extender
from scheduler_ext.volcano import Volcano
from scheduler_ext.waiting import Waiting, Waker
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
        dialects = load_dialects(options.dialects)
        ledger, foreign, waiting = Ledger(time.monotonic), ForeignAgents(dialects), Waiting()
        quotas = Quotas(ledger.accounts, dialects=dialects)
        self._api = api
        self._metrics = ExtenderMetrics(CollectorRegistry(), ledger, cards=options.card_metrics)
        self.registry = self._metrics.registry
        self.registry.register(QuotaCollector(quotas))
        resizer = Resizer(api, ledger, self._metrics.resizes, quotas)
        residents, budgets = Residents(ledger), Budgets()
        evictable = Evictable(ledger, residents, budgets, quotas, options.min_run_seconds)
        holds = Holds(ledger, waiting, evictable)
        passed_over = PassedOver()
        read = partial(read_pod_request, dialects=dialects)
        gangs = Gangs(
            ledger,
            waiting,
            passed_over,
            read,
            hold_seconds=options.group_seconds,
            saving_seconds=options.group_saving_seconds,
        )
        self.registry.register(GangCollector(gangs))
        self._late = LatePlacements(api, ledger, read, options.volcano)
        preference = Preference(options.node_policy, options.card_policy)
        placer, self._quiet = Placer(ledger.table, preference, patient=not options.learn_at_once), Quiet()
        self._feed = Feed(
            api,
            ledger,
            foreign,
            resizer,
            waiting=waiting,
            gangs=gangs,
            residents=residents,
            holds=holds,
            late=self._late,
            demand=placer.demand,
        )
        quota_feed = QuotaFeed(api, quotas, self._feed.pools_known)
        self._binder = Binder(api, ledger, placer, dialects=dialects, quotas=quotas, gangs=gangs)
        patience = options.reservation_seconds
        keeper = Keeper(ledger, self._binder, time.monotonic, reservation_seconds=patience)
        self._decide = Filter(
            ledger,
            foreign,
            placer,
            dialects=dialects,
            passed_over=passed_over,
            quotas=quotas,
            waiting=waiting,
            gangs=gangs,
            holds=holds,
            all_pods=options.place_all_pods,
        )
        self._late.place_by(self._decide)
        self._volcano = Volcano(self._decide) if options.volcano else None
        self._preemption = Preemption(self._decide, evictable, holds)
        self._kept = evictable.kept
        self.feeds = (self._feed, quota_feed, GangFeed(api, gangs), BudgetFeed(api, budgets))
        waker = Waker(api, waiting, self._decide, self.feeds, touched=self._metrics.touches.inc)
        ledger.on_change(waiting.something_changed)
        quotas.on_change(waiting.something_changed)
        reclaimer = Reclaimer(
            api,
            waiting,
            self._decide,
            evictable,
            holds,
            feeds=self.feeds,
            per_minute=options.reclaims_per_minute,
            looked=self._metrics.reclaim_rounds.inc,
            counted=lambda outcome: self._metrics.evictions.labels(outcome).inc(),
        )
        learner = Learner(placer, self._quiet)
        self.workers = (
            QuotaReporter(api, quotas),
            keeper,
            resizer,
            waker,
            gangs,
            self._late,
            learner,
            reclaimer,
        )

    def missing(self) -> str:
        """What has not been read yet, in words."""
        return next((what for feed in self.feeds if (what := feed.missing())), "")

    async def catch_up(self) -> None:
        """Bring the ledger to what the pods say now; ApiError when that fails."""
        await self._feed.catch_up()

    def extender(self, forwarder: Forwarder | None = None) -> Extender:
        """Who answers calls."""
        dry_run = DryRun(self._decide, Imagination(self._feed.known))
        why = Why(self._api, self._decide, self._feed.known, self._kept)
        defragmenter = Defragmenter(self._api, self._decide, self._kept)
        questions = Questions(dry_run, why, defragmenter, self._metrics)
        return Extender(
            self._decide,
            self._binder,
            self._metrics,
            self.missing,
            preemption=self._preemption,
            questions=questions,
            forwarder=forwarder,
            volcano=self._volcano,
            quiet=self._quiet,
        )
