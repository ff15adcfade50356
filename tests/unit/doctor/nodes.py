"""A healthy node as the doctor reads it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aliquot.doctor.all_checks import NODE_CHECKS
from aliquot.doctor.check import run
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.node import Card, Driver, Node, Places, Process, Runtime, Spec, Tenant, Toolkit
from aliquot.doctor.finding import Finding, Result

UID = "2ed99c6b-0000-0000-0000-000000000001"
CDI = Path("/run/cdi")
PLUGINS = Path("/var/lib/kubelet/device-plugins")
PLACES = Places(
    proc=Path("/proc"),
    root=Path("/"),
    kubelet=Path("/var/lib/kubelet"),
    run=Path("/run/aliquot/host"),
    cdi=Path("/var/run/cdi"),
    dev=Path("/dev"),
    driver=Path("/"),
)
PAGE = (26, 1234)
TENANT = Tenant(UID, "main", PAGE, frozenset({"GPU-0"}), frozenset({(7, 4026531836, 99)}))
INSIDE = Process(4711, "python3", UID, None, frozenset({PAGE}))


def driver(version: str = "580.95.05", cuda: int = 13000, **card: Any) -> Fact[Driver]:
    """A driver with a card that one process uses; `card` says more of it."""
    given = {"processes": {4711: 1 << 30}, **card}
    return Fact.of(Driver(version, cuda, (Card(0, "GPU-0", "NVIDIA H200", **given),)))


def runtime(**more: Any) -> Fact[Runtime]:
    """What containerd's configuration says."""
    return Fact.of(Runtime("containerd", Path("/etc/containerd/config.toml"), **{"generation": 3, **more}))


def versions(**more: str) -> Mapping[str, Fact[str]]:
    """What programs say of themselves; `_` for what names cannot have."""
    told = {
        "containerd": "containerd github.com/containerd/containerd/v2 v2.4.2 abc",
        "runc": "runc version 1.3.4\nspec: 1.2.1",
        "nvidia_ctk": "NVIDIA Container Toolkit CLI version 1.18.1",
        **more,
    }
    return {name.replace("_", "-"): Fact.of(text) for name, text in told.items()}


def using(*processes: Process) -> dict[str, Any]:
    """Facts of a node whose card these processes use."""
    return {
        "driver": driver(processes={one.pid: 1 << 20 for one in processes}),
        "processes": Fact.of({one.pid: one for one in processes}),
    }


def healthy_node() -> Node:
    """A node with which nothing is wrong."""
    return Node(
        PLACES,
        driver=driver(),
        device_files=Fact.of(frozenset({"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"})),
        driver_files=Fact.of(frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})),
        runtime=runtime(),
        toolkit=Fact.of(Toolkit(Path("/etc/nvidia-container-runtime/config.toml"), by_environment=False)),
        versions=versions(),
        specs={
            CDI: Fact.of((Spec(CDI / "a.json", ("aliquot.dev/slice=a",)),)),
            Path("/etc/cdi"): Fact.of(None),
        },
        sockets={
            PLUGINS / "kubelet.sock": Fact.of(""),
            Path("/var/lib/kubelet/pod-resources/kubelet.sock"): Fact.of(""),
            PLUGINS / "aliquot-gpu.sock": Fact.of(""),
        },
        registered=Fact.of({"aliquot.dev/gpu": 10}),
        processes=Fact.of({4711: INSIDE}),
        living=Fact.of(frozenset({UID})),
        tenants=Fact.of((TENANT,)),
    )


def found_on(node: Node, check: str = "") -> list[Finding]:
    """What one check, or all, find on a node."""
    return list(run([one for one in NODE_CHECKS if check in ("", one.name)], node))


def worst_with(check: str, **changes: Any) -> Finding:
    """The worst that a check finds on the healthy node with other facts."""
    found = found_on(replace(healthy_node(), **changes), check)
    return min(found, key=lambda one: list(Result).index(one.result))
