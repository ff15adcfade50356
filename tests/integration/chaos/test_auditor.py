"""The auditor of chaos finds what is wrong: an auditor that cannot fail has seen nothing."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimMig
from tests.integration.chaos import auditor
from tests.integration.chaos.auditor import Auditor
from tests.integration.chaos.evidence import Evidence, Living, look
from tests.integration.chaos.place import Place, place
from tests.integration.journey.pods import container, plain, pod

pytestmark = pytest.mark.slow

Lie = Callable[[Evidence], Evidence]


@pytest.fixture(name="stack", scope="module")
def run_stack() -> Iterator[Place]:
    """A slice, another one beside it, and an instance."""
    with place() as made:
        instance = pod("instance", container("main", {"aliquot.dev/mig-1g.18gb": "1"}))
        made.kubectl.apply(plain("one", "2Gi"), plain("two", "3Gi"), instance)
        for name in ("one", "two", "instance"):
            made.kubectl.wait_phase(name, "Running")
        yield made


@pytest.fixture
def evidence(stack: Place) -> Evidence:
    """What is seen of them; nothing is wrong with it."""
    there = "kubelets to answer and three containers to live"
    found = wait_for(there, lambda: (seen := look(stack)).ids and len(seen.living) == 3 and seen)
    assert Auditor(stack).violations(found) == []
    return found


def the(evidence: Evidence, name: str) -> Living:
    """A pod's living container."""
    uids = {pod["metadata"]["name"]: uid for uid, pod in evidence.by_uid.items()}
    return next(living for living in evidence.living if living.key[0] == uids[name])


def instead(evidence: Evidence, old: Living, **changes: Any) -> Evidence:
    """The evidence with something else about a container."""
    others = tuple(living for living in evidence.living if living is not old)
    return replace(evidence, living=(*others, replace(old, **changes)))


def without(evidence: Evidence, name: str) -> Evidence:
    """The evidence with a pod less at the API server."""
    return replace(evidence, pods=tuple(p for p in evidence.pods if p["metadata"]["name"] != name))


def placed_anew(evidence: Evidence, name: str, **share: Any) -> Evidence:
    """The evidence with another placement of a pod."""
    pods = json.loads(json.dumps(evidence.pods))
    (annotations,) = [p["metadata"]["annotations"] for p in pods if p["metadata"]["name"] == name]
    placement = json.loads(annotations[PLACEMENT_ANNOTATION])
    placement["containers"][0]["cards"][0].update(share)
    annotations[PLACEMENT_ANNOTATION] = json.dumps(placement)
    return replace(evidence, pods=tuple(pods))


def resized(evidence: Evidence, name: str, **share: Any) -> Evidence:
    """The evidence with a resize of a pod that was approved."""
    changed = placed_anew(evidence, name, **share)
    pods = json.loads(json.dumps(changed.pods))
    (annotations,) = [p["metadata"]["annotations"] for p in pods if p["metadata"]["name"] == name]
    placement = json.loads(annotations[PLACEMENT_ANNOTATION])
    placement["containers"][0]["resized"] = True
    annotations[PLACEMENT_ANNOTATION] = json.dumps(placement)
    return replace(changed, pods=tuple(pods))


def smaller_cards(evidence: Evidence) -> Evidence:
    """Cards of one GiB."""
    sizes = {n: tuple(replace(c, memory_mib=1024) for c in cards) for n, cards in evidence.cards.items()}
    return replace(evidence, cards=sizes)


def cut_cards(evidence: Evidence) -> Evidence:
    """Every card is cut by MIG."""
    cut = {
        n: tuple(replace(c, mig=(SimMig("1g.18gb"),)) for c in cards) for n, cards in evidence.cards.items()
    }
    return replace(evidence, cards=cut)


def more_in_the_page(evidence: Evidence) -> Evidence:
    """A page that allows a byte more than was granted."""
    living = the(evidence, "one")
    (card,) = living.control.cards
    cards = (replace(card, memory_bytes=card.memory_bytes + 1),)
    return instead(evidence, living, control=replace(living.control, cards=cards))


def another_card(evidence: Evidence) -> Evidence:
    """A container that sees a card more."""
    living = the(evidence, "one")
    return instead(evidence, living, devices=living.devices | {"nvidia7"})


def greed(evidence: Evidence) -> Evidence:
    """A process that holds a byte more than its page allows."""
    living = the(evidence, "one")
    (card,) = living.control.cards
    return replace(evidence, held={**evidence.held, card.uuid: {living.first[0]: card.memory_bytes + 1}})


def two_owners(evidence: Evidence) -> Evidence:
    """Another container with the instance's capabilities."""
    instance = the(evidence, "instance")
    second = replace(instance, key=("another", "main"), first=(1, 1), pids=frozenset({1}))
    return replace(evidence, living=(*evidence.living, second))


def two_holders(evidence: Evidence) -> Evidence:
    """A kubelet that gives all its ids twice."""
    ids = {node: {**had, **{("x", c): i for (_, c), i in had.items()}} for node, had in evidence.ids.items()}
    return replace(evidence, ids=ids)


LIES: dict[str, tuple[Lie, str]] = {
    "a card promised beyond its memory": (smaller_cards, "MiB promised of 1024"),
    "a card whose containers may take more than it has": (smaller_cards, "together more than 1024"),
    "a card promised beyond its cores": (lambda e: placed_anew(e, "one", cores=99), "% promised"),
    "a card shared though exclusive": (
        lambda e: placed_anew(e, "one", exclusive=True),
        "shared though exclusive",
    ),
    "a grant that is not what was asked": (lambda e: placed_anew(e, "one", memoryMiB=7), "check_promise"),
    "a slice on a card that is cut": (cut_cards, "a slice of a card that is cut"),
    "a placement on a card that is cut": (cut_cards, "which is not shared"),
    "an instance with two owners": (two_owners, "has 2 owners"),
    "a page that allows more than was granted": (more_in_the_page, "granted 2048"),
    "a container that sees another's card": (another_card, "sees"),
    "a process that holds more than its page allows": (greed, "holds more than its page allows"),
    "an id given twice": (two_holders, "is given 2 times"),
    "a namespace over its quota": (lambda e: replace(e, limits={"default": 5119}), "has 5120 MiB of 5119"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_breaks_a_rule_is_found(stack: Place, evidence: Evidence, lie: str) -> None:
    """At the first look."""
    change, words = LIES[lie]
    assert words in "\n".join(Auditor(stack).violations(change(evidence)))


OVERDUE: dict[str, tuple[Lie, str]] = {
    "a page that does not follow a resize": (lambda e: resized(e, "one", memoryMiB=1024), "granted 1024"),
    "memory kept after a resize": (
        lambda e: greed(resized(e, "one")),
        "holds more than it was made smaller to",
    ),
    "a container without its pod": (lambda e: without(e, "one"), "lives without its pod"),
    "files of a pod that is gone": (lambda e: without(replace(e, living=()), "one"), "has files of"),
    "memory of nobody": (lambda e: replace(e, held={"GPU-1": {1: 1}}), "process 1 of no container"),
    "a running container without ids": (lambda e: replace(e, ids={n: {} for n in e.ids}), "has 0 ids"),
}


@pytest.mark.parametrize("lie", OVERDUE)
def test_what_is_left_is_found_when_its_time_is_over(
    stack: Place, evidence: Evidence, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, and not when it has gone meanwhile."""
    change, words = OVERDUE[lie]
    judge = Auditor(stack)
    assert judge.violations(change(evidence)) == []
    monkeypatch.setattr(auditor, "LASTS_S", 0)
    assert words in "\n".join(judge.violations(change(evidence)))
    assert judge.violations(evidence) == []


def test_a_container_that_did_not_run_on_is_found(stack: Place, evidence: Evidence) -> None:
    """Ended, started again, or its pod given up; not where an act has done it, or the pod is deleted."""
    judge = Auditor(stack)
    judge.audit()
    living = the(evidence, "one")
    gone = replace(evidence, living=tuple(each for each in evidence.living if each is not living))
    again = instead(evidence, living, first=(1, 1))
    given_up = replace(without(gone, "one"), ended=frozenset({living.key[0]}))
    for lie in (gone, again, given_up):
        assert f"ran as {living.first}" in "\n".join(judge.violations(lie))
    assert judge.violations(without(gone, "one")) == []
    judge.disturbed.add(living.key)
    assert judge.violations(again) == []
