"""Which other project a resource name belongs to, for those whose names are not read: so that a pod can be told.

A cluster may have such a project's own device plugin, which serves its pods; then Aliquot has nothing to do with them.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final

from aliquot.api.names import DEFAULT_NAMES, ResourceNames
from aliquot.dialects.hami import HamiDialect
from aliquot.kube.objects import Pod

NVIDIA_MIG: Final = "nvidia.com/mig-"
_BY_PREFIX: Final = {
    "aliyun.com/gpu-": "Aliyun's gpushare",
    "koordinator.sh/gpu": "Koordinator",
    "nos.nebuly.com/gpu": "nos",
    NVIDIA_MIG: "NVIDIA's device plugin",
    "nvidia.com/vgpu-": "vgpu-manager",
    "nvshare.com/gpu": "nvshare",
    "tencent.com/vcuda-": "Tencent's gpu-manager",
    "volcano.sh/vgpu-": "Volcano's device plugin",
    "volcano.sh/gpu-": "Volcano's device plugin",
}
HAMI: Final = "HAMi"


def project_of(resource: str) -> str:
    """The project whose resource this is; empty where none is known."""
    if resource in HamiDialect().resources:
        return HAMI
    return next((name for prefix, name in _BY_PREFIX.items() if resource.startswith(prefix)), "")


def speaks(pod: Pod, project: str) -> bool:
    """Whether a pod asks for something in the names of a project."""
    return any(project_of(name) == project for name in _asked(pod))


def in_other_domain(pod: Pod, names: ResourceNames) -> tuple[str, ...]:
    """What a pod asks for in Aliquot's words, but in a domain that is neither this cluster's nor another project's."""
    words = {name.partition("/")[2] for name in names.slices[1:]}
    return tuple(
        name
        for name in _asked(pod)
        if names.misnamed(name)
        or (name.partition("/")[2] in words and not names.owns(name) and not project_of(name))
    )


def not_read(pod: Pod, read: Collection[str], names: ResourceNames = DEFAULT_NAMES) -> str:
    """What a pod asks for in the names of a project that are not read, and what to do; empty where it asks for none.

    Args:
        pod: Any pod.
        read: The resources of the dialects that are switched on.
        names: Aliquot's own resources.
    """
    if other := in_other_domain(pod, names):
        return (
            f"it asks for {', '.join(other)}, but Aliquot's resources are called {names.gpu}, {names.memory} and so on "
            "here; if no device plugin serves the others, make the pod anew with these names"
        )
    found = {name: project for name in _asked(pod) if name not in read and (project := project_of(name))}
    if not found:
        return ""
    remedy = f"ask for {_ours(found, names)}"
    if HAMI in found.values():
        remedy = f"switch the dialect on (dialects={{hami}} in the chart's values), or {remedy}"
    projects = ", ".join(sorted(set(found.values())))
    return (
        f"it asks for {', '.join(found)} in the names of {projects}, which are not read here; if no device plugin "
        f"serves them, {remedy}"
    )


def _ours(found: Collection[str], names: ResourceNames) -> str:
    """What stands in Aliquot's names for what is asked for: MIG instances of a profile, or slices."""
    profiles = [name.removeprefix(NVIDIA_MIG) for name in found if name.startswith(NVIDIA_MIG)]
    wanted = [f"{names.mig_prefix}{profile}" for profile in profiles]
    return " and ".join(wanted if len(wanted) == len(found) else [*wanted, names.gpu, names.memory])


def _asked(pod: Pod) -> Iterator[str]:
    """The resources that its containers name, each once."""
    every = (
        name
        for container in chain(pod.spec.init_containers, pod.spec.containers)
        for name in (*container.resources.limits, *container.resources.requests)
    )
    return iter(dict.fromkeys(every))
