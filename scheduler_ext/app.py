"""One extender's parts, put together: who reads, who decides, and who works beside."""

import argparse
import time

from prometheus_client import CollectorRegistry

from aliquot.kube.api import Api
from aliquot.scheduler_ext.cluster_state import ClusterState
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.controllers.evictor import EvictionReason, Evictor
from aliquot.scheduler_ext.controllers.gang_informer import GangInformer
from aliquot.scheduler_ext.controllers.gang_preemption import GangPreemption
from aliquot.scheduler_ext.controllers.gang_reasons import GangExtenderPreemption, GangReason, GangReclaim
from aliquot.scheduler_ext.controllers.incomplete_gangs import IncompleteGangs
from aliquot.scheduler_ext.controllers.late_placement import LatePlacements
from aliquot.scheduler_ext.controllers.ledger_cleanup import LedgerCleanup
from aliquot.scheduler_ext.controllers.missed_admissions import MissedAdmissions
from aliquot.scheduler_ext.controllers.quota_informer import QuotaInformer
from aliquot.scheduler_ext.controllers.quota_status import QuotaReporter
from aliquot.scheduler_ext.explain.defragment import Defragmenter
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes
from aliquot.scheduler_ext.explain.why import Why
from aliquot.scheduler_ext.gang.metrics import GangCollector
from aliquot.scheduler_ext.handlers.bind import Binder
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.handlers.preempt import Preemption
from aliquot.scheduler_ext.handlers.resize import Resizer
from aliquot.scheduler_ext.http.forward import Forwarder
from aliquot.scheduler_ext.http.metrics import ExtenderMetrics
from aliquot.scheduler_ext.http.pending_metrics import PendingPodsCollector
from aliquot.scheduler_ext.http.query_api import QueryApi
from aliquot.scheduler_ext.http.server import Extender
from aliquot.scheduler_ext.http.volcano import Volcano
from aliquot.scheduler_ext.kube_scheduler.health import KubeSchedulerHealth
from aliquot.scheduler_ext.options import BY_EXTENDER, BY_NOBODY
from aliquot.scheduler_ext.placement.model_updates import ModelUpdater, Quiet
from aliquot.scheduler_ext.preemption.disruption_budgets import BudgetInformer
from aliquot.scheduler_ext.preemption.eviction_plans import PREEMPTION, RECLAIM
from aliquot.scheduler_ext.preemption.evictions import Evictions
from aliquot.scheduler_ext.preemption.extender_preemption import ExtenderPreemption
from aliquot.scheduler_ext.preemption.reclaim import Reclaim
from aliquot.scheduler_ext.quota.metrics import QuotaCollector
from aliquot.scheduler_ext.runtime.leader import Worker
from aliquot.scheduler_ext.state.pending_pods import Waker
from aliquot.scheduler_ext.state.status_rate_limit import StatusRateLimit
from aliquot.server.authn import OPEN, Guard
from aliquot.server.certificate_metrics import CertificateCollector


class App:
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
        self._state = state = ClusterState.of(options)
        self._metrics = ExtenderMetrics(CollectorRegistry(), state.ledger, cards=options.card_metrics)
        self.registry = self._metrics.registry
        state.candidates.cut = self._metrics.cut_searches.inc
        for collector in (
            QuotaCollector(state.quotas),
            PendingPodsCollector(state.waiting),
            CertificateCollector(options.tls_cert, options.tls_ca, options.client_ca),
            GangCollector(state.gangs),
        ):
            self.registry.register(collector)
        self._resizer = Resizer(api, state.ledger, self._metrics.resizes, state.quotas)
        self._late = LatePlacements(api, state.ledger, state.read, options.volcano)
        self._binder = Binder(
            api,
            state.ledger,
            state.placer,
            names=state.names,
            dialects=state.dialects,
            quotas=state.quotas,
            gangs=state.gangs,
        )
        self._decide = self._make_filter()
        self._late.place_by(self._decide)
        self._quiet = Quiet()
        self._feed = self._make_feed()
        self.feeds = (
            self._feed,
            QuotaInformer(api, state.quotas, self._feed.pools_known),
            GangInformer(api, state.gangs),
            BudgetInformer(api, state.budgets),
        )
        self.workers = self._make_workers()

    def _make_filter(self) -> Filter:
        state = self._state
        return Filter(
            state.ledger,
            state.foreign,
            state.placer,
            names=state.names,
            dialects=state.dialects,
            node_backoff=state.node_backoff,
            quotas=state.quotas,
            waiting=state.waiting,
            gangs=state.gangs,
            nominations=state.nominations,
            all_pods=self._options.place_all_pods,
        )

    def _make_feed(self) -> ClusterInformer:
        state, statuses = self._state, StatusRateLimit()
        self._metrics.nodes_rate_limited.set_function(lambda: float(len(statuses.over)))
        return ClusterInformer(
            self._api,
            state.ledger,
            state.foreign,
            self._resizer,
            names=state.names,
            waiting=state.waiting,
            gangs=state.gangs,
            running_pods=state.running_pods,
            nominations=state.nominations,
            late=self._late,
            demand=state.placer.demand,
            statuses=statuses,
        )

    def _make_workers(self) -> tuple[Worker, ...]:
        """In the order in which they are started."""
        api, state = self._api, self._state
        patience = self._options.reservation_seconds
        evictions = Evictions(api, state.candidates, time.monotonic, self._count_eviction)
        waker = Waker(
            api,
            state.waiting,
            self._decide,
            self.feeds,
            touched=self._metrics.touches.inc,
            missed=MissedAdmissions(api, state.names).tell,
        )
        return (
            QuotaReporter(api, state.quotas),
            LedgerCleanup(
                state.ledger,
                self._binder,
                time.monotonic,
                reservation_seconds=patience,
                keeps=state.gangs.keeps,
            ),
            self._resizer,
            waker,
            state.gangs,
            IncompleteGangs(
                api,
                state.gangs,
                self._decide,
                state.candidates,
                grace_seconds=self._options.group_grace_seconds,
                others=self._options.volcano,
                feeds=self.feeds,
                counted=lambda outcome: self._metrics.group_evictions.labels(outcome).inc(),
            ),
            self._late,
            ModelUpdater(state.placer, self._quiet),
            GangPreemption(
                state.gangs,
                self._decide,
                state.candidates,
                state.nominations,
                evictions=evictions,
                grounds=self._gang_grounds(),
                feeds=self.feeds,
                patience_seconds=self._options.preemption_seconds,
            ),
            Evictor(
                api,
                state.waiting,
                self._decide,
                state.candidates,
                state.nominations,
                evictions=evictions,
                grounds=self._grounds(),
                touch=waker.touch,
                feeds=self.feeds,
                looked=self._metrics.reclaim_rounds.inc,
            ),
        )

    def _grounds(self) -> list[EvictionReason]:
        """Why pods may be evicted here: what borrowers have goes first."""
        state, options = self._state, self._options
        grounds: list[EvictionReason] = []
        if options.reclaims_per_minute:
            grounds.append(Reclaim(state.candidates, options.reclaims_per_minute))
        if options.preemption == BY_EXTENDER:
            grounds.append(
                ExtenderPreemption(
                    state.candidates, state.nominations, state.waiting, options.preemption_seconds
                )
            )
        return grounds

    def _gang_grounds(self) -> list[GangReason]:
        """The same for groups."""
        options = self._options
        grounds: list[GangReason] = []
        if options.reclaims_per_minute:
            grounds.append(GangReclaim(options.reclaims_per_minute))
        if options.preemption == BY_EXTENDER:
            grounds.append(GangExtenderPreemption())
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
        dry_run = DryRun(self._decide, HypotheticalNodes(self._feed.known, self._state.names))
        kept = self._state.candidates.kept
        why = Why(self._api, self._decide, self._feed.known, kept)
        defragmenter = Defragmenter(self._api, self._decide, kept)
        queries = QueryApi(dry_run, why, defragmenter, self._metrics)
        beside = self._options.kube_scheduler_health
        return Extender(
            self._decide,
            self._binder,
            self._metrics,
            self.missing,
            preemption=Preemption(
                self._decide,
                self._state.candidates,
                self._state.nominations,
                enabled=self._options.preemption != BY_NOBODY,
            ),
            queries=queries,
            forwarder=forwarder,
            volcano=Volcano(self._decide) if self._options.volcano else None,
            quiet=self._quiet,
            guard=guard,
            kube_scheduler=KubeSchedulerHealth(beside, authorities=self._options.tls_ca) if beside else None,
        )
