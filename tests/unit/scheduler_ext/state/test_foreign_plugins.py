"""Nodes on which another project's device plugin still runs."""

import pytest

from aliquot.dialects.hami import HamiDialect
from aliquot.kube.objects import (
    Container,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import card
from tests.unit.scheduler_ext.placing import node as gpu_node

HAMI, OURS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}, {"aliquot.dev/gpu-mem": "3000Mi"}


def node(name: str, **allocatable: str) -> Node:
    """A node that advertises some of HAMi's resources."""
    room = {f"nvidia.com/{resource}": count for resource, count in allocatable.items()}
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=room))


@pytest.fixture(name="foreign")
def make_foreign() -> ForeignPlugins:
    """What is known of the nodes' native resources."""
    return ForeignPlugins((HamiDialect(),))


def ask(foreign: ForeignPlugins, limits: dict[str, str]) -> FilterResult:
    """Where a pod may go, of two nodes with a card each."""
    ledger = Ledger(lambda: 0.0)
    ledger.put_node("n1", gpu_node(card("a")))
    ledger.put_node("n2", gpu_node(card("b")))
    main = Container(name="main", resources=ResourceRequirements(limits=limits))
    pod = Pod(metadata=ObjectMeta(name="p", uid="u"), spec=PodSpec(containers=(main,)))
    return Filter(ledger, foreign, Placer(ledger.table), dialects=(HamiDialect(),)).answer(
        FilterArgs(pod, ("n1", "n2"))
    )


def test_a_dialects_pod_avoids_nodes_that_serve_it_natively(foreign: ForeignPlugins):
    """There the kubelet would hand out a card of its own choice as well."""
    foreign.put_node(node("n1", gpu="8"))
    assert ask(foreign, HAMI).NodeNames == ["n2"]


def test_a_pod_in_our_own_names_may_go_there(foreign: ForeignPlugins):
    """It asks nothing of the other plugin."""
    foreign.put_node(node("n1", gpu="8"))
    assert ask(foreign, OURS).NodeNames == ["n1"]


def test_the_reason_is_said(foreign: ForeignPlugins):
    """With no other node left the pod waits, and preemption is not tried."""
    for name in ("n1", "n2"):
        foreign.put_node(node(name, gpu="8"))
    text = "another device plugin serves this resource on the node"
    assert ask(foreign, HAMI).FailedAndUnresolvableNodes == {"n1": text, "n2": text}


def test_a_plugin_that_has_gone_leaves_a_count(foreign: ForeignPlugins):
    """Of 0, by which the kubelet fails every pod that names the resource, for good: the node is no place for it."""
    foreign.put_node(node("n1", gpu="8"))
    foreign.put_node(node("n1", gpu="0"))
    assert ask(foreign, HAMI).NodeNames == ["n2"]


def test_a_count_that_was_removed_is_forgotten(foreign: ForeignPlugins):
    """An admin has; or the node is gone."""
    foreign.put_node(node("n1", gpu="0"))
    foreign.put_node(node("n1"))
    assert ask(foreign, HAMI).NodeNames == ["n1"]
    foreign.put_node(node("n1", gpu="8"))
    foreign.drop_node("n1")
    assert ask(foreign, HAMI).NodeNames == ["n1"]
