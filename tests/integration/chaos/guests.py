"""Pods of random size and shape: they come, grow, crash and go."""

import json
import os
import signal
from typing import Any

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.chaos.chaos import Act, Chaos
from tests.integration.chaos.evidence import Living, look
from tests.integration.journey.auditor import MIB
from tests.integration.journey.pods import container, plain, pod

FEW, MOST = 8, 14
CUTS = 0.3
"""How many vandals cut their page short."""
GREEDY = """
import time
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
while True:
    blocks = [block for error, block in (driver.cuMemAlloc(300 << 20) for _ in range(40)) if not error]
    time.sleep(0.2)
    for block in blocks:
        driver.cuMemFree(block)
"""
"""Takes all that it gets, again and again."""


def gather(chaos: Chaos) -> None:
    """Those that are there before anything happens."""
    while len(chaos.guests) < FEW:
        create(chaos)
    chaos.settle()


def create(chaos: Chaos) -> str:
    """A pod, unless there are many."""
    if len(chaos.guests) >= MOST:
        return f"{delete(chaos)} goes, for there are many"
    manifest = _manifest(chaos)
    try:
        chaos.place.kubectl.apply(manifest)
    except ApiError as error:
        if "failed calling webhook" not in str(error):
            raise
        return f"{manifest['metadata']['name']} is refused while there is no webhook"
    chaos.guests.append(manifest["metadata"]["name"])
    return f"{manifest['metadata']['name']}"


def _manifest(chaos: Chaos) -> dict[str, Any]:
    chaos.made += 1
    name, dice = f"guest-{chaos.made}", chaos.dice
    mem, core = f"{dice.choice([256, 1000, 2048, 5000])}Mi", str(dice.choice([5, 10, 30]))
    shapes = [
        plain(name, mem, core),
        pod(name, container("main", {"mem": mem, "core": core}, ["python", "-c", GREEDY])),
        pod(name, container("main", {"gpu": "2", "mem": mem, "core": core})),
        pod(name, container("main", {"gpu": "1"})),
        pod(name, container("main", {"aliquot.dev/mig-1g.18gb": "1"})),
        pod(name, container("a", {"mem": mem}), container("b", {"core": core, "mem-percent": "5"})),
        pod(name, container("main", {"mem": mem}), initContainers=[container("i", {"mem": mem}, ["true"])]),
    ]
    return dice.choice(shapes)


def delete(chaos: Chaos) -> str:
    """As a user does."""
    return _remove(chaos, None)


def force(chaos: Chaos) -> str:
    """The object is gone at once, the containers are not."""
    return _remove(chaos, 0)


def _remove(chaos: Chaos, grace: int | None) -> str:
    if not chaos.guests:
        return "nobody is there"
    name = chaos.guests.pop(chaos.dice.randrange(len(chaos.guests)))
    chaos.place.kubectl.delete("pods", name, grace=grace)
    return name


def replace(chaos: Chaos) -> str:
    """A pod under the name of one that was deleted by force just now."""
    name = force(chaos)
    if name.startswith("guest"):
        chaos.place.kubectl.apply(plain(name, "2Gi", "10"))
        chaos.guests.append(name)
    return name


def _someone(chaos: Chaos) -> Living | None:
    """A container that lives."""
    found = look(chaos.place).living
    return chaos.dice.choice(found) if found else None


def crash(chaos: Chaos) -> str:
    """A container's processes are killed; its kubelet starts it again."""
    living = _someone(chaos)
    if living is None:
        return "nobody is there"
    chaos.auditor.disturbed.add(living.key)
    for pid in living.pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_for("its end", lambda: living.first not in {each.first for each in look(chaos.place).living})
    return f"{living.key}"


def vandalise(chaos: Chaos) -> str:
    """A tenant writes what it likes over its own account, or cuts it short."""
    living = _someone(chaos)
    if living is None:
        return "nobody is there"
    chaos.auditor.vandals.add(living.key)
    page = chaos.place.nodes[living.node].tenants.joinpath(*living.key, "usage")
    size, offset = page.stat().st_size, chaos.dice.randrange(4096)
    if chaos.dice.random() < CUTS:
        os.truncate(page, offset)
        return f"{living.key} is {offset} of {size} bytes"
    with page.open("r+b") as file:
        file.seek(offset)
        file.write(chaos.dice.randbytes(64))
    return f"{living.key} has noise at {offset}"


def resize(chaos: Chaos) -> str:
    """Other limits for a container that has what it was granted."""
    found = {living.key[0]: living for living in look(chaos.place).living}
    candidates = [pod for name in chaos.guests if (pod := _resizable(chaos, name, found))]
    if not candidates:
        return "nobody to resize"
    chosen = chaos.dice.choice(candidates)["metadata"]["name"]
    mem = f"{chaos.dice.choice([500, 1500, 3000, 6000])}Mi"
    annotations = {"aliquot.dev/resize-gpu-mem": mem}
    chaos.place.kubectl.patch("pods", chosen, {"metadata": {"annotations": annotations}})
    return f"{chosen} to {mem}"


def _resizable(chaos: Chaos, name: str, found: dict[str, Living]) -> dict[str, Any] | None:
    """A pod of one container with a slice of one card, whose page says what its placement says."""
    stored = chaos.place.kubectl.get("pods", name)
    placement = json.loads(stored["metadata"].get("annotations", {}).get(PLACEMENT_ANNOTATION, "{}"))
    living = found.get(stored["metadata"]["uid"])
    if not living or len(placement.get("containers", ())) != 1:
        return None
    (share, *others) = placement["containers"][0]["cards"]
    whole = share["exclusive"] or others
    applied = living.control.cards[0].memory_bytes == share["memoryMiB"] * MIB
    return stored if applied and not whole else None


ACTS = (
    Act("a pod is created", 14, create),
    Act("a pod is deleted", 6, delete),
    Act("a pod is deleted by force", 3, force),
    Act("a pod is deleted by force and made again", 2, replace),
    Act("a container crashes", 2, crash),
    Act("a tenant damages its account", 2, vandalise),
    Act("a pod is resized", 4, resize),
)
