"""How many pods a group needs at once, as its object says in one of the conventions that are in use.

| convention | the object that says how many |
|---|---|
| Kubernetes 1.36 | podgroups.scheduling.k8s.io, `…gang.minCount` |
| scheduler-plugins | podgroups.scheduling.x-k8s.io, `minMember`; or the pods' label `…/min-available` |
| Volcano | podgroups.scheduling.volcano.sh, `minMember` |

Without an object the pods' own annotation `aliquot.dev/group-min-members` is heeded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aliquot.api.names import GROUP_MIN_ANNOTATION, GROUP_SECONDS_ANNOTATION
from aliquot.api.pod_groups import NATIVE, PLUGINS, VOLCANO
from aliquot.kube.objects import KubeObject, KubeStruct, ObjectMeta
from aliquot.kube.resources import Resource

_MIN_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
MOST_SECONDS: Final = 24 * 3600.0
MOST_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Terms:
    """What is said of a group; None where nothing is.

    Attributes:
        members: So many get their places at once, or none; 0 or 1 where each pod may go alone.
        seconds: How long their places wait for all of them.
    """

    members: int | None = None
    seconds: float | None = None

    def over(self, other: "Terms") -> "Terms":
        """This, and the other where this says nothing."""
        return Terms(
            other.members if self.members is None else self.members,
            other.seconds if self.seconds is None else self.seconds,
        )


UNSAID: Final = Terms()


class _Gang(KubeStruct, frozen=True, kw_only=True):
    min_count: int = 0


class _Policy(KubeStruct, frozen=True, kw_only=True):
    gang: _Gang | None = None


class _GroupSpec(KubeStruct, frozen=True, kw_only=True):
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None
    scheduling_policy: _Policy | None = None


class PodGroup(KubeObject, frozen=True, kw_only=True):
    """A PodGroup of any of the three kinds, as far as it matters here."""

    spec: _GroupSpec = _GroupSpec()

    @property
    def terms(self) -> Terms:
        """What it says; a policy that is not `gang` lets each pod go alone."""
        spec = self.spec
        gang = spec.scheduling_policy and spec.scheduling_policy.gang
        members = gang.min_count if gang else spec.min_member or 0
        said = spec.schedule_timeout_seconds
        return Terms(members, float(said) if said and said > 0 else None)


RESOURCES: Final = (
    Resource(NATIVE, "v1alpha2", "podgroups", PodGroup),
    Resource(PLUGINS, "v1alpha1", "podgroups", PodGroup),
    Resource(VOLCANO, "v1beta1", "podgroups", PodGroup),
)


def terms_of(meta: ObjectMeta) -> Terms:
    """What a pod itself says of its group; what is no number says nothing."""
    members = _number(meta.annotations, GROUP_MIN_ANNOTATION) or _number(meta.labels, _MIN_LABEL)
    seconds = _number(meta.annotations, GROUP_SECONDS_ANNOTATION)
    return Terms(members, min(float(seconds), MOST_SECONDS) if seconds else None)


def _number(written: Mapping[str, str], key: str) -> int | None:
    """A number of at least 1, and of no more than nine digits."""
    text = written.get(key, "")
    fits = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return int(text) or None if fits else None
