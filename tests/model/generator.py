"""How a seed becomes a history."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tests.model.events import QUIET, Event, Story
from tests.model.features import drawn
from tests.model.objects import CARD_GIB, GIB, Machine, Setup, Wish

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

NAMESPACES: Final = ("a", "b", "c")
PRIORITIES: Final = (0, 0, 0, 10, 100)
PODS: Final = range(12)
"""Numbers by which events name a pod; the history takes them modulo the pods that there are."""
REPLICAS: Final = range(2)


@dataclass(frozen=True)
class Kind:
    """A kind of event: how often it is drawn, the feature that it needs, and what is drawn for it."""

    weight: int
    name: str
    feature: str
    draw: Callable[[Generator], tuple[Any, ...]]


PARENT: Final = "top"
"""The quota above the others, in histories with parents."""


class Generator:
    """Writes the history of a seed."""

    def __init__(self, seed: int, features: frozenset[str]) -> None:
        """`features`: what histories may have; this one has some of it."""
        self._seed = seed
        self._random = random.Random(f"history {seed}")
        self._has = drawn(seed, features)
        self._kinds = [kind for kind in KINDS if not kind.feature or kind.feature in self._has]

    def story(self) -> Story:
        """The history."""
        self._setup = self._draw_setup()
        events = list[Event]()
        for _ in range(self.pick(1, 2, 3)):
            for _ in range(self.pick(4, 8, 14)):
                kind = self._random.choices(self._kinds, [kind.weight for kind in self._kinds])[0]
                events.append(
                    Event(self.pick(0.0, 0.2, 1.0, 3.0, 10.0), kind.name, len(events), kind.draw(self))
                )
            events.append(Event(0.0, QUIET, len(events)))
        return Story(self._seed, self._has, self._setup, tuple(events))

    def pick(self, *things: T) -> T:
        """One of these."""
        return self._random.choice(things)

    def node(self) -> int:
        """The number of a node."""
        return self.pick(*range(len(self._setup.machines)))

    def _draw_setup(self) -> Setup:
        pick = self.pick
        cpu = pick(4, 8, 32) if "cpu" in self._has else 64
        machines = tuple(Machine(pick(1, 2, 2, 4), cpu, pick(2, 4, 10)) for _ in range(pick(1, 1, 2, 3)))
        names = self._random.sample(NAMESPACES, pick(1, 2))
        quotas = self._has & {"limits", "guarantees", "reclaim"}
        cards = sum(one.cards for one in machines)
        no_saving = "gangs" in self._has and pick(0, 0, 0, 1)
        written = {name: self._quota_of(name, cards) for name in names} if quotas else {}
        if quotas and "parents" in self._has:
            written = {name: {**spec, "parent": PARENT} for name, spec in written.items()}
            written[PARENT] = {**self._quota_of(PARENT, cards), "namespaces": []}
        return Setup(
            machines,
            written,
            150 if "overcommit" in self._has else 100,
            offers_empty=not ("old_scheduler" in self._has and pick(0, 1)),
            flags=("--group-saving-seconds", "0") if no_saving else (),
        )

    def _quota_of(self, name: str, cards: int) -> dict[str, Any]:
        pick = self.pick
        spec: dict[str, Any] = {"namespaces": [name]}
        whole = cards * CARD_GIB * GIB
        if self._has & {"guarantees", "reclaim"}:
            spec["guaranteed"] = {"memoryMiB": int(whole * pick(0.25, 0.5))}
            if "cores" in self._has and pick(0, 1):
                spec["guaranteed"]["cores"] = int(cards * 100 * pick(0.25, 0.5))
        if "limits" in self._has:
            spec["limit"] = {"memoryMiB": int(whole * pick(0.5, 0.75))}
            if pick(0, 1):
                spec["limit"]["cards"] = pick(1, 2, cards)
        if "reclaim" in self._has and pick(0, 1):
            spec["reclaim"] = True
        return spec

    def quota(self) -> tuple[Any, ...]:
        """One of the quotas with other amounts."""
        cards = sum(one.cards for one in self._setup.machines)
        name = self.pick(*sorted(self._setup.quotas) or ["a"])
        kept = {"namespaces", "parent"} & self._setup.quotas.get(name, {}).keys()
        return name, self._quota_of(name, cards) | {key: self._setup.quotas[name][key] for key in kept}

    def wish(self, *, small: bool = False) -> Wish:
        """What a pod asks for."""
        pick, has = self.pick, self._has
        whole = not small and "whole_cards" in has and pick(0, 0, 0, 1)
        gib = 0 if whole else pick(1, 3, 4) if small else pick(3, 6, 8, 10, 12, 16)
        ranked = "priorities" in has and not small
        return Wish(
            namespace=pick(*NAMESPACES),
            priority=pick(*PRIORITIES) if ranked else 0,
            cards=pick(1, 1, 1, 2, 3) if not small and "several_cards" in has else 1,
            gib=gib,
            cores=pick(0, 0, 20, 50, 100) if "cores" in has and gib else 0,
            cpu=pick(1, 1, 2, 4) if "cpu" in has and not small else 1,
            grace=pick(0, 1, 1, 20),
            burst=bool("overcommit" in has and gib and pick(0, 1)),
            never=pick(0, 0, 0, 0, 1) == 1,
        )

    def gang(self) -> tuple[Any, ...]:
        """How many members a group needs, and what each asks for."""
        pick, has = self.pick, self._has
        wish = replace(self.wish(), never=False)
        members = pick(2, 3, 4, 8) if "large_gangs" in has else pick(2, 2, 3, 4)
        mixed = "mixed_gangs" in has and wish.gib
        wishes = [
            replace(wish, gib=pick(4, 8, 12)) if mixed else wish for _ in range(members + pick(0, 0, 1))
        ]
        return (members, *wishes)


KINDS: Final = (
    Kind(14, "pod", "", lambda a: (a.wish(),)),
    Kind(4, "crowd", "", lambda a: (a.wish(small=True), a.pick(3, 6, 10))),
    Kind(3, "finish", "", lambda a: (a.pick(*PODS),)),
    Kind(2, "delete", "", lambda a: (a.pick(*PODS),)),
    Kind(5, "gang", "gangs", Generator.gang),
    Kind(2, "stick", "stuck_terminating", lambda a: (a.pick(*PODS), a.pick(60, 400, 0))),
    Kind(2, "card", "card_loss", lambda a: (a.node(), a.pick(0, 1, 2, 3))),
    Kind(1, "cards up", "card_loss", lambda _: ()),
    Kind(1, "node gone", "node_loss", lambda a: (a.node(),)),
    Kind(1, "nodes back", "node_loss", lambda _: ()),
    Kind(1, "cordon", "cordons", lambda a: (a.node(),)),
    Kind(1, "not ready", "cordons", lambda a: (a.node(),)),
    Kind(1, "uncordon", "cordons", lambda _: ()),
    Kind(2, "quota", "quota_changes", Generator.quota),
    Kind(
        3, "resize", "resizes", lambda a: (a.pick(*PODS), a.pick(1, 4, 8, 12, 15), a.pick(None, "none", "30"))
    ),
    Kind(2, "kill leader", "replicas", lambda a: (a.pick(0.0, 1.0, 20.0),)),
    Kind(1, "kill follower", "replicas", lambda a: (a.pick(1.0, 20.0),)),
    Kind(2, "stale", "stale_watches", lambda a: (a.pick(*REPLICAS), a.pick(1.0, 5.0, 30.0))),
    Kind(1, "away", "lost_answers", lambda a: (a.pick(*REPLICAS), a.pick(1.0, 4.0, 12.0))),
    Kind(
        1, "lose", "lost_answers", lambda a: (a.pick(*REPLICAS), a.pick("lose", "drop", "slow"), a.pick(1, 3))
    ),
    Kind(1, "lose calls", "lost_answers", lambda a: (a.pick(1, 3),)),
    Kind(1, "clear nominations", "clears", lambda _: ()),
    Kind(1, "restart kube-scheduler", "clears", lambda _: ()),
)
