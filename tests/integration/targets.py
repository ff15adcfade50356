"""Servers under attack: each with a port to attack, and a call that has to be answered meanwhile."""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import urllib3

from aliquot.sandbox.cluster.processes import free_port
from aliquot.sandbox.gpus import SimCard
from tests.integration.extenders import create, two_nodes
from tests.integration.identities import Identities
from tests.integration.plugin.conftest import new_world, start_api
from tests.integration.plugin.small_kubelet import until
from tests.integration.test_callers import SCHEDULER, Guarded
from tests.integration.test_webhook import Running, review

Target = tuple[int, ssl.SSLContext | None, str, Callable[[], None]]
"""Port, how to shake hands, what to attack, and a call that has to be answered."""


def trusting(ca: Path, *pair: Path) -> ssl.SSLContext:
    """TLS of an attacker, who may hold a certificate."""
    context = ssl.create_default_context(cafile=str(ca))
    if pair:
        context.load_cert_chain(*pair)
    return context


@contextmanager
def extender(root: Path, attacker: str, path: str) -> Iterator[Target]:
    """The extender; the attacker shows a certificate, or none."""
    identities = Identities.make(root / "pki")
    with two_nodes(root / "c") as cluster:
        one = Guarded(cluster, identities)
        one.start()
        body = json.dumps({"Pod": create(cluster), "NodeNames": ["n1", "n2"]}).encode()

        def good() -> None:
            answer = one.pool.request("POST", f"{one.url}/filter", body=body, timeout=30)
            assert (answer.status, len(answer.json()["NodeNames"])) == (200, 1)

        try:
            yield (
                one.port,
                trusting(identities.ca, *(identities.issue(attacker) if attacker else ())),
                path,
                good,
            )
        finally:
            one.process.stop()


@contextmanager
def webhook(root: Path) -> Iterator[Target]:
    """The webhook."""
    running = Running(root)
    running.process.start()
    client, body = running.pool(), json.dumps(review({"aliquot.dev/gpu-mem": "8Gi"})).encode()

    def good() -> None:
        answer = client.request("POST", f"{running.url}/mutate", body=body, timeout=30)
        assert answer.json()["response"]["allowed"]

    try:
        yield running.port, trusting(running.pair.ca), "/mutate", good
    finally:
        running.process.stop()


@contextmanager
def agent(root: Path) -> Iterator[Target]:
    """The agent's metrics."""
    api, port = start_api(root / "api"), free_port()
    world = new_world(api, [SimCard()])
    world.flags += ["--metrics-port", str(port), "--metrics-host", "127.0.0.1"]
    client = urllib3.PoolManager(retries=False)

    def good() -> None:
        assert client.request("GET", f"http://127.0.0.1:{port}/metrics", timeout=30).status == 200

    try:
        world.start_plugin()
        until(lambda: "metrics on" in world.log, "serving")
        yield port, None, "/metrics", good
    finally:
        world.close()
        api.kill()


TARGETS: dict[str, Callable[[Path], AbstractContextManager[Target]]] = {
    "extender, by a stranger": lambda root: extender(root, "", "/filter"),
    "extender, by who may schedule": lambda root: extender(root, SCHEDULER, "/filter"),
    "extender's questions": lambda root: extender(root, SCHEDULER, "/filter-dryrun"),
    "webhook": webhook,
    "agent": agent,
}
