"""What clients ask before they ask for objects: groups, versions and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.sandbox.cluster.apiserver.resources import Registry, Resource
    from aliquot.sandbox.cluster.objects import Obj

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "",
    "goVersion": "",
    "compiler": "",
    "platform": "pocket",
}
"""The release whose behaviour is imitated."""

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def discover(registry: Registry, path: Sequence[str]) -> Obj:
    """The document under `/api…`, `/apis…` or `/version`; StatusError 404, UnservedPathError."""
    match path:
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({r.group for r in registry if r.group})
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(registry, g) for g in groups],
            }
        case ["apis", group]:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, group)}
        case ["api", version]:
            return _resources(registry, "", version)
        case ["apis", group, version]:
            return _resources(registry, group, version)
    raise errors.UnservedPathError


def _group(registry: Registry, group: str) -> Obj:
    versions = sorted({r.version for r in registry if r.group == group})
    if not versions:
        raise registry.nothing_at(group)
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(registry: Registry, group: str, version: str) -> Obj:
    found = [r for r in registry if (r.group, r.version) == (group, version)]
    if not found:
        raise registry.nothing_at(group)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": [entry for resource in found for entry in _entries(resource)],
    }


def _entries(resource: Resource) -> list[Obj]:
    entry: Obj = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    subresources = ["status"] if resource.status else []
    if resource.key == "pods":
        subresources += ["binding", "eviction", "log"]
    return [
        entry,
        *(
            {
                **entry,
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "verbs": ["get", "patch", "update"],
            }
            for name in subresources
        ),
    ]
