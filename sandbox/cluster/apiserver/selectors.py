"""Label and field selectors, as query strings and as objects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.objects import dig

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot.sandbox.cluster.objects import Obj

FIELDS = {
    "pods": {"spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase", "status.podIP"},
    "nodes": {"spec.unschedulable"},
    "events": {
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    },
    "secrets": {"type"},
    "namespaces": {"status.phase"},
}
COMMON_FIELDS = {"metadata.name", "metadata.namespace"}

_SET = re.compile(r"^(?P<key>[^\s!=]+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s!=]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=]*)$")


@dataclass(frozen=True)
class Requirement:
    """One term over labels: `key operator values`."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist
    values: frozenset[str] = field(default_factory=frozenset)

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether these labels satisfy the term (an absent key satisfies NotIn)."""
        present = self.key in labels
        outcomes = {
            "In": present and labels.get(self.key) in self.values,
            "NotIn": not present or labels[self.key] not in self.values,
            "Exists": present,
            "DoesNotExist": not present,
        }
        return outcomes[self.operator]


@dataclass(frozen=True)
class Selector:
    """All that a list or watch filters by."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()  # path, equal, value

    def matches(self, obj: Obj | None) -> bool:
        """Whether the object (None matches nothing) passes."""
        if obj is None:
            return False
        labels = obj.get("metadata", {}).get("labels") or {}
        return all(term.matches(labels) for term in self.labels) and all(
            (_text(dig(obj, path)) == value) is equal for path, equal, value in self.fields
        )


def parse_selector(resource: str, labels: str, fields: str) -> Selector:
    """Read `labelSelector` and `fieldSelector` parameters; StatusError 400 when they cannot be read."""
    return Selector(
        tuple(_parse_requirement(term) for term in _split(labels)),
        tuple(_parse_field(resource, term) for term in fields.split(",") if term),
    )


def selector_of(obj: Obj | None) -> Selector:
    """A `LabelSelector` object (matchLabels, matchExpressions); absent selects all."""
    obj = obj or {}
    terms = [Requirement(k, "In", frozenset({v})) for k, v in (obj.get("matchLabels") or {}).items()]
    terms += [
        Requirement(term["key"], term["operator"], frozenset(term.get("values") or ()))
        for term in obj.get("matchExpressions") or ()
    ]
    return Selector(tuple(terms))


def _split(labels: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", labels) if term.strip()]


def _parse_requirement(term: str) -> Requirement:
    if found := _SET.match(term):
        operator = "In" if found["op"] == "in" else "NotIn"
        return Requirement(found["key"], operator, frozenset(v.strip() for v in found["values"].split(",")))
    if found := _EQUALITY.match(term):
        operator = "NotIn" if found["op"] == "!=" else "In"
        return Requirement(found["key"], operator, frozenset({found["value"]}))
    if re.fullmatch(r"!?[^\s!=]+", term):
        return Requirement(term.lstrip("!"), "DoesNotExist" if term[0] == "!" else "Exists")
    raise errors.bad_request(f"unable to parse requirement: {term!r}")


def _parse_field(resource: str, term: str) -> tuple[str, bool, str]:
    found = _EQUALITY.match(term)
    if found is None:
        raise errors.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path = found["key"]
    if path not in COMMON_FIELDS | FIELDS.get(resource, set()):
        raise errors.bad_request(f"field label not supported: {path}")
    return path, found["op"] != "!=", found["value"]


def _text(value: object) -> str:
    spelled: dict[type, Callable[[object], str]] = {
        type(None): lambda _: "",
        bool: lambda v: str(v).lower(),
    }
    return spelled.get(type(value), str)(value)
