"""Whether a namespace may have what a pod of it asks for: GPUQuotas, and ResourceQuotas written HAMi's way.

What a pod asks is added to what its quota's namespaces have, reservations included. The sum must stay within the
limit. Up to the guarantee nothing more is asked, but that a quota that could evict borrowers does so rather than have
what is kept for others. Beyond it the quota *borrows*: as much must be free as the pod asks
and, on top, all that is kept for the other quotas. A namespace of no quota has no
guarantee and borrows all it has. Below a parent it borrows of the parent's guarantee first, of which so much must be
left as the pod asks and the parent's other children have not come up to.

Quotas of one pool are one book, those of the whole cluster another; a pod must be right in every book whose cards it
touches. Only amounts that it asks for are looked at: a namespace over its compute limit gets a pod without compute.

Answers come from memory and change nothing, so whoever asks and then reserves, without waiting between, can never
exceed a limit, however many ask at once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aliquot.api.names import DEFAULT_NAMES, ResourceNames
from aliquot.crds.gpu_quota import NO_BOUND, GPUQuota, ResourceQuota, above_pod_max, hard_limits
from aliquot.dialects import Dialect
from aliquot.request.amounts import NAMES, NOTHING, Amounts, asked
from aliquot.request.placement import Placement
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.quota.messages import Asking, beyond_limit, cannot_borrow, kept_for_others
from aliquot.scheduler_ext.quota.pool_quotas import NO_QUOTA, Bound, PoolQuotas
from aliquot.scheduler_ext.state.namespace_usage import ALL, NO_RELIEF, Kind, NamespaceUsage, Relief

NEGLIGIBLE: Final = 1e-9
"""Shares that differ by less are equal: they are quotients."""
Demand = Callable[[str], Amounts]
"""What a pod asks of a pool's cards."""
Levels = Sequence[tuple[Bound, Asking]]
"""What a namespace is held to, its own quota first, and what a pod asks for under each."""


@dataclass(frozen=True)
class _Standing:
    """How a namespace stands among others.

    Attributes:
        top: The title of its quota's parent; empty where there is none.
        shares: The parent's share, if there is one, and its own.
    """

    top: str
    shares: tuple[float, ...]


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
        accounts: NamespaceUsage | None = None,
        names: ResourceNames = DEFAULT_NAMES,
        dialects: Sequence[Dialect] = (),
        *,
        lends: bool = True,
    ) -> None:
        """Know no quota yet.

        Args:
            accounts: Who has how much, and what is free.
            names: Our resources, as a ResourceQuota writes them.
            dialects: Other projects' resources that are understood in ResourceQuotas.
            lends: Whether quotas that reclaim lend: not where nobody evicts for them.
        """
        self.accounts = accounts or NamespaceUsage(lambda _: ())
        self.refusals: defaultdict[str, int] = defaultdict(int)
        self.read = asyncio.Event()
        self.read.set()
        self._names = names
        self._dialects = dialects
        self._lends = lends
        self._quotas: dict[str, GPUQuota] = {}
        self._books: dict[str, PoolQuotas] = {}
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
        self._books = {
            pool: PoolQuotas(pool, quotas, self.accounts, lends=self._lends)
            for pool, quotas in by_pool.items()
        }
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

    def barred(self, request: PodRequest, imagined: NamespaceUsage | None = None) -> dict[str, str]:
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

    def as_one(self) -> AbstractContextManager[None]:
        """Places that are taken meanwhile are judged as those of one pod (`NamespaceUsage.as_one`)."""
        return self.accounts.as_one() if self._books else nullcontext()

    def together(self, namespace: str) -> set[str]:
        """The namespaces that any limit counts with this one, and this one."""
        tops = (bound for book in self._books.values() for bound in book.levels(namespace)[-1:])
        return {namespace, *(one for bound in tops for one in bound.namespaces)}

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

    def beyond_limit(self, request: PodRequest, node: str, relief: Relief = NO_RELIEF) -> str:
        """Why a pod may not go to a node whatever others are guaranteed, once this is given back; empty when it may."""
        kind = self.accounts.kind_of(node)
        if kind is None or not self.bounds_anybody(request.namespace):
            return ""
        return self._refusal(request.namespace, partial(_on, kind, request), relief=relief, guarantees=False)

    def wanted(self, request: PodRequest, node: str) -> dict[str, Amounts]:
        """What a pod takes of each pool's cards on a node, at most; of pools that have quotas of their own."""
        kind = self.accounts.kind_of(node) or frozenset()
        return {pool: _on(kind, request, pool) for pool in self._books}

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
        guarantees: bool = True,
    ) -> str:
        """Why not, for what has so much now and wants so much, once this is given back; empty when all is right.

        `guarantees`: whether it counts what others are guaranteed.
        """
        for pool, book in self._books.items():

            def asking(bound: Bound, book: PoolQuotas = book, pool: str = pool) -> Asking:
                used = book.used(bound, relief) if bound.title else self._has(pool, namespace, relief)
                return Asking(bound.title, namespace, pool, wanted(pool), now(pool), used, anew)

            levels = [(bound, asking(bound)) for bound in book.levels(namespace) or (NO_QUOTA,)]
            why = next(filter(None, (_beyond(bound, asked) for bound, asked in levels)), "")
            if guarantees and not why:
                why = self._beyond_others(book, levels, relief, opening)
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

    def _beyond_others(self, book: PoolQuotas, levels: Levels, relief: Relief, opening: bool) -> str:
        """Why not, where what is asked is kept free for what others are guaranteed.

        A pod beyond its guarantee has to leave that free. So has one within a guarantee that is lent: it gets back as
        much from borrowers. Where borrowers have less than it lacks, all guarantees together are more than the cards,
        and it need not.
        """
        own, asking = levels[0]
        for name in asking.growing:
            guarantor, beside = _guarantor(book, levels, name, relief)
            if guarantor is None:
                owed = book.owed_outside(asking.namespace, relief).of(name) + beside
            elif guarantor.lends and book.keeps_any:
                owed = book.kept(relief).of(name)
            else:
                continue
            free = self.accounts.free(asking.pool, relief).of(name)
            short = asking.growth(name) - (free - owed)
            if opening and (short > 0 or (name == "cards" and book.guarantees_cards)):
                return cannot_borrow(asking, name, own.guaranteed.of(name), free, owed)
            if not owed or short <= 0:
                continue
            if guarantor is None:
                return cannot_borrow(asking, name, own.guaranteed.of(name), free, owed)
            if short <= book.borrowed(relief).of(name):
                return kept_for_others(asking, name, free, owed)
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

    def shares(self, pool: str, first: str, second: str) -> tuple[float, float]:
        """What two namespaces' quotas have of a pool beyond their guarantees, divided by their weights.

        It is the largest of their parts of all memory, compute and slices: the dominant resource (Ghodsi et al.,
        Dominant Resource Fairness, NSDI 2011). A namespace of no quota has a guarantee of nothing and the weight 1.
        Where one of the quotas has a parent that is not the other's, what the parent has is compared.
        """
        one, other = self._standing(pool, first), self._standing(pool, second)
        level = 1 if one.top and one.top == other.top else 0
        return one.shares[-level], other.shares[-level]

    def standing(self, namespace: str) -> tuple[float, str, float]:
        """What namespaces are put in order by, on all cards: the lowest share first, below a parent together."""
        one = self._standing(ALL, namespace)
        return one.shares[0], one.top, one.shares[-1]

    def lower(self, pool: str, namespace: str, others: Iterable[str]) -> list[str]:
        """Those of these namespaces that have a lower share of a pool than this one, the lowest first."""
        found = list[tuple[float, str]]()
        for other in others:
            theirs, mine = self.shares(pool, other, namespace)
            if theirs < mine - NEGLIGIBLE:
                found.append((theirs, other))
        return [other for _, other in sorted(found)]

    def _standing(self, pool: str, namespace: str) -> "_Standing":
        book = self._books.get(pool)
        levels = book.levels(namespace) if book else ()
        if not book or not levels:
            return _Standing("", (self._share(pool, NO_QUOTA, self.accounts.used(pool, namespace)),))
        shares = tuple(self._share(pool, bound, book.used(bound)) for bound in reversed(levels))
        return _Standing(levels[-1].title if len(levels) > 1 else "", shares)

    def _share(self, pool: str, bound: Bound, used: Amounts) -> float:
        beyond, whole = used - bound.guaranteed, self.accounts.whole(pool)
        parts = [max(0, beyond.of(name)) / whole.of(name) for name in NAMES if whole.of(name)]
        return max(parts, default=0.0) / bound.weight

    # ---- what people are told ----

    def note_refusal(self, namespace: str) -> None:
        """A pod of this namespace got no place, and a quota had a part in it."""
        self.refusals[namespace] += 1

    def ours(self) -> Iterator[tuple[GPUQuota, Bound, Amounts]]:
        """Every GPUQuota, what it means, and what its namespaces have."""
        for name, quota in sorted(self._quotas.items()):
            book = self._books[quota.spec.pool]
            yield quota, book.bounds[name], book.used(book.bounds[name])

    def parent_ignored(self, quota: GPUQuota) -> str:
        """Why the parent of a quota does not count; empty where it does, or there is none."""
        return self._books[quota.spec.pool].ignored.get(quota.metadata.name, "")

    def levels(self, pool: str, namespace: str) -> tuple[Bound, ...]:
        """What holds a namespace on a pool's cards: its own quota, and that one's parent; nothing without a quota."""
        book = self._books.get(pool)
        return book.levels(namespace) if book else ()

    def open_beside(self, pool: str, namespace: str, relief: Relief) -> Amounts:
        """What others below the same parent have not come up to of their guarantees, once this is given back."""
        book = self._books.get(pool)
        return book.open_beside(namespace, relief) if book else NOTHING

    def lendable(self, pool: str, namespace: str) -> tuple[Amounts, Amounts]:
        """What a namespace could have by guarantees if nobody used anything, and what others are guaranteed then."""
        book, levels = self._books.get(pool), self.levels(pool, namespace)
        own = levels[0] if levels else NO_QUOTA
        return (book.guaranteed_to(own), book.guaranteed_outside(own)) if book else (NOTHING, NOTHING)

    def report(self) -> Iterator[tuple[Bound, Amounts]]:
        """What every quota means, and what its namespaces have."""
        for _, bound, used in self.ours():
            yield bound, used
        for namespace, natives in sorted(self._native.items()):
            for name, bound in sorted(natives.items()):
                title = f"{bound.title.removesuffix(name)}{namespace}/{name}"
                yield replace(bound, title=title), self.accounts.used(ALL, namespace)


def _as_if_there(imagined: NamespaceUsage) -> Relief:
    """What nodes that are not there yet would give, were they there."""
    pools = {pool for kind in imagined.kinds() for pool, _ in kind}
    return Relief({}, {pool: imagined.free_parts(pool) for pool in {ALL, *pools}})


def _on(kind: Kind, request: PodRequest, pool: str) -> Amounts:
    """What a pod takes of a pool's cards, at most, on a node of this kind."""
    sizes = [mib for name, mib in kind if pool in (ALL, name)]
    return asked(request, max(sizes)) if sizes else NOTHING


def _guarantor(book: PoolQuotas, levels: Levels, name: str, relief: Relief) -> tuple[Bound | None, int]:
    """The quota within whose guarantee a pod is, its own or that one's parent; and what its siblings keep of that."""
    (own, asking), (top, of_top) = levels[0], levels[-1]
    if asking.then(name) <= own.guaranteed.of(name):
        return own, 0
    beside = book.owed_beside(asking.namespace, relief).of(name)
    return (top if of_top.then(name) + beside <= top.guaranteed.of(name) else None), beside


def _beyond(bound: Bound, asking: Asking) -> str:
    """Why not, where a pod would have more than one pod may, or its quota more than its limit."""
    for name in asking.growing:
        most, limit = bound.pod_max.of(name), bound.limit.of(name)
        if most is not None and asking.wanted.of(name) > most:
            return above_pod_max(asking.title, asking.namespace, name, asking.wanted.of(name), most)
        if limit is not None and asking.then(name) > limit:
            return beyond_limit(asking, name, limit)
    return ""
