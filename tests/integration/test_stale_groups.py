"""Two groups that each lack a card on the pocket cluster: one yields all its cards, and the other runs whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster, extender_entry
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.evictions import end, evicted
from tests.integration.extenders import GPU, MEM, ROOT, Extender, add_node, publish
from tests.integration.test_groups import Field, crd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOON_S = 120.0
NODES = ("n1", "n2")


@pytest.fixture(name="field")
def start(tmp_path: Path) -> Iterator[Field]:
    """Two nodes of two cards each, an extender with a short grace, and a scheduler."""
    with PocketCluster(tmp_path / "c") as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(ROOT / "deploy/crds/gpunodes.yaml")
        cluster.kubectl.apply(crd("scheduling.x-k8s.io", "v1alpha1"))
        extender = Extender(cluster, "--group-grace-seconds", "2")
        extender.start()
        for name in NODES:
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
        wait_for("the extender to know the cards", lambda: len(extender.known()) == 4)
        entry = extender_entry(extender.url, {GPU: False, MEM: True})
        cluster.start_scheduler([entry], "--backoff", "0.2", "--longest-backoff", "1")
        yield Field(cluster, extender)
        extender.process.stop()


def fails_with_its_card(field: Field, pod: str) -> None:
    """The agent publishes that the card of a pod is broken, and the pod is gone."""
    found = field.cluster.kubectl.get("pods", pod)
    where, placement = found["spec"]["nodeName"], found["metadata"]["annotations"]["aliquot.dev/placement"]
    cards = field.cluster.kubectl.get("gpunodes.aliquot.dev", where, "")["status"]["cards"]
    for card in cards:
        if f'"{card["uuid"]}"' in placement:
            card["health"] = "Unhealthy"
    publish(field.cluster, where, cards)
    field.delete(pod)


@pytest.mark.slow
def test_two_groups_that_lack_a_card_each_do_not_wait_for_each_other(field: Field):
    """Both have lost a card and run on with half their members; one goes whole, and the other is whole again."""
    groups: dict[str, set[str]] = {}
    for name in ("first", "second"):
        field.needs(name, 2)
        groups[name] = {field.create(name) for _ in range(2)}
    everybody = groups["first"] | groups["second"]
    wait_for("both groups", lambda: field.bound() == everybody, SOON_S)
    for name, members in groups.items():
        lost = members.pop()
        fails_with_its_card(field, lost)
        members.add(field.create(name))
    wait_for("an eviction", lambda: bool(evicted(field.cluster, "default")), SOON_S)
    (gone,) = evicted(field.cluster, "default")
    end(field.cluster, "default", {gone})
    loser = next(name for name, members in groups.items() if gone in members)
    (winner,) = set(groups) - {loser}
    groups[loser] = groups[loser] - {gone} | {field.create(loser)}
    wait_for("the other group to be whole", lambda: field.bound() == groups[winner], SOON_S)
    text = "0 of the 2 members that it needs fit at once"
    wait_for("the reason", lambda: any(text in field.said(pod) for pod in groups[loser]), SOON_S)
    assert evicted(field.cluster, "default") == set()
