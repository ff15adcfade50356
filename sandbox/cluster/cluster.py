"""The pocket cluster: its processes started, killed and restarted, and a client to look at it.

with PocketCluster(tmp_path) as cluster:
    cluster.start_apiserver()
    cluster.start_kubelet("node1")
    cluster.start_scheduler(extenders=[...])
    cluster.start("webhook", [sys.executable, "-P", "-m", "aliquot.webhook", ...], ready_url="http://127.0.0.1:81/readyz")
    cluster.kubectl.apply(Path("examples/pod.yaml"))
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import urllib3
import yaml

import aliquot
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.kubelet import runtime
from aliquot.sandbox.cluster.kubelet.kubelet import READY_FILE
from aliquot.sandbox.cluster.processes import Process, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aliquot.sandbox.cluster.objects import Obj

PACKAGES = Path(aliquot.__file__).parents[1]
"""Where the package is imported from: site-packages, or a checkout."""
LONGEST_SOCKET_PATH = 107
SCHEDULER_NAMES = ("default-scheduler", "aliquot-scheduler")
"""Profiles of the stand-in scheduler: it stands for all schedulers of the cluster."""
FRUGAL = {"SSL_CERT_FILE": os.devnull}
"""Nothing of a cluster trusts the authorities of the wide world; to read them takes a sixth of a process's start."""


@dataclass(frozen=True)
class NodePaths:
    """Where one node's kubelet keeps things; what a node agent is to be told."""

    root: Path

    @property
    def device_plugins(self) -> Path:
        """The directory of `kubelet.sock` and of the plugins' sockets."""
        return self.root / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """The PodResources socket."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def cdi(self) -> Path:
        """The directory of CDI spec files."""
        return self.root / "cdi"

    @property
    def pods(self) -> Path:
        """The directory of pods: logs, volumes, container state."""
        return self.root / "pods"


class PathTooLongError(ValueError):
    """Unix sockets cannot live below a node's directory."""


class PocketCluster:
    """A cluster below one directory. Leaving the context ends every process, containers included.

    Args:
        root: the directory.
        env: the environment of its processes, by default this one's.
        port: gives the API server its port.
    """

    def __init__(
        self, root: Path, env: Mapping[str, str] | None = None, port: Callable[[], int] = free_port
    ) -> None:
        self._port = port
        self.root = root.absolute()
        self.processes: dict[str, Process] = {}
        self._env = dict(os.environ if env is None else env)
        self._nodes: dict[str, NodePaths] = {}
        self._kubectl: Kubectl | None = None
        self.root.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig; there once the API server has started."""
        return self.root / "apiserver" / "kubeconfig"

    @property
    def kubectl(self) -> Kubectl:
        """The client; there once the API server has started."""
        if self._kubectl is None:
            self._kubectl = Kubectl(self.kubeconfig)
        return self._kubectl

    def node(self, name: str) -> NodePaths:
        """Paths of a node; can be asked for before its kubelet starts."""
        return self._nodes.setdefault(name, NodePaths(self.root / name))

    def start_apiserver(self, *flags: str) -> None:
        """Start the API server on a free port and wait until it serves."""
        directory = self.root / "apiserver"
        argv = ["--dir", str(directory), "--port", str(self._port()), *flags]
        self.start(
            "apiserver", _module("aliquot.sandbox.cluster.apiserver", argv), ready=self._apiserver_ready
        )

    def start_kubelet(
        self, node: str, *flags: str, dev_root: Path = Path("/dev"), env: Mapping[str, str] | None = None
    ) -> NodePaths:
        """Start a node and wait until it is Ready; `env` is added to what its containers may inherit."""
        paths = self.node(node)
        longest = len(str(paths.device_plugins)) + 40
        if longest > LONGEST_SOCKET_PATH:
            raise PathTooLongError(f"{paths.root} is too long for the paths of Unix sockets")
        argv = ["--node", node, "--kubeconfig", str(self.kubeconfig), "--dir", str(paths.root)]
        argv += ["--dev-root", str(dev_root), *flags]
        name = f"kubelet-{node}"
        self.start(
            name, _module("aliquot.sandbox.cluster.kubelet", argv), env, ready=lambda: self._node_ready(node)
        )
        return paths

    def start_scheduler(self, extenders: Sequence[Obj] = (), *flags: str) -> None:
        """Start the stand-in scheduler with `extenders` entries as KubeSchedulerConfiguration has them."""
        config = self.root / "scheduler.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": name} for name in SCHEDULER_NAMES],
            "extenders": list(extenders),
        }
        config.write_text(yaml.safe_dump(document))
        argv = ["--kubeconfig", str(self.kubeconfig), "--config", str(config), *flags]
        self.start("scheduler", _module("aliquot.sandbox.cluster.scheduler", argv))

    def start(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        ready_url: str = "",
        ready: Callable[[], bool] | None = None,
    ) -> Process:
        """Start any program under a name and wait until it is ready; ProcessError when it fails to.

        Args:
            name: for `kill`, `restart` and the log file `<root>/<name>.log`.
            argv: its command line.
            env: added to the cluster's environment.
            ready_url: ready when a GET answers 200; a certificate is not checked.
            ready: ready when this says so.
        """
        check = ready or (None if not ready_url else lambda: _answers(ready_url))
        whole = {
            **self._env,
            **FRUGAL,
            "PYTHONPATH": str(PACKAGES),
            "PYTHONUNBUFFERED": "1",
            **(env or {}),
        }
        process = Process(name, argv, self.root / f"{name}.log", whole, check)
        self.processes[name] = process
        process.start()
        return process

    def kill(self, name: str) -> None:
        """SIGKILL one process (containers of a kubelet live on)."""
        self.processes[name].kill()

    def restart(self, name: str) -> None:
        """Start a process again with its old command line; one that still runs is killed first."""
        self.processes[name].kill()
        self.processes[name].start()

    def log(self, name: str) -> str:
        """All that a process has printed."""
        return self.processes[name].log.read_text(errors="replace")

    def down(self) -> None:
        """End every process, the latest first, and all containers."""
        for process in reversed(self.processes.values()):
            process.stop()
        for node in self._nodes.values():
            runtime.kill_all(node.pods)

    def _apiserver_ready(self) -> bool:
        try:
            return self.kubeconfig.exists() and bool(self.kubectl.request("GET", "/version"))
        except ApiError:
            return False

    def _node_ready(self, name: str) -> bool:
        ready, process = self.node(name).root / READY_FILE, self.processes[f"kubelet-{name}"]
        return ready.exists() and ready.read_text() == str(process.pid)


def _module(name: str, argv: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", name, *argv]


def _answers(url: str) -> bool:
    try:
        with urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False) as pool:
            return pool.request("GET", url, timeout=2).status == 200  # noqa: PLR2004
    except urllib3.exceptions.HTTPError:
        return False


def extender_entry(url: str, resources: Mapping[str, bool], **more: Any) -> Obj:
    """An `extenders:` entry with filter and bind; `resources`: name → ignoredByScheduler."""
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": "5s",
        "managedResources": [
            {"name": name, "ignoredByScheduler": ignored} for name, ignored in resources.items()
        ],
        **more,
    }
