"""Quotas as a plain model has them, which adds everything up anew for every question.

It shares no code with the extender: it reads placements as the JSON of their annotation, keeps quotas as plain tuples,
and goes through all pods for every question.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.unit.scheduler_ext.placing import GIB

NODES = {"n0": {"n0-a": 16, "n0-b": 16}, "n1": {"n1-a": 16, "n1-b": 8}, "n2": {"n2-a": 24}}
SLOTS = 4
TEAMS = ("a", "b", "c", "d")
Vector = tuple[int, int, int]


def plus(one: Vector, other: Vector) -> Vector:
    """Sum, part by part."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def most(one: Vector, other: Vector) -> Vector:
    """Maximum, part by part."""
    return (max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2]))


def peak(moments: list[tuple[str, Vector]]) -> Vector:
    """The largest sum at any moment of a pod's life."""
    worst: Vector = (0, 0, 0)
    for now, (kind, own) in enumerate(moments):
        sums = own
        for before, amounts in moments[:now]:
            if before != "init":
                sums = plus(sums, amounts)
        worst = most(worst, sums)
        assert kind in ("init", "sidecar", "regular")
    return worst


@dataclass
class Team:
    """One quota as the model has it; None is no bound."""

    name: str
    namespaces: tuple[str, ...]
    pool: str
    guaranteed: tuple[int | None, ...] = (None, None, None)
    limit: tuple[int | None, ...] = (None, None, None)
    pod_max: tuple[int | None, ...] = (None, None, None)
    parent: str = ""
    reclaim: bool = False

    @property
    def guarantee(self) -> Vector:
        """In MiB, percent and cards."""
        gib, cores, cards = (one or 0 for one in self.guaranteed)
        return (gib * GIB, cores, cards)


@dataclass
class Model:
    """Everything that decides, as plain data."""

    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    quotas: dict[str, Team] = field(default_factory=dict)
    natives: dict[str, int] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)
    sick: set[str] = field(default_factory=set)

    def takes(self, text: str) -> dict[str, Vector]:
        """What a placement takes of all cards and of each pool's."""
        return {pool: self.takes_of(text, pool) for pool in ("", "x", "y")}

    def takes_of(self, text: str, pool: str) -> Vector:
        """What a placement takes of a pool (or of all cards)."""
        containers = json.loads(text)["containers"]
        return peak([(c["kind"], self._shares(c["cards"], pool)) for c in containers])

    def _shares(self, shares: list[dict[str, Any]], pool: str) -> Vector:
        mine = [s for s in shares if pool in ("", self.pools.get(s["uuid"], ""))]
        return (sum(s["memoryMiB"] for s in mine), sum(s["cores"] for s in mine), len(mine))

    def used(self, namespaces: tuple[str, ...], pool: str, without: str = "") -> Vector:
        """What all pods of some namespaces have."""
        total: Vector = (0, 0, 0)
        for uid, (namespace, text) in self.pods.items():
            if namespace in namespaces and uid != without:
                total = plus(total, self.takes_of(text, pool))
        return total

    def mine(self, team: Team) -> tuple[str, ...]:
        """The namespaces of a quota that no earlier one of its pool has."""
        earlier = [t for t in self.quotas.values() if t.pool == team.pool and t.name < team.name]
        return tuple(n for n in team.namespaces if not any(n in t.namespaces for t in earlier))

    def free(self, pool: str) -> Vector:
        """What could still be promised; of cards the parts that are free add up."""
        total: Vector = (0, 0, 0)
        for where in NODES.values():
            for uuid, gib in where.items():
                if uuid not in self.sick and pool in ("", self.pools.get(uuid, "")):
                    total = plus(total, self._left(uuid, gib * GIB))
        return (*total[:2], total[2] // 1000)

    def _left(self, uuid: str, mib: int) -> Vector:
        on_it: Vector = (0, 0, 0)
        for _, text in self.pods.values():
            containers = json.loads(text)["containers"]
            shares = [(c["kind"], [s for s in c["cards"] if s["uuid"] == uuid]) for c in containers]
            if any(s["exclusive"] for _, found in shares for s in found):
                return (0, 0, 0)
            on_it = plus(on_it, peak([(kind, self._shares(found, "")) for kind, found in shares]))
        if on_it[2] >= SLOTS:
            return (0, 0, 0)
        part = min(1000 * (mib - on_it[0]) // mib, 10 * (100 - on_it[1]))
        return most((mib - on_it[0], 100 - on_it[1], part), (0, 0, 0))

    def allows(self, namespace: str, wanted: dict[str, Vector], uid: str = "") -> bool:
        """Whether a namespace may have a pod that takes this much of each pool, in place of one it has."""
        return all(
            self._allows(namespace, pool, wanted.get(pool, (0, 0, 0)), uid)
            for pool in {team.pool for team in self.quotas.values()}
        ) and self._allows_natively(namespace, wanted[""], uid)

    def _allows(self, namespace: str, pool: str, wanted: Vector, uid: str) -> bool:
        book = [team for team in self.quotas.values() if team.pool == pool]
        own = next((team for team in book if namespace in self.mine(team)), None)
        now = self.takes_of(self.pods[uid][1], pool) if uid else (0, 0, 0)
        levels = [own, *self.above(own)] if own else []
        beside = [self.used(self.all_of(one), pool, uid) for one in levels]
        siblings = [one for one in self.below(levels[-1]) if one is not own] if levels else []
        kept: Vector = (0, 0, 0)
        for one in siblings:
            if not one.reclaim:
                kept = plus(kept, self.open(one, alone=True))
        owed, in_all = kept, (0, 0, 0)
        for one in book:
            if not self.above(one):
                in_all = plus(in_all, self.kept(one))
                owed = plus(owed, self.kept(one) if one not in levels else (0, 0, 0))
        parent_itself = own is not None and bool(self.below(own))
        free, borrowed = self.free(pool), self.borrowed(pool)
        for i in (one for one in range(3) if wanted[one] > now[one]):
            bounded = zip(levels, beside, strict=True)
            if not all(self._is_bounded(one, i, wanted[i], had[i]) for one, had in bounded):
                return False
            within = bool(levels) and not parent_itself
            within = within and beside[0][i] + wanted[i] <= self.guarantee(levels[0])[i]
            within_all = bool(levels) and beside[-1][i] + wanted[i] + kept[i] <= self.guarantee(levels[-1])[i]
            more = wanted[i] - now[i]
            if within or within_all:
                reclaims = levels[0 if within else -1].reclaim
                if reclaims and in_all[i] and 0 < more + in_all[i] - free[i] <= borrowed[i]:
                    return False
            elif owed[i] and more + owed[i] > free[i]:
                return False
        return True

    def borrowed(self, pool: str) -> Vector:
        """What all have together beyond the guarantees of quotas that have no parent."""
        tops = [one for one in self.quotas.values() if one.pool == pool and not self.above(one)]
        known = {name for one in tops for name in self.all_of(one)}
        total = self.used(tuple(name for name in TEAMS if name not in known), pool)
        for one in tops:
            given, had = self.guarantee(one), self.used(self.all_of(one), pool)
            total = plus(total, most((had[0] - given[0], had[1] - given[1], had[2] - given[2]), (0, 0, 0)))
        return total

    def above(self, team: Team) -> list[Team]:
        """The parent of a quota; nothing where it has none that counts."""
        found = self._named(team)
        return [one for one in found if not self._named(one)]

    def _named(self, team: Team) -> list[Team]:
        others = [one for one in self.quotas.values() if one.pool == team.pool and one is not team]
        return [one for one in others if one.name == team.parent]

    def below(self, team: Team) -> list[Team]:
        """The children of a quota."""
        return [one for one in self.quotas.values() if team in self.above(one)]

    def all_of(self, team: Team) -> tuple[str, ...]:
        """The namespaces that a quota counts."""
        return (*self.mine(team), *(name for one in self.below(team) for name in self.mine(one)))

    def guarantee(self, team: Team) -> Vector:
        """What a quota guarantees, at least what its children do."""
        beneath: Vector = (0, 0, 0)
        for one in self.below(team):
            beneath = plus(beneath, one.guarantee)
        return most(team.guarantee, beneath)

    def open(self, team: Team, *, alone: bool = False) -> Vector:
        """What a quota, or else one of its children, has not come up to of its guarantee."""
        given, had = self.guarantee(team), self.used(self.all_of(team), team.pool)
        mine = most((given[0] - had[0], given[1] - had[1], given[2] - had[2]), (0, 0, 0))
        beneath: Vector = (0, 0, 0)
        for one in () if alone else self.below(team):
            beneath = plus(beneath, self.open(one, alone=True))
        return most(mine, beneath)

    def kept(self, team: Team) -> Vector:
        """The same, without what those that reclaim lend; a parent what it guarantees beyond its children."""
        children = [(one.reclaim, self.open(one, alone=True)) for one in self.below(team)]
        beneath: Vector = (0, 0, 0)
        total: Vector = (0, 0, 0)
        for lends, amounts in children:
            beneath = plus(beneath, amounts)
            total = plus(total, (0, 0, 0) if lends else amounts)
        whole = self.open(team)
        mine = (whole[0] - beneath[0], whole[1] - beneath[1], whole[2] - beneath[2])
        return plus(total, (0, 0, 0) if team.reclaim else mine)

    def _is_bounded(self, team: Team, i: int, wanted: int, beside: int) -> bool:
        """Whether one amount is within a quota's bounds, given what the others have."""
        unit, one, all_of_it = GIB if i == 0 else 1, team.pod_max[i], team.limit[i]
        return (one is None or wanted <= one * unit) and (
            all_of_it is None or beside + wanted <= all_of_it * unit
        )

    def _allows_natively(self, namespace: str, wanted: Vector, uid: str) -> bool:
        if namespace not in self.natives:
            return True
        now = self.takes_of(self.pods[uid][1], "")[0] if uid else 0
        together = self.used((namespace,), "", uid)[0] + wanted[0]
        return wanted[0] <= now or together <= self.natives[namespace] * GIB
