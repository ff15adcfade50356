"""Which quotas have borrowed what of others' guarantees, and what a pod may have, once the pods that leave have left.

A quota borrows what its namespaces have beyond its guarantee; a namespace of no quota borrows all it has. An amount of
which a quota guarantees nothing says nothing about it, unless it guarantees nothing at all. A quota with a parent has
borrowed from those below the same parent what is beyond its own guarantee; from others it has borrowed only what is
beyond the parent's, too.

Preemption and reclaim judge by this alone. What is held or reserved for pods that are not bound yet is theirs where
they ask for more, and no reason for a pod that runs within its guarantee to leave. Pods that are leaving, or have been
evicted, count as gone: what they have is not borrowed any more, and guarantees that they have used are open again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from aliquot.request.amounts import NAMES, NOTHING, Amounts
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.quota.pool_quotas import NO_QUOTA, Bound
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.namespace_usage import NO_RELIEF, Kind, Relief
from aliquot.scheduler_ext.state.running_pods import RunningPod

NOBODY: Final[Mapping[tuple[str, str], Amounts]] = {}
"""What leaves a pool's quotas, where nobody leaves."""


@dataclass(frozen=True)
class _Stand:
    """What a quota has, its own namespaces or its children's, once those that leave have left.

    Attributes:
        owner: Whose it is, for telling apart: the quota's title, or the namespace that has none.
        bound: What the quota says.
        used: What it has.
        promised: Of that, what pods have that are not bound yet.
    """

    owner: str
    bound: Bound
    used: Amounts
    promised: Amounts

    @property
    def runs(self) -> Amounts:
        """What its pods have that have their places."""
        return self.used - self.promised


@dataclass(frozen=True)
class Owed:
    """What a pod is owed of one pool's cards: amounts for which it may have others evicted.

    Attributes:
        guarantor: The quota that guarantees them.
        names: The amounts.
    """

    guarantor: str
    names: list[str]


class Borrowing:
    """What quotas' namespaces will have, read once; good for one decision.

    Attributes:
        leaving: The UIDs of the pods that count as gone.
        reclaims: Whether any quota reclaims what it is guaranteed.
        own: The node on which room is the own of the pod that is asked about: only its limits close it there.
    """

    def __init__(
        self, quotas: Quotas, leaving: Collection[str] = (), unbound: Collection[str] = (), own: str = ""
    ) -> None:
        """Look at the quotas.

        Args:
            quotas: What each namespace has and may have.
            leaving: The UIDs of the pods that count as gone.
            unbound: The UIDs of the pods that have places and are not bound to them yet.
            own: The attribute.
        """
        self.own = own
        self.leaving = frozenset(leaving)
        self._promised = quotas.accounts.parts(frozenset(unbound) - self.leaving)
        self._quotas = quotas
        self._accounts = quotas.accounts
        self._relief = quotas.accounts.relief(self.leaving) if leaving else NO_RELIEF
        self._leaving_on = quotas.accounts.by_node(self.leaving) if leaving else {}
        self._stands: dict[tuple[str, str], tuple[_Stand, ...]] = {}
        self._barred: dict[tuple[str, Kind | None], str] = {}
        self._sure: dict[tuple[str, Kind | None], bool] = {}
        self._min_run: defaultdict[str, int] = defaultdict(int)
        self.reclaims = False
        self._pools: set[str] = set()
        self._over: dict[str, bool] = {}
        for quota, bound, _ in quotas.ours():
            self._pools.add(bound.pool)
            self.reclaims |= bound.lends
            for namespace in bound.namespaces:
                self._min_run[namespace] = max(self._min_run[namespace], quota.spec.min_run_seconds)

    @property
    def has_quotas(self) -> bool:
        """Whether there is any quota; else nothing is borrowed, and no accounts have to be kept."""
        return bool(self._pools)

    @property
    def spares_anybody(self) -> bool:
        """Whether pods of any namespace are left alone for a while."""
        return any(self._min_run.values())

    def min_run_seconds(self, namespace: str) -> int:
        """How long a pod of this namespace is left alone after its start."""
        return self._min_run[namespace]

    def is_over(self, namespace: str) -> bool:
        """Whether a namespace has more than it is guaranteed, on any cards."""
        known = self._over.get(namespace)
        if known is None:  # of thousands of pods most are of few namespaces
            known = self._over[namespace] = any(self._over_in(pool, namespace) for pool in self._pools)
        return known

    def _over_in(self, pool: str, namespace: str, gone: Mapping[tuple[str, str], Amounts] = NOBODY) -> bool:
        own = self._stand(pool, namespace)[0]
        names, used = _guaranteed(own.bound) or NAMES, own.runs - gone.get((pool, own.owner), NOTHING)
        return any(used.of(name) > own.bound.guaranteed.of(name) for name in names)

    def _stand(self, pool: str, namespace: str) -> "tuple[_Stand, ...]":
        """A namespace's own quota, and that one's parent."""
        known = self._stands.get((pool, namespace))
        if known is None:
            levels = self._quotas.levels(pool, namespace) or (NO_QUOTA,)
            known = tuple(self._found(pool, namespace, bound) for bound in levels)
            self._stands[pool, namespace] = known
        return known

    def _found(self, pool: str, namespace: str, bound: Bound) -> "_Stand":
        theirs = bound.namespaces or (namespace,)
        used = sum((self._accounts.used(pool, one) for one in theirs), NOTHING)
        owner = bound.title or f"namespace {namespace}"
        promised = sum((self._promised.get((pool, one), NOTHING) for one in theirs), NOTHING)
        return _Stand(owner, bound, used - self._relief.given(pool, theirs), promised)

    def _against(self, pool: str, namespace: str, other: str) -> "list[_Stand]":
        """Where a namespace stands that this other one has no part in; nothing where both have the same quota."""
        theirs = self._stand(pool, other)
        if self._stand(pool, namespace)[0].owner == theirs[0].owner:
            return []
        shared = {stand.owner for stand in theirs}
        return [stand for stand in self._stand(pool, namespace) if stand.owner not in shared]

    def barred(self, request: PodRequest, node: str, gone: Iterable[RunningPod] = ()) -> str:
        """Why a pod may not go to a node once these have left, too; empty when it may."""
        if not self._quotas.bounds_anybody(request.namespace):
            return ""
        uids = {pod.uid for pod in gone}
        if node == self.own:
            return self._quotas.beyond_limit(request, node, self._relief_with({*uids, request.uid}))
        if not uids <= self.leaving:
            return self._quotas.barred_after(request, node, self._relief_with({*uids, request.uid}))
        key = request.uid, self._accounts.kind_of(node)
        if key not in self._barred:
            self._barred[key] = self._quotas.barred_after(request, node, self._relief_with({request.uid}))
        return self._barred[key]

    def _relief_with(self, uids: AbstractSet[str]) -> Relief:
        """What is given back by those that leave and by these; worked out anew for the nodes of these alone."""
        relief, accounts = self._relief, self._accounts
        for node, more in accounts.by_node(uids - self.leaving).items():
            known = self._leaving_on.get(node, ())
            relief = relief.plus(accounts.relief([*known, *more])).plus(accounts.relief(known), -1)
        return relief

    def together(self, namespace: str) -> set[str]:
        """The namespaces that have a limit or a guarantee together with this one, and this one."""
        return self._quotas.together(namespace)

    def helpful(self, namespace: str, others: Iterable[str]) -> set[str]:
        """Whose pods' departure may have quotas let in one of this namespace: its own, and who has borrowed."""
        return {one for one in others if self.is_over(one)} | self.together(namespace)

    def sure(self, request: PodRequest, node: str) -> bool:
        """Whether a pod may go to a node whoever leaves it, as far as all that they leave is free then."""
        if not self._quotas.bounds_anybody(request.namespace):
            return True
        key = request.uid, self._accounts.kind_of(node)
        if key not in self._sure:
            relief = self._relief_with({request.uid})
            self._sure[key] = not self._quotas.barred_after(request, node, relief, opening=True)
        return self._sure[key]

    def within(self, pod: RunningPod, namespace: str) -> bool:
        """Whether a pod is of a quota that has borrowed nothing, and that is not this namespace's."""
        return not self.is_over(pod.namespace) and self._reopens(pod, namespace)

    def spared(
        self,
        pods: Iterable[RunningPod],
        namespace: str,
        wanted: Mapping[str, Amounts],
        uid: str = "",
        *,
        in_part: bool = True,
    ) -> set[str]:
        """Those of these pods, by UID, whom nobody may evict for a namespace that would borrow with what is wanted.

        They are within their guarantee once the pods before them, which are evicted, have gone.

        Args:
            pods: Those that would be evicted.
            namespace: Whose pod they would be evicted for.
            wanted: What that takes of each pool's cards.
            uid: That pod, for which a place may be held already.
            in_part: Whether a pod may be evicted that is beyond the guarantee with a part of what it has.
        """
        gone: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        held = self._accounts.held(uid) if uid not in self.leaving else {}
        found = set[str]()
        for pod in pods:
            over = in_part and any(self._over_in(pool, pod.namespace, gone) for pool in self._pools)
            reopens = not over and self._reopens(pod, namespace, gone)
            if (
                reopens
                and pod.uid not in self.leaving
                and self._would_borrow(namespace, wanted, held, pod.namespace)
            ):
                found.add(pod.uid)
                continue
            if pod.uid not in self.leaving:
                self._leave(pod, gone)
        return found

    def _would_borrow(
        self, namespace: str, wanted: Mapping[str, Amounts], held: Mapping[str, Amounts], lender: str
    ) -> bool:
        """Whether what is wanted is more than is guaranteed to each quota that the lender has no part in."""
        for pool, amounts in wanted.items():
            stands = self._against(pool, namespace, lender)
            if stands and all(_exceeds(stand, amounts, held.get(pool, NOTHING)) for stand in stands):
                return True
        return False

    def reopening(self, pods: Iterable[RunningPod], namespace: str) -> set[str]:
        """Those of these pods, by UID, whose departure opens a guarantee that is not this namespace's own.

        It is opened once those before them have left that open none.
        """
        gone: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        found = set[str]()
        for pod in pods:
            if self._reopens(pod, namespace, gone):
                found.add(pod.uid)
            else:
                self._leave(pod, gone)
        return found

    def _leave(self, pod: RunningPod, gone: defaultdict[tuple[str, str], Amounts]) -> None:
        """Add what a pod has to what has left the quotas of each pool."""
        for pool in self._pools:
            for stand in self._stand(pool, pod.namespace):
                gone[pool, stand.owner] += self._has(pod, pool)

    def _reopens(
        self, pod: RunningPod, namespace: str, gone: Mapping[tuple[str, str], Amounts] = NOBODY
    ) -> bool:
        for pool in self._pools:
            has = self._has(pod, pool)
            for stand in self._against(pool, pod.namespace, namespace):
                left = stand.runs - has - gone.get((pool, stand.owner), NOTHING)
                guaranteed = stand.bound.guaranteed
                if any(has.of(name) and left.of(name) < guaranteed.of(name) for name in NAMES):
                    return True
        return False

    def owed(self, namespace: str, wanted: Amounts, uid: str) -> dict[str, Owed]:
        """Of which pools' cards a pod may have others evicted, and for which amounts.

        It may where its quota, or that one's parent, reclaims and guarantees an amount that the pod asks for; and as
        long as, with this pod, its namespaces have no more than guaranteed of whatever that quota guarantees. In every
        other pool that has to be so, too, of its own quota or of that one's parent.
        """
        owed: dict[str, Owed] = {}
        mine = self._accounts.held(uid) if uid not in self.leaving else {}
        for pool in self._pools:
            then = wanted - mine.get(pool, NOTHING)
            within = [
                stand
                for stand in self._stand(pool, namespace)
                if self._nominations(stand, pool, namespace, then)
            ]
            if not within:
                return {}
            for stand in within:
                asked = [name for name in _guaranteed(stand.bound) if wanted.of(name)]
                if asked and stand.bound.lends and pool not in owed:
                    owed[pool] = Owed(stand.owner, asked)
        return owed

    def _nominations(self, stand: _Stand, pool: str, namespace: str, more: Amounts) -> bool:
        """Whether a quota has no more than its guarantee with this; a parent leaves its other children theirs."""
        then = stand.used + more
        if stand is not self._stand(pool, namespace)[0]:
            then += self._quotas.open_beside(pool, namespace, self._relief)
        return all(then.of(name) <= stand.bound.guaranteed.of(name) for name in _guaranteed(stand.bound))

    def may_go(
        self, pods: Iterable[RunningPod], namespace: str, owed: Mapping[str, Owed], *, in_part: bool = False
    ) -> bool:
        """Whether all these pods together are borrowed from what a namespace is owed; those that leave in any case are.

        Of an amount that it is owed, the quota of each has no less than its guarantee when they have gone. `in_part`:
        or would have more than that, did the largest of its pods stay.
        """
        pods = [pod for pod in pods if pod.uid not in self.leaving]
        gone: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        largest: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        for pod in pods:
            for pool in owed:
                has = self._has(pod, pool)
                for stand in self._stand(pool, pod.namespace):
                    gone[pool, stand.owner] += has
                    largest[pool, stand.owner] |= has
        kept = largest if in_part else defaultdict[tuple[str, str], Amounts](Amounts)
        return all(self._borrowed(pod, namespace, owed, gone, kept) for pod in pods)

    def _borrowed(
        self,
        pod: RunningPod,
        namespace: str,
        owed: Mapping[str, Owed],
        gone: Mapping[tuple[str, str], Amounts],
        kept: Mapping[tuple[str, str], Amounts],
    ) -> bool:
        for pool, one in owed.items():
            has, stands = self._has(pod, pool), self._against(pool, pod.namespace, namespace)
            if one.guarantor in {stand.owner for stand in self._stand(pool, pod.namespace)}:
                continue
            if stands and any(
                has.of(name) and all(_is_beyond(stand, pool, name, gone, kept) for stand in stands)
                for name in one.names
            ):
                return True
        return False

    def _has(self, pod: RunningPod, pool: str) -> Amounts:
        return self._accounts.held(pod.uid).get(pool, NOTHING)


def _exceeds(stand: _Stand, wanted: Amounts, held: Amounts) -> bool:
    """Whether a quota has more than its guarantee, of what is asked for, with that in place of what is held."""
    then, names = stand.used - held + wanted, _guaranteed(stand.bound) or NAMES
    return any(wanted.of(name) and then.of(name) > stand.bound.guaranteed.of(name) for name in names)


def _is_beyond(
    stand: _Stand,
    pool: str,
    name: str,
    gone: Mapping[tuple[str, str], Amounts],
    kept: Mapping[tuple[str, str], Amounts],
) -> bool:
    """Whether a quota has no less than its guarantee without those that are gone, or more with the one that is kept."""
    whose = pool, stand.owner
    beyond = (stand.runs - gone[whose] - stand.bound.guaranteed).of(name)
    return beyond >= 0 or beyond + kept[whose].of(name) > 0


def _guaranteed(bound: Bound) -> list[str]:
    """The amounts of which a quota guarantees anything."""
    return [name for name in NAMES if bound.guaranteed.of(name)]
