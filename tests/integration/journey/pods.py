"""Manifests of the journeys' pods."""

from collections.abc import Mapping, Sequence
from typing import Any

WAIT = ("sh", "-c", "exec sleep 1000")


def container(
    name: str, limits: Mapping[str, str] | None = None, command: Sequence[str] = WAIT, **more: Any
) -> dict[str, Any]:
    """One container; `limits` by our short names: `mem`, `core`, `gpu`, `mem-percent`, or full ones."""
    full = {(n if "/" in n else _ours(n)): v for n, v in (limits or {}).items()}
    return {
        "name": name,
        "image": "busybox:1.36",
        "command": list(command),
        "resources": {"limits": full} if full else {},
        **more,
    }


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod that ends at once when told."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": list(containers), **spec},
    }


def plain(name: str, mem: str = "1Gi", core: str = "10") -> dict[str, Any]:
    """A pod of one container with one slice."""
    return pod(name, container("main", {"mem": mem, "core": core}))


def _ours(short: str) -> str:
    return "aliquot.dev/gpu" if short == "gpu" else f"aliquot.dev/gpu-{short}"
