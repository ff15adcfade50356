"""A real node: kubelet, containerd and runc in a box, on a machine with simulated cards.

    with ControlPlane() as plane, Node(plane, [SimCard(), SimCard()]) as node:
        node.runtime.load([archive])
        plane.kubectl.apply(pod)

One at a time on a machine. What it needs beyond the programs: root, a kernel with overlayfs, and cgroups.
"""

import contextlib
import fcntl
import json
import os
import shutil
import stat
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import grpc
import pytest
import yaml

from aliquot.sandbox.cluster.pb.podresources.v1.api_pb2 import AllocatableResourcesRequest
from aliquot.sandbox.cluster.pb.podresources.v1.api_pb2_grpc import PodResourcesListerStub
from aliquot.sandbox.cluster.processes import Process, free_port, wait_for
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.cluster.box import CGROUPS, Box
from tests.cluster.control_plane import START_S, ControlPlane, healthy
from tests.cluster.programs import program
from tests.cluster.runtime import POD_NETWORK, SIMULATED, SOCKET, Runtime
from tests.tools.debian import NotAvailableError

NAME = "localhost"
"""A name that the API server can reach the kubelet by."""
CGROUP = "aliquot-test"
KUBELET_DIRECTORY = "/var/lib/kubelet"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
OF_PODS = ("/run/containerd/", "/run/netns/", f"{KUBELET_DIRECTORY}/pods/")
"""Below which containerd and kubelet mount what pods have."""
IN_MEMORY = ("/run/aliquot", "/run/cdi", "/run/containerd", "/run/netns")
"""What a reboot empties."""
SHARED = (Path("/proc/self/ns/net"), CGROUPS)
"""Of the machine: a node's links to its pods, the Services' addresses, and its cgroup."""
NVIDIA_MAJOR = 195
UVM_MAJOR = 510
CONTROL_MINOR = 255


class Node:
    """The node; leaving the context ends everything on it."""

    def __init__(self, plane: ControlPlane, cards: Sequence[SimCard] = ()) -> None:
        check_rights()
        self.plane = plane
        self.machine = SimMachine(plane.root / "machine", cards)
        (plane.root / "box").mkdir()
        self.box = Box(plane.root / "box")
        self._kubelet_program = program("kubelet")
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(only_node())
            remove_links()
            stack.callback(remove_links)
            stack.callback(remove_cgroups)
            make_cgroups()
            self.machine.create()
            make_device_nodes(self.machine)
            stack.enter_context(self.box)
            stack.enter_context(_judged_by(self.box.path("/proc")))
            self.box.bind(self.machine.root, SIMULATED / "machine")
            self.runtime = Runtime(self.box, self.plane.root, self.machine.root)
            self.runtime.start()
            stack.callback(self.runtime.process.kill)
            self.kubelet = self._start_kubelet()
            stack.callback(self.kubelet.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restart_kubelet(self) -> None:
        """SIGKILL it and start it again; pods run on."""
        self.kubelet.kill()
        self.kubelet.start(START_S)

    def offered(self, resource: str) -> int:
        """How many ids of a resource this kubelet itself has to give, those in use among them; 0 while it is away."""
        socket = self.box.path(f"{KUBELET_DIRECTORY}/pod-resources/kubelet.sock")
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            try:
                answer = PodResourcesListerStub(channel).GetAllocatableResources(
                    AllocatableResourcesRequest(), timeout=10
                )
            except grpc.RpcError:
                return 0
        return sum(len(each.device_ids) for each in answer.devices if each.resource_name == resource)

    def restart_runtime(self) -> None:
        """SIGKILL containerd and start it again; containers run on."""
        self.runtime.process.kill()
        self.runtime.process.start(START_S)

    def reboot(self) -> None:
        """End all that runs on it, forget what lies in memory, and start it again under another boot id."""
        self.kubelet.kill()
        self.runtime.process.kill()
        self.box.run("sh", "-c", "kill -KILL -1")
        wait_for("all mounts of pods to go", self._unmount_pods)
        self.box.run("sh", "-c", f"rm -rf {' '.join(f'{place}/*' for place in IN_MEMORY)}")
        remove_links()
        make_cgroups()
        self.box.path(BOOT_ID).write_text(f"{uuid.uuid4()}\n")
        self.runtime.process.start(START_S)
        self.kubelet.start(START_S)

    def _unmount_pods(self) -> bool:
        """Unmount what pods and containers have, the last first; says whether nothing was left."""
        mounts = [line.split()[1] for line in self.box.path("/proc/1/mounts").read_text().splitlines()]
        left = [place for place in mounts if place.startswith(OF_PODS)]
        if left:
            self.box.run("umount", "--lazy", *reversed(left))
        return not left

    def _start_kubelet(self) -> Process:
        port, health = free_port(), free_port()
        configuration = self.plane.root / "kubelet.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration(port, health)))
        flags = {
            "config": configuration,
            "kubeconfig": self.plane.user(f"system:node:{NAME}", "system:nodes"),
            "hostname-override": NAME,
            "root-dir": KUBELET_DIRECTORY,
            "cert-dir": f"{KUBELET_DIRECTORY}/pki",
        }
        argv = [str(self._kubelet_program), *(f"--{flag}={value}" for flag, value in flags.items()), "--v=2"]
        ready = partial(self._is_ready, f"http://127.0.0.1:{health}/healthz")
        process = Process("kubelet", self.box.command(argv), self.plane.root / "kubelet.log", None, ready)
        process.start(START_S)
        return process

    def _configuration(self, port: int, health: int) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": port,
            "healthzPort": health,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.plane.authority.certificate)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # The machine's own fill does not matter here.
            "evictionHard": dict.fromkeys(
                ("memory.available", "nodefs.available", "imagefs.available"), "0%"
            ),
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "5s",
        }

    def _is_ready(self, health: str) -> bool:
        """Whether this kubelet answers, and has said what the API server may still know of the one before."""
        if not healthy(health):
            return False
        node = self.plane.kubectl.find("nodes", NAME, namespace="")
        conditions = (node or {}).get("status", {}).get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextlib.contextmanager
def _judged_by(proc: Path) -> Iterator[None]:
    """Has whoever asks the simulated machine from outside know its processes by their ids on the node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMGPU_PROC", str(proc))
        yield


def make_device_nodes(machine: SimMachine) -> None:
    """Make true device nodes of what stands for them, since a runtime takes no other."""
    numbers = {f"nvidia{card.minor}": (NVIDIA_MAJOR, card.minor or 0) for card in machine.cards}
    numbers["nvidiactl"] = (NVIDIA_MAJOR, CONTROL_MINOR)
    numbers |= {"nvidia-uvm": (UVM_MAJOR, 0), "nvidia-uvm-tools": (UVM_MAJOR, 1)}
    for name, (major, minor) in numbers.items():
        path = machine.dev_dir / name
        path.unlink()
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        path.chmod(0o666)


def make_cgroups() -> None:
    """Make the node's cgroup in every hierarchy, after what a killed run has left."""
    remove_cgroups()
    for hierarchy in _hierarchies():
        (hierarchy / CGROUP).mkdir()


def remove_links() -> None:
    """Remove the machine's ends of the links to pods.

    Their last connections keep pods' network namespaces for minutes after the processes. Until then a link's route
    stands in the way of that of the next pod with the address, and when the link goes that pod has none.
    """
    shown = subprocess.run(
        ["ip", "-json", "address", "show", "to", POD_NETWORK], capture_output=True, text=True, check=True
    )
    for link in json.loads(shown.stdout or "[]"):
        if link and link["ifname"].startswith("veth"):
            subprocess.run(["ip", "link", "delete", link["ifname"]], check=False)


def remove_cgroups() -> None:
    """Remove the node's cgroups, the innermost first, once the kernel has seen their processes end."""
    for hierarchy in _hierarchies():
        wait_for(f"{hierarchy / CGROUP} to be empty", lambda root=hierarchy / CGROUP: _removed(root))


def _removed(root: Path) -> bool:
    for directory, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return not root.exists()


def _hierarchies() -> Iterator[Path]:
    """Where cgroups are mounted: several places with version 1, one with version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS
    else:
        yield from (path for path in CGROUPS.iterdir() if path.is_dir() and path.is_mount())


def check_rights() -> None:
    """Raises NotAvailableError where this user or this machine cannot run a node."""
    if os.geteuid() != 0:
        raise NotAvailableError("a real node needs root: containers, mounts and networks are made for it")
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise NotAvailableError("a real node needs overlayfs, which this kernel has not")
    for tool in ("unshare", "nsenter", "setpriv", "mount", "ip"):
        if not shutil.which(tool):
            raise NotAvailableError(f"a real node needs the program {tool}")


@contextlib.contextmanager
def only_node() -> Iterator[None]:
    """Waits for the node of another test run to end, wherever that run has its files: what both share is locked."""
    with contextlib.ExitStack() as stack:
        for shared in SHARED:
            opened = os.open(shared, os.O_RDONLY)
            stack.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
