"""Whether a namespace may have what a pod of it asks for: GPUQuotas, and ResourceQuotas written HAMi's way.

What a pod asks is added to what its quota's namespaces have, reservations included. The sum must stay within the
limit. Up to the guarantee nothing more is asked. Beyond it the quota *borrows*: as much must be free as the pod asks
and, on top, all that the other quotas have not come up to of their guarantees. A namespace of no quota has no
guarantee and borrows all it has.

Quotas of one pool are one book, those of the whole cluster another; a pod must be right in every book whose cards it
touches. Only amounts that it asks for are looked at: a namespace over its compute limit gets a pod without compute.

Answers come from memory and change nothing, so whoever asks and then reserves, without waiting between, can never
exceed a limit, however many ask at once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aliquot.amounts import NAMES, NOTHING, Amounts, asked
from aliquot.dialects import Dialect
from aliquot.names import DEFAULT_NAMES, ResourceNames
from aliquot.placement import Placement
from aliquot.quota import NO_BOUND, GPUQuota, Most, ResourceQuota, above_pod_max, hard_limits
from aliquot.request import PodRequest
from aliquot.scheduler_ext.accounts import ALL, NO_RELIEF, Accounts, Kind, Relief
from aliquot.scheduler_ext.quota_words import Asking, beyond_limit, cannot_borrow

NEGLIGIBLE: Final = 1e-9
"""Shares that differ by less are equal: they are quotients."""
Demand = Callable[[str], Amounts]
"""What a pod asks of a pool's cards."""


@dataclass(frozen=True)
class Bound:
    """What one quota says, whoever wrote it.

    Attributes:
        title: Its kind and name, for people; empty for what a namespace of no quota is held to.
        namespaces: Those it is for, without the ones that belong to another quota.
        pool: Whose cards it counts.
        guaranteed: What others leave for them.
        limit: What they have at most together.
        pod_max: What one pod has at most.
        weight: By which its share is divided.
    """

    title: str = ""
    namespaces: tuple[str, ...] = ()
    pool: str = ALL
    guaranteed: Amounts = NOTHING
    limit: Most = NO_BOUND
    pod_max: Most = NO_BOUND
    weight: int = 1


class _Book:
    """The quotas of one pool, and what they have not come up to of their guarantees.

    Attributes:
        guarantees_cards: Whether any guarantees cards: a slice that leaves, however small, opens the guarantee of one.
    """

    def __init__(self, pool: str, quotas: Iterable[GPUQuota], accounts: Accounts) -> None:
        self._accounts = accounts
        self._pool = pool
        self.bounds: dict[str, Bound] = {}
        self.of: dict[str, Bound] = {}
        for quota in sorted(quotas, key=lambda quota: quota.metadata.name):
            self._enter(quota)
        self._owed = dict.fromkeys(self.bounds, NOTHING)
        self._owed_in_all = NOTHING
        self._stale = set(self.bounds)
        self.guarantees_cards = any(bound.guaranteed.cards for bound in self.bounds.values())

    def _enter(self, quota: GPUQuota) -> None:
        name, spec = quota.metadata.name, quota.spec
        mine = tuple(namespace for namespace in spec.namespaces if namespace not in self.of)
        title, guaranteed = f"GPUQuota {name}", spec.guaranteed.amounts()
        bound = Bound(title, mine, self._pool, guaranteed, spec.limit, spec.pod_max, max(1, spec.weight))
        self.bounds[name] = bound
        self.of |= dict.fromkeys(mine, bound)

    def used_changed(self, namespace: str) -> None:
        """What a namespace has is no longer what it was."""
        bound = self.of.get(namespace)
        if bound is not None:
            self._stale.add(bound.title.removeprefix("GPUQuota "))

    def used(self, bound: Bound, relief: Relief = NO_RELIEF) -> Amounts:
        """What a quota's namespaces have together."""
        used = sum((self._accounts.used(self._pool, one) for one in bound.namespaces), NOTHING)
        return used - relief.given(self._pool, bound.namespaces)

    def owed_beside(self, bound: Bound, relief: Relief = NO_RELIEF) -> Amounts:
        """What must stay free for the other quotas' guarantees."""
        for name in self._stale:
            owed = (self.bounds[name].guaranteed - self.used(self.bounds[name])).positive
            self._owed_in_all += owed - self._owed[name]
            self._owed[name] = owed
        self._stale.clear()
        return (
            self._owed_in_all
            + self._reopened(relief)
            - (bound.guaranteed - self.used(bound, relief)).positive
        )

    def _reopened(self, relief: Relief) -> Amounts:
        """What must be kept free, besides, of guarantees that those who leave have used."""
        bounds = {
            bound.title: bound
            for pool, namespace in relief.used
            if pool == self._pool and (bound := self.of.get(namespace)) is not None
        }
        return sum(
            (
                (bound.guaranteed - self.used(bound, relief)).positive
                - (bound.guaranteed - self.used(bound)).positive
                for bound in bounds.values()
            ),
            NOTHING,
        )


NO_QUOTA: Final = Bound()


class Quotas:
    """The quotas of a cluster, and the word on every pod that would take more.

    What grows: the quotas. An answer costs as many sums as there are pools with quotas, for each kind of node.

    Attributes:
        accounts: Who has how much, and what is free.
        refusals: How many filter calls of each namespace were refused for a quota.
        read: Set once the cluster's quotas are known; always, where nobody reads them from a cluster.
    """

    def __init__(
        self,
        accounts: Accounts | None = None,
        names: ResourceNames = DEFAULT_NAMES,
        dialects: Sequence[Dialect] = (),
    ) -> None:
        """Know no quota yet.

        Args:
            accounts: Who has how much, and what is free.
            names: Our resources, as a ResourceQuota writes them.
            dialects: Other projects' resources that are understood in ResourceQuotas.
        """
        self.accounts = accounts or Accounts(lambda _: ())
        self.refusals: defaultdict[str, int] = defaultdict(int)
        self.read = asyncio.Event()
        self.read.set()
        self._names = names
        self._dialects = dialects
        self._quotas: dict[str, GPUQuota] = {}
        self._books: dict[str, _Book] = {}
        self._native: dict[str, dict[str, Bound]] = {}
        self._listeners: list[Callable[[], None]] = []
        self.accounts.on_change(self._used_changed)

    @property
    def count_pools(self) -> bool:
        """Whether any quota is one of a pool's cards."""
        return any(pool != ALL for pool in self._books)

    def on_change(self, heard: Callable[[], None]) -> None:
        """Have this called each time more may be allowed than before."""
        self._listeners.append(heard)

    def room_changed(self, _node: str) -> None:
        """A node takes pods now, or takes none any more: what is free there may be lent, or not."""
        if self._books:
            self._tell()

    # ---- what the watches say ----

    def put(self, quota: GPUQuota, *, same: bool = False) -> None:
        """Take over a GPUQuota; `same` where nothing but its status has changed."""
        self._quotas[quota.metadata.name] = quota
        if not same:
            self._rebuild()

    def drop(self, name: str) -> None:
        """Forget a GPUQuota."""
        self._quotas.pop(name, None)
        self._rebuild()

    def put_native(self, quota: ResourceQuota) -> None:
        """Take over a ResourceQuota; one that says nothing of cards bounds nothing."""
        limit, meta = hard_limits(quota, self._names, self._dialects), quota.metadata
        self.drop_native(meta.namespace, meta.name)
        if limit != NO_BOUND:
            bound = Bound(f"ResourceQuota {meta.name}", (meta.namespace,), limit=limit)
            self._native.setdefault(meta.namespace, {})[meta.name] = bound
        self._tell()

    def drop_native(self, namespace: str, name: str) -> None:
        """Forget a ResourceQuota."""
        here = self._native.get(namespace, {})
        here.pop(name, None)
        if not here:
            self._native.pop(namespace, None)
        self._tell()

    def _rebuild(self) -> None:
        by_pool: defaultdict[str, list[GPUQuota]] = defaultdict(list)
        for quota in self._quotas.values():
            by_pool[quota.spec.pool].append(quota)
        self._books = {pool: _Book(pool, quotas, self.accounts) for pool, quotas in by_pool.items()}
        self._tell()

    def _used_changed(self, pool: str, namespace: str, less: bool) -> None:
        if pool in self._books:
            self._books[pool].used_changed(namespace)
        if less and (self._books or self._native):
            self._tell()

    def _tell(self) -> None:
        for heard in self._listeners:
            heard()

    # ---- what filter, bind and resize ask ----

    def barred(self, request: PodRequest, imagined: Accounts | None = None) -> dict[str, str]:
        """The nodes to which a pod may not go for its quotas, each with the reason.

        What it takes of a node is known once its cards are chosen. Until then a percentage is one of the node's
        largest card, and all of the pod is in every pool that has cards there: on nodes whose cards are alike, which
        is nearly all, that is what it will be, and on others it is never less.

        Args:
            request: What the pod asks for.
            imagined: Nodes that are not there yet, to be answered for as if they were.
        """
        if not self.bounds_anybody(request.namespace):
            return {}
        found: dict[str, str] = {}
        more = imagined.kinds() if imagined else {}
        relief = _as_if_there(imagined) if imagined else NO_RELIEF
        for kind, nodes in (*self.accounts.kinds().items(), *more.items()):
            why = self._refusal(request.namespace, partial(_on, kind, request), relief=relief)
            if why:
                found |= dict.fromkeys(nodes, why)
        return found

    def bounds_anybody(self, namespace: str) -> bool:
        """Whether any quota might keep a pod of this namespace from a node."""
        return bool(self._books) or namespace in self._native

    def together(self, namespace: str) -> set[str]:
        """The namespaces that any limit counts with this one, and this one."""
        bounds = (book.of.get(namespace, NO_QUOTA) for book in self._books.values())
        return {namespace, *(one for bound in bounds for one in bound.namespaces)}

    def barred_after(self, request: PodRequest, node: str, relief: Relief, *, opening: bool = False) -> str:
        """Why a pod may not go to a node once others have left; empty when it may.

        Their departure frees cards, and opens guarantees that they have used.

        Args:
            request: What the pod asks for.
            node: The node.
            relief: What those give back that leave, and the pod itself.
            opening: Whether still more might leave, whose guarantees are not open yet. Where it is not barred then,
                nobody's departure bars it.
        """
        if not self.bounds_anybody(request.namespace):
            return ""
        kind = self.accounts.kind_of(node)
        if kind is None:
            return ""
        return self._refusal(request.namespace, partial(_on, kind, request), relief=relief, opening=opening)

    def refusal(self, namespace: str, placement: Placement, *, anew: bool = False) -> str:
        """Why a pod may not have this placement, in place of any that it has; empty when it may.

        A pod that ends and begins `anew` keeps no more than it would be given: a quota may be less than it was, or what
        the pod borrowed guaranteed to others by now.
        """
        if not self.bounds_anybody(namespace):
            return ""
        by_pool, held = self.accounts.split(placement), self.accounts.held(placement.pod_uid)
        return self._refusal(
            namespace,
            lambda pool: by_pool.get(pool, NOTHING),
            lambda pool: held.get(pool, NOTHING),
            anew=anew,
        )

    def _refusal(
        self,
        namespace: str,
        wanted: Demand,
        now: Demand = lambda _: NOTHING,
        *,
        relief: Relief = NO_RELIEF,
        anew: bool = False,
        opening: bool = False,
    ) -> str:
        """Why not, for what has so much now and wants so much, once this is given back; empty when all is right."""
        for pool, book in self._books.items():
            bound = book.of.get(namespace, NO_QUOTA)
            used = book.used(bound, relief) if bound.title else self._has(pool, namespace, relief)
            asking = Asking(bound.title, namespace, pool, wanted(pool), now(pool), used, anew)
            why = _beyond(bound, asking) or self._beyond_others(book, bound, asking, relief, opening)
            if why:
                return why
        for bound in self._native.get(namespace, {}).values():
            used = self._has(ALL, namespace, relief)
            why = _beyond(bound, Asking(bound.title, namespace, ALL, wanted(ALL), now(ALL), used, anew))
            if why:
                return why
        return ""

    def _has(self, pool: str, namespace: str, relief: Relief) -> Amounts:
        """What a namespace has of a pool once this is given back."""
        return self.accounts.used(pool, namespace) - relief.given(pool, (namespace,))

    def _beyond_others(self, book: _Book, bound: Bound, asking: Asking, relief: Relief, opening: bool) -> str:
        """Why not, where what is asked beyond the guarantee is what others are guaranteed."""
        for name in asking.growing:
            guaranteed = bound.guaranteed.of(name)
            if asking.then(name) <= guaranteed:
                continue
            owed = book.owed_beside(bound, relief).of(name)
            free = self.accounts.free(asking.pool, relief).of(name)
            short = asking.growth(name) > free - owed
            if (owed and short) or (opening and (short or (name == "cards" and book.guarantees_cards))):
                return cannot_borrow(asking, name, guaranteed, free, owed)
        return ""

    # ---- who goes first ----

    @property
    def pools(self) -> list[str]:
        """Where shares are compared: on all cards, and on those of each pool that has quotas of its own."""
        return [ALL, *(pool for pool in self._books if pool != ALL)]

    def pool_of(self, node: str) -> str:
        """The pool on whose cards shares are compared for a node."""
        kind = self.accounts.kind_of(node) or ()
        return min((pool for pool, _ in kind if pool != ALL and pool in self._books), default=ALL)

    def share(self, pool: str, namespace: str) -> float:
        """What a namespace's quota has of a pool beyond its guarantee, divided by its weight.

        It is the largest of its parts of all memory, compute and slices: the dominant resource (Ghodsi et al.,
        Dominant Resource Fairness, NSDI 2011). A namespace of no quota has a guarantee of nothing and the weight 1.
        """
        book = self._books.get(pool)
        bound = book.of.get(namespace, NO_QUOTA) if book else NO_QUOTA
        used = book.used(bound) if book and bound.title else self.accounts.used(pool, namespace)
        beyond, whole = used - bound.guaranteed, self.accounts.whole(pool)
        parts = [max(0, beyond.of(name)) / whole.of(name) for name in NAMES if whole.of(name)]
        return max(parts, default=0.0) / bound.weight

    def lower(self, pool: str, namespace: str, others: Iterable[str]) -> list[str]:
        """Those of these namespaces that have a lower share of a pool than this one, the lowest first."""
        mine = self.share(pool, namespace) - NEGLIGIBLE
        found = [(share, one) for one in others if (share := self.share(pool, one)) < mine]
        return [one for _, one in sorted(found)]

    # ---- what people are told ----

    def note_refusal(self, namespace: str) -> None:
        """A pod of this namespace got no place, and a quota had a part in it."""
        self.refusals[namespace] += 1

    def ours(self) -> Iterator[tuple[GPUQuota, Bound, Amounts]]:
        """Every GPUQuota, what it means, and what its namespaces have."""
        for name, quota in sorted(self._quotas.items()):
            book = self._books[quota.spec.pool]
            yield quota, book.bounds[name], book.used(book.bounds[name])

    def report(self) -> Iterator[tuple[Bound, Amounts]]:
        """What every quota means, and what its namespaces have."""
        for _, bound, used in self.ours():
            yield bound, used
        for namespace, natives in sorted(self._native.items()):
            for name, bound in sorted(natives.items()):
                title = f"{bound.title.removesuffix(name)}{namespace}/{name}"
                yield replace(bound, title=title), self.accounts.used(ALL, namespace)


def _as_if_there(imagined: Accounts) -> Relief:
    """What nodes that are not there yet would give, were they there."""
    pools = {pool for kind in imagined.kinds() for pool, _ in kind}
    return Relief({}, {pool: imagined.free_parts(pool) for pool in {ALL, *pools}})


def _on(kind: Kind, request: PodRequest, pool: str) -> Amounts:
    """What a pod takes of a pool's cards, at most, on a node of this kind."""
    sizes = [mib for name, mib in kind if pool in (ALL, name)]
    return asked(request, max(sizes)) if sizes else NOTHING


def _beyond(bound: Bound, asking: Asking) -> str:
    """Why not, where a pod would have more than one pod may, or its quota more than its limit."""
    for name in asking.growing:
        most, limit = bound.pod_max.of(name), bound.limit.of(name)
        if most is not None and asking.wanted.of(name) > most:
            return above_pod_max(asking.title, asking.namespace, name, asking.wanted.of(name), most)
        if limit is not None and asking.then(name) > limit:
            return beyond_limit(asking, name, limit)
    return ""
