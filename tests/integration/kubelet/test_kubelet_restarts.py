"""The pocket kubelet, its plugin and the API server, killed and started again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import grpc
import pytest

from aliquot.sandbox.cluster.objects import dig
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.kubelet.fake_plugin import RESOURCE
from tests.integration.kubelet.pods import (
    STUBBORN,
    alive,
    container,
    pid_of,
    restarts,
    run,
    state,
    wait_allocatable,
)

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.cluster import PocketCluster
    from aliquot.sandbox.cluster.kubectl import Kubectl
    from tests.integration.kubelet.fake_plugin import FakePlugin


def assert_registered(names: list[str]) -> None:
    """Options are asked within Register; the list at about its end; and nothing else happens."""
    assert names[0] == "GetDevicePluginOptions"
    assert sorted(names[1:]) == ["ListAndWatch", "Registered"]


def test_plugin_away_while_a_container_restarts(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """The container waits with the observed text and comes back once the plugin has registered again."""
    pod = run(kubectl, "orphaned")
    kubectl.wait_phase("orphaned", "Running")
    plugin.stop()
    wait_allocatable(kubectl, "0")
    os.kill(pid_of(cluster, pod), signal.SIGKILL)
    waiting = kubectl.wait_for("pods", "orphaned", lambda p: "message" in state(p).get("waiting", {}))
    assert state(waiting)["waiting"]["message"].endswith(f"endpoint {RESOURCE} has been stopped")
    plugin.start()
    kubectl.wait_for("pods", "orphaned", lambda p: "running" in state(p))
    assert len(plugin.of("Allocate")) == 1


def test_a_plugin_that_is_connected_is_refused(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """Over the same socket, with the words of the real kubelet; its devices stay."""
    wait_allocatable(kubectl, "8")
    with pytest.raises(grpc.RpcError, match=r"device plugin already connected: .*/lab\.sock"):
        plugin.register()
    wait_allocatable(kubectl, "8")


def test_kubelet_restart(plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster) -> None:
    """After a SIGKILL containers run on untouched, sockets are wiped, and later restarts use the old ids."""
    pod = run(kubectl, "survivor")
    kubectl.wait_phase("survivor", "Running")
    pid, before = pid_of(cluster, pod), len(plugin.calls)
    cluster.kill("kubelet-n1")
    assert alive(pid)
    cluster.restart("kubelet-n1")
    assert not (plugin.paths.device_plugins / "lab.sock").exists()
    plugin.stop()
    plugin.start()
    wait_allocatable(kubectl, "8")
    assert alive(pid)
    assert_registered(plugin.names()[before:])
    os.kill(pid, signal.SIGKILL)
    kubectl.wait_for("pods", "survivor", lambda p: restarts(p) == 1 and "running" in state(p))
    assert plugin.calls[-1][0] == "PreStart"
    assert plugin.calls[-1][1]["owners"] == [("default", "survivor", "main", ("gpu0-s0",))]
    run(kubectl, "newcomer")
    kubectl.wait_phase("newcomer", "Running")
    assert plugin.of("Allocate")[-1]["ids"] == ["gpu0-s1"]


def test_kubelet_restart_frees_nothing_of_those_that_run(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """Whichever pod it looks at first, the ids of all others are theirs still when a new one comes."""
    for name in ("one", "two", "three"):
        run(kubectl, name)
        kubectl.wait_phase(name, "Running")
    cluster.restart("kubelet-n1")
    plugin.stop()
    plugin.start()
    wait_allocatable(kubectl, "8")
    run(kubectl, "newcomer")
    kubectl.wait_phase("newcomer", "Running")
    assert [call["ids"] for call in plugin.of("Allocate")] == [[f"gpu0-s{n}"] for n in range(4)]


def test_kubelet_restart_in_the_middle_of_a_start(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """A pod that waits at the gate waits on after the restart, with the ids it had, if the plugin comes back."""
    plugin.pre_start_error = "not yet"
    run(kubectl, "midway")
    wait_for("the gate", lambda: plugin.of("PreStart"))
    cluster.kill("kubelet-n1")
    plugin.stop()
    cluster.restart("kubelet-n1")
    plugin.start()
    plugin.pre_start_error = ""
    kubectl.wait_phase("midway", "Running")
    assert len(plugin.of("Allocate")) == 1
    assert {tuple(s["ids"]) for s in plugin.of("PreStart")} == {("gpu0-s0",)}


def test_kubelet_killed_while_allocating(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """What the plugin was asked for and the kubelet never wrote down is asked for again."""
    plugin.hold_allocate.clear()
    run(kubectl, "unwritten")
    wait_for("Allocate", lambda: plugin.of("Allocate"))
    cluster.kill("kubelet-n1")
    plugin.hold_allocate.set()
    plugin.stop()
    cluster.restart("kubelet-n1")
    plugin.start()
    kubectl.wait_phase("unwritten", "Running")
    assert len(plugin.of("Allocate")) == 2
    assert {owner[1] for owner in plugin.owners()} == {"unwritten"}


@pytest.mark.slow
def test_kubelet_restart_without_the_plugin(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """A pod whose container does not run then is rejected for good; a running one stays."""
    lost, kept = run(kubectl, "lost"), run(kubectl, "kept")
    for name in ("lost", "kept"):
        kubectl.wait_phase(name, "Running")
    cluster.kill("kubelet-n1")
    plugin.stop()
    os.kill(pid_of(cluster, lost), signal.SIGKILL)
    pid = pid_of(cluster, kept)
    cluster.restart("kubelet-n1")
    status = kubectl.wait_phase("lost", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}" in status["message"]
    assert alive(pid)
    assert "running" in state(kubectl.get("pods", "kept"))
    plugin.start()


def test_what_happens_while_the_kubelet_is_dead(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """Exit codes are not lost, removed pods are ended, deletions are finalised by the next kubelet."""
    ending = run(kubectl, "ending", container("main", "sleep 0.1; exit 7"), restartPolicy="Never")
    forced, leaving = run(kubectl, "forced"), run(kubectl, "leaving")
    for name in ("ending", "forced", "leaving"):
        kubectl.wait_for("pods", name, lambda p: "running" in state(p) or "terminated" in state(p))
    cluster.kill("kubelet-n1")
    pids = [pid_of(cluster, pod) for pod in (ending, forced, leaving)]
    kubectl.delete("pods", "forced", grace=0)
    kubectl.delete("pods", "leaving", grace=1)
    wait_for("the end", lambda: not alive(pids[0]))
    cluster.restart("kubelet-n1")
    plugin.stop()
    plugin.start()
    kubectl.wait_gone("pods", "leaving")
    wait_for("both ends", lambda: not alive(pids[1]) and not alive(pids[2]))
    ended = kubectl.wait_phase("ending", "Failed", "Succeeded")
    code = dig(state(ended), "terminated.exitCode")
    assert code == 7 or ended["status"]["reason"] == "UnexpectedAdmissionError"


@pytest.mark.slow
@pytest.mark.parametrize("away", [False, True])
def test_what_a_pod_had_that_was_deleted_by_force_is_given_away_while_it_runs(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster, away: bool
) -> None:
    """Nobody waits for its containers to end, whether or not the kubelet was there when it was deleted."""
    old = run(kubectl, "old", container("main", STUBBORN, amount=8))
    kubectl.wait_phase("old", "Running")
    pid = pid_of(cluster, old)
    if away:
        cluster.kill("kubelet-n1")
        plugin.stop()
    kubectl.delete("pods", "old", grace=0)
    if away:
        cluster.restart("kubelet-n1")
        plugin.start()
        wait_allocatable(kubectl, "8")
    run(kubectl, "heir", container("main", amount=8))
    kubectl.wait_phase("heir", "Running")
    assert alive(pid)
    wait_for("its end", lambda: not alive(pid))


def test_apiserver_away(plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster) -> None:
    """While the API server is down a crashed container comes back; its new status is written afterwards."""
    pod = run(kubectl, "alone")
    kubectl.wait_phase("alone", "Running")
    cluster.kill("apiserver")
    old = pid_of(cluster, pod)
    os.kill(old, signal.SIGKILL)
    wait_for("a new process", lambda: pid_of(cluster, pod) != old)
    cluster.restart("apiserver")
    kubectl.wait_for("pods", "alone", lambda p: restarts(p) == 1 and "running" in state(p))
