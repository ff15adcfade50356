"""One pretend node: simulated cards, a small kubelet, an API server process and the real plugin process."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from aliquot.libshim._pages import ffi, lib
from aliquot.node.cdi import Spec, read_spec
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from aliquot.sandbox.cluster.cluster import FRUGAL
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.integration.plugin.small_kubelet import Held, SmallKubelet, until

Json = dict[str, Any]
GPU = "aliquot.dev/gpu"
NODES = "/api/v1/nodes"
REPOSITORY = Path(__file__).parents[3]


@dataclass
class ApiServer:
    """The pocket API server as a process of its own; its port and its state survive a restart."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            "-m",
            "aliquot.sandbox.cluster.apiserver",
            "--dir",
            str(self.directory),
            "--port",
            str(self.port),
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=REPOSITORY,
                env={**os.environ, **FRUGAL},
                stdout=log,
                stderr=log,
            )
        until(self._answers, "API server up")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def kubeconfig(self) -> Path:
        """Where clients read how to reach it."""
        return self.directory / "kubeconfig"

    def _answers(self) -> bool:
        try:
            self.request("GET", "/readyz")
        except (OSError, urllib.error.URLError):
            return False
        return True

    def request(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Any:
        """One request; raises HTTPError where it is refused."""
        document = yaml.safe_load(self.kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        trust = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
        headers = {
            "Authorization": f"Bearer {document['users'][0]['user']['token']}",
            "Content-Type": kind,
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(cluster["server"] + path, data, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:  # noqa: S310
            content = answer.read()
        return json.loads(content) if content.startswith(b"{") else content.decode()


def container(name: str, limits: Mapping[str, str], **more: Any) -> Json:
    """A container that asks for something."""
    return {"name": name, "image": "demo", "resources": {"limits": dict(limits)}, **more}


def slice_of(memory: str, core: int = 0, cards: int = 1) -> dict[str, str]:
    """Limits of a slice as the webhook leaves them."""
    limits = {GPU: str(cards), "aliquot.dev/gpu-mem": memory}
    return {**limits, "aliquot.dev/gpu-core": str(core)} if core else limits


@dataclass
class World:
    """A node with everything on it; each test has one of its own, all share an API server."""

    root: Path
    node: str
    api: ApiServer
    cards: Sequence[SimCard]
    flags: list[str] = field(default_factory=lambda: ["--placement-wait", "8"])
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.machine = SimMachine(self.root / "machine", self.cards)
        self.machine.create()
        self.kubelet = SmallKubelet(self.root / "kubelet")
        self.uuids = [card.uuid for card in self.machine.cards]

    @property
    def state(self) -> Path:
        """The plugin's durable state."""
        return self.root / "state"

    @property
    def log(self) -> str:
        """What the plugin has said so far."""
        path = self.root / "plugin.log"
        return path.read_text() if path.exists() else ""

    def command(self, *more: str) -> list[str]:
        """The plugin's command line on this node."""
        paths = {
            "--kubeconfig": self.api.kubeconfig,
            "--kubelet-dir": self.kubelet.directory,
            "--state-dir": self.state,
            "--run-dir": self.root / "run",
            "--cdi-dir": self.root / "cdi",
            "--driver-root": self.machine.lib_dir,
            "--dev-root": self.machine.dev_dir,
            "--proc-root": self.machine.root / "proc",
            "--sys-root": self.machine.sys_dir,
        }
        given = [word for flag, path in paths.items() for word in (flag, str(path))]
        flags = ["--node-name", self.node, "--metrics-port", "-1", "--log-level", "debug", "--no-pod-cgroups"]
        return [sys.executable, "-m", "aliquot.plugin", *flags, *given, *self.flags, *more]

    def join(self) -> str:
        """Has the Node made, as a kubelet does; returns its UID."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        made: Json = self.api.request("POST", NODES, node)
        return str(made["metadata"]["uid"])

    def start_plugin(self, *more: str, env: Mapping[str, str] | None = None) -> None:
        """Starts the plugin; returns at once."""
        with (self.root / "plugin.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(*more), cwd=REPOSITORY, env={**self.env(), **(env or {})}, stdout=log, stderr=log
            )

    def env(self) -> dict[str, str]:
        """An environment in which the loader finds the simulated driver."""
        return {**os.environ, **FRUGAL, **self.machine.env(), "NO_PROXY": "*"}

    def kill_plugin(self, number: int = signal.SIGKILL) -> None:
        """Ends the plugin, by default without a warning."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(10)
            self.process = None

    def restart_plugin(self, *more: str) -> None:
        """SIGKILL, and start again."""
        self.kill_plugin()
        self.start_plugin(*more)

    def close(self) -> None:
        """Ends everything of this node; its pods leave the API server if there is one."""
        self.kill_plugin()
        self.kubelet.stop()
        if self.api.process is not None:
            self.clear()

    def clear(self) -> None:
        """Removes the node's pods from API server and kubelet."""
        mine = self.api.request("GET", f"{self._pods()}?fieldSelector=spec.nodeName%3D{self.node}")
        for pod in mine["items"]:
            self.delete(pod["metadata"]["name"])
        self.kubelet.writes_checkpoint = True
        self.kubelet.forget_all()

    def placement(
        self, uid: str, containers: Mapping[str, Sequence[CardShare]], **kinds: ContainerKind
    ) -> str:
        """The annotation that the scheduler would write."""
        return encode_placement(
            Placement(
                uid,
                self.node,
                tuple(
                    ContainerPlacement(name, kinds.get(name, ContainerKind.REGULAR), tuple(shares))
                    for name, shares in containers.items()
                ),
            ),
        )

    def pod(
        self,
        name: str,
        containers: Sequence[Json],
        placed: Mapping[str, Sequence[CardShare]] | None = None,
        init: Sequence[Json] = (),
        volumes: Sequence[Json] = (),
        **kinds: ContainerKind,
    ) -> Json:
        """A pod created and bound to this node, with its placement in the Binding."""
        spec = {
            "containers": list(containers),
            "initContainers": list(init),
            "volumes": list(volumes),
            "schedulerName": "aliquot-scheduler",
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        created = self.api.request("POST", self._pods(), body)
        self.bind(created, placed, **kinds)
        return self.read(name)

    def admit(self, name: str, memory_mib: int, cores: int) -> Held:
        """A pod with a part of the first card, whose container has not started."""
        share = CardShare(self.uuids[0], memory_mib, cores)
        pod = self.pod(name, [container("main", slice_of(f"{memory_mib}Mi", cores))], {"main": [share]})
        return self.kubelet.allocate(pod, "main", GPU, 1)

    def bind(
        self, pod: Json, placed: Mapping[str, Sequence[CardShare]] | None, **kinds: ContainerKind
    ) -> None:
        """The one write of the scheduler."""
        meta = pod["metadata"]
        text = None if placed is None else self.placement(meta["uid"], placed, **kinds)
        self.bind_with(pod, {} if text is None else {"aliquot.dev/placement": text})

    def bind_with(self, pod: Json, annotations: Mapping[str, str]) -> None:
        """Binds with any annotations."""
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "uid": meta["uid"], "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        self.api.request("POST", f"{self._pods()}/{meta['name']}/binding", binding)

    def read(self, name: str) -> Json:
        """A pod as it is now."""
        pod: Json = self.api.request("GET", f"{self._pods()}/{name}")
        return pod

    def tell_running(self, name: str, container: str) -> None:
        """What the kubelet would report of a container that has started."""
        state = {
            "name": container,
            "ready": True,
            "state": {"running": {"startedAt": "2026-11-21T03:00:00Z"}},
        }
        status = {
            "phase": "Running",
            "containerStatuses": [{**state, "image": "", "imageID": "", "restartCount": 0}],
        }
        path = f"{self._pods()}/{name}/status"
        self.api.request("PATCH", path, {"status": status}, "application/merge-patch+json")

    def delete(self, name: str) -> None:
        """Force-deletes a pod from the API."""
        self.api.request("DELETE", f"{self._pods()}/{name}", {"gracePeriodSeconds": 0})

    def _pods(self) -> str:
        return "/api/v1/namespaces/default/pods"

    def spec(self, nonce: str) -> Spec:
        """The CDI spec of a nonce."""
        return read_spec(self.root / "cdi" / f"aliquot.dev-slice_{nonce}.json")

    def edits(self, nonce: str) -> tuple[dict[str, str], list[str], list[str]]:
        """Mounts (container path to host path), device nodes and environment of a nonce."""
        (device,) = self.spec(nonce).devices
        edits = device.container_edits
        mounts = {mount.container_path: mount.host_path for mount in edits.mounts}
        return mounts, [node.path for node in edits.device_nodes], list(edits.env)

    def control(self, nonce: str) -> Path:
        """The control page a container of this nonce would see."""
        return Path(self.edits(nonce)[0]["/run/aliquot/control"])

    def usage(self, nonce: str) -> Path:
        """The usage page a container of this nonce would see."""
        return Path(self.edits(nonce)[0]["/run/aliquot/usage"])

    def check_no_room(self, held: Held, reason: str) -> None:
        """The gate keeps a container waiting for this reason and makes nothing for it."""
        call = self.kubelet.ask(held)
        until(lambda: f"does not fit this node: card {self.uuids[0]}: {reason}" in self.log, "kept waiting")
        call.cancel()
        assert not (self.root / "cdi" / f"aliquot.dev-slice_{held.nonce}.json").exists()

    def ready(self, resource: str = GPU) -> None:
        """Waits until the plugin serves a resource."""
        self.kubelet.wait_for(resource)


MakeWorld = Callable[..., World]
"""Takes the node's cards; see the fixture of this name."""


def occupy(usage: Path, process: subprocess.Popen[bytes], size: int) -> None:
    """Writes into a usage page what the interceptor would: that a process holds memory on the first card."""
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    page = ffi.new("aq_usage_page *")
    ffi.memmove(page, usage.read_bytes(), lib.AQ_USAGE_SIZE)
    slot = page.slots[0]
    slot.owner, slot.pid, slot.start_time = 1, process.pid, int(stat[19])
    slot.pid_namespace = Path(f"/proc/{process.pid}/ns/pid").stat().st_ino
    page.cards[0].memory = slot.memory[0] = size << lib.AQ_TALLY_SHIFT
    with usage.open("r+b") as file:
        file.write(bytes(ffi.buffer(page)))
