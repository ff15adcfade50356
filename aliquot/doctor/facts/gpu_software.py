"""Other software that hands out, shares or watches NVIDIA cards: how it is known, and what to do about it.

What a node's kubelet serves (`status.allocatable`) is the truest sign of a device plugin; pods are known by the names
of their images and of what made them.
"""

from dataclasses import dataclass
from typing import Final

from aliquot.kube.objects import Pod

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""By which containers ask NVIDIA's container runtime for cards."""
OPERATOR_SWITCH: Final = "nvidia.com/gpu.deploy.device-plugin=false"


@dataclass(frozen=True)
class Neighbour:
    """One of them.

    Attributes:
        name: As people call it.
        resources: What it serves; one that ends in `-` stands for all that begin so.
        marks: Parts of the names of its images and DaemonSets.
        remedy: What to do about it on nodes whose cards Aliquot shares.
        annotation: What it writes on its nodes, if anything.
        but: Parts of the names of DaemonSets that have its image for something else.
    """

    name: str
    resources: tuple[str, ...]
    marks: tuple[str, ...]
    remedy: str
    annotation: str = ""
    but: tuple[str, ...] = ()

    def runs_in(self, pod: Pod) -> bool:
        """Whether a pod is its own: a DaemonSet's, by the names of that and of its images."""
        return by_daemon(pod) and known_by(pod, self.marks) and not known_by(pod, self.but)

    def serves(self, resource: str) -> bool:
        """Whether a resource is its own."""
        return any(
            resource.startswith(one) if one.endswith("-") else resource == one for one in self.resources
        )


_OFF: Final = "Keep its DaemonSet off these nodes (nodeSelector or affinity)"

HANDERS: Final = (
    Neighbour(
        "HAMi",
        ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
        ("hami-device-plugin", "projecthami/hami"),
        "Take the label gpu=on off these nodes, or HAMi off the cluster (docs/compatibility.md).",
        annotation="hami.io/node-nvidia-register",
    ),
    Neighbour(
        "NVIDIA's device plugin",
        ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-"),
        ("k8s-device-plugin", "nvidia-device-plugin", "nvidia-gpu-device-plugin", "gke-gpu-device-plugin"),
        f"With the GPU Operator: kubectl label node NODE {OPERATOR_SWITCH}. Else {_OFF[0].lower()}{_OFF[1:]}.",
        but=("gpu-feature-discovery", "mps-control-daemon"),
    ),
    Neighbour(
        "Volcano's GPU plugin",
        (
            "volcano.sh/vgpu-number",
            "volcano.sh/vgpu-memory",
            "volcano.sh/vgpu-memory-percentage",
            "volcano.sh/vgpu-cores",
            "volcano.sh/gpu-number",
            "volcano.sh/gpu-memory",
        ),
        ("volcano-device-plugin", "volcano-vgpu-device-plugin"),
        f"{_OFF}; Volcano itself schedules slices (docs/volcano.md).",
    ),
    Neighbour(
        "Aliyun gpushare",
        ("aliyun.com/gpu-mem", "aliyun.com/gpu-count"),
        ("gpushare-device-plugin", "k8s-gpushare-plugin"),
        "Take the label gpushare=true off these nodes.",
    ),
    Neighbour(
        "Tencent's gpu-manager",
        ("tencent.com/vcuda-core", "tencent.com/vcuda-memory"),
        ("tkestack/gpu-manager", "gpu-manager-daemonset"),
        "Take the label nvidia-device-enable=enable off these nodes.",
    ),
    Neighbour(
        "vgpu-manager",
        ("nvidia.com/vgpu-number", "nvidia.com/vgpu-memory", "nvidia.com/vgpu-cores"),
        ("vgpu-manager",),
        f"{_OFF}.",
    ),
    Neighbour("nvshare", ("nvshare.com/gpu",), ("nvshare-device-plugin",), f"{_OFF}."),
    Neighbour(
        "NVIDIA's DRA driver",
        (),
        ("k8s-dra-driver-gpu", "nvidia-dra-driver", "dra-driver-nvidia-gpu"),
        "Switch its GPU half off (resources.gpus.enabled=false), or keep its kubelet plugin off these nodes.",
    ),
    Neighbour(
        "CUDA MPS",
        (),
        ("mps-control-daemon",),
        "Take `mps` out of the device plugin's configuration for these nodes: it puts cards into compute mode "
        "Exclusive_Process, in which containers with slices cannot share them.",
    ),
)
"""Those that hand out cards, or take them in a way that leaves none for slices."""

CHANGERS: Final = (
    Neighbour(
        "MIG manager",
        (),
        ("mig-manager",),
        "Change nvidia.com/mig.config only on nodes that are drained: a change of MIG mode ends all who use the card.",
    ),
)
"""Those that change cards under their users."""

TOOLS: Final = (
    "dcgm",
    "gpu-feature-discovery",
    "node-feature-discovery",
    "gpu-operator",
    "container-toolkit",
    "operator-validator",
    "nvidia-driver-daemonset",
    "k8s-mig-manager",
    "nvidia-mig-manager",
    "node-status-exporter",
)
"""Marks of what has to see all cards and takes none."""


def names_of(pod: Pod) -> tuple[str, ...]:
    """What a pod can be known by: its images without tags and digests, and the names of its owners."""
    images = (c.image.partition("@")[0] for c in (*pod.spec.containers, *pod.spec.init_containers))
    owners = (owner.name for owner in pod.metadata.owner_references)
    return (*images, *owners)


def known_by(pod: Pod, marks: tuple[str, ...]) -> bool:
    """Whether one of its names has one of these marks."""
    return any(mark in name for name in names_of(pod) for mark in marks)


def by_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet put it on its node: an admin's, who may make one there."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def is_tool(pod: Pod) -> bool:
    """Whether it is NVIDIA's own, that a DaemonSet put on its node, or hands out cards itself."""
    return by_daemon(pod) and (known_by(pod, TOOLS) or is_neighbour(pod))


def is_neighbour(pod: Pod) -> bool:
    """Whether it is one of those above."""
    return any(one.runs_in(pod) for one in HANDERS + CHANGERS)
