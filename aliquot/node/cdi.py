"""Container Device Interface specs: what the runtime adds to a container that holds a device.

One spec file a device (https://github.com/cncf-tags/container-device-interface, SPEC.md). Runtimes watch the
directory: a file appears there by a rename within it, complete, or not at all.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

import msgspec

VERSION: Final = "0.6.0"
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class _CdiStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=False
):
    """Base of a spec's parts; what is not given is left out."""


class DeviceNode(_CdiStruct, frozen=True, kw_only=True):
    """A device node in the container; `host_path` where it differs, type and numbers are the host's."""

    path: str
    host_path: str = ""
    permissions: str = ""


class Mount(_CdiStruct, frozen=True, kw_only=True):
    """A file or directory of the host in the container."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_CdiStruct, frozen=True, kw_only=True):
    """A program the runtime starts at a step of the container's life, such as `createContainer`."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class ContainerEdits(_CdiStruct, frozen=True, kw_only=True):
    """What is added to a container; `env` as NAME=value."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()


class Device(_CdiStruct, frozen=True, kw_only=True):
    """A named device; containers ask for it as `<kind>=<name>`."""

    name: str
    container_edits: ContainerEdits


class Spec(_CdiStruct, frozen=True, kw_only=True):
    """A spec file: devices of one kind (`vendor/class`)."""

    kind: str
    devices: tuple[Device, ...]
    cdi_version: str = msgspec.field(default="", name="cdiVersion")
    container_edits: ContainerEdits = ContainerEdits()


def spec_path(directory: Path, name: str) -> Path:
    """Return where a spec of this name lies.

    Raises:
        ValueError: the name could leave the directory or be taken for a temporary file.
    """
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a CDI spec: letters, digits, '.', '_' and '-' only")
    return directory / f"{name}.json"


def write_spec(directory: Path, name: str, spec: Spec) -> Path:
    """Put a spec in place at once and for good (renamed within the directory, synced); return its path.

    Raises:
        OSError: the directory cannot be written.
        ValueError: no file name.
    """
    path = spec_path(directory, name)
    directory.mkdir(parents=True, exist_ok=True)
    versioned = msgspec.structs.replace(spec, cdi_version=spec.cdi_version or VERSION)
    # A runtime reads *.json and *.yaml only, so it never sees the temporary file.
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(versioned))
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(directory)
    return path


def read_spec(path: Path) -> Spec:
    """Read a spec file.

    Raises:
        OSError: it is not there.
        ValueError: it is no CDI spec in JSON.
    """
    return msgspec.json.decode(path.read_bytes(), type=Spec)


def remove_spec(directory: Path, name: str) -> None:
    """Remove a spec; one that is gone already is fine."""
    spec_path(directory, name).unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
