"""What happens to tenants when the kernel ends them, or their node's agent, or what they start with is missing."""

import json
from typing import Any

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import audit
from tests.cluster.faults.pods import is_second_start
from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.test_journey import PATIENCE_S, client, said
from tests.cluster.test_upgrade import begin, libraries
from tests.cluster.traffic import Steady

pytestmark = pytest.mark.cluster

HOG = """
import os, time
from cuda.bindings import driver
assert not driver.cuInit(0)[0]
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
print("as process", os.getpid(), "got", driver.cuMemAlloc(2000 << 20)[0].name, flush=True)
again = os.path.exists("/data/tried")
open("/data/tried", "w").close()
hog = []
while not again:
    hog.append(b"x" * (16 << 20))
time.sleep(1000)
"""
NO_MEMORY = {"requests.memory": "24Mi", "limits.memory": "24Mi"}
NO_TIME = {"requests.memory": "96Mi", "limits.memory": "256Mi", "requests.cpu": "10m", "limits.cpu": "10m"}


def test_a_tenant_that_the_kernel_ends_for_its_memory_gets_its_slice_again(installed: Installation):
    """It held nearly all of it; the next one has the same number, and finds that it has gone."""
    manifest = client("hog", program=HOG)
    (main,) = manifest["spec"]["containers"]
    main["resources"]["limits"]["memory"] = "400Mi"
    main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    manifest["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    installed.kubectl.apply(manifest)
    ended = installed.kubectl.wait_for("pods", "hog", last_end, PATIENCE_S)
    assert last_end(ended)["reason"] == "OOMKilled"
    first = installed.kubectl.logs("hog", previous=True)
    assert "got CUDA_SUCCESS" in first
    installed.kubectl.wait_for("pods", "hog", is_second_start, PATIENCE_S)
    assert said(installed, "hog", "got") == first


def last_end(pod: dict[str, Any]) -> dict[str, Any]:
    """How the first container of a pod ended the last time; empty where it has not."""
    statuses = pod["status"].get("containerStatuses", [{}])
    return dict(statuses[0].get("lastState", {}).get("terminated", {}))


def test_an_agent_without_memory_or_time_takes_no_tenant_with_it(installed: Installation):
    """The kernel ends it again and again, then it has a hundredth of a processor: limits hold all the while."""
    steady = begin(installed, "steady-0", "steady-1")
    before = json.loads(installed.release.helm("status", "aliquot", "--output=json"))["version"]
    try:
        give_agent(installed, NO_MEMORY)
        wait_for(
            "the agent to be ended by the kernel", lambda: agent_end(installed) == "OOMKilled", PATIENCE_S
        )
        check(steady)
        give_agent(installed, NO_TIME)
        wait_for("an agent that hardly runs", lambda: agent_cpu(installed) == "10m", PATIENCE_S)
        check(steady)
    finally:
        installed.release.helm("rollback", "aliquot", str(before))
    installed.await_services()
    check(steady)
    audit(installed)


def give_agent(installed: Installation, resources: dict[str, str]) -> None:
    """Have the agent run again, with as much."""
    values = ",".join(f"agent.resources.{name}={value}" for name, value in resources.items())
    installed.release.upgrade("--set", values)


def agent_end(installed: Installation) -> str:
    """Why the agent ended the last time; empty where it has not."""
    pods = installed.kubectl.list("pods", NAMESPACE, labelSelector="app.kubernetes.io/component=agent")
    return next((str(end["reason"]) for end in map(last_end, pods) if end), "")


def agent_cpu(installed: Installation) -> str:
    """How much of a processor the agent that runs may have; empty where none runs."""
    pods = installed.kubectl.list("pods", NAMESPACE, labelSelector="app.kubernetes.io/component=agent")
    running = [
        pod
        for pod in pods
        for status in pod["status"].get("containerStatuses", ())
        if "running" in status["state"]
    ]
    limits = [pod["spec"]["containers"][0]["resources"].get("limits", {}) for pod in running]
    return next((str(limit.get("cpu", "")) for limit in limits), "")


def check(steady: list[Steady]) -> None:
    """Assert that all go on, within their limits."""
    for pod in steady:
        pod.check_time()
        pod.check()


def test_without_the_interceptors_file_nothing_starts(installed: Installation):
    """Who runs has it open; who comes is not let run without it, until an agent has put it there again."""
    steady = begin(installed, "steady-0")
    for path in libraries(installed):
        path.unlink()
    installed.kubectl.apply(client("late"))
    installed.kubectl.wait_for("pods", "late", lambda pod: "libaliquot.so" in why_waiting(pod), PATIENCE_S)
    check(steady)
    installed.kill_agent()
    installed.await_agent()
    assert "2048 CUDA_ERROR_OUT_OF_MEMORY" in said(installed, "late", "ready")
    check(steady)


def why_waiting(pod: dict[str, Any]) -> str:
    """What the kubelet says of a container that does not start."""
    statuses = pod["status"].get("containerStatuses", [{}])
    state = statuses[0].get("state", {})
    return " ".join(str(each.get("message", "")) for each in (*state.values(), last_end(pod)))
