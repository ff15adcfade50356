"""What one extender knows of the cluster, and of what it has promised; nothing here reads or writes anything."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from aliquot.dialects import Dialect, load_dialects
from aliquot.kube.objects import Pod
from aliquot.names import ResourceNames
from aliquot.policy import Preference
from aliquot.request import PodRequest, read_pod_request
from aliquot.scheduler_ext.choose import Placer
from aliquot.scheduler_ext.disruption import Budgets
from aliquot.scheduler_ext.evictable import Evictable
from aliquot.scheduler_ext.foreign import ForeignAgents
from aliquot.scheduler_ext.gangs import Gangs
from aliquot.scheduler_ext.holds import Holds
from aliquot.scheduler_ext.ledger import Ledger
from aliquot.scheduler_ext.passed_over import PassedOver
from aliquot.scheduler_ext.quotas import Quotas
from aliquot.scheduler_ext.residents import Residents
from aliquot.scheduler_ext.waiting import Waiting


@dataclass(frozen=True)
class Memory:
    """What all parts have in common.

    Attributes:
        names: The resources' names.
        dialects: Other projects' resources that are understood.
        read: What a pod asks for, in these.
        ledger: What is promised.
        foreign: Which nodes other plugins serve.
        waiting: Who was refused.
        quotas: What each namespace may have.
        residents: Who is on which node.
        budgets: Whom disruption budgets keep.
        passed_over: Where a pod has just been in vain.
        gangs: Who gets places together.
        placer: How good nodes are.
        evictable: Who may be sent away.
        holds: What is held for whom.
    """

    names: ResourceNames
    dialects: Sequence[Dialect]
    read: Callable[[Pod], PodRequest]
    ledger: Ledger
    foreign: ForeignAgents
    waiting: Waiting
    quotas: Quotas
    residents: Residents
    budgets: Budgets
    passed_over: PassedOver
    gangs: Gangs
    placer: Placer
    evictable: Evictable
    holds: Holds

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """An empty one, as the command line says."""
        names, dialects = options.names, load_dialects(options.dialects)
        read = partial(read_pod_request, names=names, dialects=dialects)
        ledger, waiting, passed_over = Ledger(time.monotonic), Waiting(), PassedOver()
        reclaims = bool(options.reclaims_per_minute)
        quotas = Quotas(ledger.accounts, names=names, dialects=dialects, lends=reclaims)
        ledger.on_change(waiting.something_changed)
        quotas.on_change(waiting.something_changed)
        ledger.hosts.on_turn(quotas.room_changed)
        residents, budgets = Residents(ledger), Budgets()
        gangs = Gangs(
            ledger,
            waiting,
            passed_over,
            read,
            hold_seconds=options.group_seconds,
            saving_seconds=options.group_saving_seconds,
        )
        evictable = Evictable(
            ledger, residents, budgets, quotas, options.min_run_seconds, breaks=gangs.breaks
        )
        return cls(
            names,
            dialects,
            read,
            ledger,
            ForeignAgents(dialects),
            waiting,
            quotas,
            residents,
            budgets,
            passed_over,
            gangs,
            Placer(
                ledger.table,
                Preference(options.node_policy, options.card_policy),
                patient=not options.learn_at_once,
            ),
            evictable,
            Holds(ledger, waiting, evictable),
        )
