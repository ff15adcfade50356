"""Who has borrowed what of others' guarantees, at one moment: what preemption prefers to take and reclaim may take.

A quota borrows what its namespaces have beyond its guarantee; a namespace of no quota borrows all it has. An amount of
which a quota guarantees nothing says nothing about it, unless it guarantees nothing at all.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from aliquot.amounts import NAMES, NOTHING, Amounts
from scheduler_ext.quotas import NO_QUOTA, Bound, Quotas
from scheduler_ext.residents import Resident


class _Over(dict[str, bool]):
    """Answers by namespace, each found out when it is asked for: of thousands of pods most are of few."""

    def __init__(self, find: Callable[[str], bool]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, namespace: str) -> bool:
        known = self[namespace] = self._find(namespace)
        return known


class Borrowing:
    """What quotas' namespaces have, read once; good for one decision.

    Attributes:
        over: Whether a namespace has more than it is guaranteed, on any cards.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._accounts = quotas.accounts
        self._of: dict[tuple[str, str], tuple[Bound, Amounts]] = {}
        self._min_run: defaultdict[str, int] = defaultdict(int)
        self._reclaiming: set[str] = set()
        self._pools: set[str] = set()
        self.over = _Over(self._is_over)
        for quota, bound, used in quotas.ours():
            self._pools.add(bound.pool)
            if quota.spec.reclaim:
                self._reclaiming.add(bound.title)
            for namespace in bound.namespaces:
                self._of[bound.pool, namespace] = bound, used
                self._min_run[namespace] = max(self._min_run[namespace], quota.spec.min_run_seconds)

    @property
    def reclaims(self) -> bool:
        """Whether any quota reclaims what it is guaranteed."""
        return bool(self._reclaiming)

    @property
    def spares_anybody(self) -> bool:
        """Whether pods of any namespace are left alone for a while."""
        return any(self._min_run.values())

    def min_run_seconds(self, namespace: str) -> int:
        """How long a pod of this namespace is left alone after its start."""
        return self._min_run[namespace]

    def _is_over(self, namespace: str) -> bool:
        return any(self._over_in(pool, namespace) for pool in self._pools)

    def _over_in(self, pool: str, namespace: str) -> bool:
        bound, used = self._stand(pool, namespace)
        names = _guaranteed(bound) or NAMES
        return any(used.of(name) > bound.guaranteed.of(name) for name in names)

    def _stand(self, pool: str, namespace: str) -> tuple[Bound, Amounts]:
        known = self._of.get((pool, namespace))
        return known if known is not None else (NO_QUOTA, self._accounts.used(pool, namespace))

    def owed(self, namespace: str, wanted: Amounts, uid: str) -> dict[str, list[str]]:
        """Of which pools' cards a pod may have others evicted, and for which amounts.

        It may where its quota says so, and guarantees an amount that the pod asks for; and as long as, with this pod,
        its namespaces have no more than guaranteed of whatever any of their quotas guarantees.
        """
        owed: dict[str, list[str]] = {}
        mine = self._accounts.held(uid)
        for pool in self._pools:
            bound, used = self._stand(pool, namespace)
            used -= mine.get(pool, NOTHING)
            names = _guaranteed(bound)
            if any((used + wanted).of(name) > bound.guaranteed.of(name) for name in names):
                return {}
            asked = [name for name in names if wanted.of(name)]
            if asked and bound.title in self._reclaiming:
                owed[pool] = asked
        return owed

    def may_go(self, pods: Iterable[Resident], namespace: str, owed: dict[str, list[str]]) -> bool:
        """Whether all these pods together are borrowed from what a namespace is owed.

        Of an amount that it is owed, the quota of each has no less than its guarantee when they have gone.
        """
        gone: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        for pod in pods:
            for pool in owed:
                gone[pool, self._owner(pool, pod.namespace)] += self._has(pod, pool)
        return all(self._borrowed(pod, namespace, owed, gone) for pod in pods)

    def _borrowed(
        self,
        pod: Resident,
        namespace: str,
        owed: dict[str, list[str]],
        gone: dict[tuple[str, str], Amounts],
    ) -> bool:
        for pool, names in owed.items():
            bound, used = self._stand(pool, pod.namespace)
            owner = self._owner(pool, pod.namespace)
            left = used - gone[pool, owner]
            ours = owner == self._owner(pool, namespace)
            has = self._has(pod, pool)
            if not ours and any(
                has.of(name) and left.of(name) >= bound.guaranteed.of(name) for name in names
            ):
                return True
        return False

    def _owner(self, pool: str, namespace: str) -> str:
        """Whose what a namespace has is: its quota's, or its own."""
        bound, _ = self._stand(pool, namespace)
        return bound.title or f"namespace {namespace}"

    def _has(self, pod: Resident, pool: str) -> Amounts:
        return self._accounts.held(pod.uid).get(pool, NOTHING)


def _guaranteed(bound: Bound) -> list[str]:
    """The amounts of which a quota guarantees anything."""
    return [name for name in NAMES if bound.guaranteed.of(name)]
