"""What each verb does to the store, free of HTTP: every refusal is a StatusError."""

from __future__ import annotations

import copy
import secrets
import string
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aliquot.sandbox.cluster.apiserver import errors, eviction, pods
from aliquot.sandbox.cluster.apiserver.admission import Attempt
from aliquot.sandbox.cluster.apiserver.patch import APPLY_PATCH, apply_patch
from aliquot.sandbox.cluster.apiserver.pods import PodStrategy
from aliquot.sandbox.cluster.apiserver.strategy import (
    CustomStrategy,
    DefinitionStrategy,
    SecretStrategy,
    StatusStrategy,
    Strategy,
    WebhookStrategy,
)
from aliquot.sandbox.cluster.objects import dig, name_of, timestamp, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot.sandbox.cluster.apiserver.admission import Admission
    from aliquot.sandbox.cluster.apiserver.resources import Registry, Resource
    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.objects import Obj

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
NAMESPACES = ("default", "kube-system", "kube-node-lease")

_SUFFIX = "".join(sorted(set(string.ascii_lowercase + string.digits) - set("aeiou013l")))


@dataclass(frozen=True)
class Target:
    """What a request is about: a resource, and where in it."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass
class Outcome:
    """What a write comes back with."""

    object: Obj
    created: bool = False
    warnings: list[str] = field(default_factory=list)


class Rest:
    """The verbs."""

    def __init__(self, store: Store, registry: Registry, admission: Admission) -> None:
        self._store = store
        self._registry = registry
        self._admission = admission
        self._strategies: dict[str, Strategy] = {
            "pods": PodStrategy(),
            "nodes": StatusStrategy(),
            "namespaces": StatusStrategy(),
            "services": StatusStrategy(),
            "secrets": SecretStrategy(),
            "mutatingwebhookconfigurations.admissionregistration.k8s.io": WebhookStrategy(),
            "validatingwebhookconfigurations.admissionregistration.k8s.io": WebhookStrategy(),
            DEFINITIONS: DefinitionStrategy(),
        }
        for definition in store.list(DEFINITIONS):
            registry.add_definition(definition)
        self._create_namespaces()

    def get(self, target: Target) -> Obj:
        """The stored object; 404."""
        obj = self._store.get(target.resource.key, target.namespace, target.name)
        if obj is None:
            raise errors.not_found(target.resource.key, target.name)
        return obj

    async def create(self, target: Target, obj: Obj, *, dry_run: bool = False) -> Outcome:
        """Create an object. 400, 404 (namespace), 409 (name taken), 422, or what admission says."""
        strategy = self._strategy(target.resource)
        obj = copy.deepcopy(obj)
        self._check_identity(target, obj)
        if target.resource.namespaced and self._store.get("namespaces", "", target.namespace) is None:
            raise errors.not_found("namespaces", target.namespace)
        strategy.default(obj)
        options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
        attempt = Attempt(target.resource, "CREATE", obj, None, dry_run, options)
        admitted, warnings = await self._admission.mutate(attempt, strategy)
        obj = copy.deepcopy(admitted or obj)
        _stamp(obj)
        strategy.prepare_create(obj)
        self._validate(target, strategy, obj, None)
        attempt = Attempt(target.resource, "CREATE", obj, None, dry_run, options)
        warnings += await self._admission.validate(attempt)
        if self._store.get(target.resource.key, target.namespace, name_of(obj)) is not None:
            raise errors.already_exists(target.resource.key, name_of(obj))
        stored = obj if dry_run else self._put(target.resource, obj)
        return Outcome(stored, created=True, warnings=warnings)

    async def replace(self, target: Target, obj: Obj) -> Outcome:
        """Replace an object or its status. 404, 409 (resourceVersion, uid), 422."""
        obj = copy.deepcopy(obj)
        self._check_identity(target, obj)
        return await self._update(target, lambda _: obj, dig(obj, "metadata.resourceVersion"))

    async def patch(self, target: Target, media_type: str, patch: Any) -> Outcome:
        """Patch an object or its status; server-side apply creates it when absent."""
        current = self._store.get(target.resource.key, target.namespace, target.name)
        if current is None and media_type == APPLY_PATCH:
            return await self.create(target, patch)
        version = dig(patch, "metadata.resourceVersion") if isinstance(patch, dict) else None
        custom = target.resource.custom
        return await self._update(
            target, lambda old: apply_patch(media_type, old, patch, custom=custom), version
        )

    async def delete(self, target: Target, options: Obj) -> Obj:
        """Delete an object, gracefully where its kind wants that. 404, 409 (preconditions)."""
        obj = self.get(target)
        _check_preconditions(target, obj, options)
        attempt = Attempt(target.resource, "DELETE", None, obj)
        await self._admission.mutate(attempt, Strategy())
        await self._admission.validate(attempt)
        obj = self.get(target)
        grace = self._strategy(target.resource).grace_seconds(obj, options.get("gracePeriodSeconds"))
        if grace > 0 or obj["metadata"].get("finalizers"):
            return self._store.put(target.resource.key, pods.mark_deleted(obj, grace))
        return self._remove(target.resource, obj)

    async def evict(self, target: Target, body: Obj) -> None:
        """Delete a pod, if its disruption budget allows that. 404, 409 (preconditions), 429."""
        pod, options = self.get(target), body.get("deleteOptions") or {}
        _check_preconditions(target, pod, options)
        eviction.allow(self._store, pod)
        await self.delete(target, options)

    def bind(self, target: Target, binding: Obj) -> None:
        """Bind a pod in one write. 404, 409."""
        self._store.put(target.resource.key, pods.bind(self.get(target), binding))

    async def _update(self, target: Target, change: Callable[[Obj], Obj], version: str | None) -> Outcome:
        """Read, change, admit, and write if nobody wrote in between (else start over, or 409)."""
        strategy = self._strategy(target.resource)
        while True:
            old = self.get(target)
            if version not in (None, "", old["metadata"]["resourceVersion"]):
                raise _modified(target)
            obj = copy.deepcopy(change(copy.deepcopy(old)))
            _keep_identity(target, obj, old)
            admitted, warnings = await self._prepared(target, strategy, obj, old)
            if self.get(target)["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]:
                return Outcome(self._write(target, admitted, old), warnings=warnings)

    async def _prepared(
        self, target: Target, strategy: Strategy, obj: Obj, old: Obj
    ) -> tuple[Obj, list[str]]:
        warnings: list[str] = []
        strategy.default(obj)
        if target.subresource == "status":
            strategy.prepare_status(obj, old)
        else:
            attempt = Attempt(target.resource, "UPDATE", obj, old)
            admitted, warnings = await self._admission.mutate(attempt, strategy)
            obj = copy.deepcopy(admitted or obj)
            strategy.prepare_update(obj, old)
        self._validate(target, strategy, obj, old)
        return obj, warnings

    def _write(self, target: Target, obj: Obj, old: Obj) -> Obj:
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if obj == old:
            return old
        if obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            finalised = bool(old["metadata"].get("finalizers"))
            if finalised and not self._strategy(target.resource).grace_seconds(obj, None):
                return self._remove(target.resource, obj)
        return self._put(target.resource, obj)

    def _put(self, resource: Resource, obj: Obj) -> Obj:
        stored = self._store.put(resource.key, obj)
        if resource.key == DEFINITIONS:
            self._registry.add_definition(stored)
            self._strategies.pop(name_of(stored), None)
        return stored

    def _remove(self, resource: Resource, obj: Obj) -> Obj:
        if resource.key == DEFINITIONS:
            for instance in self._store.list(name_of(obj)):
                self._store.remove(name_of(obj), instance)
            self._registry.remove_definition(obj)
            self._strategies.pop(name_of(obj), None)
        if resource.key == "namespaces":
            for inner in [r for r in self._registry if r.namespaced]:
                for instance in self._store.list(inner.key, name_of(obj)):
                    self._store.remove(inner.key, instance)
        return self._store.remove(resource.key, obj)

    def _strategy(self, resource: Resource) -> Strategy:
        if resource.custom:
            return self._strategies.setdefault(resource.key, CustomStrategy(resource))
        return self._strategies.setdefault(resource.key, Strategy())

    def _validate(self, target: Target, strategy: Strategy, obj: Obj, old: Obj | None) -> None:
        if found := strategy.validate(obj, old):
            raise errors.invalid(target.resource.kind, name_of(obj), found)

    def _check_identity(self, target: Target, obj: Obj) -> None:
        """The object's kind, name and namespace must be those of the path; missing ones are filled in."""
        resource = target.resource
        kind = (obj.get("apiVersion", resource.api_version), obj.get("kind", resource.kind))
        if kind != (resource.api_version, resource.kind):
            given = f"{kind[0]}, Kind={kind[1]}"
            raise errors.bad_request(f"the object provided is unrecognized for {resource.key}: {given}")
        obj.update(apiVersion=resource.api_version, kind=resource.kind)
        metadata = obj["metadata"] = dict(obj.get("metadata") or {})
        if resource.namespaced and metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if target.name and metadata.setdefault("name", target.name) != target.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match"
                f" the name on the URL ({target.name})"
            )
        if prefix := metadata.get("generateName"):
            metadata.setdefault("name", prefix + "".join(secrets.choice(_SUFFIX) for _ in range(5)))
        if not metadata.get("name"):
            raise errors.invalid(
                resource.kind, "", ["metadata.name: Required value: name or generateName is required"]
            )

    def _create_namespaces(self) -> None:
        for name in NAMESPACES:
            if self._store.get("namespaces", "", name) is None:
                labels = {"kubernetes.io/metadata.name": name}
                obj: Obj = {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": labels},
                }
                _stamp(obj)
                self._store.put("namespaces", {**obj, "status": {"phase": "Active"}})


def _stamp(obj: Obj) -> None:
    metadata = obj["metadata"]
    for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
        metadata.pop(key, None)
    metadata.update(uid=str(uuid.uuid4()), creationTimestamp=timestamp())
    if obj["kind"] == "Namespace":
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            "kubernetes.io/metadata.name": metadata["name"],
        }


def _keep_identity(target: Target, obj: Obj, old: Obj) -> None:
    metadata, kept = obj["metadata"], old["metadata"]
    if metadata.get("uid", kept["uid"]) != kept["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {kept['uid']}"
        )
        raise errors.conflict(target.resource.key, target.name, why)
    obj.update(apiVersion=old["apiVersion"], kind=old["kind"])
    for key in (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        metadata.pop(key, None)
        if key in kept:
            metadata[key] = kept[key]
    metadata.pop("managedFields", None)


def _check_preconditions(target: Target, obj: Obj, options: Obj) -> None:
    """Whether it is still the object that is meant. 409."""
    wanted = options.get("preconditions") or {}
    for key, have in (("uid", uid_of(obj)), ("resourceVersion", obj["metadata"]["resourceVersion"])):
        if key in wanted and wanted[key] != have:
            why = f"Precondition failed: {key} in precondition: {wanted[key]}, in object meta: {have}"
            raise errors.conflict(target.resource.key, target.name, why)


def _modified(target: Target) -> errors.StatusError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return errors.conflict(target.resource.key, target.name, why)
