"""Pools on the node: the first that selects a card counts, also while there is nobody to ask."""

from pathlib import Path

import pytest

from aliquot.crds.gpu_pool import NO_POOL, Enforcement, GPUPool, PoolSpec, pool_of
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import Node, ObjectMeta
from aliquot.plugin.cluster.own_node import OwnNode
from aliquot.plugin.cluster.pools import Pools


def pool(name: str, **spec: object) -> GPUPool:
    """A pool."""
    return GPUPool(metadata=ObjectMeta(name=name), spec=PoolSpec(**spec))  # type: ignore[arg-type]


HERE = pool("b", node_selector={"zone": "a"}, models=("H200",), enforcement=Enforcement.OFF)
REST = pool("c", memory_percent=200)


@pytest.mark.parametrize(
    ("labels", "model", "spec"),
    [
        ({"zone": "a", "x": "y"}, "H200", HERE.spec),
        ({"zone": "a"}, "L4", REST.spec),
        ({"zone": "b"}, "H200", REST.spec),
        ({}, "H200", REST.spec),
    ],
)
def test_the_first_pool_that_selects_a_card_counts(
    labels: dict[str, str], model: str, spec: PoolSpec
) -> None:
    """By name; all labels and one of the models must match."""
    assert pool_of([REST, HERE], labels, model) == spec


def test_a_card_of_no_pool_is_shared_strictly() -> None:
    """Nothing overcommitted, everything enforced."""
    assert pool_of([HERE], {}, "H200") == NO_POOL == PoolSpec()


def test_what_was_seen_last_holds_after_a_restart(tmp_path: Path) -> None:
    """An agent that starts while the API server is away does not switch its tenants back."""
    api, file = Api(Access("http://127.0.0.1:1")), tmp_path / "pools.json"
    node = OwnNode(api, "n1")
    before, heard = Pools(api, node, file), []
    before.on_change(lambda: heard.append(before.of("H200")))
    before._pools._store["b"] = HERE
    before._pools.synced.set()
    before._put_pools()
    node.put(Node(metadata=ObjectMeta(name="n1", labels={"zone": "a"})))
    assert heard == [NO_POOL, HERE.spec]
    assert Pools(api, OwnNode(api, "n1"), file).of("H200") == HERE.spec
    file.write_text("{")
    assert Pools(api, OwnNode(api, "n1"), file).of("H200") == NO_POOL


@pytest.mark.parametrize(
    ("pools", "may_weaken", "wish", "outcome"),
    [
        ("enforce", False, "off", "enforce"),
        ("enforce", True, "off", "off"),
        ("observe", False, "enforce", "enforce"),
        ("observe", False, "off", "observe"),
        ("observe", False, "nonsense", "observe"),
        ("observe", True, None, "observe"),
    ],
)
def test_who_may_weaken_enforcement(pools: str, may_weaken: bool, wish: str | None, outcome: str) -> None:
    """A pod may always be stricter than its pool."""
    spec = PoolSpec(enforcement=Enforcement(pools), pods_may_weaken_enforcement=may_weaken)
    annotations = {"aliquot.dev/enforcement": wish} if wish else {}
    assert spec.enforcement_for(annotations, "main") == outcome


@pytest.mark.parametrize("silent", list(Enforcement))
def test_a_pool_that_says_nothing_holds_as_the_agent_is_told(silent: Enforcement) -> None:
    """A pod may be stricter than that, and not weaker."""
    assert NO_POOL.enforcement_for({}, "main", silent) is silent
    for wish in Enforcement:
        outcome = NO_POOL.enforcement_for({"aliquot.dev/enforcement": str(wish)}, "main", silent)
        assert outcome is max(wish, silent, key=list(Enforcement).index)
    spoken = PoolSpec(enforcement=Enforcement.OBSERVE)
    assert spoken.enforcement_for({}, "main", silent) is Enforcement.OBSERVE
