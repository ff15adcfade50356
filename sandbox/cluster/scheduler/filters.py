"""The in-tree filters that matter here, with the real scheduler's reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import quantity
from aliquot.sandbox.cluster.objects import dig, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from fractions import Fraction

    from aliquot.sandbox.cluster.objects import Obj

HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Refusal:
    """Why a node is out. `final`: evicting pods from it would not help."""

    reasons: tuple[str, ...]
    final: bool = False


@dataclass
class NodeState:
    """A node and the pods that are (or are assumed to be) on it, by UID."""

    node: Obj
    pods: dict[str, Obj] = field(default_factory=dict)

    def requested(self) -> Counter[str]:
        """Sum of the pods' requests."""
        total: Counter[str] = Counter()
        for pod in self.pods.values():
            total.update(requests_of(pod))
        return total


def refusal_of(pod: Obj, state: NodeState, ignored: Collection[str]) -> Refusal | None:
    """Why this node cannot take the pod; None when it can. `ignored`: resources left to extenders."""
    node = state.node
    if not _tolerates(pod, _taints(node)):
        return Refusal(("node(s) had untolerated taint(s)",), final=True)
    if not _selected(pod, node):
        return Refusal(("node(s) didn't match Pod's node affinity/selector",), final=True)
    return _fit(pod, state, ignored)


def requests_of(pod: Obj) -> dict[str, Fraction]:
    """What a pod needs: the larger of its containers together and each init container in its turn."""
    total: dict[str, Fraction] = {}
    for container in pod["spec"]["containers"]:
        _add(total, _requests(container))
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in pod["spec"].get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            own = {}
        _raise(peak, _sum(own, sidecars))
    _add(total, sidecars)
    _raise(total, peak)
    return total


def _fit(pod: Obj, state: NodeState, ignored: Collection[str]) -> Refusal | None:
    allocatable: Mapping[str, str] = dig(state.node, "status.allocatable") or {}
    used, reasons, final = state.requested(), [], False
    if len(state.pods) + 1 > quantity.parse(allocatable.get("pods", "110")):
        reasons.append("Too many pods")
    for resource, amount in requests_of(pod).items():
        if resource in ignored or amount == 0:
            continue
        capacity = quantity.parse(allocatable.get(resource, "0"))
        if used[resource] + amount > capacity:
            reasons.append(f"Insufficient {resource}")
            final = final or amount > capacity
    return Refusal(tuple(reasons), final) if reasons else None


def _taints(node: Obj) -> list[Obj]:
    """Declared ones, and those that the node controller of a real cluster would set."""
    taints = (
        [t for t in node["spec"].get("taints") or () if t.get("effect") in HARD] if "spec" in node else []
    )
    if dig(node, "spec.unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    conditions = dig(node, "status.conditions") or ()
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    return taints


def _tolerates(pod: Obj, taints: Iterable[Obj]) -> bool:
    tolerations = pod["spec"].get("tolerations") or ()
    return all(any(_covers(toleration, taint) for toleration in tolerations) for taint in taints)


def _covers(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _selected(pod: Obj, node: Obj) -> bool:
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = dig(pod["spec"], required)
    return terms is None or any(_term_holds(term, labels, node) for term in terms)


def _term_holds(term: Obj, labels: Mapping[str, str], node: Obj) -> bool:
    by_label = all(_holds(expression, labels) for expression in term.get("matchExpressions") or ())
    fields = {"metadata.name": name_of(node)}
    return by_label and all(_holds(expression, fields) for expression in term.get("matchFields") or ())


def _holds(expression: Obj, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    outcomes = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return outcomes[expression["operator"]]


def _requests(container: Obj) -> dict[str, Fraction]:
    requests = dig(container, "resources.requests") or {}
    return {name: quantity.parse(text) for name, text in requests.items()}


def _add(total: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: dict[str, Fraction], floor: Mapping[str, Fraction]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, amount), amount)


def _sum(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> dict[str, Fraction]:
    total = dict(left)
    _add(total, right)
    return total
