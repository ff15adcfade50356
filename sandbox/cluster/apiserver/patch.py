"""The four patch formats of the API server, by content type.

JSON Patch is the library's. Merge patch is RFC 7386. A strategic merge patch merges lists of maps by the key
that Kubernetes declares for the field. Server-side apply is reduced to a merge (no field ownership).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import jsonpatch

from aliquot.sandbox.cluster.apiserver import errors

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.objects import Obj

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "addresses": "type",
    "taints": "key",
    "ownerReferences": "uid",
    "webhooks": "name",
}
"""Field name → key of its list items; lists of other fields are replaced whole."""


def apply_patch(media_type: str, obj: Obj, patch: Any, *, custom: bool) -> Obj:
    """The object after a patch; the one given is left alone. StatusError 415, 422 or 400."""
    if media_type == JSON_PATCH:
        return json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("a patch must be a JSON object")
    if media_type == MERGE_PATCH or (media_type == APPLY_PATCH and custom):
        merged: Obj = merge(obj, patch)
        return merged
    if media_type in (STRATEGIC_PATCH, APPLY_PATCH) and not custom:
        combined: Obj = strategic_merge(obj, patch)
        return combined
    raise errors.unsupported_media(media_type)


def json_patch(obj: Obj, operations: Any) -> Obj:
    """RFC 6902."""
    try:
        result: Obj = jsonpatch.apply_patch(obj, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise errors.StatusError(422, "Invalid", message) from error
    return result


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, maps merge, anything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """As `merge`, and lists of the fields in MERGE_KEYS are merged item by item."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS and _maps(value):
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = strategic_merge(merged.get(key), value)
    return merged


def _maps(items: list[Any]) -> bool:
    return all(isinstance(item, dict) for item in items)


def _merge_list(target: list[Obj], patch: list[Obj], key: str) -> list[Obj]:
    merged = list(target)
    for item in patch:
        index = next((i for i, old in enumerate(merged) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != item.get(key)]
        elif index is None:
            merged.append(strategic_merge({}, item))
        else:
            merged[index] = strategic_merge(merged[index], item)
    return merged
