"""Versions as numbers, of what Kubernetes and its runtimes report."""

import re
from typing import Final

_NUMBERS: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")

Version = tuple[int, int, int]

OLDEST_KUBERNETES: Final = (1, 30, 0)
"""matchConditions of webhooks and ValidatingAdmissionPolicies are stable from here on (Chart.yaml's kubeVersion)."""
NEWEST_KUBERNETES: Final = (1, 37, 0)
"""The newest minor version that the tests run on (tests/cluster/go.mod)."""
OLDEST_CONTAINERD: Final = (1, 7, 0)
CDI_CONTAINERD: Final = (2, 0, 0)
"""From here on CDI is on unless it is switched off."""
OLDEST_CRIO: Final = (1, 28, 0)
OLDEST_DRIVER: Final = (510, 39, 0)
"""NVML tells the memory of processes by the call that is used from here on (CUDA 11.6)."""
NEWEST_CUDA: Final = 13050
"""The newest CUDA that the interceptor's table knows, as cuDriverGetVersion counts."""
SAFE_RUNC: Final = {(1, 2): (1, 2, 8), (1, 3): (1, 3, 3)}
"""By minor version: where CVE-2025-31133, -52565 and -52881, ways out of a container, are mended."""
SAFE_TOOLKIT: Final = (1, 17, 8)
"""NVIDIA Container Toolkit: from here on CVE-2025-23266, a way out of a container, is mended."""


def read_version(text: str) -> Version | None:
    """The first version in a text; None where there is none."""
    found = _NUMBERS.search(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def written(version: tuple[int, ...]) -> str:
    """As people write it, without zeros at the end: `1.30`."""
    numbers = version[:2] if version[2:] == (0,) else version
    return ".".join(map(str, numbers))
