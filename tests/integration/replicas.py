"""Three replicas of the extender, with TLS, each on a wire of its own to the API server."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.server.certs import write_pair
from tests.integration.extenders import Extender
from tests.integration.wires import Wire

LEASES = "leases.coordination.k8s.io"
LEASE, NAMESPACE = "aliquot-scheduler-ext", "kube-system"
TAKES_OVER_S = 100.0
"""Ten times the seconds within which another replica is to answer."""


class Replica(Extender):
    """One of them."""

    def __init__(self, cluster: PocketCluster, root: Path, name: str, *more: str) -> None:
        directory = root / name
        directory.mkdir()
        self.name = name
        self.wire = Wire(cluster, directory)
        pair = write_pair(root / "tls", ["127.0.0.1"])
        flags = ["--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-ca", pair.ca]
        flags += ["--leader-elect", "--lease-namespace", NAMESPACE, "--identity", name]
        super().__init__(cluster, *map(str, flags), *more, scheme="https")
        self.pool = urllib3.PoolManager(ca_certs=str(pair.ca), retries=False)
        self.process.argv = [*self.process.argv, "--advertise-url", self.url]
        self.process.argv[self.process.argv.index("--kubeconfig") + 1] = str(self.wire.kubeconfig)

    @property
    def leads(self) -> bool:
        """Whether it says so."""
        return "aliquot_scheduler_leader 1.0" in self.get("/metrics").data.decode()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Kill it, be it stopped or not."""
        self.process.kill()
        self.wire.close()


class Replicas:
    """All of them."""

    def __init__(self, cluster: PocketCluster, root: Path, *flags: str, count: int = 3) -> None:
        self.cluster = cluster
        self.all = [Replica(cluster, root, f"replica-{n}", *flags) for n in range(count)]

    def holder(self) -> Replica | None:
        """Who has the Lease, by the API server's word."""
        lease = self.cluster.kubectl.find(LEASES, LEASE, NAMESPACE)
        name = ((lease or {}).get("spec", {}).get("holderIdentity") or "").partition("_")[0]
        return next((replica for replica in self.all if replica.name == name), None)

    def leader(self, *but: Replica) -> Replica:
        """Who holds the Lease and answers, once there is one that is none of these."""

        def look() -> Replica | None:
            found = self.holder()
            return found if found and found not in but and found.leads else None

        return wait_for("a replica to lead", look, TAKES_OVER_S)

    def others(self, *but: Replica) -> list[Replica]:
        """All but these."""
        return [replica for replica in self.all if replica not in but]


@contextmanager
def three(cluster: PocketCluster, root: Path, *flags: str) -> Iterator[Replicas]:
    """Three replicas, started and ready; one leads."""
    replicas = Replicas(cluster, root, *flags)
    try:
        for replica in replicas.all:
            replica.start()
        replicas.leader()
        yield replicas
    finally:
        for replica in replicas.all:
            replica.end()
