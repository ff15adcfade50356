"""From a pod's container to the process that stands for it.

There are no mount namespaces here, so mounts become rewritten paths: wherever a container path of a mount
occurs in command, arguments or environment values, it is replaced by the path on this machine. Mounted
libraries are linked under their container names in a directory of the container that goes on
LD_LIBRARY_PATH; what a mounted /etc/ld.so.preload lists goes on LD_PRELOAD; device nodes are linked in a
directory exported as SIMGPU_DEV, which stands for the container's /dev.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.kubelet import cdi
from aliquot.sandbox.cluster.kubelet.environment import expand, variables_of
from aliquot.sandbox.cluster.kubelet.runtime import Launch
from aliquot.sandbox.cluster.objects import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.objects import Obj
    from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2

DEVICE_DIRECTORY = "SIMGPU_DEV"
PRELOAD_FILE = "/etc/ld.so.preload"
MACHINE_PREFIX = "SIMGPU_"
"""Variables of the kubelet's own environment that stand for the machine itself: containers see them too."""

_LIBRARY = re.compile(r"^lib.*\.so(\.\d+)*$")
_PATH_CHARACTER = r"[A-Za-z0-9._/-]"


@dataclass(frozen=True)
class Surroundings:
    """What a container gets beside its spec; `mounts`: its volumeMounts, `directory`: its own."""

    plugin_env: Mapping[str, str]
    edits: cdi.Edits
    mounts: Mapping[str, str]
    directory: Path


class CreateError(Exception):
    """The runtime cannot create the container; the text is containerd's."""


def edits_of(
    responses: Sequence[api_pb2.ContainerAllocateResponse], directories: Sequence[Path]
) -> cdi.Edits:
    """What the device plugins' answers do to a container, CDI devices resolved.

    Raises:
        CreateError: a CDI device that no spec file describes.
    """
    names = [device.name for response in responses for device in response.cdi_devices]
    try:
        edits = cdi.resolve(directories, names)
    except cdi.UnresolvableError as error:
        raise CreateError(f"failed to create containerd container: {error}") from error
    for response in responses:
        edits.mounts |= {mount.container_path: mount.host_path for mount in response.mounts}
        edits.devices |= {device.container_path: device.host_path for device in response.devices}
    return edits


class Launcher:
    """Builds launches on one machine; `device_root` stands for the host's /dev."""

    def __init__(self, client: Client, device_root: Path) -> None:
        self._client = client
        self._device_root = device_root

    async def build(self, pod: Obj, container: Obj, around: Surroundings) -> Launch:
        """The process for a container. Environment: plugins' < the pod's < CDI's, as observed.

        Raises:
            CreateError: nothing to run, or a device node or mount source that does not exist.
            MissingReferenceError: a variable refers to something that is not there.
        """
        edits, directory = around.edits, around.directory
        given = {**self._machine_env(pod), **around.plugin_env}
        env = {**await variables_of(self._client, pod, container, given), **edits.env}
        argv = [
            expand(part, env) for part in [*(container.get("command") or ()), *(container.get("args") or ())]
        ]
        if not argv:
            raise CreateError(
                "failed to generate container spec: no command specified (images are not pulled here)"
            )
        if preloaded := _listed(edits.mounts.get(PRELOAD_FILE)):
            env["LD_PRELOAD"] = ":".join(filter(None, [*preloaded, env.get("LD_PRELOAD", "")]))
        rewrite = PathRewriter({**around.mounts, **edits.mounts})
        env = {name: rewrite(value) for name, value in env.items()}
        env[DEVICE_DIRECTORY] = str(self._link_devices(directory / "dev", edits.devices))
        if libraries := self._link_libraries(directory / "lib", edits.mounts):
            env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*libraries, env.get("LD_LIBRARY_PATH", "")]))
        scratch = directory / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        cwd = rewrite(container["workingDir"]) if container.get("workingDir") else str(scratch)
        return Launch([rewrite(part) for part in argv], env, cwd)

    def _machine_env(self, pod: Obj) -> dict[str, str]:
        machine = {k: v for k, v in os.environ.items() if k.startswith(MACHINE_PREFIX)}
        path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {**machine, "PATH": path, "HOSTNAME": name_of(pod), "HOME": "/root", "LANG": "C.UTF-8"}

    def _link_devices(self, directory: Path, devices: Mapping[str, str]) -> Path:
        """Link device nodes below the directory that stands for the container's /dev; always made afresh."""
        _clear(directory)
        for inside, outside in devices.items():
            source = Path(outside)
            if not source.exists() and source.is_relative_to("/dev"):
                source = self._device_root / source.relative_to("/dev")
            if not source.exists():
                why = f'failed to stat CDI host device "{outside}": no such file or directory'
                raise CreateError(
                    f"failed to create containerd container: CDI device injection failed: {why}"
                )
            _link(directory / PurePosixPath(inside).relative_to("/dev"), source)
        return directory

    def _link_libraries(self, directory: Path, mounts: Mapping[str, str]) -> list[str]:
        """Link mounted libraries under their container paths; the directories to search, in order."""
        _clear(directory)
        found: dict[str, None] = {}
        for inside, outside in mounts.items():
            if not Path(outside).exists():
                why = f'failed to stat "{outside}": no such file or directory'
                raise CreateError(f"failed to create containerd task: error mounting: {why}")
            if _LIBRARY.match(PurePosixPath(inside).name):
                link = directory / inside.lstrip("/")
                _link(link, Path(outside))
                found[str(link.parent)] = None
        return list(found)


class PathRewriter:
    """Replaces container paths by paths of this machine, at path boundaries only, the longest first."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self._mounts = mounts
        paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<!{_PATH_CHARACTER})(?:{paths})(?![A-Za-z0-9._-])") if paths else None

    def __call__(self, text: str) -> str:
        """The text with every occurrence replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._mounts[found[0]], text)


def _listed(file: str | None) -> list[str]:
    """The libraries that a mounted list for the dynamic loader names."""
    return Path(file).read_text().split() if file else []


def _clear(directory: Path) -> None:
    """Empty a directory of links (what they point to is left alone)."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_symlink():
            path.unlink()
        else:
            path.rmdir()


def _link(link: Path, source: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(source)
