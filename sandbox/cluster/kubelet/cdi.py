"""CDI: from fully qualified device names to edits of a container, read from the spec files of a directory.

Every look-up reads the directory afresh, and each file that is not the one it knows. (containerd watches the directory
instead, and misses a file renamed into it from another one: write the temporary file in the same directory.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aliquot.sandbox.cluster.objects import Obj

SUFFIXES = (".json", ".yaml")
MOST_FILES = 4096


class UnresolvableError(Exception):
    """No spec file describes these devices; the text is containerd's."""


@dataclass
class Edits:
    """What is done to a container. Maps: container path → path on this machine."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)

    def add(self, edits: Obj) -> None:
        """Add the `containerEdits` of a spec or of a device; a later one wins."""
        for pair in edits.get("env") or ():
            name, _, value = pair.partition("=")
            self.env[name] = value
        for mount in edits.get("mounts") or ():
            self.mounts[mount["containerPath"]] = mount["hostPath"]
        for node in edits.get("deviceNodes") or ():
            self.devices[node["path"]] = node.get("hostPath") or node["path"]


def resolve(directories: Sequence[Path], names: Sequence[str]) -> Edits:
    """The edits of all named devices (`vendor/class=device`), each spec's common edits once.

    Raises:
        UnresolvableError: a name that no spec file describes.
    """
    specs = [spec for directory in directories for spec in _specs(directory)]
    found = {name: _find(specs, name) for name in names}
    if missing := [name for name, pair in found.items() if pair is None]:
        raise UnresolvableError(f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}")
    edits, seen = Edits(), set()
    for spec, device in (pair for pair in found.values() if pair is not None):
        if id(spec) not in seen:
            seen.add(id(spec))
            edits.add(spec.get("containerEdits") or {})
        edits.add(device.get("containerEdits") or {})
    return edits


def _specs(directory: Path) -> Iterator[Obj]:
    """All readable spec files; broken ones are passed over, as containerd does."""
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        if path.suffix not in SUFFIXES:
            continue
        try:
            status = path.stat()
            spec = _read(path, status.st_ino, status.st_mtime_ns, status.st_size)
        except (yaml.YAMLError, OSError, UnicodeDecodeError):
            continue
        if isinstance(spec, dict) and "kind" in spec:
            yield spec


@lru_cache(MOST_FILES)
def _read(path: Path, *_identity: int) -> Obj:
    """What is in a file; nobody changes it. To parse the files of a hundred pods for each of them takes minutes."""
    spec: Obj = yaml.safe_load(path.read_text())
    return spec


def _find(specs: Sequence[Obj], name: str) -> tuple[Obj, Obj] | None:
    kind, _, device_name = name.partition("=")
    for spec in specs:
        for device in spec.get("devices") or ():
            if (spec["kind"], device.get("name")) == (kind, device_name):
                return spec, device
    return None
