"""`aliquot doctor --node` on a pretend node: real files and sockets, the simulated driver, processes on its card."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.integration.plugin.conftest import short_directory
from tests.native.shells import OUT, Shell
from tests.native.tenants import Tenant

Json = dict[str, Any]
UID = "2ed99c6b-0000-0000-0000-000000000001"
CONTAINERD = """
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.cri.v1.runtime"]
cdi_spec_dirs = ["/etc/cdi", "{cdi}"]
"""
CDI_OFF = '[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'


@dataclass
class Machine:
    """A node's files below a directory."""

    root: Path
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.sim = SimMachine(self.root / "sim", [SimCard()])
        self.sim.create()
        self.cdi, self.run, self.proc = (self.root / name for name in ("cdi", "run", "proc"))
        for directory in (self.cdi, self.run, self.proc, self.root / "etc"):
            directory.mkdir()
        self.write("etc/containerd/config.toml", CONTAINERD.format(cdi=self.cdi))
        self.write("proc/100/cmdline", "/usr/bin/containerd\0--log-level\0warn\0")
        registered = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {"aliquot.dev/gpu": ["a::0"]}}}
        self.write("device-plugins/kubelet_internal_checkpoint", json.dumps(registered))
        for name in (
            "device-plugins/kubelet.sock",
            "device-plugins/aliquot-gpu.sock",
            "pod-resources/kubelet.sock",
        ):
            self.listen(name)

    def write(self, name: str, text: str) -> None:
        """A file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def listen(self, name: str) -> None:
        """A socket at which somebody takes connections."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        server = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(path))
        server.listen()

    def tenant(self) -> Tenant:
        """A container with a slice of the card, as the agent makes its pages."""
        directory = self.run / "tenants" / UID / "main"
        directory.mkdir(parents=True)
        limits = (CardLimit(self.sim.cards[0].uuid, 1 << 30),)
        create_control(directory / "control", Control("default/chat/main", limits))
        create_usage(directory / "usage")
        return Tenant(self.sim, directory)

    def shell(self, tenant: Tenant, *, bare: bool) -> Shell:
        """A process that has memory of the card: in the slice, or past it."""
        shell = self.stack.enter_context(Shell(tenant, bare=bare)).begin()
        shell.ok("cuMemAlloc_v2", OUT, 1 << 20)
        (self.proc / str(shell.pid)).symlink_to(Path("/proc", str(shell.pid)))
        return shell

    def doctor(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Runs the command."""
        places = {
            "--proc": self.proc,
            "--root": self.root,
            "--kubelet-dir": self.root,
            "--run-dir": self.run,
            "--cdi-dir": self.cdi,
            "--dev-root": self.sim.dev_dir,
            "--driver-root": self.sim.lib_dir,
        }
        given = [str(word) for pair in places.items() for word in pair]
        argv = [sys.executable, "-m", "aliquot.cli", "doctor", "--node", *given, *flags]
        environment = {
            "SIMGPU_DIR": str(self.sim.root),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
        }
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=environment)

    def bad(self) -> dict[str, str]:
        """What is not ok, by check; the exit status says whether something failed."""
        done = self.doctor("--json")
        found: list[Json] = json.loads(done.stdout)["findings"]
        assert done.returncode == int(any(one["result"] == "failure" for one in found)), done.stderr
        return {one["check"]: f"{one['result']}: {one['seen']}" for one in found if one["result"] != "ok"}


@pytest.fixture(name="machine")
def make_machine() -> Iterator[Machine]:
    """A node of one card, all well; what needs the host's own programs cannot be asked."""
    root = short_directory()
    machine = Machine(root)
    with machine.stack:
        yield machine
    shutil.rmtree(root)


def test_a_node_and_a_stranger_on_its_card(machine: Machine):
    """A tenant is well; a program of the same card that has no slice is named with its process."""
    tenant = machine.tenant()
    machine.shell(tenant, bare=False)
    assert set(machine.bad()) == {"runc"}
    stranger = machine.shell(tenant, bare=True)
    seen = machine.bad()["processes"]
    assert seen.startswith("failure: processes on cards that have no slice of them")
    assert f" {stranger.pid} on card 0" in seen


def test_a_node_that_is_broken_in_many_ways(machine: Machine):
    """A device node that is gone, CDI switched off by an imported file, a torn spec, a dead agent, another plugin."""
    (machine.sim.dev_dir / "nvidia-uvm").unlink()
    machine.write("etc/containerd/conf.d/99.toml", CDI_OFF)
    machine.write("cdi/torn.json", '{"kind": ')
    machine.stack.close()
    registered = {"Data": {"RegisteredDevices": {"nvidia.com/gpu": ["GPU-1"]}}}
    machine.write("device-plugins/kubelet_internal_checkpoint", json.dumps(registered))
    machine.write(
        "etc/nvidia-container-runtime/config.toml",
        "accept-nvidia-visible-devices-envvar-when-unprivileged = true\n",
    )
    seen = machine.bad()
    assert set(seen) == {"device-files", "runtime", "cdi", "sockets", "registered", "toolkit", "runc"}
    assert "switches CDI off" in seen["runtime"]
    assert "torn.json" in seen["cdi"]
    assert "does not answer" in seen["sockets"]
    assert "NVIDIA's device plugin" in seen["registered"]
    done = machine.doctor()
    assert (done.returncode, "FAILURE" in done.stdout) == (1, True)


def test_places_are_for_nodes_alone(machine: Machine):
    """Bad use is told, with status 2."""
    argv = [sys.executable, "-m", "aliquot.cli", "doctor", "--proc", str(machine.proc)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "--node" in done.stderr) == (2, True)
