"""A container runtime in a box: containerd, runc and network plugins, on a machine whose cards are simulated.

A real driver sits in the kernel, so every container of the machine can reach it, and sees the cards whose device nodes
it has. The simulated one lives in files: containerd is told to mount them, and the machine's /proc, into every
container.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aliquot.sandbox.cluster.processes import Process
from tests.cluster.box import Box
from tests.cluster.control_plane import START_S
from tests.cluster.programs import program
from tests.tools.debian import unpack

SOCKET = "/run/containerd/containerd.sock"
CDI_DIRECTORY = "/var/run/cdi"
PAUSE = "registry.k8s.io/pause:3.10"
SIMULATED = Path("/run/simgpu")
"""Where containers find the simulated machine."""
SIMULATION = {
    "SIMGPU_DIR": str(SIMULATED / "machine"),
    "SIMGPU_PROC": str(SIMULATED / "proc"),
    "SIMGPU_DEV": "/dev",
}
POD_NETWORK = "10.231.17.0/24"
"""None that a cluster of the machine's own is likely to use: its links are taken away."""
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": POD_NETWORK}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
CONFIGURATION = """
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{socket}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["{cdi}"]
# Without CAP_SYS_RESOURCE no pod could have the score that the kubelet wants for it.
restrict_oom_score_adj = true
disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{base}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""


class Runtime:
    """containerd in a box; `machine` is the directory of the simulated machine, if it has one."""

    def __init__(self, box: Box, logs: Path, machine: Path | None = None) -> None:
        self._box = box
        self._machine = machine
        self._containerd, self._ctr = program("containerd"), program("ctr")
        self._shims = program("containerd-shim-runc-v2").parent
        self._debian = unpack("runc", "containernetworking-plugins")
        argv = ["/usr/bin/env", f"PATH={self._shims}:/usr/sbin:/usr/bin:/sbin:/bin", str(self._containerd)]
        argv += ["--config", "/etc/containerd/config.toml"]
        self.process = Process("containerd", box.command(argv), logs / "containerd.log", None, self._answers)

    def start(self) -> None:
        """Write the configuration and start."""
        spec = json.loads(self._box.run(str(self._ctr), "oci", "spec"))
        self._write("/etc/containerd/base.json", json.dumps(self._with_machine(spec)))
        self._write("/etc/cni/net.d/10-pods.conflist", json.dumps(NETWORK))
        text = CONFIGURATION.format(
            socket=SOCKET,
            pause=PAUSE,
            cdi=CDI_DIRECTORY,
            plugins=self._debian / "usr/lib/cni",
            runc=self._debian / "usr/sbin/runc",
            base="/etc/containerd/base.json",
        )
        self._write("/etc/containerd/config.toml", text)
        self._box.path(CDI_DIRECTORY.replace("/var/run", "/run")).mkdir(parents=True, exist_ok=True)
        self.process.start(START_S)

    def load(self, archives: Iterable[Path]) -> None:
        """Import images from archives of OCI layouts; their names lie in them."""
        for archive in archives:
            self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """What containerd's own client prints, for the kubelet's images and containers."""
        return self._box.run(str(self._ctr), "--address", SOCKET, "--namespace", "k8s.io", *arguments)

    def _answers(self) -> bool:
        try:
            self.ctr("version")
        except RuntimeError:
            return False
        return True

    def _write(self, path: str, text: str) -> None:
        file = self._box.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def _with_machine(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The specification that every container starts from."""
        if self._machine:
            for source, place in ((self._machine, "machine"), (Path("/proc"), "proc")):
                options = ["rbind", "rprivate", "nosuid", "noexec", "rw" if place == "machine" else "ro"]
                mount = {"destination": str(SIMULATED / place), "type": "bind", "source": str(source)}
                spec["mounts"].append({**mount, "options": options})
            spec["process"].setdefault("env", []).extend(f"{k}={v}" for k, v in SIMULATION.items())
        return spec
