"""Compares what tenants say of their time with what the driver sees, and believes nobody who keeps much quiet.

A tenant's usage page says how long it had a card, and the arbiter charges it for that. Who says less than it had would
have more than its share. The driver's own samples are too coarse to charge by, but good enough to find that out within
two seconds. Whoever is found is charged for the time that it holds the card and is lent nothing; an event, the log and
the metrics tell of it. It is believed again after a minute without a difference.

Who says to have work in flight that the driver does not see is no liar: the work may wait for the host. The arbiter is
told, for what is not on the card takes no time from others.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aliquot.arbiter import TenantState
from aliquot.libshim.control_page import read_control
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import Processes, ProcessName, container_of, identity_of, pod_of
from aliquot.plugin.cluster.events import Events
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.tenant_pages import EVERYBODY, TenantDirectories, TenantPages, name_in_page
from aliquot.plugin.devices.nvml_cards import CardsError, Nvml
from aliquot.plugin.kubelet.container_identity import PodName
from aliquot.plugin.sharing.absent_work import AbsentWork
from aliquot.plugin.sharing.leases import Leases, lease_name
from aliquot.plugin.sharing.unreported_time import UnreportedTime
from aliquot.plugin.state.admitted_pods import AdmittedPods

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
REASON = "UsageNotBelieved"
LONGEST_SAMPLE_S = 1.0
NS, US = 1e9, 1e6


@dataclass(frozen=True)
class Said:
    """What a leased tenant says: seconds that it has had, by card, its processes, and the cards on which it has work.

    Nothing, if it cannot be read.
    """

    busy_s: Mapping[str, float]
    processes: frozenset[ProcessName] = frozenset()
    in_flight: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    """What the driver saw since the look before.

    Attributes:
        busy_s: Seconds that each tenant worked, by card.
        covered_s: How much of a card's time the samples cover; what the driver tells nothing of is left out.
    """

    busy_s: Mapping[TenantPages, Mapping[str, float]]
    covered_s: Mapping[str, float]

    def of(self, tenant: TenantPages) -> Mapping[str, float]:
        """Seconds by card; a card where it was not seen is left out."""
        return self.busy_s.get(tenant, {})


@dataclass
class Watchdog:
    """Looks at all tenants that are leased time, again and again."""

    nvml: Nvml
    leases: Leases
    admitted_pods: AdmittedPods
    tenants: TenantDirectories
    pods: Pods
    events: Events
    processes: Processes = EVERYBODY
    look_every_s: float = LOOK_EVERY_S
    _arrears: dict[TenantPages, UnreportedTime] = field(default_factory=dict)
    _absent: dict[TenantPages, AbsentWork] = field(default_factory=dict)
    _before: Mapping[TenantPages, Said] = field(default_factory=dict)
    _looked_s: float = 0.0
    _sampled_us: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks until cancelled; a driver that hangs holds up this look alone."""
        while True:
            await asyncio.sleep(self.look_every_s)
            for tenant, reason in (await asyncio.to_thread(self._look)).items():
                await self._judge(tenant, reason)

    def _look(self) -> dict[TenantPages, str]:
        """Why each leased tenant is not to be believed; nothing: it is."""
        now_s, said = time.monotonic(), dict(self._said())
        seen = self._seen(said)
        passed_s, before = now_s - self._looked_s, self._before
        self._looked_s, self._before = now_s, said
        self._arrears = {tenant: self._arrears.get(tenant) or UnreportedTime() for tenant in said}
        self._absent = {tenant: self._absent.get(tenant) or AbsentWork() for tenant in said}
        self._tell_absent(seen)
        states = self.leases.states()
        return {
            tenant: self._nonsense(tenant, states) or self._compare(tenant, before, seen, passed_s)
            for tenant in said
        }

    def _nonsense(self, tenant: TenantPages, states: Mapping[str, TenantState]) -> str:
        """What the arbiter finds wrong with what a tenant says, whatever the driver sees."""
        name = _name(tenant)
        reason = states[name].reason if name in states and name not in self.leases.doubts else None
        if reason:
            self._arrears[tenant].damaged()
        return reason or ""

    def _compare(
        self,
        tenant: TenantPages,
        before: Mapping[TenantPages, Said],
        seen: Seen,
        passed_s: float,
    ) -> str:
        arrears, now_s = self._arrears[tenant], self._before[tenant].busy_s
        before_s = before[tenant].busy_s if tenant in before else {}
        cards = now_s.keys() & before_s.keys()
        arrears.enter(
            passed_s,
            seen.of(tenant),
            {card: now_s[card] - before_s[card] for card in cards},
            self._before[tenant].in_flight,
        )
        return (
            "it says to have had less of a card's time than the driver saw it have"
            if arrears.doubtful
            else ""
        )

    def _tell_absent(self, seen: Seen) -> None:
        for tenant, absent in self._absent.items():
            absent.enter(seen.covered_s, seen.of(tenant), self._before[tenant].in_flight)
            self.leases.absent(_name(tenant), absent.cards)

    async def _judge(self, tenant: TenantPages, reason: str) -> None:
        name, admitted = _name(tenant), self.admitted_pods.get(tenant.pod_uid)
        if (name in self.leases.doubts) == bool(reason) or admitted is None:
            return
        self.leases.doubt(name, reason or None)
        self.pods.notify()
        pod = PodName(admitted.namespace, admitted.pod, tenant.pod_uid)
        if reason:
            text = f"container {tenant.container}: {reason}; until it is believed again it is lent no time"
            await self.events.warn(pod, REASON, text)
        else:
            self.events.over(pod, REASON)
            log.info("container %s of pod %s is believed again", tenant.container, pod)

    def _said(self) -> Iterator[tuple[TenantPages, Said]]:
        """By tenant that is leased time."""
        for tenant in self.tenants:
            try:
                cards = [
                    card.uuid if card.core_share_bp else "" for card in read_control(tenant.control).cards
                ]
            except (OSError, PageError) as error:
                log.debug("%s is not looked at: %s", tenant.directory, error)
                continue
            if any(cards):
                yield tenant, _said_by(tenant, cards)

    def _seen(self, said: Mapping[TenantPages, Said]) -> Seen:
        """What the driver saw of each tenant since the look before."""
        seen: dict[TenantPages, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        covered_s: dict[str, float] = {}
        ids = {tenant: self._container_id(tenant) for tenant in said}
        for card in {card for one in said.values() for card in one.busy_s}:
            try:
                covered_s[card], busy = self._sample(card)
            except CardsError as error:
                log.debug("nobody is compared on one card: %s", error)
                continue
            for pid, seconds in busy.items():
                tenant = whose(pid, card, said, ids, self.processes)
                has_ended = identity_of(pid, self.processes.proc) is None
                if tenant:
                    seen[tenant][card] += seconds
                elif has_ended:  # it may have been anybody's
                    covered_s[card] = max(0.0, covered_s[card] - seconds)
        return Seen(seen, covered_s)

    def _container_id(self, tenant: TenantPages) -> str:
        """As the kubelet has told; empty while it has not."""
        pod = self.pods.get(tenant.pod_uid)
        told = (*pod.status.container_statuses, *pod.status.init_container_statuses) if pod else ()
        found = (one.container_id.rpartition("/")[2] for one in told if one.name == tenant.container)
        return next(found, "")

    def _sample(self, card: str) -> tuple[float, Mapping[int, float]]:
        """Seconds since the last sample of a card that the new ones cover, and seconds of work in these by process."""
        since_us = min(self._sampled_us.get(card, 0), time.time_ns() // 1000)  # that clock may be set back
        begun: dict[int, int] = {}
        busy: dict[int, float] = defaultdict(float)
        for one in sorted(self.nvml.utilization(card, since_us), key=lambda one: one.until_us):
            span_s = (one.until_us - begun.get(one.pid, since_us)) / US
            busy[one.pid] += one.busy * min(span_s, LONGEST_SAMPLE_S)
            begun[one.pid] = one.until_us
        last_us = self._sampled_us[card] = max(begun.values(), default=since_us)
        return min((last_us - since_us) / US, LONGEST_SAMPLE_S), busy


def _name(tenant: TenantPages) -> str:
    return lease_name(tenant.pod_uid, tenant.container)


def _said_by(tenant: TenantPages, cards: Sequence[str]) -> Said:
    """What one tenant says; `cards` in its pages' order, empty where it is leased nothing."""
    try:
        usage = read_usage(tenant.usage)
    except (OSError, PageError):
        return Said({})
    busy_s = {uuid: usage.cards[index].busy_ns / NS for index, uuid in enumerate(cards) if uuid}
    in_flight = frozenset(uuid for index, uuid in enumerate(cards) if index in usage.in_flight)
    return Said(busy_s, frozenset(map(name_in_page, usage.processes)), in_flight)


def whose(
    pid: int,
    card: str,
    said: Mapping[TenantPages, Said],
    ids: Mapping[TenantPages, str],
    processes: Processes,
) -> TenantPages | None:
    """The tenant of a process: the container that it is in, by its cgroup; by pages where there are no cgroups.

    Where the kubelet has not told a container's id yet, it is the pod's container whose page names it, or the only one.

    Args:
        pid: The process.
        card: Where it was seen.
        said: The tenants that are leased time.
        ids: Those of their containers; empty where they are not known.
        processes: All of this machine.
    """
    identity = identity_of(pid, processes.proc)
    if identity is None:
        return None
    there = [tenant for tenant, one in said.items() if card in one.busy_s]
    if processes.by_cgroup:
        uid, container = pod_of(pid, processes.proc), container_of(pid, processes.proc)
        there = [
            one
            for one in there
            if one.pod_uid == uid and (not container or ids.get(one, "") in ("", container))
        ]
    named = (tenant for tenant in there if ProcessName(*identity) in said[tenant].processes)
    return next(named, there[0] if processes.by_cgroup and len(there) == 1 else None)
