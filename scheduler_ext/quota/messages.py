"""What a pod's author is told when a quota says no: which one, what is asked, what is used, and what to do.

The same pod gets the same words on every node of a kind, so that kube-scheduler can add them up.
"""

from dataclasses import dataclass

from aliquot.request.amounts import NAMES, Amounts, bare, spell

REMEDY = "wait for pods to end, ask for less, or have"


@dataclass(frozen=True)
class Asking:
    """A pod that asks for more, under one quota.

    Attributes:
        title: The quota's kind and name; empty where there is none.
        namespace: The pod's.
        pool: Whose cards are counted.
        wanted: What the pod shall have.
        now: What of that it has already.
        used: What all pods of the quota have, this one included.
        anew: It would have to be let in again, with all that it wants.
    """

    title: str
    namespace: str
    pool: str
    wanted: Amounts
    now: Amounts
    used: Amounts
    anew: bool = False

    @property
    def growing(self) -> list[str]:
        """The amounts of which it wants more than it has, or any, where it would be let in again."""
        return [name for name in NAMES if self.growth(name) > 0 or (self.anew and self.wanted.of(name))]

    def growth(self, name: str) -> int:
        """How much more it wants."""
        return self.wanted.of(name) - self.now.of(name)

    def then(self, name: str) -> int:
        """What all would have together."""
        return self.used.of(name) + self.growth(name)


def beyond_limit(asking: Asking, name: str, limit: int) -> str:
    """All pods together would have more than they may."""
    return (
        f"{asking.title}: namespace {asking.namespace} asks for {_more(asking, name)}, and "
        f"{bare(name, asking.used.of(name))} of its limit of {bare(name, limit)} are in use; {REMEDY} the limit raised"
    )


def cannot_borrow(asking: Asking, name: str, guaranteed: int, free: int, owed: int) -> str:
    """What is asked beyond the guarantee is kept for others."""
    return (
        f"{_borrower(asking, name, guaranteed)}, has {bare(name, asking.used.of(name))}, and of {bare(name, free)} "
        f"free in {_where(asking)} {bare(name, owed)} are guaranteed to others; {REMEDY} a guarantee raised"
    )


def kept_for_others(asking: Asking, name: str, free: int, kept: int) -> str:
    """What is free is kept for others, though what is asked is guaranteed: borrowers have it."""
    return (
        f"{asking.title}: namespace {asking.namespace} asks for {_more(asking, name)} within its guarantee, and of "
        f"{bare(name, free)} free in {_where(asking)} {bare(name, kept)} are kept for others that do not reclaim; "
        "wait for pods that have borrowed to end or to be evicted"
    )


def _where(asking: Asking) -> str:
    """Whose cards are counted."""
    return f"GPUPool {asking.pool}" if asking.pool else "the cluster"


def _borrower(asking: Asking, name: str, guaranteed: int) -> str:
    """Who asks for what."""
    namespace, more = asking.namespace, _more(asking, name)
    if not asking.title:
        return f"namespace {namespace} has no GPUQuota, asks for {more}"
    return f"{asking.title}: namespace {namespace} asks for {more} beyond the {bare(name, guaranteed)} guaranteed to it"


def _more(asking: Asking, name: str) -> str:
    amount = spell(name, asking.growth(name))
    return f"{amount} more" if asking.now.of(name) else amount
