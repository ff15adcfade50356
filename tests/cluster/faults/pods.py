"""Pods of the faults on a real node: they have a GiB of their slice, and what of them lives there is looked at."""

import time
from collections.abc import Mapping
from typing import Any

from tests.cluster.auditor import Process, processes
from tests.cluster.installation import Installation
from tests.cluster.test_journey import client, said
from tests.integration.journey.auditor import placement_of

LIMIT_HOLDS = "2048 CUDA_ERROR_OUT_OF_MEMORY"
"""What a pod of 2 GiB says that has its slice."""
MOST_OF_A_CARD = "12Gi"
LATER_S = 10.0
"""Ten times what a neighbour of a hostile tenant may notice."""


def start(installed: Installation, name: str, mem: str = "2Gi", **spec: Any) -> str:
    """Start a pod whose program ends for no SIGTERM; returns its UID once that has its memory."""
    manifest = client(name, mem=mem, core="5")
    manifest["spec"] |= spec
    installed.kubectl.apply(manifest)
    said(installed, name, "ready")
    return str(installed.kubectl.get("pods", name)["metadata"]["uid"])


def hostile(name: str, program: str, limits: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A pod that means harm, with no capability; it has a slice of 2 GiB, where `limits` say nothing else."""
    manifest = client(name, core="5", program=program)
    (main,) = manifest["spec"]["containers"]
    main["resources"]["limits"] |= limits or {}
    main["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return manifest


def seconds_to_start(installed: Installation, name: str) -> float:
    """How long it takes until a new pod has found its limit."""
    begun = time.monotonic()
    start(installed, name)
    assert LIMIT_HOLDS in installed.kubectl.logs(name)
    return time.monotonic() - begun


def card_of(installed: Installation, name: str) -> str:
    """The card of a pod's only container."""
    placement = placement_of(installed.kubectl.get("pods", name))
    assert placement
    return str(placement["containers"][0]["cards"][0]["uuid"])


def is_second_start(pod: dict[str, Any]) -> bool:
    """Whether a pod's only container was started again, and runs."""
    (status,) = pod["status"]["containerStatuses"]
    return status["restartCount"] == 1 and "running" in status["state"]


def living(installed: Installation, uid: str) -> list[Process]:
    """The processes of a pod that have a slice's pages."""
    found = [process for process in processes(installed) if process.uid == uid]
    return [process for process in found if (process.directory / "root/run/aliquot/control").exists()]
