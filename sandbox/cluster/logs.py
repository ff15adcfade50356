"""Where a container's output lies: written by the kubelet, read by the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOG_DIRECTORY_ANNOTATION = "sandbox.aliquot.dev/log-directory"
"""On the Node: the directory its kubelet keeps pods in (a real API server asks the kubelet instead)."""


def log_path(directory: Path, pod_uid: str, container: str, *, previous: bool = False) -> Path:
    """The log of a container's present run, or of the one before."""
    suffix = ".previous.log" if previous else ".log"
    return directory / pod_uid / f"{container}{suffix}"
