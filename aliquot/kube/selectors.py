"""Selectors: what picks pods and nodes by their labels."""

from collections.abc import Mapping

from aliquot.kube.objects import KubeStruct


class Requirement(KubeStruct, frozen=True, kw_only=True):
    """One expression of a selector; `Gt` and `Lt` are for nodes alone."""

    key: str
    operator: str
    values: tuple[str, ...] | None = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are as it wants; an operator that is not known holds for none."""
        value, values = labels.get(self.key), self.values or ()
        outcomes = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        return outcomes.get(self.operator, False)


class LabelSelector(KubeStruct, frozen=True, kw_only=True):
    """Picks pods; one that says nothing picks all."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def picks(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod of these labels is meant."""
        for key, value in (self.match_labels or {}).items():
            if labels.get(key) != value:
                return False
        return not self.match_expressions or all(one.holds(labels) for one in self.match_expressions)


class NodeRequirement(Requirement, frozen=True, kw_only=True):
    """The same of a node, whose labels may be compared as numbers."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node's labels are as it wants."""
        if self.operator not in ("Gt", "Lt"):
            return super().holds(labels)
        try:
            (bound,), value = map(int, self.values or ()), int(labels[self.key])
        except (KeyError, ValueError):
            return False
        return value > bound if self.operator == "Gt" else value < bound


class NodeTerm(KubeStruct, frozen=True, kw_only=True):
    """What a node must have, all of it; one that says nothing picks no node."""

    match_expressions: tuple[NodeRequirement, ...] | None = None
    match_fields: tuple[NodeRequirement, ...] | None = None

    def picks(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is meant."""
        of_labels, of_fields = self.match_expressions or (), self.match_fields or ()
        fields = {"metadata.name": name}
        wanted = [(one, labels) for one in of_labels] + [(one, fields) for one in of_fields]
        return bool(wanted) and all(one.holds(those) for one, those in wanted)


class NodeSelector(KubeStruct, frozen=True, kw_only=True):
    """Any of its terms will do."""

    node_selector_terms: tuple[NodeTerm, ...] = ()

    def picks(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is meant."""
        return any(term.picks(name, labels) for term in self.node_selector_terms)
