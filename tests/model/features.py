"""What a history may contain, and which of it holds today.

A feature that is off is a known fault: histories with it fail. `make -C tests model` prints these loudly. A fault that
is mended is switched on here in the same series of commits, and stays on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Feature:
    """One kind of thing that happens in a history, that happens beside another, or that is expected at its end.

    Attributes:
        what: What happens, or what is expected.
        fault: What goes wrong today; empty where it holds.
        expected: This is no event; where it is on, every history expects it.
        beside: Where this is off, histories with the first of these have none of the others.
    """

    what: str
    fault: str = ""
    expected: bool = False
    beside: tuple[str, ...] = ()

    @property
    def always(self) -> bool:
        """Whether it is no event that a history may have or not have."""
        return self.expected or bool(self.beside)


FEATURES: Final = {
    "limits": Feature("GPUQuotas with limits"),
    "guarantees": Feature("GPUQuotas with guarantees of memory and compute"),
    "reclaim": Feature("GPUQuotas that reclaim what they guarantee"),
    "parents": Feature("GPUQuotas below a parent"),
    "quota_changes": Feature("GPUQuotas are written anew"),
    "priorities": Feature("pods of different priorities"),
    "cores": Feature("pods that ask for compute"),
    "whole_cards": Feature("pods of whole cards"),
    "several_cards": Feature("pods of several cards"),
    "cpu": Feature("pods that need much of their node's CPU"),
    "overcommit": Feature("pools with memoryPercent above 100, and burst pods"),
    "gangs": Feature("groups of pods that are alike"),
    "mixed_gangs": Feature("groups of pods that differ"),
    "large_gangs": Feature("groups that can never fit"),
    "card_loss": Feature("cards fail and recover"),
    "node_loss": Feature("nodes are removed, and come back"),
    "cordons": Feature("nodes are cordoned or NotReady for a while"),
    "stuck_terminating": Feature("pods stay in Terminating"),
    "resizes": Feature("running pods ask for other limits"),
    "replicas": Feature("replicas are killed, and leadership changes"),
    "stale_watches": Feature("a replica's watches lag behind"),
    "lost_answers": Feature("answers of the API server and of the extender are lost, or come late"),
    "clears": Feature("kube-scheduler is restarted and its nominations are cleared"),
    "old_scheduler": Feature("kube-scheduler before #135486, which does not offer nodes without victims"),
    "gang_loss": Feature(
        "groups beside failing cards and nodes, and members that are deleted",
        beside=("gangs", "card_loss", "node_loss"),
    ),
    "gang_victims": Feature(
        "groups beside preemption and reclaim",
        beside=("gangs", "priorities", "reclaim"),
    ),
    "gang_cpu": Feature(
        "groups beside pods that need much CPU",
        beside=("gangs", "cpu"),
    ),
    "lost_plans": Feature(
        "reclaim beside changes of what a plan is made on",
        beside=("reclaim", "quota_changes", "card_loss", "node_loss", "cordons"),
    ),
    "quota_victims": Feature(
        "preemption beside quotas",
        beside=("priorities", "limits", "guarantees", "reclaim"),
    ),
    "quota_after_departure": Feature(
        "preemption judges quotas as after the departure",
        expected=True,
    ),
    "reclaim_for_cpu": Feature(
        "borrowers are evicted where the owner of a guarantee lacks CPU or slices of the node",
        "the owner waits",
        expected=True,
    ),
    "dry_run_over_holds": Feature(
        "a dry run places a pod where room is held for a pod of lower priority, as filter does",
        expected=True,
    ),
    "current_offers": Feature(
        "remedies of `why` heed CPU and cordons as they are now",
        expected=True,
    ),
}


def enabled() -> frozenset[str]:
    """The features that hold today."""
    return frozenset(name for name, feature in FEATURES.items() if not feature.fault)


def chosen(text: str) -> frozenset[str]:
    """The features that a command line names: `all`, names, and `+name` or `-name` beside those that hold.

    Raises:
        ValueError: there is no such feature.
    """
    names = [name for name in text.split(",") if name]
    relative = all(name[0] in "+-" for name in names)
    found = set(enabled()) if relative else set[str]()
    for name in names:
        bare = name.lstrip("+-")
        if bare == "all":
            found |= FEATURES.keys()
        elif bare not in FEATURES:
            raise ValueError(f"there is no feature {bare}; there are {', '.join(FEATURES)}")
        elif name[0] == "-":
            found.discard(bare)
        else:
            found.add(bare)
    return frozenset(found)


def not_run(features: frozenset[str]) -> list[str]:
    """A line for each feature that histories do without, and why."""
    return [
        f"*** NOT RUN: {name} ({feature.what}): {feature.fault or 'left out by the command line'}"
        for name, feature in FEATURES.items()
        if name not in features
    ]


def drawn(seed: int, features: frozenset[str]) -> frozenset[str]:
    """About half of these, for one history, because faults hide each other.

    Each is drawn by itself, so that a new feature leaves histories without it as they were.
    """
    found = {
        name
        for name, feature in FEATURES.items()
        if name in features and (feature.always or random.Random(f"{name} {seed}").random() < 0.5)
    }
    for name, feature in FEATURES.items():
        if name not in features and feature.beside and feature.beside[0] in found:
            found -= set(feature.beside[1:])
    return frozenset(found)
