"""Where chaos happens: two nodes, a card cut by MIG, two extenders, a quota, and wires that can be cut."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from aliquot.cli.demo.stack import LOOPBACK, Node, Stack
from aliquot.sandbox.cluster.processes import free_port
from aliquot.sandbox.gpus import SimCard, SimMig
from aliquot.server.tls import CertificatePair
from tests.integration.wires import Mode, Wire


def uuid(kind: str, number: int) -> str:
    """One that no other card or instance has, on whichever node."""
    return f"{kind}-{UUID(int=number)}"


INSTANCES = (
    SimMig("1g.18gb", uuid("MIG", 1), gi=7),
    SimMig("1g.18gb", uuid("MIG", 2), gi=8),
    SimMig("2g.35gb", uuid("MIG", 3), gi=3),
)
CARDS = {
    "node-1": (SimCard(uuid=uuid("GPU", 1)), SimCard(uuid=uuid("GPU", 2))),
    "node-2": (
        SimCard(uuid=uuid("GPU", 3)),
        SimCard(uuid=uuid("GPU", 4), memory_mib=143360, mig=INSTANCES),
    ),
}
LIMIT_MIB = 30 * 1024
"""Of the 48 GiB of the cards that are shared: less than what chaos asks for, more than a few pods have."""
HISTORY = 200
"""Changes that the API server's watches can resume from: few, so that who was away for a while cannot."""
QUOTA = {
    "apiVersion": "aliquot.dev/v1alpha1",
    "kind": "GPUQuota",
    "metadata": {"name": "chaos"},
    "spec": {"namespaces": ["default"], "limit": {"memoryMiB": LIMIT_MIB}},
}
EXTENDERS = ("extender", "extender-2")


class Place(Stack):
    """The stack; its agents and extenders reach the API server by `wires`, by the names of their processes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, CARDS, apiserver_flags=("--history", str(HISTORY)))
        self.wires: dict[str, Wire] = {}

    def start(self) -> None:
        """Start everything, and limit the namespace."""
        super().start()
        self.kubectl.apply(QUOTA)

    def start_extenders(self, pair: CertificatePair) -> None:
        """Start two that elect a leader; the scheduler asks the first, whoever leads."""
        for name, port in zip(EXTENDERS, (self.extender_port, free_port()), strict=True):
            flags = ["--tls-ca", str(pair.ca), "--leader-elect", "--lease-namespace", "kube-system"]
            flags += ["--identity", name, "--advertise-url", f"https://{LOOPBACK}:{port}"]
            self.start_service(name, "aliquot.scheduler_ext", port, pair, *flags)

    def kubeconfig_of(self, service: str) -> Path:
        """By a wire of its own."""
        if service not in self.wires:
            directory = self.root / "wires" / service
            directory.mkdir(parents=True)
            self.wires[service] = Wire(self.cluster, directory)
        return self.wires[service].kubeconfig

    def node_of(self, agent: str) -> Node:
        """The node of an agent's process."""
        return next(node for node in self.nodes.values() if node.agent == agent)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents' processes."""
        return tuple(node.agent for node in self.nodes.values())

    def __exit__(self, *raised: object) -> None:
        for wire in self.wires.values():
            wire.set(Mode.CARRIES)
        super().__exit__(*raised)
        for wire in self.wires.values():
            wire.close()


@contextmanager
def place() -> Iterator[Place]:
    """A running one. Its path is short: sockets live below it."""
    root = Path(tempfile.mkdtemp(prefix="aq-"))
    try:
        with Place(root) as made:
            made.start()
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)
