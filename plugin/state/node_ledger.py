"""What the pods let in on this node take of each card, and whether one more fits: the last fence.

The scheduler decides, but two schedulers, a stale one or a placement written by hand could promise the
same memory twice. Who was let in first keeps what it has; a later pod that does not fit waits and is then
refused. The ledger itself is never stored: it is built again from the tenancies on disk, from the pages of
tenants and from what the kubelet says it runs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aliquot.request.placement import Charge

WHOLE_CORES = 100


class LedgerError(Exception):
    """A pod does not fit, now or ever; names the card, what is asked and what is left."""


@dataclass(frozen=True)
class Capacity:
    """What a card has for slices: MiB after the reserve, and percent of its time. A card divided by MIG has none.

    `extra_mib` may be promised beyond that to pods of memory class burst.
    """

    usable_mib: int
    divided: bool = False
    cores: int = WHOLE_CORES
    extra_mib: int = 0

    def free_mib(self, taken: Charge) -> int:
        """What can still be promised to a guaranteed slice beside what is taken."""
        if self.divided or taken.exclusive:
            return 0
        in_all = self.usable_mib + self.extra_mib - taken.memory_mib
        return max(0, min(in_all, self.usable_mib - taken.guaranteed_mib))


Charges = Mapping[str, Charge]
"""What one pod takes, by card UUID."""


class NodeLedger:
    """Charges of pods by UID. Lives in one event loop and never waits: check and entry are one step."""

    def __init__(self, capacities: Mapping[str, Capacity]) -> None:
        self._capacities = dict(capacities)
        self._pods: dict[str, Charges] = {}
        self._heard: Callable[[], None] = lambda: None

    def on_change(self, heard: Callable[[], None]) -> None:
        """Has this called each time other pods are in, or the same ones with other charges."""
        self._heard = heard

    def set_capacities(self, capacities: Mapping[str, Capacity]) -> None:
        """Takes over what the cards have now; pods that are in stay in."""
        self._capacities = dict(capacities)

    def admit(self, pod_uid: str, charges: Charges) -> None:
        """Enters a pod if it fits beside all others. Of a pod that is in only what it takes more is looked at.

        Raises:
            LedgerError: it does not fit; the ledger is unchanged.
        """
        held = self._pods.get(pod_uid, {})
        if held == charges:
            return
        for uuid, charge in sorted(charges.items()):
            others = [c[uuid] for uid, c in self._pods.items() if uid != pod_uid and uuid in c]
            self._check(uuid, charge, held.get(uuid, Charge()), others)
        self.adopt(pod_uid, charges)

    def adopt(self, pod_uid: str, charges: Charges) -> None:
        """Enters a pod that is running already, whether it fits or not: what is used is used."""
        self._pods[pod_uid] = charges
        self._heard()

    def release(self, pod_uid: str) -> None:
        """Gives back what a pod had."""
        if self._pods.pop(pod_uid, None) is not None:
            self._heard()

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._pods

    def pod_uids(self) -> frozenset[str]:
        """Every pod that is in."""
        return frozenset(self._pods)

    def promised(self, uuid: str) -> Charge:
        """What all pods together take of a card."""
        return total(charges[uuid] for charges in self._pods.values() if uuid in charges)

    def capacity(self, uuid: str) -> Capacity:
        """What a card has to promise; nothing where it is not on this node."""
        return self._capacities.get(uuid, Capacity(0, cores=0))

    def grantable_mib(self, uuid: str) -> int:
        """What of a card's memory is guaranteed to nobody, and so can be granted to burst tenants."""
        capacity = self._capacities.get(uuid)
        return max(0, capacity.usable_mib - self.promised(uuid).guaranteed_mib) if capacity else 0

    def overcommitted(self) -> tuple[str, ...]:
        """Cards of which more is promised than they have, which only adopted pods can bring about."""
        return tuple(
            uuid
            for uuid, capacity in self._capacities.items()
            if (now := self.promised(uuid)).memory_mib > capacity.usable_mib + capacity.extra_mib
            or now.guaranteed_mib > capacity.usable_mib
            or now.cores > capacity.cores
        )

    def _check(self, uuid: str, charge: Charge, held: Charge, others: list[Charge]) -> None:
        capacity = self._capacities.get(uuid)
        if capacity is None:
            raise LedgerError(f"card {uuid} is not on this node")
        if capacity.divided:
            raise LedgerError(f"card {uuid} is divided by MIG and offers no slices")
        taken = total(others)
        if taken.exclusive or (charge.exclusive and others):
            raise LedgerError(f"card {uuid} would not be held alone: {len(others)} other pod(s) on it")
        left_mib = capacity.usable_mib + capacity.extra_mib - taken.memory_mib
        if charge.guaranteed_mib:
            left_mib = min(left_mib, capacity.usable_mib - taken.guaranteed_mib + charge.burst_mib)
        grows = charge.memory_mib > held.memory_mib or charge.guaranteed_mib > held.guaranteed_mib
        if grows and charge.memory_mib > left_mib:
            raise LedgerError(f"card {uuid}: {charge.memory_mib} MiB asked, {max(0, left_mib)} MiB left")
        left_cores = capacity.cores - taken.cores
        if charge.cores > max(left_cores, held.cores):
            raise LedgerError(f"card {uuid}: {charge.cores} % of its time asked, {max(0, left_cores)} % left")


def total(charges: Iterable[Charge]) -> Charge:
    """The sum of what runs at the same time."""
    return sum(charges, Charge())
