"""The auditor of chaos: what must hold after every act, judged by first-hand evidence.

What breaks a rule at once is a violation. What may pass for a while (a page that follows a resize, what a pod leaves
behind) is one when it has lasted for a minute.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from aliquot.cli.demo.stack import Stack
from tests.integration.chaos.evidence import RESOURCE, Evidence, Key, Living, look
from tests.integration.journey.auditor import MIB, caps, check_cards, check_promise, placement_of

LASTS_S = 60.0
LOOKS = 3


class Auditor:
    """Looks, and remembers who ran and what is overdue.

    Attributes:
        disturbed: containers that the acts themselves have just ended; nobody else may.
        vandals: containers that have damaged their own account: what becomes of themselves is their own affair.
    """

    def __init__(self, stack: Stack) -> None:
        self.disturbed: set[Key] = set()
        self.vandals: set[Key] = set()
        self._stack = stack
        self._ran: dict[Key, tuple[int, int]] = {}
        self._since: dict[str, float] = {}

    def audit(self) -> None:
        """Assert that all holds. No look sees all at one moment: what is wrong is wrong in several in a row."""
        evidence = look(self._stack)
        found = self.violations(evidence)
        for _ in range(LOOKS - 1 if found else 0):
            evidence = look(self._stack)
            again = set(self.violations(evidence))
            found = [violation for violation in found if violation in again]
        assert not found, "\n".join(found)
        self._ran = {living.key: living.first for living in evidence.living if not evidence.is_init(living)}
        self.disturbed.clear()

    def violations(self, evidence: Evidence) -> list[str]:
        """What is wrong."""
        return [
            *_promises(evidence),
            *_applied(evidence),
            *_sums(evidence),
            *_instances(evidence),
            *_memory(evidence, self.vandals),
            *_ids(evidence),
            *_quotas(evidence),
            *self._ended(evidence),
            *self._overdue({*_late(evidence), *_orphans(evidence)}),
        ]

    def _ended(self, evidence: Evidence) -> Iterator[str]:
        """Containers that ran at the last look run on: the same first process, as long as their pod is there."""
        now = {living.key: living.first for living in evidence.living}
        for key, first in self._ran.items():
            pod = evidence.by_uid.get(key[0])
            stays = key[0] in evidence.ended or (pod and not pod["metadata"].get("deletionTimestamp"))
            if stays and key not in self.disturbed | self.vandals and now.get(key) != first:
                yield f"container {key} ran as {first}, and now as {now.get(key)}"

    def _overdue(self, open_now: set[str]) -> Iterator[str]:
        """What has been so for longer than it may."""
        now = time.monotonic()
        self._since = {what: self._since.get(what, now) for what in open_now}
        yield from (
            f"{what} for {now - since:.0f} s" for what, since in self._since.items() if now - since > LASTS_S
        )


def _promises(evidence: Evidence) -> Iterator[str]:
    """No card over its memory or cores, nobody beside who is alone on a card, and granted is what was asked."""
    for node, cards in evidence.cards.items():
        sizes = {card.uuid: card.memory_mib - card.reserved_mib for card in cards if not card.mig}
        strays = {
            s["uuid"] for p in evidence.placed(node) for c in p["containers"] for s in c["cards"]
        } - sizes.keys()
        yield from (f"placed on {node}, card {uuid}, which is not shared" for uuid in strays)
        if not strays:
            yield from _refuted(check_cards, sizes, evidence.placed(node))
    for pod in evidence.pods:
        if placement_of(pod):
            yield from _refuted(check_promise, pod)


def _refuted(check: Any, *arguments: Any) -> Iterator[str]:
    """What a check of the journeys' auditor says against something."""
    try:
        check(*arguments)
    except AssertionError as error:
        yield f"{check.__name__}: {error}"


def _granted(evidence: Evidence, living: Living) -> dict[str, Any] | None:
    """What the placement of a living container's pod says of it."""
    placement = placement_of(evidence.by_uid.get(living.key[0], {"metadata": {}}))
    named = placement["containers"] if placement else ()
    return next((container for container in named if container["name"] == living.key[1]), None)


def _applied(evidence: Evidence) -> Iterator[str]:
    """Containers see the cards that were placed for them; who was not resized has the amounts, too."""
    for living in evidence.living:
        granted = _granted(evidence, living)
        if granted is None:
            continue
        uuids = [share["uuid"] for share in granted["cards"]]
        if [card.uuid for card in living.control.cards] != uuids:
            yield f"{living.key}: limits of other cards than {uuids}"
        minors = {card.uuid: card.minor for card in evidence.cards[living.node]}
        if living.devices != {f"nvidia{minors[uuid]}" for uuid in uuids}:
            yield f"{living.key}: sees {sorted(living.devices)}, placed on {uuids}"
        if not granted.get("resized") and (wrong := _differs(living, granted)):
            yield wrong


def _late(evidence: Evidence) -> Iterator[str]:
    """Resized containers whose pages do not say yet what was approved, or that still hold what they had before."""
    for living in _greedy(evidence):
        if (_granted(evidence, living) or {}).get("resized"):
            yield f"{living.key}: holds more than it was made smaller to"
    for living in evidence.living:
        granted = _granted(evidence, living)
        if granted and granted.get("resized") and (wrong := _differs(living, granted)):
            yield wrong


def _differs(living: Living, granted: dict[str, Any]) -> str:
    """How a container's limits differ from its grant; empty when they do not."""
    for card, share in zip(living.control.cards, granted["cards"], strict=True):
        if card.memory_bytes != share["memoryMiB"] * MIB:
            return f"{living.key}: limited to {card.memory_bytes / MIB:g} MiB, granted {share['memoryMiB']}"
        if card.core_percent not in caps(granted, share):
            return f"{living.key}: limited to {card.core_percent} %, granted {share['cores']}"
    return ""


def _sums(evidence: Evidence) -> Iterator[str]:
    """What the containers that live on a card may take together is there, whether or not their pods still are."""
    for card in (card for cards in evidence.cards.values() for card in cards):
        may = {
            living.key: share.memory_bytes // MIB
            for living in evidence.living
            for share in living.control.cards
            if share.uuid == card.uuid
        }
        if sum(may.values()) > card.memory_mib:
            yield f"{card.uuid}: its containers may take {may}, together more than {card.memory_mib} MiB"


def _instances(evidence: Evidence) -> Iterator[str]:
    """Nobody has a slice of a card that is cut, and each instance of it has one owner."""
    for node, cards in evidence.cards.items():
        cut = {f"nvidia{card.minor}" for card in cards if card.mig}
        owners: Counter[str] = Counter()
        for living in (living for living in evidence.living if living.node == node):
            mine = {name for name in living.devices if name.startswith("nvidia-cap")}
            owners.update(mine)
            if living.devices & cut and not mine:
                yield f"{living.key}: has a slice of a card that is cut by MIG"
        yield from (f"{name} of {node} has {count} owners" for name, count in owners.items() if count > 1)


def _memory(evidence: Evidence, vandals: set[Key]) -> Iterator[str]:
    """Nobody holds more than its page allows, by the driver's own count, but who was made smaller, for a while."""
    for living in _greedy(evidence):
        granted = _granted(evidence, living)
        if living.key not in vandals and not (granted and granted.get("resized")):
            yield f"{living.key}: holds more than its page allows"


def _greedy(evidence: Evidence) -> Iterator[Living]:
    """Containers that hold more than their pages allow."""
    for living in evidence.living:
        for card in living.control.cards:
            held = sum(size for pid, size in evidence.held.get(card.uuid, {}).items() if pid in living.pids)
            if held > card.memory_bytes:
                yield living


def _ids(evidence: Evidence) -> Iterator[str]:
    """The kubelet has given no id twice."""
    for node, containers in evidence.ids.items():
        given = Counter(i for ids in containers.values() for i in ids)
        yield from (f"{node}: id {i} is given {count} times" for i, count in given.items() if count > 1)


def _quotas(evidence: Evidence) -> Iterator[str]:
    """No namespace has more than it may."""
    had: Counter[str] = Counter()
    for pod in evidence.pods:
        placement = placement_of(pod) or {"containers": ()}
        had[pod["metadata"]["namespace"]] += _most(placement)
    for namespace, limit in evidence.limits.items():
        if had[namespace] > limit:
            yield f"namespace {namespace} has {had[namespace]} MiB of {limit}"


def _most(placement: dict[str, Any]) -> int:
    """MiB that a pod has at its worst moment."""
    lasting = worst = 0
    for container in placement["containers"]:
        size = sum(share["memoryMiB"] for share in container["cards"])
        worst = max(worst, lasting + size)
        lasting += size if container["kind"] != "init" else 0
    return worst


def _orphans(evidence: Evidence) -> Iterator[str]:
    """What is left of pods that are gone: containers, files, memory; and ids of containers that have none yet."""
    for living in evidence.living:
        if living.key[0] not in evidence.by_uid:
            yield f"container {living.key} lives without its pod"
    for node, uids in evidence.files.items():
        yield from (f"{node} has files of {uid}, which is gone" for uid in uids - evidence.by_uid.keys())
    pids = {pid for living in evidence.living for pid in living.pids}
    for uuid, held in evidence.held.items():
        yield from (f"{uuid}: process {pid} of no container holds memory" for pid in held.keys() - pids)
    for pod in evidence.pods:
        yield from _without_ids(evidence, pod)


def _without_ids(evidence: Evidence, pod: dict[str, Any]) -> Iterator[str]:
    """Running containers for which the kubelet has not as many ids as they have cards."""
    placement, name = placement_of(pod), pod["metadata"]["name"]
    if placement is None or placement["node"] not in evidence.ids or pod["status"].get("phase") != "Running":
        return
    for container in placement["containers"]:
        ids = evidence.ids[placement["node"]].get((name, container["name"]), ())
        if container["kind"] != "init" and len(ids) != len(container["cards"]):
            yield f"{name}/{container['name']} has {len(ids)} ids of {RESOURCE} for {len(container['cards'])} cards"
