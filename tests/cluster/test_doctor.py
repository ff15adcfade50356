"""`aliquot doctor` on a real cluster: where all is well nothing fails; what is broken is named until it is mended."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.installation import MACHINE, NAMESPACE, Installation
from tests.cluster.node import NAME
from tests.cluster.runtime import SIMULATION
from tests.cluster.test_journey import client, said
from tests.integration.journey.pods import container, pod
from tests.native.shells import program

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
WEBHOOKS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
BINDING = ("clusterrolebindings.rbac.authorization.k8s.io", "aliquot-webhook", "")
MERGE = "application/merge-patch+json"
SETTLED_S = 60.0


def bad(output: str) -> dict[str, str]:
    """What a report names that is not ok, by check; the last of each."""
    findings: list[Json] = json.loads(output)["findings"]
    return {one["check"]: f"{one['result']}: {one['seen']}" for one in findings if one["result"] != "ok"}


def cluster_report(installed: Installation) -> dict[str, str]:
    """What the admin is told."""
    argv = [sys.executable, "-m", "aliquot.cli", "doctor", "--json"]
    argv += ["--kubeconfig", str(installed.plane.kubeconfig)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return bad(done.stdout)


def node_report(installed: Installation) -> dict[str, str]:
    """What is told in the agent's pod."""
    (agent,) = installed.kubectl.list("pods", NAMESPACE, labelSelector="app.kubernetes.io/component=agent")
    found = agent["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    command = f"aliquot doctor --node --json --dev-root {MACHINE}/dev; test $? -le 1"
    return bad(
        installed.node.runtime.ctr("tasks", "exec", "--exec-id", uuid.uuid4().hex, found, "sh", "-c", command)
    )


def settled(report: Callable[[Installation], dict[str, str]], installed: Installation, *named: str) -> Json:
    """A report in which just these checks are not ok, once it comes."""
    last: dict[str, str] = {}

    def look() -> bool:
        nonlocal last
        last = report(installed)
        return set(last) == set(named)

    try:
        wait_for(f"a report of {named or 'nothing'}", look, SETTLED_S)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {last}") from error
    return last


@contextmanager
def stranger(installed: Installation) -> Iterator[None]:
    """A program of the node's own that holds memory of a card without a slice."""
    there = {"SIMGPU_PROC": "/proc", "SIMGPU_DEV": f"{MACHINE}/dev", "LD_LIBRARY_PATH": f"{MACHINE}/driver"}
    variables = [f"{key}={value}" for key, value in {**SIMULATION, **there}.items()]
    argv = ["/usr/bin/env", *variables, str(program("driver_shell"))]
    with subprocess.Popen(
        installed.node.box.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        for line in ("cuInit 0", "cuDevicePrimaryCtxRetain & 0"):
            process.stdin.write(f"{line}\n")
            answer = process.stdout.readline().split()
            assert answer[0] == "0", f"{line}: {answer}"
        process.stdin.write(f"cuCtxSetCurrent {answer[1]}\ncuMemAlloc_v2 & {1 << 20}\n")
        assert [process.stdout.readline().split()[0] for _ in range(2)] == ["0", "0"]
        try:
            yield
        finally:
            process.kill()


@contextmanager
def broken(installed: Installation) -> Iterator[None]:
    """Webhooks that fail open, a right that is gone, another plugin, and a pod that helps itself; mended in the end.

    Nothing of it is what aliquot-certs mends by itself.
    """
    kubectl = installed.kubectl
    binding = kubectl.get(*BINDING)
    webhooks = kubectl.get(WEBHOOKS, "aliquot", "")["webhooks"]
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    try:
        kubectl.apply(pod("sly", container("main", env=env)))
        kubectl.patch(
            WEBHOOKS, "aliquot", {"webhooks": [{**one, "failurePolicy": "Ignore"} for one in webhooks]}, ""
        )
        kubectl.delete(*BINDING)
        serve(installed, "1")
        yield
    finally:
        serve(installed, None)
        kept = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
        kubectl.apply({**kept, "metadata": {"name": "aliquot-webhook"}})
        kubectl.patch(WEBHOOKS, "aliquot", {"webhooks": webhooks}, "")
        kubectl.delete("pods", "sly", grace=0)


def test_a_cluster_that_is_well_and_one_that_is_broken(installed: Installation):
    """From an admin's desk: all is well; what is broken is named, and nothing else; mended it is well again."""
    installed.kubectl.apply(client("chat"))
    said(installed, "chat", "ready")
    assert settled(cluster_report, installed) == {}
    with broken(installed):
        seen = settled(cluster_report, installed, "webhook", "rights", "neighbours", "bypasses")
    assert "failurePolicy Ignore" in seen["webhook"]
    assert "aliquot-webhook may not create subjectaccessreviews" in seen["rights"]
    assert seen["neighbours"].startswith("failure: NVIDIA's device plugin")
    assert seen["bypasses"].endswith("default/sly")
    assert settled(cluster_report, installed) == {}


def serve(installed: Installation, cards: str | None) -> None:
    """Has the node advertise another project's resource."""
    path = f"/api/v1/nodes/{NAME}/status"
    status = {"capacity": {"nvidia.com/gpu": cards}, "allocatable": {"nvidia.com/gpu": cards}}
    installed.kubectl.request("PATCH", path, {"status": status}, media_type=MERGE)


def test_a_node_that_is_well_and_a_stranger_on_its_card(installed: Installation):
    """From the agent's pod: a tenant is well, and whoever holds memory of a card without a slice is found."""
    installed.kubectl.apply(client("chat"))
    said(installed, "chat", "ready")
    assert set(settled(node_report, installed, "runc")) == {"runc"}
    with stranger(installed):
        seen = settled(node_report, installed, "runc", "processes")
        assert "driver_shell" in seen["processes"]
    settled(node_report, installed, "runc")
