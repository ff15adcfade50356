"""The part of OpenAPI v3 that CustomResourceDefinitions are held to: pruning, defaults, validation.

Pruning matters most: a field that the schema lacks vanishes silently on a real API server, so it does here.
CEL rules (`x-kubernetes-validations`) are evaluated once all else is right; those that compare with `oldSelf` are not.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import cel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.objects import Obj

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_ROOT_FIELDS = {"apiVersion", "kind", "metadata"}


def prune(obj: Any, schema: Obj, *, root: bool = True) -> None:
    """Remove, in place, the fields that the schema does not name."""
    if isinstance(obj, list):
        for item in obj:
            prune(item, schema.get("items", {}), root=False)
        return
    if not isinstance(obj, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for key in list(obj):
        if root and key in _ROOT_FIELDS:
            continue
        if key in known:
            prune(obj[key], known[key], root=False)
        elif isinstance(rest, dict):
            prune(obj[key], rest, root=False)
        elif not rest:
            del obj[key]


def default(obj: Any, schema: Obj) -> None:
    """Fill, in place, the schema's defaults into maps that are there."""
    if isinstance(obj, list):
        for item in obj:
            default(item, schema.get("items", {}))
    if not isinstance(obj, dict):
        return
    for key, part in schema.get("properties", {}).items():
        if key not in obj and "default" in part:
            obj[key] = copy.deepcopy(part["default"])
        if key in obj:
            default(obj[key], part)


def errors_of(obj: Any, schema: Obj) -> list[str]:
    """Sentences "path: why" for each violation."""
    return list(_violations(obj, schema, "")) or list(_broken_rules(obj, schema, ""))


def rules_of(schema: Obj) -> Iterator[str]:
    """Every CEL rule in a schema, however deep."""
    yield from (rule["rule"] for rule in schema.get("x-kubernetes-validations", ()))
    parts = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for part in parts:
        if isinstance(part, dict):
            yield from rules_of(part)


def _violations(obj: Any, schema: Obj, path: str) -> Iterator[str]:
    if obj is None and schema.get("nullable"):
        return
    kind = schema.get("type")
    if kind is not None and not _is(obj, kind) and not schema.get("x-kubernetes-int-or-string"):
        yield f'{path or "<root>"}: Invalid value: "{_kind(obj)}": must be of type {kind}'
        return
    if isinstance(obj, dict):
        yield from (
            f"{_join(path, key)}: Required value" for key in schema.get("required", ()) if key not in obj
        )
    elif not isinstance(obj, list):
        yield from _value_violations(obj, schema, path)
    for value, part, where in _parts(obj, schema, path):
        yield from _violations(value, part, where)


def _broken_rules(obj: Any, schema: Obj, path: str) -> Iterator[str]:
    if obj is None:
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"] and cel.evaluate(rule["rule"], {"self": obj}) is not True:
            why = rule.get("message") or f"failed rule: {rule['rule']}"
            yield f'{path or "<nil>"}: Invalid value: "{schema.get("type", "")}": {why}'
    for value, part, where in _parts(obj, schema, path):
        yield from _broken_rules(value, part, where)


def _parts(obj: Any, schema: Obj, path: str) -> Iterator[tuple[Any, Obj, str]]:
    """What a map or list is made of, each with its schema and path."""
    if isinstance(obj, list):
        for index, item in enumerate(obj):
            yield item, schema.get("items", {}), f"{path}[{index}]"
    elif isinstance(obj, dict):
        rest = schema.get("additionalProperties")
        for key, value in obj.items():
            part = schema.get("properties", {}).get(key, rest)
            if isinstance(part, dict) and not (path == "" and key in _ROOT_FIELDS):
                yield value, part, _join(path, key)


def _value_violations(obj: Any, schema: Obj, path: str) -> Iterator[str]:
    if "enum" in schema and obj not in schema["enum"]:
        listed = ", ".join(f'"{value}"' for value in schema["enum"])
        yield f'{path}: Unsupported value: "{obj}": supported values: {listed}'
    if isinstance(obj, str) and "pattern" in schema and not re.search(schema["pattern"], obj):
        yield f"{path}: Invalid value: \"{obj}\": {path} in body should match '{schema['pattern']}'"
    if not isinstance(obj, (int, float)):
        return
    if "minimum" in schema and obj < schema["minimum"]:
        yield (
            f"{path}: Invalid value: {obj}: {path} in body should be"
            f" greater than or equal to {schema['minimum']}"
        )
    if "maximum" in schema and obj > schema["maximum"]:
        yield (
            f"{path}: Invalid value: {obj}: {path} in body should be"
            f" less than or equal to {schema['maximum']}"
        )


def _is(obj: Any, kind: str) -> bool:
    if isinstance(obj, bool):
        return kind == "boolean"
    return isinstance(obj, _TYPES[kind])


def _kind(obj: Any) -> str:
    return next((name for name in _TYPES if _is(obj, name)), "null")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
