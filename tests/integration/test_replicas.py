"""Several replicas of the extender: one answers, the others pass on, whatever becomes of it."""

import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, add_node, create, manifest, patch_status
from tests.integration.replicas import LEASE, LEASES, NAMESPACE, TAKES_OVER_S, Replica, Replicas, three
from tests.integration.wires import Mode

pytestmark = pytest.mark.slow


@pytest.fixture(name="cluster")
def run_cluster(tmp_path: Path) -> Iterator[PocketCluster]:
    """An API server, and a node with one card of 16 GiB."""
    with PocketCluster(tmp_path / "c") as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(Path("deploy/crds/gpunodes.yaml"))
        add_node(cluster, "n1", ["n1-a"])
        yield cluster


@pytest.fixture(name="replicas")
def run_replicas(cluster: PocketCluster, tmp_path: Path) -> Iterator[Replicas]:
    """Three replicas."""
    with three(cluster, tmp_path) as replicas:
        yield replicas


def bound(cluster: PocketCluster) -> set[str]:
    """Names of the pods that have their node."""
    return {
        p["metadata"]["name"] for p in cluster.kubectl.list("pods", "default") if p["spec"].get("nodeName")
    }


def name_of(pod: Document) -> str:
    """A pod's name."""
    return str(pod["metadata"]["name"])


def place(replica: Replica, pod: Document) -> None:
    """Filter and bind, which another leader's last moments may delay, or pods of the same group."""
    wait_for("filter to place", lambda: replica.filter(pod, "n1").get("NodeNames") == ["n1"], TAKES_OVER_S)
    wait_for("bind to bind", lambda: replica.bind(pod, "n1") == "", TAKES_OVER_S)


def test_all_are_ready_and_all_answer_but_one_decides(cluster: PocketCluster, replicas: Replicas):
    """A pod filtered by one follower and bound by another is in the leader's ledger, and then in all."""
    leader = replicas.leader()
    one, other = replicas.others(leader)
    assert [replica.get("/readyz").status for replica in replicas.all] == [200] * 3
    assert [replica.leads for replica in (leader, one, other)] == [True, False, False]
    pod = create(cluster)
    assert one.filter(pod, "n1") == {"NodeNames": ["n1"]}
    assert leader.promised() == {"n1-a": 4096}
    assert one.promised() == {}
    assert other.bind(pod, "n1") == ""
    for replica in replicas.all:
        wait_for("the follower to see it", lambda r=replica: r.promised() == {"n1-a": 4096})
    assert 'aliquot_scheduler_forwarded_total{outcome="ok"} 1.0' in one.get("/metrics").data.decode()


def test_preempt_is_the_leaders_to_answer(cluster: PocketCluster, replicas: Replicas):
    """Through a follower, whose own watch has seen the victim, too; the leader holds the room."""
    leader = replicas.leader()
    low = create(cluster, gib=16, priority=1)
    place(leader, low)
    follower = replicas.others(leader)[0]
    wait_for("the leader to see it bound", lambda: 'stage="bound"} 1.0' in placements(leader))
    high = create(cluster, gib=12, priority=9)
    nodes = {"n1": {"Pods": None, "NumPDBViolations": 0}}
    status, answer = follower.post("/preempt", {"Pod": high, "NodeNameToMetaVictims": nodes})
    assert status == 200
    assert answer["NodeNameToMetaVictims"]["n1"]["Pods"] == [{"UID": low["metadata"]["uid"]}]
    path = f"/api/v1/namespaces/default/pods/{name_of(high)}"
    patch_status(cluster, path, {"nominatedNodeName": "n1"})
    wait_for("the leader to hold its place", lambda: 'stage="held"} 1.0' in placements(leader))


def placements(replica: Replica) -> str:
    """What its metrics say of its ledger."""
    return replica.get("/metrics").data.decode()


def test_a_leader_that_ends_hands_over_at_once(cluster: PocketCluster, replicas: Replicas):
    """SIGTERM: the Lease is free before the process has gone, and nobody waits for its end."""
    leader = replicas.leader()
    before = cluster.kubectl.get(LEASES, LEASE, NAMESPACE)["spec"]
    leader.process.stop()
    after = cluster.kubectl.get(LEASES, LEASE, NAMESPACE)["spec"]
    assert before["holderIdentity"].startswith(leader.name)
    assert not (after.get("holderIdentity") or "").startswith(leader.name)
    place(replicas.leader(leader), create(cluster))


def test_a_killed_leader_is_followed_and_what_was_bound_is_kept(cluster: PocketCluster, replicas: Replicas):
    """SIGKILL: another answers; the pod that was bound counts, the reservation is made again by its bind."""
    leader = replicas.leader()
    held, reserved = create(cluster, gib=8), create(cluster, gib=6)
    place(leader, held)
    assert leader.filter(reserved, "n1") == {"NodeNames": ["n1"]}
    leader.process.kill()
    follower = replicas.others(leader)[0]
    wait_for("bind to be answered", lambda: follower.bind(reserved, "n1") == "", TAKES_OVER_S)
    assert "no room" in follower.bind(create(cluster, gib=4), "n1")
    assert bound(cluster) == {name_of(held), name_of(reserved)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_call_is_held_until_another_replica_leads(
    cluster: PocketCluster, tmp_path: Path, number: signal.Signals
):
    """It is answered once, without an error after which kube-scheduler would wait longer each time."""
    with three(cluster, tmp_path, "--hold-seconds", str(TAKES_OVER_S)) as replicas:
        leader = replicas.leader()
        follower = replicas.others(leader)[0]
        leader.signal(number)
        asked = {"Pod": create(cluster), "Nodes": None, "NodeNames": ["n1"]}
        answer = follower.pool.request("POST", f"{follower.url}/filter", json=asked, timeout=2 * TAKES_OVER_S)
        assert answer.json() == {"NodeNames": ["n1"]}


def test_a_group_has_no_places_with_a_new_leader_until_it_is_placed_anew(
    cluster: PocketCluster, replicas: Replicas
):
    """A bind without them is refused; then all come, through two replicas, and are bound together."""
    leader = replicas.leader()
    pods = []
    for _ in range(2):
        body = manifest()
        body["metadata"] |= {
            "labels": {"scheduling.x-k8s.io/pod-group": "train"},
            "annotations": {"aliquot.dev/group-min-members": "2"},
        }
        pods.append(cluster.kubectl.create(body))
    one, other = replicas.others(leader)
    wait_for("the places of both", lambda: one.filter(pods[0], "n1").get("NodeNames") == ["n1"])
    assert leader.promised() == {"n1-a": 8192}
    leader.process.stop()
    replicas.leader(leader)
    wait_for("a word on its place", lambda: "holds no place" in one.bind(pods[0], "n1"), TAKES_OVER_S)
    assert bound(cluster) == set()
    with ThreadPoolExecutor() as pool:
        for call in [pool.submit(place, r, pod) for r, pod in zip((one, other), pods, strict=True)]:
            call.result()
    assert bound(cluster) == {name_of(pod) for pod in pods}


def test_a_new_leader_counts_what_its_watch_has_not_told_it(cluster: PocketCluster, replicas: Replicas):
    """The followers' watches are silent when the leader binds, and when it is killed."""
    leader = replicas.leader()
    for follower in replicas.others(leader):
        follower.wire.set(Mode.STALE)
    assert leader.bind(create(cluster, gib=12), "n1") == ""
    leader.process.kill()
    successor = replicas.leader(leader)
    assert "no room" in successor.bind(create(cluster, gib=12), "n1")


def take_over_from_a_deaf(cluster: PocketCluster, replicas: Replicas, leader: Replica) -> Replica:
    """The card is full of a pod that another leader has bound, of which the old one has heard nothing."""
    successor = replicas.leader(leader)
    place(successor, create(cluster, gib=12, name="new"))
    return successor


def test_a_stopped_leader_binds_nothing_when_it_goes_on(cluster: PocketCluster, replicas: Replicas):
    """Stopped with a call before it, and deaf to the watch: it wakes up as a leader, and its time is over."""
    leader = replicas.leader()
    late = create(cluster, gib=12, name="late")
    assert leader.filter(late, "n1") == {"NodeNames": ["n1"]}
    leader.wire.set(Mode.DEAF)
    leader.signal(signal.SIGSTOP)
    errors: list[str] = []
    caller = threading.Thread(target=lambda: errors.append(bind_patiently(leader, late)))
    caller.start()
    take_over_from_a_deaf(cluster, replicas, leader)
    leader.signal(signal.SIGCONT)
    caller.join()
    leader.wire.set(Mode.CARRIES)
    assert errors != [""]
    assert bound(cluster) == {"new"}
    wait_for("it to follow", lambda: "no room" in bind_patiently(leader, late), TAKES_OVER_S)
    assert bound(cluster) == {"new"}


def bind_patiently(replica: Replica, pod: Document) -> str:
    """Bind with a call that waits for a process that is stopped; any error will do."""
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": "n1"}
    try:
        reply = replica.pool.request("POST", f"{replica.url}/bind", json=body, timeout=TAKES_OVER_S)
        return str(reply.json()["Error"])
    except urllib3.exceptions.HTTPError as error:
        return str(error)


def test_a_leader_that_hears_nothing_any_more_stops_binding(cluster: PocketCluster, replicas: Replicas):
    """It runs on and what it sends arrives, but its Lease is not renewed: it refuses before another begins."""
    leader = replicas.leader()
    late = create(cluster, gib=12, name="late")
    assert leader.filter(late, "n1") == {"NodeNames": ["n1"]}
    leader.wire.set(Mode.DEAF)
    take_over_from_a_deaf(cluster, replicas, leader)
    assert "not been able to renew" in leader.bind(late, "n1")
    assert bound(cluster) == {"new"}
    leader.wire.set(Mode.CARRIES)
    wait_for("it to follow", lambda: "no room" in bind_patiently(leader, late), TAKES_OVER_S)
    assert bound(cluster) == {"new"}


def test_while_the_api_server_is_away_a_leader_keeps_its_office(cluster: PocketCluster, replicas: Replicas):
    """Nobody can take the Lease meanwhile; afterwards somebody answers, and what was bound is counted."""
    place(replicas.leader(), create(cluster, gib=12))
    cluster.kill("apiserver")
    wait_for("the leader to stop", lambda: not any(replica.leads for replica in replicas.all), TAKES_OVER_S)
    unknown = manifest() | {"metadata": {"name": "x", "namespace": "default", "uid": "x"}}
    assert "try again" in replicas.all[0].filter(unknown, "n1")["Error"]
    cluster.restart("apiserver")
    leader = replicas.leader()
    assert "no room" in leader.bind(create(cluster, gib=12), "n1")


def test_a_lease_that_somebody_deletes_lets_two_lead_never(cluster: PocketCluster, replicas: Replicas):
    """The old leader hears nothing of it; whoever makes a new Lease waits until that one cannot write any more."""
    leader = replicas.leader()
    leader.wire.set(Mode.DEAF)
    cluster.kubectl.delete(LEASES, LEASE, NAMESPACE)
    wait_for("another to lead", lambda: any(r.leads for r in replicas.others(leader)), TAKES_OVER_S)
    assert not leader.leads


def test_a_forwarded_call_is_not_forwarded_again(cluster: PocketCluster, replicas: Replicas):
    """A follower that gets one answers an error."""
    follower = replicas.others(replicas.leader())[0]
    body = {"Pod": manifest() | {"metadata": {"uid": "u"}}, "NodeNames": ["n1"]}
    headers = {"Aliquot-Forwarded-By": "somebody"}
    reply = follower.pool.request("POST", f"{follower.url}/filter", json=body, headers=headers)
    assert "forwarded by somebody already" in reply.json()["Error"]


def own_address() -> str:
    """This machine's, as others see it; nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def test_calls_from_other_machines_need_a_certificate(cluster: PocketCluster, tmp_path: Path):
    """What the replicas serve with opens; nothing does not, and health is for everybody."""
    address = own_address()
    replica = Replica(cluster, tmp_path, "replica", "--host", "0.0.0.0")  # noqa: S104 - as in a pod
    tls, url = tmp_path / "tls", f"https://{address}:{replica.port}"
    try:
        replica.start()
        wait_for("it to lead", lambda: replica.leads, TAKES_OVER_S)
        nobody = urllib3.PoolManager(ca_certs=str(tls / "ca.crt"), assert_hostname=False, retries=False)
        peer = urllib3.PoolManager(
            ca_certs=str(tls / "ca.crt"),
            cert_file=str(tls / "tls.crt"),
            key_file=str(tls / "tls.key"),
            assert_hostname=False,
            retries=False,
        )
        body = {"Pod": create(cluster), "NodeNames": ["n1"]}
        assert nobody.request("GET", f"{url}/readyz").status == 200
        assert nobody.request("POST", f"{url}/filter", json=body).status == 403
        assert nobody.request("POST", f"{url}/volcano/allocateFunc", json=body).status == 403
        assert peer.request("POST", f"{url}/filter", json=body).json() == {"NodeNames": ["n1"]}
    finally:
        replica.end()
