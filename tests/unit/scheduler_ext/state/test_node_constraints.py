"""Where a pod may run, by what it and the nodes and their pods say, each as kube-scheduler has it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aliquot.kube.listing import Listing
from aliquot.kube.objects import Node
from aliquot.kube.resources import NODES, Resource
from aliquot.scheduler_ext.state.node_constraints import NodeConstraints, Tenant

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"
LABELS = {"gpu": "a100", "year": "2024", HOST: "n1"}


def tenant(labels: dict[str, str] | None = None, namespace: str = "default", **spec: Any) -> Tenant:
    """A pod."""
    meta = {"name": "p", "namespace": namespace, "labels": labels or {}}
    return msgspec.convert({"metadata": meta, "spec": spec}, Tenant)


def node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """A spec that demands a node as in any of these terms."""
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


def apart(key: str = HOST, **term: Any) -> dict[str, Any]:
    """A spec that may not be near pods of `app=web`."""
    whole = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}} | term
    return {"affinity": {"podAntiAffinity": {REQUIRED: [whole]}}}


class Reader:
    """An API server with one node."""

    def __init__(self, spec: dict[str, Any], *pods: Tenant) -> None:
        meta = {"name": "n1", "labels": LABELS}
        self.node = msgspec.convert({"metadata": meta, "spec": spec}, Node)
        self.pods = pods

    async def list(
        self, resource: Resource[Any], _namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[Any]:
        """What is asked for, if it is of that node."""
        assert field_selector.startswith("metadata.name=" if resource is NODES else "spec.nodeName=")
        if not field_selector.endswith("=n1"):
            return Listing("1", ())
        return Listing("1", (self.node,) if resource is NODES else self.pods)


def admits(pod: Tenant, *others: Tenant, **node: Any) -> bool:
    """Whether a pod may run on the node beside others."""
    node_constraints = NodeConstraints(Reader(node, *others))
    asyncio.run(node_constraints.visit("n1"))
    return node_constraints.admit(pod, "n1")


TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "admitted"),
    [
        ([], False),
        (None, False),
        ([{"key": "team", "value": "ml"}], True),
        ([{"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}], True),
        ([{"key": "team", "operator": "Exists"}], True),
        ([{"operator": "Exists"}], True),
        ([{"key": "team", "value": "web"}], False),
        ([{"key": "other", "operator": "Exists"}], False),
        ([{"key": "team", "operator": "Exists", "effect": "NoExecute"}], False),
    ],
)
def test_taints(tolerations: list[dict[str, str]] | None, admitted: bool):
    """A hard one keeps off whoever does not tolerate it."""
    assert admits(tenant(tolerations=tolerations), taints=[TAINT]) is admitted
    assert admits(tenant(tolerations=tolerations), taints=[{**TAINT, "effect": "PreferNoSchedule"}])


def test_a_cordoned_node():
    """Is for those alone that tolerate that."""
    tolerant = tenant(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert not admits(tenant(), unschedulable=True)
    assert admits(tolerant, unschedulable=True)


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ({"nodeSelector": {"gpu": "a100"}}, True),
        ({"nodeSelector": {"gpu": "a100", "zone": "x"}}, False),
        (node_affinity(expression("gpu", "In", "h100", "a100")), True),
        (node_affinity(expression("gpu", "NotIn", "a100")), False),
        (node_affinity(expression("zone", "NotIn", "x")), True),
        (node_affinity(expression("zone", "Exists")), False),
        (node_affinity(expression("zone", "DoesNotExist")), True),
        (node_affinity(expression("year", "Gt", "2023")), True),
        (node_affinity(expression("year", "Lt", "2024")), False),
        (node_affinity(expression("gpu", "Gt", "1")), False),
        (node_affinity(expression("zone", "Exists"), expression("gpu", "Exists")), True),
        (
            node_affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
            True,
        ),
        (
            node_affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}),
            False,
        ),
        (node_affinity({}), False),
        (node_affinity(), False),
    ],
)
def test_node_labels(spec: dict[str, Any], admitted: bool):
    """All of the selector, and any term of the affinity, of which all expressions."""
    assert admits(tenant(**spec)) is admitted


WEB = tenant({"app": "web"})


@pytest.mark.parametrize(
    ("spec", "other", "admitted"),
    [
        (apart(), WEB, False),
        (apart(), tenant({"app": "db"}), True),
        (apart(), tenant({"app": "web"}, "other"), True),
        (apart(namespaces=["other"]), tenant({"app": "web"}, "other"), False),
        (apart(labelSelector=None), WEB, True),
        (apart(namespaceSelector={}), tenant({"app": "db"}, "other"), False),
    ],
)
def test_anti_affinity_is_of_both_sides(spec: dict[str, Any], other: Tenant, admitted: bool):
    """Whoever of the two says it."""
    shy = tenant({"app": "shy"}, **spec)
    assert admits(shy, other) is admitted
    assert admits(other, shy) is admitted


def test_a_pod_that_has_finished_is_in_nobodys_way():
    """It is there, and is not."""
    done = msgspec.convert({**msgspec.to_builtins(WEB), "status": {"phase": "Succeeded"}}, Tenant)
    assert admits(tenant(**apart()), done)


def test_a_node_that_has_gone():
    """Admits nobody."""
    node_constraints = NodeConstraints(Reader({}))
    asyncio.run(node_constraints.visit("n2"))
    assert not node_constraints.admit(tenant(), "n2")


SPREAD = {
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}]
}
SOFT = {
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"}]
}
NEAR = {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": {}}]}}}


@pytest.mark.parametrize(
    ("spec", "stays"),
    [({}, False), (apart(), False), (apart("zone"), True), (SPREAD, True), (SOFT, False), (NEAR, True)],
)
def test_who_cannot_be_judged_stays(spec: dict[str, Any], stays: bool):
    """What depends on nodes that nobody looks at."""
    assert tenant(**spec).stays is stays


@pytest.mark.parametrize(
    ("meta", "stays"),
    [
        ({"ownerReferences": [{"kind": "DaemonSet"}]}, True),
        ({"ownerReferences": [{"kind": "Node"}]}, True),
        ({"ownerReferences": [{"kind": "ReplicaSet"}]}, False),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, True),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, False),
    ],
)
def test_who_is_made_again_where_it_was_or_wants_to_stay_does(meta: dict[str, Any], stays: bool):
    """Moving it would move nothing."""
    assert msgspec.convert({"metadata": meta}, Tenant).stays is stays
