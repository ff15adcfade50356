"""Certificates that keepers keep in a cluster, looked at from outside, and keepers as processes."""

import base64
import datetime as dt
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from aliquot.sandbox.cluster.cluster import FRUGAL, PocketCluster
from aliquot.sandbox.cluster.processes import free_port, wait_for
from aliquot.server.cert_rotation import CA_SECRET, certificates_in

Document = dict[str, Any]


ROOT = Path(__file__).parents[2]


NAMESPACE = "aliquot-system"


DAY = 86400.0


LEAVES = ("aliquot-webhook-tls", "aliquot-scheduler-tls", "aliquot-agent-tls")


def prepare(cluster: PocketCluster) -> None:
    """The namespace and the configuration."""
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.kubectl.apply(yaml.safe_load((ROOT / "deploy/webhook/configuration.yaml").read_text()))


def secret(cluster: PocketCluster, name: str) -> dict[str, bytes]:
    """What a Secret holds."""
    found = cluster.kubectl.find("secrets", name, NAMESPACE) or {}
    return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}


def bundle(cluster: PocketCluster) -> bytes:
    """The CAs that the API server trusts for webhooks; the same in all of them."""
    configuration = cluster.kubectl.find(
        "mutatingwebhookconfigurations.admissionregistration.k8s.io", "aliquot"
    )
    assert configuration
    (found,) = {webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"]}
    return base64.b64decode(found)


def trusted(certificate: bytes, authorities: bytes) -> bool:
    """Whether one of the CAs has signed it."""
    leaf = x509.load_pem_x509_certificate(certificate)
    for authority in certificates_in(authorities):
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def expired(certificate: bytes, now: dt.datetime) -> bool:
    """Whether it has ended."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc <= now


def check(cluster: PocketCluster, now: Callable[[], dt.datetime] | None = None) -> None:
    """Whoever serves with what is in a Secret is trusted by the API server and by all who hold another Secret.

    Certificates that have expired by then are trusted by nobody, whatever is done.
    """
    held, authorities = steady(cluster)
    for name in LEAVES:
        if not held[name] or (now is not None and expired(held[name]["tls.crt"], now())):
            continue
        assert trusted(held[name]["tls.crt"], authorities), f"the API server does not trust {name}"
        for other in LEAVES:
            theirs = held[other].get("ca.crt")
            assert theirs is None or trusted(held[name]["tls.crt"], theirs), f"{other} does not trust {name}"


def steady(cluster: PocketCluster) -> tuple[dict[str, dict[str, bytes]], bytes]:
    """All that is kept and the CAs that the API server trusts, at one moment: two looks that saw the same."""
    looks = ((state(cluster), bundle(cluster)) for _ in itertools.count())
    return next(one for one, later in itertools.pairwise(looks) if one == later)


def state(cluster: PocketCluster) -> dict[str, dict[str, bytes]]:
    """All that is kept."""
    return {name: secret(cluster, name) for name in (CA_SECRET, *LEAVES)}


LEAF_S, CA_S, OVERLAP_S = 12.0, 36.0, 4.0


class Keepers:
    """Keeper processes that live fast."""

    def __init__(self, cluster: PocketCluster, root: Path) -> None:
        self._cluster = cluster
        self._log = root / "keepers.log"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """One more."""
        spans = [
            f"--leaf-days={LEAF_S / DAY}",
            f"--ca-days={CA_S / DAY}",
            f"--overlap-days={OVERLAP_S / DAY}",
        ]
        argv = [sys.executable, "-m", "aliquot.cli", "certs", "keep", *spans, "--every", "0.2"]
        argv += ["--kubeconfig", str(self._cluster.kubeconfig), "--metrics-port", str(free_port())]
        with self._log.open("ab") as log:
            env = {**os.environ, **FRUGAL, "PYTHONPATH": str(ROOT)}
            self.running.append(
                subprocess.Popen([*argv, "--metrics-host", "127.0.0.1"], stdout=log, stderr=log, env=env)
            )

    def kill(self, which: int) -> None:
        """SIGKILL one."""
        process = self.running.pop(which)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End all."""
        while self.running:
            self.kill(0)


@contextmanager
def keeping(cluster: PocketCluster, root: Path, count: int = 1) -> Iterator[Keepers]:
    """So many keepers, of which one has finished its first look."""
    keepers = Keepers(cluster, root)
    try:
        for _ in range(count):
            keepers.start()
        wait_for("all to be made", lambda: all(state(cluster).values()), 60.0)
        yield keepers
    finally:
        keepers.close()
