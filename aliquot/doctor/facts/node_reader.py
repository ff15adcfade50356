"""Reads a node's facts: from files, sockets, processes and NVML.

What it takes grows with the processes of the node and with the CDI files.
"""

import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from aliquot.api.names import CONTROL_PATH
from aliquot.doctor.facts.fact import Fact, NotKnownError
from aliquot.doctor.facts.node import Driver, Node, Places, Process, Spec, Tenant, usual
from aliquot.doctor.facts.nvml import libraries, read_driver
from aliquot.doctor.facts.runtime_files import on_host, read_runtime, read_toolkit
from aliquot.kube.objects import UNREADABLE
from aliquot.node.processes import Processes, identity_of, pod_of

T = TypeVar("T")

CDI_DIRECTORIES: Final = (Path("/etc/cdi"), Path("/run/cdi"))
PROGRAMS: Final = ("containerd", "runc", "nvidia-ctk")
DRIVER_LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
SECONDS: Final = 5.0
LONGEST_SOCKET_PATH: Final = 107


def read_node(places: Places, tenants: Callable[[], Iterable[Tenant]]) -> Node:
    """All facts; `tenants` reads the pages of containers with slices, and raises OSError where it may not."""
    driver = read_driver(places.driver)
    runtime = read_runtime(places.proc, places.root)
    runc = "" if runtime.reason else runtime.get().runc or ""
    return Node(
        places,
        driver=driver,
        device_files=_seen(lambda: frozenset(path.name for path in places.dev.glob("nvidia*"))),
        driver_files=_seen(
            lambda: frozenset(n for n in DRIVER_LIBRARIES if any(libraries(places.driver, n)))
        ),
        runtime=runtime,
        toolkit=read_toolkit(places.root),
        versions={name: _version(places, name, runc if name == "runc" else "") for name in PROGRAMS},
        specs={place: _specs(places, place) for place in {*CDI_DIRECTORIES, usual(places.cdi)}},
        sockets={path: _answers(path) for path in _sockets(places)},
        registered=_registered(places.kubelet / "device-plugins/kubelet_internal_checkpoint"),
        processes=_using(driver, places.proc),
        living=_seen(lambda: Processes(places.proc).read().pod_uids),
        tenants=_seen(lambda: tuple(tenants())),
    )


def _seen(look: Callable[[], T]) -> Fact[T]:
    try:
        return Fact.of(look())
    except OSError as error:
        return Fact.unknown(f"{error.filename}: {error.strerror}")


def _version(places: Places, name: str, path: str = "") -> Fact[str]:
    """What a program says of its version; only on the host itself, for nothing of the host is started from a pod."""
    if not places.on_host:
        return Fact.unknown(
            f"{name} is not asked for its version from within a pod: run this on the node itself"
        )
    try:
        done = subprocess.run(
            [path or name, "--version"], capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Fact.unknown(f"{name} does not tell its version: {error}")
    return Fact.of(done.stdout.strip())


def _sockets(places: Places) -> list[Path]:
    """The kubelet's two, and those of device plugins of ours."""
    plugins = places.kubelet / "device-plugins"
    ours = sorted(plugins.glob("aliquot-*.sock"))
    return [plugins / "kubelet.sock", places.kubelet / "pod-resources/kubelet.sock", *ours]


def _answers(path: Path) -> Fact[str]:
    """Why nobody takes a connection at a socket; empty where somebody does."""
    if len(str(path)) > LONGEST_SOCKET_PATH:
        return Fact.unknown(f"{path} is too long for a socket's path")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        try:
            client.connect(str(path))
        except PermissionError:
            return Fact.unknown(f"you may not connect to {path}: be root")
        except OSError as error:
            return Fact.of(error.strerror or str(error))
    return Fact.of("")


class _Data(msgspec.Struct):
    registered: dict[str, list[str] | None] | None = msgspec.field(default=None, name="RegisteredDevices")


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


def _registered(checkpoint: Path) -> Fact[Mapping[str, int]]:
    try:
        found = msgspec.json.decode(checkpoint.read_bytes(), type=_Checkpoint).data.registered or {}
    except OSError as error:
        return Fact.unknown(f"the kubelet's checkpoint {checkpoint}: {error.strerror}")
    except UNREADABLE as error:
        return Fact.unknown(f"the kubelet's checkpoint {checkpoint} is of another form: {error}")
    return Fact.of({resource: len(ids or ()) for resource, ids in found.items()})


def _specs(places: Places, directory: Path) -> Fact[tuple[Spec, ...] | None]:
    """The CDI files of a directory; None where it is not there."""
    seen = places.cdi if directory == usual(places.cdi) else on_host(places.root, directory)
    try:
        files = sorted(path for path in seen.iterdir() if path.suffix in (".json", ".yaml", ".yml"))
    except FileNotFoundError:
        return Fact.of(None)
    except OSError as error:
        return Fact.unknown(f"{directory}: {error.strerror}")
    return Fact.of(tuple(map(_spec, files)))


def _spec(file: Path) -> Spec:
    """A CDI file, by the few keys that matter here."""
    try:
        document: dict[str, Any] = yaml.safe_load(file.read_text())
        devices = [f"{document['kind']}={device['name']}" for device in document["devices"]]
        mounts = [m for d in document["devices"] for m in d.get("containerEdits", {}).get("mounts") or ()]
        pages = [Path(m["hostPath"]) for m in mounts if m["containerPath"] == CONTROL_PATH]
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        return Spec(file, error=f"{type(error).__name__} {error}".splitlines()[0])
    return Spec(file, tuple(devices), tuple(pages))


def _using(driver: Fact[Driver], proc: Path) -> Fact[Mapping[int, Process]]:
    """The processes that use a card."""
    try:
        pids = {pid for card in driver.get().cards for pid in card.processes}
    except NotKnownError as error:
        return Fact.unknown(str(error))
    return Fact.of({pid: _process(pid, proc) for pid in pids})


def _process(pid: int, proc: Path) -> Process:
    directory = proc / str(pid)
    try:
        name = (directory / "comm").read_text().strip()
    except OSError:
        name = ""
    return Process(pid, name, pod_of(pid, proc) or "", identity_of(pid, proc), _pages_in(directory))


def _pages_in(directory: Path) -> frozenset[tuple[int, int]] | None:
    """The control page that a process's container has mounted, by device and inode."""
    try:
        status = (directory / "root" / CONTROL_PATH.lstrip("/")).stat()
    except FileNotFoundError:
        return frozenset() if (directory / "root/proc").exists() else None
    except OSError:
        return None
    return frozenset(((status.st_dev, status.st_ino),))
