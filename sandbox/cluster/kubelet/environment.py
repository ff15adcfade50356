"""A container's environment variables: literal ones, references, and `$(NAME)` expansion."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import dig, namespace_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.objects import Obj

_REFERENCE = re.compile(r"\$(\$|\((?P<name>[^()]*)\))")
_SUBSCRIPT = re.compile(r"^(?P<path>metadata\.(?:labels|annotations))\['(?P<key>[^']*)'\]$")


class MissingReferenceError(Exception):
    """A variable refers to something that is not there; the kubelet tries again."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` where NAME is known; `$$` is a dollar sign."""

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(replace, text)


async def variables_of(client: Client, pod: Obj, container: Obj, given: Mapping[str, str]) -> dict[str, str]:
    """The container's `env` and `envFrom` over what the runtime gives, in order, references replaced."""
    variables = dict(given)
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        data = await _data(client, pod, source.get("configMapRef"), source.get("secretRef"))
        variables |= {prefix + key: value for key, value in data.items()}
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            value = await _referenced(client, pod, container, entry["valueFrom"])
        else:
            value = expand(entry.get("value") or "", variables)
        variables[entry["name"]] = value
    return variables


async def _referenced(client: Client, pod: Obj, container: Obj, source: Obj) -> str:
    if reference := source.get("fieldRef"):
        return _field(pod, reference["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        kind, _, name = reference["resource"].partition(".")
        return str((dig(container, f"resources.{kind}") or {}).get(name, "0"))
    config, secret = source.get("configMapKeyRef"), source.get("secretKeyRef")
    key = (config or secret or {}).get("key", "")
    data = await _data(client, pod, config, secret)
    if key not in data and not (config or secret or {}).get("optional"):
        raise MissingReferenceError(f"couldn't find key {key} in {'ConfigMap' if config else 'Secret'}")
    return data.get(key, "")


async def _data(client: Client, pod: Obj, config: Obj | None, secret: Obj | None) -> dict[str, str]:
    kind, reference = ("configmap", config) if config else ("secret", secret or {})
    try:
        obj = await client.get(f"/api/v1/namespaces/{namespace_of(pod)}/{kind}s/{reference['name']}")
    except ApiError as error:
        if reference.get("optional"):
            return {}
        raise MissingReferenceError(str(error)) from error
    data: dict[str, str] = obj.get("data") or {}
    return data if config else {key: base64.b64decode(text).decode() for key, text in data.items()}


def _field(pod: Obj, path: str) -> str:
    if found := _SUBSCRIPT.match(path):
        return str((dig(pod, found["path"]) or {}).get(found["key"], ""))
    if path in ("status.podIP", "status.hostIP"):
        return "127.0.0.1"
    return str(dig(pod, path) or "")
