"""What a cluster has been through when it is restored from a backup, on whatever API server."""

from collections.abc import Callable, Sequence

import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, create
from tests.integration.faults.living import promised_by


def delete(cluster: PocketCluster, one: Document) -> None:
    """Delete a pod at once."""
    cluster.kubectl.delete("pods", one["metadata"]["name"], grace=0)


def counts(extender: Extender, promised: dict[str, int]) -> bool:
    """Whether it says so; for a moment, while it begins anew, it says nothing."""
    try:
        return extender.promised() == promised
    except urllib3.exceptions.HTTPError:
        return False


def is_bound(cluster: PocketCluster, one: Document) -> bool:
    """Whether the API server has the pod on a node."""
    return bool(cluster.kubectl.get("pods", one["metadata"]["name"])["spec"].get("nodeName"))


def scene(
    cluster: PocketCluster,
    extenders: Sequence[Extender],
    back_up: Callable[[], object],
    restore: Callable[[], object],
) -> None:
    """A pod that had gone is back, one that was bound waits again, and one that was made since is no more."""
    asked = extenders[0]
    back, waits = create(cluster, gib=8, name="back"), create(cluster, gib=6, name="waits")
    again = create(cluster, gib=5, name="again")
    assert asked.bind(back, "n1") == ""
    wait_for("the pod to be seen", lambda: all(one.promised() == {"n1-a": 8192} for one in extenders))
    back_up()
    delete(cluster, back)
    delete(cluster, again)
    assert asked.bind(waits, "n1") == ""
    assert asked.bind(create(cluster, gib=16, name="lost"), "n2") == ""
    since = {"n1-a": 6144, "n2-a": 16384}
    wait_for("all to be seen", lambda: all(one.promised() == since for one in extenders))
    restore()
    wait_for("the pods of then to count", lambda: all(counts(one, {"n1-a": 8192}) for one in extenders), 60)
    for one in (waits, again):
        wait_for("filter to place it", lambda p=one: asked.filter(p, "n1").get("NodeNames") == ["n1"], 60)
        wait_for("bind to bind it", lambda p=one: asked.bind(p, "n1") == "", 60)
        assert is_bound(cluster, one)
    then = promised_by(cluster)
    assert sum(then.values()) == 19 * 1024
    wait_for("all to be counted", lambda: all(one.promised() == then for one in extenders), 60)
