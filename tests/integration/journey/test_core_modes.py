"""What pods ask of a card's time, from their annotations to the words of their pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import CardLimit, read_control
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.pods import container, pod

FREE = (0, 0, 0)


@pytest.fixture
def one_card(stack: Stack) -> Iterator[Stack]:
    """The running stack, all but one card of which is held alone by somebody else; no pool before and after."""
    stack.kubectl.apply(pod("away", container("main", {"gpu": "1"})))
    stack.kubectl.wait_phase("away", "Running")
    yield stack
    for pool in stack.kubectl.list("gpupools.aliquot.dev"):
        stack.kubectl.delete("gpupools.aliquot.dev", pool["metadata"]["name"])


def start(stack: Stack, name: str, limits: dict[str, str], **annotations: str) -> None:
    """Starts a pod; annotations without their domain, `_` for `-`."""
    manifest = pod(name, container("main", {"mem": "1Gi", **limits}))
    keys = {f"aliquot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    manifest["metadata"]["annotations"] = keys
    stack.kubectl.apply(manifest)
    stack.kubectl.wait_phase(name, "Running")


def page(stack: Stack, node: Node, name: str) -> CardLimit:
    """What a pod's page says of its card."""
    uid = stack.kubectl.get("pods", name)["metadata"]["uid"]
    (card,) = read_control(node.tenants / uid / "main" / "control").cards
    return card


def settles_at(stack: Stack, node: Node, name: str, wanted: tuple[int, int, int]) -> None:
    """Waits until a page has these words: own share, most, priority."""

    def words() -> tuple[int, int, int]:
        card = page(stack, node, name)
        return card.core_share_bp, card.core_most_percent, card.priority

    wait_for(f"{name} to be at {wanted}", lambda: words() == wanted)


@pytest.mark.slow
def test_whoever_comes_or_goes_changes_the_terms_of_those_on_the_card(one_card: Stack, node: Node) -> None:
    """Free while alone; then by share, bound and priority; free again when the others have gone."""
    start(one_card, "bursts", {"core": "30"}, core_mode="burst", priority="5")
    settles_at(one_card, node, "bursts", FREE)
    start(one_card, "rest", {})
    settles_at(one_card, node, "bursts", (3000, 100, 5))
    settles_at(one_card, node, "rest", (7000, 100, 0))
    start(one_card, "bounded", {"core": "20"}, core_limit="60")
    settles_at(one_card, node, "bounded", (2000, 60, 0))
    settles_at(one_card, node, "rest", (5000, 100, 0))
    one_card.kubectl.delete("pods", "bounded", grace=0)
    one_card.kubectl.delete("pods", "rest", grace=0)
    settles_at(one_card, node, "bursts", FREE)


def test_a_pool_and_a_resize_change_the_terms_of_running_pods(one_card: Stack, node: Node) -> None:
    """Of those who do not say for themselves."""
    start(one_card, "silent", {"core": "30"})
    start(one_card, "strict", {"core": "30"}, core_mode="capped", priority="1")
    settles_at(one_card, node, "silent", (3000, 30, 0))
    write_pool(one_card, coreMode="burst", coreLimit=80, priority=3)
    settles_at(one_card, node, "silent", (3000, 80, 3))
    settles_at(one_card, node, "strict", (3000, 30, 1))
    annotations = {"aliquot.dev/resize-gpu-core": "none"}
    one_card.kubectl.patch("pods", "silent", {"metadata": {"annotations": annotations}})
    settles_at(one_card, node, "silent", (7000, 100, 3))


def test_the_terms_survive_the_agent(one_card: Stack, node: Node) -> None:
    """While it is away they stand in the pages; when it is back, it knows them though nobody tells it."""
    start(one_card, "bursts", {"core": "30"}, core_mode="burst", priority="5")
    start(one_card, "rest", {})
    settles_at(one_card, node, "bursts", (3000, 100, 5))
    one_card.cluster.kill(node.agent)
    settles_at(one_card, node, "bursts", (3000, 100, 5))
    one_card.cluster.restart(node.agent)
    settles_at(one_card, node, "bursts", (3000, 100, 5))
    one_card.kubectl.delete("pods", "rest", grace=0)
    settles_at(one_card, node, "bursts", FREE)


def test_what_no_node_could_honour_is_refused_by_kubectl(stack: Stack) -> None:
    """With the annotation and the remedy."""
    manifest = pod("odd", container("main", {"mem": "1Gi"}))
    manifest["metadata"]["annotations"] = {"aliquot.dev/core-mode": "burst"}
    with pytest.raises(
        ApiError, match="core-mode: burst needs a share of the card's time; ask for gpu-core too"
    ):
        stack.kubectl.apply(manifest)


def write_pool(stack: Stack, **spec: Any) -> None:
    """The admin writes a pool of all cards."""
    body = {
        "apiVersion": "aliquot.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": "all"},
        "spec": spec,
    }
    stack.kubectl.apply(body)
