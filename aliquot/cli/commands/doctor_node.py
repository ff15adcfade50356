"""What `aliquot doctor --node` looks at: this machine, or the host of the agent's pod that it runs in."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from aliquot.api.names import ResourceNames
from aliquot.doctor.all_checks import NODE_CHECKS
from aliquot.doctor.check import run
from aliquot.doctor.facts.node import Places, Tenant
from aliquot.doctor.facts.node_reader import read_node
from aliquot.doctor.finding import Finding
from aliquot.libshim.control_page import read_control
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import read_usage

HOST_PROC = Path("/host/proc")
HOST_DRIVER = Path("/host/driver")


def usual_places() -> Places:
    """Where things are on a node; in the agent's pod, where the chart mounts them."""
    in_pod = HOST_PROC.is_dir()
    proc = HOST_PROC if in_pod else Path("/proc")
    return Places(
        proc=proc,
        root=proc / "1/root" if in_pod else Path("/"),
        kubelet=Path("/var/lib/kubelet"),
        run=Path("/run/aliquot/host"),
        cdi=Path("/var/run/cdi"),
        dev=Path("/dev"),
        driver=HOST_DRIVER if in_pod else Path("/"),
    )


def examine(places: Places, names: ResourceNames) -> tuple[Finding, ...]:
    """What all checks of a node find."""
    return run(NODE_CHECKS, replace(read_node(places, lambda: tenants_of(places.run)), names=names))


def tenants_of(directory: Path) -> Iterator[Tenant]:
    """The containers that the agent has made pages for. Raises OSError where these may not be read."""
    homes = [path for path in directory.iterdir() if path.name == "tenants"]
    for pod in sorted(pod for home in homes for pod in home.iterdir()):
        for container in sorted(pod.iterdir()):
            if (container / "control").exists():
                yield _tenant(pod.name, container)


def _tenant(pod: str, directory: Path) -> Tenant:
    """One of them; a usage page that its tenant has spoilt tells nothing."""
    status = (directory / "control").stat()
    control = read_control(directory / "control")
    try:
        using = read_usage(directory / "usage").processes
    except (OSError, PageError):
        using = ()
    return Tenant(
        pod,
        directory.name,
        (status.st_dev, status.st_ino),
        frozenset(card.uuid for card in control.cards),
        frozenset((one.pid, one.pid_namespace, one.start_time) for one in using),
        time.time() - status.st_ctime,
    )
