"""Every name that crosses a process border: resources, annotations, paths inside a container.

The admin may choose another domain for the resources (`resource_domain`). Annotations and paths are fixed: pods that
are already running depend on them.
"""

import re
from dataclasses import dataclass
from typing import Self

DOMAIN = "aliquot.dev"
API_GROUP = DOMAIN
API_VERSION = "v1alpha1"

PLACEMENT_ANNOTATION = f"{DOMAIN}/placement"
INJECT_ANNOTATION = f"{DOMAIN}/inject"
INJECT_BY_ENV = "preload"
INJECT_BY_FILE = "file"
ENFORCEMENT_ANNOTATION = f"{DOMAIN}/enforcement"
MEMORY_CLASS_ANNOTATION = f"{DOMAIN}/memory-class"
OVERFLOW_ANNOTATION = f"{DOMAIN}/overflow"
MANAGED_ANNOTATION = f"{DOMAIN}/managed"
CORE_MODE_ANNOTATION = f"{DOMAIN}/core-mode"
CORE_LIMIT_ANNOTATION = f"{DOMAIN}/core-limit"
PRIORITY_ANNOTATION = f"{DOMAIN}/priority"
NODE_POLICY_ANNOTATION = f"{DOMAIN}/node-policy"
CARD_POLICY_ANNOTATION = f"{DOMAIN}/card-policy"
TOPOLOGY_ANNOTATION = f"{DOMAIN}/topology"
RDMA_ANNOTATION = f"{DOMAIN}/rdma"
CARD_MODEL_ANNOTATION = f"{DOMAIN}/card-model"
NOT_CARD_MODEL_ANNOTATION = f"{DOMAIN}/not-card-model"
CARD_UUID_ANNOTATION = f"{DOMAIN}/card-uuid"
NOT_CARD_UUID_ANNOTATION = f"{DOMAIN}/not-card-uuid"
RESIZE_MEMORY_ANNOTATION = f"{DOMAIN}/resize-gpu-mem"
RESIZE_CORE_ANNOTATION = f"{DOMAIN}/resize-gpu-core"
RESIZE_STATUS_ANNOTATION = f"{DOMAIN}/resize-status"
RETRY_ANNOTATION = f"{DOMAIN}/retry"
GROUP_MIN_ANNOTATION = f"{DOMAIN}/group-min-members"
GROUP_SECONDS_ANNOTATION = f"{DOMAIN}/group-timeout-seconds"
RECLAIM_ANNOTATION = f"{DOMAIN}/reclaim"
GRANTS = (PLACEMENT_ANNOTATION, RESIZE_STATUS_ANNOTATION, RETRY_ANNOTATION, RECLAIM_ANNOTATION)
"""Annotations of pods that the scheduler writes and everybody else believes."""
LEADER_URL_ANNOTATION = f"{DOMAIN}/leader-url"
CARDS_LIKE = f"{DOMAIN}/cards-like"
SCHEDULER_NAME = "aliquot-scheduler"
WEBHOOKS_NAME = "aliquot"
"""That of the MutatingWebhookConfiguration."""
DEFAULT_SCHEDULER = "default-scheduler"
"""What the API server writes into a pod that names no scheduler."""

LIBRARY_DIR = "/usr/local/aliquot"
LIBRARY_PATH = f"{LIBRARY_DIR}/libaliquot.so"
PRELOAD_FILE = "/etc/ld.so.preload"
CONTROL_PATH = "/run/aliquot/control"
USAGE_PATH = "/run/aliquot/usage"
USAGE_FILE = "usage"
USAGE_VOLUME = "aliquot-usage-"
"""What the names of the volumes of usage pages begin with; a number follows."""
USAGE_VOLUME_SIZE = "128Ki"
"""A usage page takes no more, whether the host's memory is in pages of 4, 16 or 64 KiB."""
CONTROL_ENV = "ALIQUOT_CONTROL_PAGE"
USAGE_ENV = "ALIQUOT_USAGE_PAGE"
QUIET_ENV = "ALIQUOT_QUIET"
"""Set to anything but 0: `aliquot run` and the interceptor tell the user of a run nothing but errors."""
CLAIMS_ENV = "ALIQUOT_CLAIMS_DIRECTORY"
"""Where the runs of all users of a machine say what they have of its cards."""

# NVIDIA's grammar: "1g.10gb", "1c.3g.20gb", with attributes "1g.10gb+me", "1g.24gb+me.all", "1g.24gb-me".
_MIG_ATTRIBUTE = re.compile(r"^((?:\d+c\.)?\d+g\.\d+gb)\.(.+)$")


@dataclass(frozen=True)
class ResourceNames:
    """The extended resources of one cluster, as pods write them in `resources.limits`.

    `domain` is the part before the slash. All resources of this domain belong to Aliquot.
    """

    gpu: str = f"{DOMAIN}/gpu"
    memory: str = f"{DOMAIN}/gpu-mem"
    memory_percent: str = f"{DOMAIN}/gpu-mem-percent"
    core: str = f"{DOMAIN}/gpu-core"
    mig_prefix: str = f"{DOMAIN}/mig-"
    domain: str = DOMAIN

    @classmethod
    def of(cls, domain: str) -> Self:
        """The same resources in another domain."""
        gpu, memory, percent, core, mig = (
            f"{domain}/{word}" for word in ("gpu", "gpu-mem", "gpu-mem-percent", "gpu-core", "mig-")
        )
        return cls(gpu, memory, percent, core, mig, domain)

    @property
    def slices(self) -> tuple[str, str, str, str]:
        """The four resources that together describe a slice."""
        return (self.gpu, self.memory, self.memory_percent, self.core)

    def owns(self, resource: str) -> bool:
        """Tell whether a resource asks something of Aliquot."""
        return resource in self.slices or resource.startswith(self.mig_prefix)

    def misnamed(self, resource: str) -> bool:
        """Tell whether a resource is in the default domain although the admin has chosen another one."""
        return self.domain != DOMAIN and resource.startswith(f"{DOMAIN}/")

    def own(self, resource: str) -> str:
        """Name a resource of the default domain as it is called here."""
        return f"{self.domain}/{resource.partition('/')[2]}" if self.misnamed(resource) else resource

    def mig_resource(self, profile: str) -> str:
        """Name the resource of a MIG profile; '+' is not allowed in resource names and becomes '.'."""
        return self.mig_prefix + profile.replace("+", ".")

    def mig_profile(self, resource: str) -> str | None:
        """Name the MIG profile, as NVML writes it, that a resource stands for; None for other resources."""
        if not resource.startswith(self.mig_prefix):
            return None
        return _MIG_ATTRIBUTE.sub(r"\1+\2", resource.removeprefix(self.mig_prefix))


def is_mig(resource: str) -> bool:
    """Tell whether one of Aliquot's resources, in whatever domain, stands for MIG instances."""
    return resource.partition("/")[2].startswith("mig-")


DEFAULT_NAMES = ResourceNames()
"""The names in a cluster whose admin has chosen no other domain."""
