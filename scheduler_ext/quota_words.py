"""What a pod's author is told when a quota says no: which one, what is asked, what is used, and what to do.

The same pod gets the same words on every node of a kind, so that kube-scheduler can add them up.
"""

from dataclasses import dataclass
from typing import Final

from aliquot.amounts import NAMES, Amounts
from aliquot.units import MIB, format_bytes

FIELDS: Final = {"memory_mib": "memoryMiB", "cores": "cores", "cards": "cards"}
"""The amounts as a GPUQuota writes them."""
CORES_OF_A_CARD: Final = 100


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
    """

    title: str
    namespace: str
    pool: str
    wanted: Amounts
    now: Amounts
    used: Amounts

    @property
    def growing(self) -> list[str]:
        """The amounts of which it wants more than it has."""
        return [name for name in NAMES if self.growth(name) > 0]

    def growth(self, name: str) -> int:
        """How much more it wants."""
        return self.wanted.of(name) - self.now.of(name)

    def then(self, name: str) -> int:
        """What all would have together."""
        return self.used.of(name) + self.growth(name)


def beyond_pod_max(asking: Asking, name: str, most: int) -> str:
    """One pod asks for more than one pod may have."""
    return (
        f"{asking.title}: a pod of namespace {asking.namespace} asks for {_spell(asking, name)}, and may have at most "
        f"{spell(name, most)}; ask for less, or have podMax.{FIELDS[name]} raised"
    )


def beyond_limit(asking: Asking, name: str, limit: int) -> str:
    """All pods together would have more than they may."""
    return (
        f"{asking.title}: namespace {asking.namespace} asks for {_more(asking, name)}, "
        f"{spell(name, asking.used.of(name))} of its limit of {spell(name, limit)} are in use; "
        "wait for pods to end, ask for less, or have the limit raised"
    )


def cannot_borrow(asking: Asking, name: str, guaranteed: int, free: int, owed: int) -> str:
    """What is asked beyond the guarantee is kept for others."""
    there = f"GPUPool {asking.pool}" if asking.pool else "the cluster"
    mine = (
        f"{asking.title}: namespace {asking.namespace} asks for {_more(asking, name)} beyond the "
        f"{spell(name, guaranteed)} guaranteed to it"
        if asking.title
        else f"namespace {asking.namespace} has no GPUQuota and asks for {_more(asking, name)}"
    )
    return (
        f"{mine}, {spell(name, asking.used.of(name))} are in use, and of {spell(name, free)} free in {there} "
        f"{spell(name, owed)} are guaranteed to others; wait for pods to end, ask for less, or have a guarantee raised"
    )


def spell(name: str, amount: int) -> str:
    """An amount as people read it: `16Gi of GPU memory`, `50 % of a card's time`, `2 cards`."""
    if name == "memory_mib":
        return f"{format_bytes(amount * MIB)} of GPU memory"
    if name == "cores":
        return f"{amount} gpu-core"
    return f"{amount} cards"


def _more(asking: Asking, name: str) -> str:
    amount = spell(name, asking.growth(name))
    return f"{amount} more" if asking.now.of(name) else amount


def _spell(asking: Asking, name: str) -> str:
    return spell(name, asking.wanted.of(name))
