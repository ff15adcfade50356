"""Which group a pod belongs to, in the conventions that are in use.

| convention | a pod says so by |
|---|---|
| Kubernetes 1.36 | `spec.schedulingGroup.podGroupName` |
| scheduler-plugins | label `scheduling.x-k8s.io/pod-group` |
| the same, older | label `pod-group.scheduling.sigs.k8s.io`, or with `/name` |
| Volcano | annotation `scheduling.k8s.io/group-name` |
"""

from dataclasses import dataclass
from typing import Final

from aliquot.kube.objects import ObjectMeta, SchedulingGroup

NATIVE, PLUGINS, VOLCANO = "scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"
"""The API groups whose PodGroups are read."""

_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group: its namespace and name, and the API group of its PodGroup."""

    namespace: str
    name: str
    api: str

    def __str__(self) -> str:
        """As people are told of it."""
        return f"{self.namespace}/{self.name}"


def group_of(meta: ObjectMeta, native: SchedulingGroup | None) -> GroupKey | None:
    """The group that a pod belongs to; None for most."""
    if native is not None and native.pod_group_name:
        return GroupKey(meta.namespace, native.pod_group_name, NATIVE)
    if meta.labels:
        for label in _LABELS:
            if name := meta.labels.get(label):
                return GroupKey(meta.namespace, name, PLUGINS)
    if meta.annotations:
        for annotation in _ANNOTATIONS:
            if name := meta.annotations.get(annotation):
                return GroupKey(meta.namespace, name, VOLCANO)
    return None
