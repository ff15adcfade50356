"""Pods at the API server: defaults, validation, what updates may change, graceful deletion, binding."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors, quantity
from aliquot.sandbox.cluster.apiserver.strategy import StatusStrategy
from aliquot.sandbox.cluster.objects import dig, name_of, set_condition, timestamp, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from aliquot.sandbox.cluster.objects import Obj

NATIVE = ("cpu", "memory", "ephemeral-storage")

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_IMMUTABLE = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to"
    " existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was"
    " previously negative)"
)


def is_extended(resource: str) -> bool:
    """Whether a resource is an extended one: with a domain, and not Kubernetes' own."""
    return "/" in resource and "kubernetes.io/" not in resource


class PodStrategy(StatusStrategy):
    """Pods."""

    def default(self, obj: Obj) -> None:
        """As the real server fills a pod in before admission; StatusError 400 for unreadable quantities."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", 30)
        spec.setdefault("dnsPolicy", "ClusterFirst")
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        spec.setdefault("securityContext", {})
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("priority", 0)
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        _default_tolerations(spec)
        for _, container in _containers(spec):
            _default_container(container)
        obj.setdefault("status", {})

    def prepare_create(self, obj: Obj) -> None:
        """Phase Pending, quality of service, generation 1."""
        obj["metadata"]["generation"] = 1
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(obj["spec"])}

    def prepare_status(self, obj: Obj, old: Obj) -> None:
        """The spec and the deletion's mark stay as they were."""
        super().prepare_status(obj, old)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"):
            obj["metadata"].pop(key, None)
            if key in old["metadata"]:
                obj["metadata"][key] = old["metadata"][key]

    def validate(self, obj: Obj, old: Obj | None) -> list[str]:
        """A readable spec on create; on update, nothing but what may change."""
        if old is not None:
            return [] if _fixed(obj["spec"]) == _fixed(old["spec"]) else [_IMMUTABLE]
        return list(_spec_errors(obj["spec"]))

    def grace_seconds(self, obj: Obj, asked: int | None) -> int:
        """A pod that is on a node and not finished waits for its kubelet."""
        if not dig(obj, "spec.nodeName") or dig(obj, "status.phase") in ("Succeeded", "Failed"):
            return 0
        return int(obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)


def bind(pod: Obj, binding: Obj) -> Obj:
    """The pod with a Binding applied: node, annotations, labels and condition in one piece.

    Raises:
        StatusError: 422 without a node; 409 for another UID, or a pod that is bound, gated or being deleted.
    """
    name = name_of(pod)
    node = dig(binding, "target.name")
    if not node:
        raise errors.invalid("Binding", name, ["target.name: Required value"])
    asked = uid_of(binding)
    if asked and asked != uid_of(pod):
        why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {uid_of(pod)}"
        raise errors.conflict("pods/binding", name, why)
    if refusal := _unbindable(pod):
        raise errors.conflict("pods/binding", name, refusal)
    bound = copy.deepcopy(pod)
    bound["spec"]["nodeName"] = node
    for key in ("annotations", "labels"):
        if extra := dig(binding, f"metadata.{key}"):
            bound["metadata"][key] = {**bound["metadata"].get(key, {}), **extra}
    conditions = bound["status"].setdefault("conditions", [])
    set_condition(
        conditions, {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "observedGeneration": 1}
    )
    return bound


def mark_deleted(pod: Obj, grace: int) -> Obj:
    """The pod on its way out: a deletion time `grace` seconds ahead; an earlier deletion stands."""
    marked = copy.deepcopy(pod)
    metadata = marked["metadata"]
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds", 0) <= grace:
        return marked
    metadata["deletionTimestamp"] = timestamp(grace)
    metadata["deletionGracePeriodSeconds"] = grace
    return marked


def _unbindable(pod: Obj) -> str:
    name = name_of(pod)
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _containers(spec: Obj) -> Iterator[tuple[str, Obj]]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def _default_tolerations(spec: Obj) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def _default_container(container: Obj) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image", "")
    tagged = ":" in image.rsplit("/", 1)[-1] and not image.endswith(":latest")
    container.setdefault("imagePullPolicy", "IfNotPresent" if tagged else "Always")
    resources = container.setdefault("resources", {})
    for kind in ("limits", "requests"):
        if resources.get(kind):
            resources[kind] = {name: _canonical(value) for name, value in resources[kind].items()}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _canonical(value: object) -> str:
    try:
        return quantity.canonical(value)
    except quantity.QuantityError as error:
        raise errors.bad_request(f'Pod in version "v1" cannot be handled as a Pod: {error}') from error


def _qos_class(spec: Obj) -> str:
    """Extended resources do not count: a pod that asks for nothing else is BestEffort."""
    native = [
        {
            kind: {k: v for k, v in (c["resources"].get(kind) or {}).items() if k in ("cpu", "memory")}
            for kind in ("limits", "requests")
        }
        for _, c in _containers(spec)
    ]
    if not any(r["requests"] or r["limits"] for r in native):
        return "BestEffort"
    if all(len(r["limits"]) == 2 and r["limits"] == r["requests"] for r in native):  # noqa: PLR2004
        return "Guaranteed"
    return "Burstable"


def _fixed(spec: Obj) -> Obj:
    """What of a pod's spec no update may change."""
    loose = ("tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates")
    fixed = {key: value for key, value in spec.items() if key not in loose}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    return fixed


def _spec_errors(spec: Obj) -> Iterator[str]:
    if not spec.get("containers"):
        yield "spec.containers: Required value"
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        listed = ", ".join(f'"{policy}"' for policy in _RESTART_POLICIES)
        yield (
            f'spec.restartPolicy: Unsupported value: "{spec["restartPolicy"]}": supported values: {listed}'
        )
    seen: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for path, container in _containers(spec):
        name = container.get("name", "")
        if not _NAME.match(name):
            yield f'{path}.name: Invalid value: "{name}": a lowercase RFC 1123 label is required'
        if name in seen:
            yield f'{path}.name: Duplicate value: "{name}"'
        seen.add(name)
        yield from _mount_errors(path, container, volumes)
        yield from _resource_errors(path, container["resources"])


def _mount_errors(path: str, container: Obj, volumes: set[str]) -> Iterator[str]:
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield f'{path}.volumeMounts[{index}].name: Not found: "{mount.get("name")}"'


def _resource_errors(path: str, resources: Obj) -> Iterator[str]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            yield from _amount_errors(f"{path}.resources.{kind}[{name}]", name, text)
    for name, text in requests.items():
        where, asked = f"{path}.resources.requests", quantity.parse(text)
        if is_extended(name) and name not in limits:
            why = "Limit must be set for non overcommitable resources"
            yield f"{path}.resources.limits: Required value: {why}"
        elif is_extended(name) and asked != quantity.parse(limits[name]):
            yield f'{where}: Invalid value: "{text}": must be equal to {name} limit of {limits[name]}'
        elif name in limits and asked > quantity.parse(limits[name]):
            yield (
                f'{where}: Invalid value: "{text}":'
                f" must be less than or equal to {name} limit of {limits[name]}"
            )


def _amount_errors(where: str, name: str, text: str) -> Iterator[str]:
    amount: Fraction = quantity.parse(text)
    if "/" not in name and name not in NATIVE and not name.startswith("hugepages-"):
        yield f'{where}: Invalid value: "{name}": must be a standard resource type or fully qualified'
    if amount < 0:
        yield f'{where}: Invalid value: "{text}": must be greater than or equal to 0'
    if is_extended(name) and amount.denominator != 1:
        yield f'{where}: Invalid value: "{text}": must be an integer'
