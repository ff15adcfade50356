"""Volumes of a pod as directories of this machine: configMap, secret, emptyDir, hostPath."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import namespace_of

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.objects import Obj


class VolumeError(Exception):
    """A volume cannot be set up now; the kubelet tries again."""


async def set_up(client: Client, pod: Obj, directory: Path) -> dict[str, Path]:
    """Volume name → its path, with contents as they are now.

    Raises:
        VolumeError: something the pod refers to is missing, or the API server is away.
    """
    return {
        volume["name"]: await _set_up(client, namespace_of(pod), volume, directory / volume["name"])
        for volume in pod["spec"].get("volumes") or ()
    }


def mounts_of(container: Obj, volumes: dict[str, Path]) -> dict[str, str]:
    """Container path → path on this machine, for the container's volumeMounts."""
    return {
        mount["mountPath"].rstrip("/"): str(volumes[mount["name"]] / mount.get("subPath", ""))
        for mount in container.get("volumeMounts") or ()
    }


async def _set_up(client: Client, namespace: str, volume: Obj, path: Path) -> Path:
    if host := volume.get("hostPath"):
        return _host_path(volume["name"], host)
    path.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - a local directory
    if source := volume.get("configMap"):
        obj = await _fetch(
            client, volume, "configmap", namespace, source["name"], optional=source.get("optional")
        )
        contents = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
        contents |= {key: base64.b64decode(text) for key, text in (obj.get("binaryData") or {}).items()}
        _write(path, contents, source.get("items"))
    elif source := volume.get("secret"):
        name = source["secretName"]
        obj = await _fetch(client, volume, "secret", namespace, name, optional=source.get("optional"))
        contents = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
        _write(path, contents, source.get("items"))
    elif "emptyDir" not in volume:
        kinds = [key for key in volume if key != "name"]
        raise VolumeError(f'volume "{volume["name"]}" is of a kind that this kubelet lacks: {kinds}')
    return path


def _host_path(name: str, source: Obj) -> Path:
    path, kind = Path(source["path"]), source.get("type", "")
    failed = f'MountVolume.SetUp failed for volume "{name}" : '
    try:
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch()
    except OSError as error:
        raise VolumeError(f"{failed}{error}") from error
    if kind and not path.exists():
        raise VolumeError(f"{failed}hostPath type check failed: {path}")
    return path


async def _fetch(
    client: Client, volume: Obj, kind: str, namespace: str, name: str, *, optional: bool | None
) -> Obj:
    try:
        return await client.get(f"/api/v1/namespaces/{namespace}/{kind}s/{name}")
    except ApiError as error:
        if optional and error.status == 404:  # noqa: PLR2004
            return {}
        raise VolumeError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error


def _write(path: Path, contents: dict[str, bytes], items: list[Obj] | None) -> None:
    """Write the files; `items` selects keys and renames them."""
    chosen = {item["path"]: item["key"] for item in items or ()} or {key: key for key in contents}
    for relative, key in chosen.items():
        if key not in contents:
            raise VolumeError(f"references non-existent config key: {key}")
        target = path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents[key])
