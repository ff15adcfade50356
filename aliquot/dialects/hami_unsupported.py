"""What a manifest for HAMi can say that is not honoured here, each with what says the same in our words.

A pod that says one of these is refused, since it would otherwise run elsewhere than its author believes. Values that
ask for what every slice has anyway (`numa-bind: "false"`, `vgpu-mode: hami-core`) are let pass.

The names are those of HAMi 2.10 (`pkg/device/nvidia/device.go`, `pkg/util/types.go` and `pkg/scheduler/webhook.go` in
Project-HAMi/HAMi, and what HAMi-core reads of a container's environment).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from aliquot.api.names import (
    CARD_MODEL_ANNOTATION,
    CARD_POLICY_ANNOTATION,
    CARD_UUID_ANNOTATION,
    CORE_MODE_ANNOTATION,
    MEMORY_CLASS_ANNOTATION,
    NODE_POLICY_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
    PRIORITY_ANNOTATION,
    SCHEDULER_NAME,
    TOPOLOGY_ANNOTATION,
)
from aliquot.kube.objects import Container, Pod

SCHEDULER: Final = "hami-scheduler"
IGNORE_LABEL: Final = "hami.io/webhook"
_NOT_TRUE: Final = frozenset({"", "0", "f", "false"})


@dataclass(frozen=True)
class Unsupported:
    """One thing that a pod says: where (`annotation nvidia.com/numa-bind`), its value, and what to do instead."""

    where: str
    value: str
    remedy: str


@dataclass(frozen=True)
class _Rule:
    """`nothing` says of which values it asks for nothing that a slice does not have anyway."""

    remedy: str
    nothing: Callable[[str], bool] = lambda value: not value.strip()


def _is_false(value: str) -> bool:
    return value.strip().lower() in _NOT_TRUE


def _is_software(value: str) -> bool:
    """Whether a list of ways to share a card has the one of HAMi's that is ours, too."""
    return not value.strip() or "hami-core" in (word.strip() for word in value.split(","))


def _is_forced(value: str) -> bool:
    return value.strip().lower() in {"", "force"}


_WHOLE_NAME: Final = "and the whole name of the model, such as NVIDIA H200"
ANNOTATIONS: Final[Mapping[str, _Rule]] = {
    "nvidia.com/use-gputype": _Rule(f"write {CARD_MODEL_ANNOTATION} {_WHOLE_NAME}"),
    "nvidia.com/nouse-gputype": _Rule(f"write {NOT_CARD_MODEL_ANNOTATION} {_WHOLE_NAME}"),
    "nvidia.com/use-gpuuuid": _Rule(f"write {CARD_UUID_ANNOTATION}"),
    "nvidia.com/nouse-gpuuuid": _Rule(f"write {NOT_CARD_UUID_ANNOTATION}"),
    "nvidia.com/numa-bind": _Rule(f"write {TOPOLOGY_ANNOTATION}: numa", _is_false),
    "nvidia.com/vgpu-mode": _Rule(
        "leave it out, or ask for a MIG instance (Aliquot's resource mig-PROFILE) in place of it",
        _is_software,
    ),
    "hami.io/node-scheduler-policy": _Rule(f"write {NODE_POLICY_ANNOTATION}: Binpack or Spread"),
    "hami.io/gpu-scheduler-policy": _Rule(
        f"write {CARD_POLICY_ANNOTATION}: Binpack or Spread, or {TOPOLOGY_ANNOTATION} for cards that are linked"
    ),
    "hami.io/device-scoring-weights": _Rule(f"leave it out, or write {CARD_POLICY_ANNOTATION}"),
}
"""Annotations that HAMi's users set."""

ENVIRONMENT: Final[Mapping[str, _Rule]] = {
    "CUDA_TASK_PRIORITY": _Rule(f"write annotation {PRIORITY_ANNOTATION}, 0 to 9, where 9 goes first"),
    "CUDA_OVERSUBSCRIBE": _Rule(f"write annotation {MEMORY_CLASS_ANNOTATION}: burst", _is_false),
    "GPU_CORE_UTILIZATION_POLICY": _Rule(
        f"write annotation {CORE_MODE_ANNOTATION}: burst or uncapped", _is_forced
    ),
}
"""Environment variables that HAMi's users set; those that every pod with a slice is refused for are not among them."""


def unsupported(pod: Pod, priority: str) -> Iterator[Unsupported]:
    """List all that a pod says and that is not honoured.

    Args:
        pod: A pod with a slice.
        priority: The name of HAMi's resource for the priority of a container.
    """
    for name, rule in ANNOTATIONS.items():
        value = pod.metadata.annotations.get(name)
        if value is not None and not rule.nothing(value):
            yield Unsupported(f"annotation {name}", value, rule.remedy)
    if pod.metadata.labels.get(IGNORE_LABEL) == "ignore":
        remedy = "leave the resources for cards out, or the label; the same label of the namespace is allowed"
        yield Unsupported(f"label {IGNORE_LABEL}", "ignore", remedy)
    if pod.spec.scheduler_name == SCHEDULER:
        yield Unsupported("schedulerName", SCHEDULER, f"leave it out or write {SCHEDULER_NAME}")
    for container in chain(pod.spec.init_containers, pod.spec.containers):
        yield from _in_container(container, priority)


def _in_container(container: Container, priority: str) -> Iterator[Unsupported]:
    where = f"container {container.name!r}:"
    asked = {**container.resources.requests, **container.resources.limits}
    if priority in asked:
        remedy = f"write annotation {PRIORITY_ANNOTATION}, 0 to 9, where 9 goes first"
        yield Unsupported(f"{where} {priority}", str(asked[priority]), remedy)
    for variable in container.env:
        rule = ENVIRONMENT.get(variable.name)
        value = "" if variable.value is None else variable.value
        if rule and (variable.value_from is not None or not rule.nothing(value)):
            yield Unsupported(f"{where} env {variable.name}", value, rule.remedy)
