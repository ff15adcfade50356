"""Where the kubelet has mounted the volumes for usage pages (`aliquot.webhook.usage_volume`).

    <kubelet-dir>/pods/<pod UID>/volumes/kubernetes.io~empty-dir/<volume>

A container's usage page is a file that its processes may let grow: in a volume of its own it fills nothing else. It is
the volume's file `usage`. The kubelet asks whether a container may start before it mounts this file into it.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from aliquot.api.names import USAGE_PATH, USAGE_VOLUME
from aliquot.kube.objects import Container

log = logging.getLogger(__name__)

EMPTY_DIR = "kubernetes.io~empty-dir"
MOST_BYTES = 1 << 20


class UsageVolumeError(Exception):
    """A pod's volume is not as it must be; the message names it and the reason."""


@dataclass(frozen=True)
class UsageVolumes:
    """Those of this node's pods; `pods` is the kubelet's directory of pods."""

    pods: Path

    def of(self, pod_uid: str, container: Container) -> Path | None:
        """The volume of a container that is about to start; None if it has none, or none is found.

        Raises:
            UsageVolumeError: it is no small file system of its own.
            OSError: it cannot be looked at.
        """
        mounts = (one for one in container.volume_mounts if one.mount_path == USAGE_PATH)
        name = next((one.name for one in mounts if one.name.startswith(USAGE_VOLUME)), "")
        if not name:
            return None
        volume = self.pods / pod_uid / "volumes" / EMPTY_DIR / name
        if not volume.is_dir():
            log.warning(
                "no volume for the usage page of container %s: %s is not there", container.name, volume
            )
            return None
        check_volume(volume)
        return volume


def check_volume(volume: Path) -> None:
    """Raises UsageVolumeError, where a page could fill more than a small file system of its own."""
    if volume.stat().st_dev == volume.parent.stat().st_dev:
        raise UsageVolumeError(
            f"volume {volume.name} is not mounted here: {volume} must be a memory volume, which the agent sees by "
            "mountPropagation HostToContainer"
        )
    status = os.statvfs(volume)
    size = status.f_blocks * status.f_frsize
    if size > MOST_BYTES:
        raise UsageVolumeError(
            f"volume {volume.name} has {size} bytes; for a usage page {MOST_BYTES} are the most"
        )
