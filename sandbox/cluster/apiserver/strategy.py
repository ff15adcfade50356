"""What differs from kind to kind on create, update and delete: one Strategy each, one for all others."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import cel

from aliquot.sandbox.cluster.apiserver import schema
from aliquot.sandbox.cluster.objects import dig, set_condition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.apiserver.resources import Resource
    from aliquot.sandbox.cluster.objects import Obj


class Strategy:
    """Behaviour of a kind without peculiarities. Methods that prepare change `obj` in place."""

    def default(self, obj: Obj) -> None:
        """Fill in what a client may leave out; runs before and after admission. May raise StatusError."""

    def prepare_create(self, obj: Obj) -> None:
        """Set what clients may not choose."""

    def prepare_update(self, obj: Obj, old: Obj) -> None:
        """Keep what an ordinary update may not touch."""

    def prepare_status(self, obj: Obj, old: Obj) -> None:
        """Keep what an update of the status may not touch."""
        status = obj.get("status", {})
        metadata = {**old["metadata"], "resourceVersion": dig(obj, "metadata.resourceVersion")}
        obj.clear()
        obj.update({**old, "metadata": metadata, "status": status})

    def validate(self, obj: Obj, old: Obj | None) -> list[str]:
        """Sentences "field: why" about what is wrong; `old` is None on create."""
        del obj, old
        return []

    def grace_seconds(self, obj: Obj, asked: int | None) -> int:
        """Seconds a deletion waits for somebody to finalise it; 0: goes at once."""
        del obj, asked
        return 0


class StatusStrategy(Strategy):
    """A kind with a status subresource: ordinary updates leave the status alone."""

    def prepare_update(self, obj: Obj, old: Obj) -> None:
        """The status stays as it was."""
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = old["status"]

    def prepare_status(self, obj: Obj, old: Obj) -> None:
        """The spec stays as it was; built-in kinds let labels and annotations change."""
        if "spec" in old:
            obj["spec"] = old["spec"]


class SecretStrategy(Strategy):
    """`stringData` is folded into `data`."""

    def default(self, obj: Obj) -> None:
        """Type Opaque, stringData encoded."""
        obj.setdefault("type", "Opaque")
        for key, text in (obj.pop("stringData", None) or {}).items():
            encoded = base64.b64encode(text.encode()).decode()
            obj["data"] = {**obj.get("data", {}), key: encoded}


class WebhookStrategy(Strategy):
    """Defaults of webhook configurations."""

    def default(self, obj: Obj) -> None:
        """As the v1 API declares them."""
        for webhook in obj.get("webhooks") or ():
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("timeoutSeconds", 10)
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})


class DefinitionStrategy(StatusStrategy):
    """A CustomResourceDefinition is established as soon as it is there."""

    def prepare_create(self, obj: Obj) -> None:
        """Write the conditions that clients wait for."""
        conditions: list[Obj] = []
        for name, reason in (("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")):
            set_condition(conditions, {"type": name, "status": "True", "reason": reason, "message": ""})
        obj["status"] = {"conditions": conditions, "acceptedNames": obj["spec"]["names"]}

    def validate(self, obj: Obj, old: Obj | None) -> list[str]:
        """The name must be `plural.group`, and every rule must be CEL."""
        del old
        if broken := list(_broken_rules(obj)):
            return broken
        wanted = f"{dig(obj, 'spec.names.plural')}.{dig(obj, 'spec.group')}"
        if (name := obj["metadata"]["name"]) != wanted:
            return [f'metadata.name: Invalid value: "{name}": must be spec.names.plural+"."+spec.group']
        return []


def _broken_rules(definition: Obj) -> Iterator[str]:
    for number, version in enumerate(definition["spec"].get("versions", ())):
        for rule in schema.rules_of(version.get("schema", {}).get("openAPIV3Schema", {})):
            try:
                cel.compile(rule)
            except ValueError as error:
                yield f'spec.versions[{number}].schema: Invalid value: "{rule}": compilation failed: {error}'


class CustomStrategy(Strategy):
    """Objects of a CustomResourceDefinition: defaulted, pruned and validated by its schema."""

    def __init__(self, resource: Resource) -> None:
        self._schema = resource.schema or {"x-kubernetes-preserve-unknown-fields": True}
        self._status = resource.status

    def default(self, obj: Obj) -> None:
        """Fill the schema's defaults in and drop fields that it does not know."""
        schema.prune(obj, self._schema)
        schema.default(obj, self._schema)

    def prepare_create(self, obj: Obj) -> None:
        """With a status subresource, a created object starts without a status."""
        obj["metadata"]["generation"] = 1
        if self._status:
            obj.pop("status", None)

    def prepare_update(self, obj: Obj, old: Obj) -> None:
        """Keep the status; count the generation when anything else of the content changed."""
        if self._status:
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
        changed = _content(obj) != _content(old)
        obj["metadata"]["generation"] = old["metadata"].get("generation", 1) + int(changed)

    def validate(self, obj: Obj, old: Obj | None) -> list[str]:
        """Against the schema."""
        del old
        return schema.errors_of(obj, self._schema)


def _content(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
