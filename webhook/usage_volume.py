"""Gives a container with a slice or a MIG instance a volume for its usage page, of a fixed size.

The page is a file that the container's processes write, so it can be made as large as the file system it is on. In a
memory volume of this size it fills nothing else. The agent lays the page in the volume before the container starts
(`aliquot.plugin.kubelet.usage_volumes`). The container sees the page alone, and so can neither remove nor replace it.
"""

import posixpath
from collections.abc import Iterator
from typing import Any

from aliquot.api.names import USAGE_FILE, USAGE_PATH, USAGE_VOLUME, USAGE_VOLUME_SIZE
from aliquot.kube.objects import Container, Pod, VolumeMount
from aliquot.webhook.patch import Patch, Path
from aliquot.webhook.refusal import Refusal

SOURCE = {"emptyDir": {"medium": "Memory", "sizeLimit": USAGE_VOLUME_SIZE}}
VOLUMES: Path = ("spec", "volumes")


def add_usage_volume(patch: Patch, where: Path, container: Container) -> None:
    """Add the volume and mount it, unless both are there.

    Args:
        patch: The pod.
        where: The container's place in it.
        container: The same container, read; `check_usage_volumes` has found nothing wrong with its pod.
    """
    if any(is_page(mount) for mount in container.volume_mounts):
        return
    taken = {volume["name"] for volume in patch.get(VOLUMES) or ()}
    name = next(name for n in range(len(taken) + 1) if (name := f"{USAGE_VOLUME}{n}") not in taken)
    patch.append(VOLUMES, {"name": name} | SOURCE)
    patch.append((*where, "volumeMounts"), {"name": name, "mountPath": USAGE_PATH, "subPath": USAGE_FILE})


def is_page(mount: VolumeMount) -> bool:
    """Whether a container has its usage page by this mount."""
    page = VolumeMount(name=mount.name, mount_path=USAGE_PATH, sub_path=USAGE_FILE)
    return mount == page and mount.name.startswith(USAGE_VOLUME)


def check_usage_volumes(document: dict[str, Any], pod: Pod) -> None:
    """Look at what a pod brings along of volumes of these names, as the copy of another pod does.

    Raises:
        Refusal: it has something else by such a name or where the page goes, or two containers have one page.
    """
    for volume in document["spec"].get("volumes") or ():
        if volume["name"].startswith(USAGE_VOLUME) and volume != {"name": volume["name"]} | SOURCE:
            raise Refusal(
                f"volume {volume['name']!r}: names that begin with {USAGE_VOLUME} are for the volumes of usage pages, "
                "which are added where there are none; take another name"
            )
    pages = set[str]()
    for container, mount in _mounts(pod):
        if is_page(mount) and mount.name not in pages:
            pages.add(mount.name)
        elif mount.name.startswith(USAGE_VOLUME) or _hides_page(mount):
            raise Refusal(
                f"container {container.name!r}: volume {mount.name!r} is mounted at {mount.mount_path}; "
                f"{USAGE_PATH} is for the container's own usage page, and the page's volume for nothing else; "
                "leave this mount out"
            )


def _mounts(pod: Pod) -> Iterator[tuple[Container, VolumeMount]]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for mount in container.volume_mounts:
            yield container, mount


def _hides_page(mount: VolumeMount) -> bool:
    path = posixpath.normpath(mount.mount_path)
    return path == USAGE_PATH or path.startswith(f"{USAGE_PATH}/")
