"""What is true of a pod's slices, asked of everybody but the services: the pod, the simulated GPU, the processes."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot.api.names import CONTROL_ENV
from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.client import ApiError

MIB = 1 << 20


@dataclass(frozen=True)
class Seen:
    """What a pod's program told about itself.

    Attributes:
        cards: UUIDs of the cards it sees.
        total_mib: what each says it has.
        loaded_mib: what the program holds on each card.
        denied: what it was refused: (MiB, error), or None.
        beats: signs of life so far.
        intact: whether its data was never damaged.
    """

    cards: tuple[str, ...]
    total_mib: tuple[int, ...]
    loaded_mib: int
    denied: tuple[int, str] | None
    beats: int
    intact: bool


def listen(stack: Stack, pod: str) -> Seen | None:
    """Read a pod's log; None before the program is ready."""
    try:
        log = stack.kubectl.logs(pod)
    except ApiError:  # the container has not been created yet
        return None
    said = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    ready = next((line for line in said if line["event"] == "ready"), None)
    if ready is None:
        return None
    denied = next((line for line in said if line["event"] == "denied"), None)
    alive = [line for line in said if line["event"] == "alive"]
    return Seen(
        cards=tuple(ready["cards"]),
        total_mib=tuple(ready["total_mib"]),
        loaded_mib=ready["loaded_mib"],
        denied=None if denied is None else (denied["asked_mib"], denied["error"]),
        beats=len(alive),
        intact=all(line["intact"] for line in alive),
    )


def memory_held(node: Node, card: str, pod_uid: str) -> int:
    """Bytes a pod's processes hold on a card, as the simulated driver counts them."""
    held = node.machine.processes(card)
    return sum(size for pid, size in held.items() if pid in set(_pids(pod_uid)))


def time_share(node: Node, card: str, pod_uid: str, seconds: float) -> float:
    """Percent of the latest `seconds` in which the card ran a pod's work, by the simulated GPU's own record."""
    now = time.monotonic_ns()
    since = now - int(seconds * 1e9)
    pids = set(_pids(pod_uid))
    ran = sum(
        max(0, min(end, now) - max(start, since))
        for pid, start, end in node.machine.busy(card)
        if pid in pids
    )
    return 100 * ran / (now - since)


def _pids(pod_uid: str) -> Iterator[int]:
    """Find the processes of a pod by the control page they were given."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes().split(b"\0")
        except OSError:
            continue
        page = next((v for v in variables if v.startswith(f"{CONTROL_ENV}=".encode())), b"")
        if pod_uid.encode() in page:
            yield int(environ.parent.name)


def pending_reason(pod: dict[str, Any]) -> str:
    """Return what the scheduler says about a pod it cannot place; empty when it says nothing."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""
