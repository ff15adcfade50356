"""The quotas of one pool's cards, in two levels, and what of their guarantees must stay free.

A quota with a parent is held to its own bounds and to its parent's. A parent counts what its children have. It
guarantees its children together no less than each of them is guaranteed; what it guarantees beyond that is for
whichever of them comes first.

Of the guarantee of a quota that reclaims, what has no use is lent to others. A child's `reclaim` stands for the child's
guarantee, a parent's for what the parent guarantees beyond its children. What becomes open only by a departure that is
asked about is not lent: nobody is evicted in favour of a borrower who could be evicted for it in turn. What is
guaranteed without `reclaim` is kept free from everybody else: from borrowers, and from those who could evict borrowers
instead.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from aliquot.crds.gpu_quota import NO_BOUND, GPUQuota, Most
from aliquot.request.amounts import NOTHING, Amounts
from aliquot.scheduler_ext.state.namespace_usage import ALL, NO_RELIEF, NamespaceUsage, Relief


@dataclass(frozen=True)
class Bound:
    """What one quota says, whoever wrote it.

    Attributes:
        title: Its kind and name, for people; empty for what a namespace of no quota is held to.
        namespaces: Those it is for, its children's too, without the ones that belong to another quota.
        pool: Whose cards it counts.
        guaranteed: What others leave for them.
        limit: What they have at most together.
        pod_max: What one pod has at most.
        weight: By which its share is divided.
        lends: Whether others may have what it is guaranteed and has no use for: it gets that back by reclaim.
    """

    title: str = ""
    namespaces: tuple[str, ...] = ()
    pool: str = ALL
    guaranteed: Amounts = NOTHING
    limit: Most = NO_BOUND
    pod_max: Most = NO_BOUND
    weight: int = 1
    lends: bool = False


NO_QUOTA: Final = Bound()


class PoolQuotas:
    """The quotas of one pool.

    Attributes:
        bounds: What each quota says, by its name.
        ignored: Why a quota's parent does not count, by the quota's name.
        guarantees_cards: Whether any guarantees cards: a slice that leaves, however small, opens the guarantee of one.
        keeps_any: Whether anything is guaranteed that is not lent.
    """

    def __init__(
        self, pool: str, quotas: Iterable[GPUQuota], accounts: NamespaceUsage, *, lends: bool = True
    ) -> None:
        """Enter all quotas.

        Args:
            pool: Whose cards they count.
            quotas: All that count them.
            accounts: Who has how much.
            lends: Whether quotas that reclaim lend: somebody evicts for them.
        """
        self._accounts = accounts
        self._lends = lends
        self._pool = pool
        listed = {quota.metadata.name: quota for quota in sorted(quotas, key=lambda q: q.metadata.name)}
        parents, self.ignored = _parents(listed)
        self.bounds: dict[str, Bound] = {}
        self._children: dict[str, list[Bound]] = {}
        self._levels: dict[str, tuple[Bound, ...]] = {}
        self._enter(listed, parents)
        self._tops = {bound.title: bound for name, bound in self.bounds.items() if name not in parents}
        self._owed = dict.fromkeys(self._tops, NOTHING)
        self._owed_in_all = NOTHING
        self._borrowed = dict.fromkeys(self._tops, NOTHING)
        self._borrowed_in_all = NOTHING
        self._stale = set(self._tops)
        self._without_quota = {one for one in accounts.namespaces() if not self.levels(one)}
        self.keeps_any = any(self._never_lent(top) != NOTHING for top in self._tops.values())
        self.guarantees_cards = any(bound.guaranteed.cards for bound in self.bounds.values())

    def _enter(self, listed: Mapping[str, GPUQuota], parents: Mapping[str, str]) -> None:
        owned = _owned(listed)
        for name in (*parents, *(name for name in listed if name not in parents)):  # children first
            spec, title = listed[name].spec, title_of(name)
            children = self._children.get(title, [])
            beneath = sum((child.guaranteed for child in children), NOTHING)
            bound = Bound(
                title,
                (*owned[name], *(namespace for child in children for namespace in child.namespaces)),
                self._pool,
                spec.guaranteed.amounts() | beneath,
                spec.limit,
                spec.pod_max,
                max(1, spec.weight),
                self._lends and spec.reclaim,
            )
            self.bounds[name] = bound
            if name in parents:
                self._children.setdefault(title_of(parents[name]), []).append(bound)
            elif children:
                children.append(Bound(f"{title} (its own namespaces)", owned[name], self._pool))
                for child in children:
                    self._levels |= dict.fromkeys(child.namespaces, (child, bound))
            else:
                self._levels |= dict.fromkeys(owned[name], (bound,))

    def levels(self, namespace: str) -> tuple[Bound, ...]:
        """What holds a namespace: its own quota, and that one's parent; nothing where it has no quota."""
        return self._levels.get(namespace, ())

    def used_changed(self, namespace: str) -> None:
        """What a namespace has is no longer what it was."""
        for bound in self.levels(namespace)[-1:]:
            self._stale.add(bound.title)
        if not self.levels(namespace):
            self._without_quota.add(namespace)

    def used(self, bound: Bound, relief: Relief = NO_RELIEF) -> Amounts:
        """What a quota's namespaces have together."""
        used = sum((self._accounts.used(self._pool, one) for one in bound.namespaces), NOTHING)
        return used - relief.given(self._pool, bound.namespaces)

    # ---- what must stay free ----

    def owed_outside(self, namespace: str, relief: Relief = NO_RELIEF) -> Amounts:
        """What must stay free for guarantees of quotas that have no parent in common with this namespace's."""
        self._refresh()
        mine = {bound.title for bound in self.levels(namespace)[-1:]}
        owed = self._owed_in_all - sum((self._owed[title] for title in mine), NOTHING)
        for title in self._relieved(relief) - mine:
            owed += self._kept(self._tops[title], relief) - self._owed[title]
        return owed

    def kept(self, relief: Relief = NO_RELIEF) -> Amounts:
        """What must stay free for guarantees of all quotas that lend nothing: they cannot get it back."""
        self._refresh()
        kept = self._owed_in_all
        for title in self._relieved(relief):
            kept += self._kept_open(self._tops[title], relief) - self._owed[title]
        return kept

    def borrowed(self, relief: Relief = NO_RELIEF) -> Amounts:
        """What all have together beyond the guarantees of quotas without a parent."""
        self._refresh()
        borrowed = self._borrowed_in_all
        for title in self._relieved(relief):
            borrowed += self._beyond(self._tops[title], relief) - self._borrowed[title]
        without_quota = (one for pool, one in relief.used if pool == self._pool and not self.levels(one))
        return borrowed - relief.given(self._pool, without_quota)

    def owed_beside(self, namespace: str, relief: Relief = NO_RELIEF) -> Amounts:
        """What must stay free, besides, for guarantees of those that do have the parent in common."""
        return sum((self._kept_alone(one, relief) for one in self._siblings(namespace)), NOTHING)

    def open_beside(self, namespace: str, relief: Relief = NO_RELIEF) -> Amounts:
        """What the same have not come up to of their guarantees, lent or not."""
        return sum((self._open_alone(one, relief) for one in self._siblings(namespace)), NOTHING)

    def _siblings(self, namespace: str) -> list[Bound]:
        levels = self.levels(namespace)
        children = self._children.get(levels[-1].title, ()) if levels else ()
        return [one for one in children if one.title != levels[0].title]

    def _refresh(self) -> None:
        for title in self._stale:
            owed = self._kept_open(self._tops[title], NO_RELIEF)
            self._owed_in_all += owed - self._owed[title]
            self._owed[title] = owed
            beyond = self._beyond(self._tops[title])
            self._borrowed_in_all += beyond - self._borrowed[title]
            self._borrowed[title] = beyond
        self._stale.clear()
        for namespace in self._without_quota:
            used = self._accounts.used(self._pool, namespace)
            self._borrowed_in_all += used - self._borrowed.get(namespace, NOTHING)
            self._borrowed[namespace] = used
        self._without_quota.clear()

    def _beyond(self, top: Bound, relief: Relief = NO_RELIEF) -> Amounts:
        return (self.used(top, relief) - top.guaranteed).positive

    def guaranteed_outside(self, bound: Bound) -> Amounts:
        """What is never lent of all guarantees but for those of this quota, its parent and its children."""
        top = self._top_of(bound)
        tops = (one for one in self._tops.values() if one.title != top.title)
        return sum(map(self._never_lent, tops), NOTHING) + self._guaranteed_beside(bound, top)

    def guaranteed_to(self, bound: Bound) -> Amounts:
        """What a quota can have of its own guarantee and, where its siblings have theirs, of its parent's."""
        top = self._top_of(bound)
        return bound.guaranteed | (top.guaranteed - self._guaranteed_beside(bound, top))

    def _guaranteed_beside(self, bound: Bound, top: Bound) -> Amounts:
        siblings = self._children.get(top.title, ()) if bound.title != top.title else ()
        others = (one for one in siblings if one.title != bound.title and not one.lends)
        return sum((one.guaranteed for one in others), NOTHING)

    def _never_lent(self, top: Bound) -> Amounts:
        parts = self._parts(top, lambda bound: bound.guaranteed)
        return sum((amounts for lends, amounts in parts if not lends), NOTHING)

    def _top_of(self, bound: Bound) -> Bound:
        levels = self.levels(bound.namespaces[0]) if bound.namespaces else ()
        return levels[-1] if levels else bound

    def _relieved(self, relief: Relief) -> set[str]:
        """The quotas without a parent that count what somebody gives back."""
        pairs = (self.levels(namespace)[-1:] for pool, namespace in relief.used if pool == self._pool)
        return {bound.title for pair in pairs for bound in pair}

    def _parts(self, top: Bound, amount: Callable[[Bound], Amounts]) -> list[tuple[bool, Amounts]]:
        """Whether it is lent, and how much: an amount of each child, and of what a parent has beyond these."""
        children = [(child.lends, amount(child)) for child in self._children.get(top.title, ())]
        beneath = sum((amounts for _, amounts in children), NOTHING)
        return [*children, (top.lends, (amount(top) - beneath).positive)]

    def _kept_open(self, top: Bound, relief: Relief) -> Amounts:
        """What those that lend nothing have not come up to of their guarantees, of a quota and its children."""
        parts = self._parts(top, partial(self._open_alone, relief=relief))
        return sum((amounts for lends, amounts in parts if not lends), NOTHING)

    def _kept(self, top: Bound, relief: Relief) -> Amounts:
        """What a quota and its children have not come up to of their guarantees, without what is lent.

        What is open only once this is given back is not lent.
        """
        now, then = (self._parts(top, partial(self._open_alone, relief=one)) for one in (NO_RELIEF, relief))
        pairs = zip(now, then, strict=True)
        return sum((_kept_of(lends, before, after) for (lends, before), (_, after) in pairs), NOTHING)

    def _kept_alone(self, bound: Bound, relief: Relief) -> Amounts:
        """The same of a quota by itself."""
        return _kept_of(bound.lends, self._open_alone(bound, NO_RELIEF), self._open_alone(bound, relief))

    def _open_alone(self, bound: Bound, relief: Relief) -> Amounts:
        return (bound.guaranteed - self.used(bound, relief)).positive


def _kept_of(lends: bool, before: Amounts, after: Amounts) -> Amounts:
    return (after - before).positive if lends else after


def title_of(name: str) -> str:
    """A GPUQuota for people."""
    return f"GPUQuota {name}"


def _owned(listed: Mapping[str, GPUQuota]) -> dict[str, tuple[str, ...]]:
    """The namespaces of each quota: one belongs to the first, by name, that lists it."""
    owner: dict[str, str] = {}
    for name, quota in listed.items():
        for namespace in quota.spec.namespaces:
            owner.setdefault(namespace, name)
    return {name: tuple(one for one in listed[name].spec.namespaces if owner[one] == name) for name in listed}


def _parents(listed: Mapping[str, GPUQuota]) -> tuple[dict[str, str], dict[str, str]]:
    """The parent of each quota that has one, by name; and why that of others does not count."""
    named = {name: quota.spec.parent for name, quota in listed.items() if quota.spec.parent}
    ignored: dict[str, str] = {}
    for name, parent in named.items():
        if parent == name:
            ignored[name] = f"GPUQuota {name} names itself as its parent"
        elif parent not in listed:
            ignored[name] = f"there is no GPUQuota {parent} of the same pool"
    parents = {name: parent for name, parent in named.items() if name not in ignored}
    for name, parent in parents.items():
        if parent in parents:
            ignored[name] = f"GPUQuota {parent} has a parent itself, and there are two levels"
    return {name: parent for name, parent in parents.items() if name not in ignored}, ignored
