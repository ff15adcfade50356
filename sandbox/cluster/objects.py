"""Kubernetes objects as the pocket cluster holds them: plain JSON, and the few helpers every part needs."""

from __future__ import annotations

import datetime as dt
from typing import Any

Obj = dict[str, Any]
"""A Kubernetes object as JSON. Whoever holds one from a store or a cache must not change it in place."""


def timestamp(ahead_seconds: float = 0) -> str:
    """The time now (plus `ahead_seconds`) as Kubernetes writes it: RFC 3339, UTC, whole seconds."""
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=ahead_seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """The time now as a Kubernetes MicroTime (Leases, events)."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def namespace_of(obj: Obj) -> str:
    """Namespace of an object; empty for a cluster-scoped one."""
    return str(obj.get("metadata", {}).get("namespace", ""))


def name_of(obj: Obj) -> str:
    """Name of an object; empty when it has none yet."""
    return str(obj.get("metadata", {}).get("name", ""))


def uid_of(obj: Obj) -> str:
    """UID of an object; empty before it is stored."""
    return str(obj.get("metadata", {}).get("uid", ""))


def full_name(obj: Obj) -> str:
    """`namespace/name`, or the name alone for a cluster-scoped object."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def dig(obj: Any, path: str) -> Any:
    """Value at a dotted path of maps ("spec.nodeName"), or None."""
    for key in path.split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def set_condition(conditions: list[Obj], wanted: Obj) -> bool:
    """Put a condition into a list by its type; the transition time moves only with the status.

    Returns:
        Whether anything but a timestamp changed.
    """
    for index, old in enumerate(conditions):
        if old.get("type") != wanted["type"]:
            continue
        same_status = old.get("status") == wanted["status"]
        since = old.get("lastTransitionTime") if same_status else None
        new = {**wanted, "lastTransitionTime": since or timestamp()}
        conditions[index] = new
        return any(old.get(key) != new.get(key) for key in ("status", "reason", "message"))
    conditions.append({"lastTransitionTime": timestamp(), **wanted})
    return True
