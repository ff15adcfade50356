"""The API server is restored from an older backup: what it says is believed again, and no card has two tenants."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aliquot.cli.demo.stack import Stack
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.integration.extenders import Document, two_nodes
from tests.integration.faults.backups import back_up, restore
from tests.integration.faults.histories import scene
from tests.integration.faults.living import strangers
from tests.integration.journey.auditor import audit, audit_clean, check_living
from tests.integration.journey.pods import container, pod
from tests.integration.journey.stacks import one_node
from tests.integration.replicas import Replica, Replicas, three

pytestmark = pytest.mark.slow

STUBBORN = ("sh", "-c", "trap '' TERM; echo here; while :; do sleep 0.1; done")


def on_disk(cluster: PocketCluster, directory: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """How a pocket cluster is backed up and restored."""
    kept = directory / "backup"
    return partial(back_up, cluster, kept), partial(restore, cluster, kept)


def test_replicas_believe_the_backup(tmp_path: Path) -> None:
    """All of them, though the Lease has gone back, too; a follower is asked."""
    with two_nodes(tmp_path / "c") as cluster, three(cluster, tmp_path) as replicas:
        follower, *others = replicas.others(replicas.leader())
        everybody = [follower, *others, replicas.leader()]
        pids = [one.process.pid for one in everybody]
        scene(cluster, everybody, *on_disk(cluster, tmp_path))
        assert [one.process.pid for one in everybody] == pids
        assert leaders(replicas) == 1


def leaders(replicas: Replicas) -> int:
    """How many say that they lead."""

    def leads(one: Replica) -> bool:
        return one.leads

    return sum(map(leads, replicas.all))


def tenant(name: str) -> Document:
    """A pod that needs most of a card, and does not end when asked to."""
    return pod(name, container("main", {"mem": "12Gi"}, STUBBORN), terminationGracePeriodSeconds=3)


def test_a_node_lets_nobody_in_before_who_is_there(tmp_path: Path) -> None:
    """The pod of the backup gets its card when the one that nobody knows any more has ended, and not before."""
    with one_node((SimCard(),)) as stack:
        stack.start()
        (node,) = stack.nodes.values()
        stack.kubectl.apply(tenant("old"))
        stack.kubectl.wait_phase("old", "Running")
        back_up(stack.cluster, tmp_path / "backup")
        stack.kubectl.delete("pods", "old", grace=0)
        stack.kubectl.wait_gone("pods", "old")
        stack.kubectl.apply(tenant("new"))
        stack.kubectl.wait_phase("new", "Running", deadline=60)
        stranger = stack.kubectl.get("pods", "new")["metadata"]["uid"]
        wait_for("one tenant on the card", lambda: check_living(node) == {stranger}, 60)
        restore(stack.cluster, tmp_path / "backup")
        assert strangers(stack) == {stranger}
        restart_what_kubernetes_says(stack)
        returned = stack.kubectl.get("pods", "old")["metadata"]["uid"]
        wait_for("the pod of the backup to have its card", lambda: check_living(node) == {returned}, 60)
        assert not strangers(stack)
        audit(stack)
        stack.kubectl.delete("pods", "old", grace=0)
        stack.kubectl.wait_gone("pods", "old")
        audit_clean(stack)


def restart_what_kubernetes_says(stack: Stack) -> None:
    """Its own parts that remember what the store said: "Restoring an etcd cluster" names them. None of ours is."""
    for name in ("scheduler", *(f"kubelet-{node}" for node in stack.nodes)):
        stack.cluster.restart(name)
