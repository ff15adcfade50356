"""Pods come and go through all replicas while the leader is killed, stopped, cut off or made deaf, again and again.

SEED repeats the order of acts, MINUTES lengthens the run.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, add_node, binding, create
from tests.integration.journey.auditor import check_cards, check_promise, placement_of
from tests.integration.replicas import TAKES_OVER_S, Replica, Replicas, three
from tests.integration.wires import Mode

LASTS_S = 60 * float(os.environ.get("MINUTES", "1"))
NODES = {"n1": ["n1-a", "n1-b"], "n2": ["n2-a", "n2-b"]}
SIZES = {uuid: 16384 for uuids in NODES.values() for uuid in uuids}
CLIENTS, MOST_PODS, ANSWERS_S = 4, 3, 3.0


@pytest.fixture(name="replicas")
def run_replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Three replicas, and four cards."""
    with PocketCluster(tmp_path / "c") as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(Path("deploy/crds/gpunodes.yaml"))
        for name, uuids in NODES.items():
            add_node(cluster, name, uuids)
        with three(cluster, tmp_path) as replicas:
            yield replicas


class Client:
    """Somebody who makes pods, has them placed by whichever replica, and deletes them.

    Attributes:
        bound: Names of the pods of which a replica has said that they are bound.
    """

    def __init__(self, replicas: Replicas, seed: str, ended: threading.Event) -> None:
        self.bound: list[str] = []
        self.placed = 0
        self._replicas = replicas
        self._dice = random.Random(seed)
        self._ended = ended

    def run(self) -> None:
        """Go on until it is ended."""
        while not self._ended.is_set():
            pod = create(self._replicas.cluster, gib=self._dice.randint(3, 9))
            name = pod["metadata"]["name"]
            if self._place(pod):
                self.bound.append(name)
                self.placed += 1
            else:
                self._delete(name)
            if len(self.bound) > self._dice.randint(0, MOST_PODS):
                self._delete(self.bound.pop(self._dice.randrange(len(self.bound))))

    def _delete(self, name: str) -> None:
        self._replicas.cluster.kubectl.delete("pods", name, grace=0)

    def _place(self, pod: Document) -> bool:
        """Try at several replicas in turn; whether one says that it is bound."""
        for _ in range(4):
            try:
                nodes = self._ask("filter", {"Pod": pod, "NodeNames": list(NODES)}).get("NodeNames")
                if nodes and self._ask("bind", binding(pod, nodes[0]))["Error"] == "":
                    return True
            except urllib3.exceptions.HTTPError:
                continue
        return False

    def _ask(self, verb: str, body: Document) -> Document:
        replica: Replica = self._dice.choice(self._replicas.all)
        reply = replica.pool.request("POST", f"{replica.url}/{verb}", json=body, timeout=ANSWERS_S)
        return dict(reply.json())


def kill(leader: Replica, replicas: Replicas) -> None:
    """SIGKILL; it is started again once another leads."""
    leader.process.kill()
    replicas.leader(leader)
    leader.process.start()


def stop(leader: Replica, replicas: Replicas) -> None:
    """SIGSTOP until another leads."""
    leader.signal(signal.SIGSTOP)
    replicas.leader(leader)
    leader.signal(signal.SIGCONT)


def cut(leader: Replica, replicas: Replicas) -> None:
    """Its connections to the API server break, and no new ones are made, until another leads."""
    leader.wire.set(Mode.CUT)
    replicas.leader(leader)
    leader.wire.set(Mode.CARRIES)


def deafen(leader: Replica, replicas: Replicas) -> None:
    """What it says reaches the API server, and no answer it, until another leads."""
    leader.wire.set(Mode.DEAF)
    replicas.leader(leader)
    leader.wire.set(Mode.CARRIES)


def audit(replicas: Replicas) -> None:
    """Nothing is promised twice, by the word of the pods alone."""
    pods = replicas.cluster.kubectl.list("pods", "default")
    placed = [placement for placement in map(placement_of, pods) if placement]
    check_cards(SIZES, placed)
    for pod in pods:
        if placement_of(pod):
            check_promise(pod)


@pytest.mark.slow
@pytest.mark.timeout(LASTS_S + 4 * TAKES_OVER_S)
def test_whatever_becomes_of_leaders_nothing_is_promised_twice_or_lost(replicas: Replicas) -> None:
    """After each act the pods are audited; in the end every pod that was bound is, and counts."""
    seed = os.environ.get("SEED", str(time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    dice, ended = random.Random(seed), threading.Event()
    clients = [Client(replicas, f"{seed}-{n}", ended) for n in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        runs = [pool.submit(client.run) for client in clients]
        try:
            end = time.monotonic() + LASTS_S
            while time.monotonic() < end:
                act = dice.choice([kill, stop, cut, deafen])
                print(f"{LASTS_S - end + time.monotonic():5.1f} s  {act.__name__}")
                act(replicas.leader(), replicas)
                audit(replicas)
        finally:
            ended.set()
        for run in runs:
            run.result()
    audit(replicas)
    settled(replicas, clients)


def settled(replicas: Replicas, clients: list[Client]) -> None:
    """What was bound is bound, and the leader counts that and nothing else."""
    assert all(client.placed for client in clients)
    stored = {p["metadata"]["name"]: p for p in replicas.cluster.kubectl.list("pods", "default")}
    for name in (name for client in clients for name in client.bound):
        assert placement_of(stored[name]), f"{name} was bound and is not"
    promised: Counter[str] = Counter()
    for placement in filter(None, map(placement_of, stored.values())):
        for share in placement["containers"][0]["cards"]:
            promised[share["uuid"]] += share["memoryMiB"]
    wait_for(
        "the leader to count what is bound", lambda: replicas.leader().promised() == promised, TAKES_OVER_S
    )
