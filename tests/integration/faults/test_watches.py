"""Watches that break, expire, stutter and come out of order: what is known is what the API server has, in the end."""

import asyncio
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from aliquot.kube.api import Api
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import PODS
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.integration.extenders import Extender, add_node
from tests.integration.faults.crowds import CARDS, bound_pod, card_of
from tests.integration.faults.living import promised_by
from tests.integration.faults.streams import Disturber
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import plain
from tests.integration.journey.stacks import Stack, one_node
from tests.integration.journey.test_resize import annotate, limits
from tests.integration.proxies import Proxy
from tests.integration.wires import lead_through

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aliquot.kube.objects import Pod

OFTEN = 3
"""How often each disturbance is to happen at least."""
PACE_S = 0.02
HISTORY, SHORT_HISTORY = 40, 4
"""Changes that the API server remembers: a watch that was away for longer is told 410."""
BOOKMARK_S = "0.2"
"""What comes late does so before the next bookmark would."""
OFTEN_BROKEN = 0.5


@pytest.fixture(name="seed")
def draw() -> int:
    """SEED, or another one each time."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    return seed


class Churn:
    """Bound pods that come, change and go, one change at a time."""

    def __init__(self, cluster: PocketCluster, seed: int) -> None:
        self._kubectl = cluster.kubectl
        self._dice = random.Random(seed)
        self._there: list[str] = []
        self._made = 0

    def until(self, enough: Callable[[], bool]) -> None:
        """Change by change, for two minutes at most."""
        end, pause = time.monotonic() + 120, threading.Event()
        while not enough() and time.monotonic() < end:
            self.change()
            pause.wait(PACE_S)

    def change(self) -> None:
        """One more."""
        act = self._dice.random()
        if act < 0.5 or not self._there:
            self._make(self._made)
        elif act < 0.7:
            self._touch(self._dice.choice(self._there))
        else:
            name = self._there.pop(self._dice.randrange(len(self._there)))
            self._kubectl.delete("pods", name, grace=0)
            if self._dice.random() < 0.3:
                self._make(int(name.rpartition("-")[2]))

    def _make(self, number: int) -> None:
        """A pod, or one anew under its name."""
        self._made += number == self._made
        body = bound_pod(number, "n0", number % CARDS)
        placement = json.loads(body["metadata"].pop("annotations")["aliquot.dev/placement"])
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        placement["podUID"] = self._kubectl.create(body)["metadata"]["uid"]
        marked = {"metadata": {"annotations": {"aliquot.dev/placement": json.dumps(placement)}}}
        self._kubectl.patch("pods", body["metadata"]["name"], marked)
        self._there.append(body["metadata"]["name"])

    def _touch(self, name: str) -> None:
        self._kubectl.patch("pods", name, {"metadata": {"labels": {"touched": str(self._dice.random())}}})


@pytest.fixture(name="cluster")
def run_cluster(tmp_path: Path) -> Iterator[PocketCluster]:
    """An API server that soon forgets, and a node of eight cards."""
    with PocketCluster(tmp_path / "c") as cluster:
        cluster.start_apiserver("--history", str(HISTORY), "--bookmark-period", BOOKMARK_S)
        cluster.kubectl.apply(*Path("deploy/crds").glob("*.yaml"))
        add_node(cluster, "n0", [card_of("n0", index) for index in range(CARDS)])
        yield cluster


def proxy_for(cluster: PocketCluster, disturber: Disturber, directory: Path) -> tuple[Proxy, Path]:
    """A proxy that disturbs watches, and a kubeconfig that leads through it."""
    server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    proxy = Proxy(server, directory, disturber.lines)
    return proxy, lead_through(cluster, proxy.url, directory / "kubeconfig", proxy.tls.ca)


@pytest.mark.slow
def test_a_copy_and_a_ledger_are_true_in_the_end(cluster: PocketCluster, tmp_path: Path, seed: int) -> None:
    """A reflector, as all services have them, and the extender, which keeps no copy."""
    disturber = Disturber(seed)
    proxy, kubeconfig = proxy_for(cluster, disturber, tmp_path / "proxy")
    extender = Extender(cluster)
    extender.process.argv[extender.process.argv.index("--kubeconfig") + 1] = str(kubeconfig)
    extender.start()
    churn = Churn(cluster, seed)

    async def follow() -> None:
        async with Api.from_kubeconfig(kubeconfig) as api:
            reflector = Reflector(api, PODS)
            task = asyncio.create_task(reflector.run())
            await asyncio.wait_for(reflector.synced.wait(), 60)
            await asyncio.to_thread(churn.until, lambda: min(disturber.done.values()) >= OFTEN)
            disturber.calm()
            await asyncio.to_thread(churn.change)
            await asyncio.to_thread(
                wait_for, "the copy to be true", lambda: versions(reflector.store) == versions_of(cluster), 60
            )
            assert not task.done()
            task.cancel()

    try:
        asyncio.run(follow())
        assert len(cluster.kubectl.list("pods")) > 1
        wait_for("the ledger to be true", lambda: extender.promised() == promised_by(cluster), 60)
        print(disturber.done)
        assert min(disturber.done.values()) >= OFTEN
    finally:
        extender.process.stop()
        proxy.close()


def versions(store: "Mapping[str, Pod]") -> dict[str, str]:
    """Name → UID and version, as a copy has them."""
    copy = dict(store)
    return {key: f"{pod.metadata.uid} {pod.metadata.resource_version}" for key, pod in copy.items()}


def versions_of(cluster: PocketCluster) -> dict[str, str]:
    """The same, as a list has them now."""
    listed = (pod["metadata"] for pod in cluster.kubectl.list("pods"))
    return {f"default/{meta['name']}": f"{meta['uid']} {meta['resourceVersion']}" for meta in listed}


@pytest.mark.slow
def test_an_agent_lets_everybody_in_and_out(tmp_path: Path, seed: int) -> None:
    """Pods come and go on a node whose agent hears all of it broken; each gets its own limits, and nothing is left."""
    disturber = Disturber(seed, OFTEN_BROKEN)
    with one_node((SimCard(), SimCard())) as stack:
        stack.start()
        (node,) = stack.nodes.values()
        apiserver = stack.cluster.processes["apiserver"]
        apiserver.argv = [*apiserver.argv, "--history", str(SHORT_HISTORY), "--bookmark-period", BOOKMARK_S]
        stack.cluster.restart("apiserver")
        proxy, kubeconfig = proxy_for(stack.cluster, disturber, tmp_path / "proxy")
        agent = stack.cluster.processes[node.agent]
        words = list(agent.argv)
        words[words.index("--kubeconfig") + 1] = str(kubeconfig)
        agent.argv = words
        stack.cluster.restart(node.agent)
        dice = random.Random(seed)
        try:
            for number in range(6):
                name = f"p{number % 3}"
                if stack.kubectl.find("pods", name):
                    stack.kubectl.delete("pods", name, grace=dice.choice([0, None]))
                    stack.kubectl.wait_gone("pods", name)
                size = dice.randint(1, 5)  # three of them fit on a card, also when one has grown
                stack.kubectl.apply(plain(name, mem=f"{size}Gi"))
                stack.kubectl.wait_phase(name, "Running", deadline=60)
                audit(stack)
            lose_a_deletion(stack, disturber)
            print(disturber.done)
            disturber.calm()
            annotate(stack, name, mem=f"{size + 1}Gi")
            wait_for("the resize", lambda: limits(stack, node, name) == (size + 1, 10), 60)
            for pod in stack.kubectl.list("pods"):
                stack.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
            wait_for("nothing to be left", lambda: not list(node.tenants.glob("*")), 60)
        finally:
            proxy.close()


def lose_a_deletion(stack: Stack, disturber: Disturber) -> None:
    """A pod that nobody makes anew goes, and no watch tells of it: only a new list does."""
    stack.kubectl.apply(plain("leaver"))
    stack.kubectl.wait_phase("leaver", "Running", deadline=60)
    disturber.lose()
    wait_for("a watch that tells of it", lambda: touched(stack, "leaver") and "leaver" in disturber.told, 60)
    stack.kubectl.delete("pods", "leaver", grace=0)
    wait_for("its deletion to be lost", disturber.lost.is_set, 60)


def touched(stack: Stack, name: str) -> bool:
    """Change a pod in a way that matters to nobody."""
    label = {"metadata": {"labels": {"touched": str(time.monotonic())}}}
    return bool(stack.kubectl.patch("pods", name, label))
