"""What one extender knows of the cluster, and of what it has promised; nothing here reads or writes anything."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from aliquot.api.names import ResourceNames
from aliquot.dialects import Dialect, load_dialects
from aliquot.kube.objects import Pod
from aliquot.request.placement_policy import Preference
from aliquot.request.pod_request import PodRequest, read_pod_request
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.disruption_budgets import Budgets
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.node_backoff import NodeBackoff
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from aliquot.scheduler_ext.state.running_pods import RunningPods


@dataclass(frozen=True)
class ClusterState:
    """What all parts have in common.

    Attributes:
        names: The resources' names.
        dialects: Other projects' resources that are understood.
        read: What a pod asks for, in these.
        ledger: What is promised.
        foreign: Which nodes other plugins serve.
        waiting: Who was refused.
        quotas: What each namespace may have.
        running_pods: Who is on which node.
        budgets: Whom disruption budgets keep.
        node_backoff: Where a pod has just been in vain.
        gangs: Who gets places together.
        placer: How good nodes are.
        candidates: Who may be sent away.
        nominations: What is held for whom.
    """

    names: ResourceNames
    dialects: Sequence[Dialect]
    read: Callable[[Pod], PodRequest]
    ledger: Ledger
    foreign: ForeignPlugins
    waiting: PendingPods
    quotas: Quotas
    running_pods: RunningPods
    budgets: Budgets
    node_backoff: NodeBackoff
    gangs: Gangs
    placer: Placer
    candidates: Candidates
    nominations: Nominations

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """An empty one, as the command line says."""
        names, dialects = options.names, load_dialects(options.dialects)
        read = partial(read_pod_request, names=names, dialects=dialects)
        ledger, waiting, node_backoff = Ledger(time.monotonic), PendingPods(), NodeBackoff()
        reclaims = bool(options.reclaims_per_minute)
        quotas = Quotas(ledger.accounts, names=names, dialects=dialects, lends=reclaims)
        ledger.on_change(waiting.something_changed)
        quotas.on_change(waiting.something_changed)
        ledger.hosts.on_turn(quotas.room_changed)
        running_pods, budgets = RunningPods(ledger), Budgets()
        gangs = Gangs(
            ledger,
            waiting,
            node_backoff,
            read,
            hold_seconds=options.group_seconds,
            saving_seconds=options.group_saving_seconds,
        )
        candidates = Candidates(
            ledger, running_pods, budgets, quotas, options.min_run_seconds, breaks=gangs.breaks
        )
        return cls(
            names,
            dialects,
            read,
            ledger,
            ForeignPlugins(dialects),
            waiting,
            quotas,
            running_pods,
            budgets,
            node_backoff,
            gangs,
            Placer(
                ledger.table,
                Preference(options.node_policy, options.card_policy),
                patient=not options.learn_at_once,
            ),
            candidates,
            Nominations(ledger, waiting, candidates),
        )
