"""kube-apiserver is down under a whole cluster: pods, limits and services stay, and all catch up."""

import time

import pytest

from sandbox.cluster.processes import wait_for
from tests.cluster.auditor import audit
from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.node import NAME
from tests.cluster.test_journey import PATIENCE_S, client, said

pytestmark = pytest.mark.cluster

AWAY_S = 20.0
"""More than a kubelet's Lease is renewed in, and more than twice the extender's."""
PROGRAM = """
import time
from cuda.bindings import driver
assert not driver.cuInit(0)[0]
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
while True:
    print(int(time.time()), driver.cuMemAlloc(3 << 30)[0].name, flush=True)
    time.sleep(0.5)
"""
REFUSED = "CUDA_ERROR_OUT_OF_MEMORY"


def restarts(installed: Installation, namespace: str) -> dict[str, int]:
    """How often each container of a namespace has started again; kube-scheduler always does when its Lease ends."""
    return {
        f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
        for pod in installed.kubectl.list("pods", namespace)
        for status in pod["status"].get("containerStatuses", ())
        if status["name"] != "kube-scheduler"
    }


def test_limits_hold_and_nobody_starts_again(installed: Installation):
    """The program asks for too much all the time, and is refused all the time; the next pod runs afterwards."""
    installed.kubectl.apply(client("works", program=PROGRAM))
    said(installed, "works", REFUSED)
    ours, theirs = restarts(installed, NAMESPACE), restarts(installed, "default")
    published = installed.kubectl.get("gpunodes.aliquot.dev", NAME, "")["status"]
    begin = int(time.time())
    installed.plane.kill("kube-apiserver")
    end = time.monotonic() + AWAY_S
    wait_for("it to be away for long enough", lambda: time.monotonic() > end, 2 * AWAY_S)
    installed.plane.restart("kube-apiserver")
    installed.await_services()
    installed.kubectl.apply(client("later"))
    assert f"2048 {REFUSED}" in said(installed, "later", "ready")
    wait_for("the log of the program", lambda: installed.kubectl.logs("works"), PATIENCE_S)
    answers = [line.split() for line in installed.kubectl.logs("works").splitlines()]
    assert {word for _, word in answers} == {REFUSED}
    meanwhile = {int(second) for second, _ in answers if begin <= int(second) < begin + AWAY_S}
    assert len(meanwhile) > AWAY_S / 2
    assert restarts(installed, NAMESPACE) == ours
    assert restarts(installed, "default").items() >= theirs.items()
    assert installed.kubectl.get("gpunodes.aliquot.dev", NAME, "")["status"] == published
    audit(installed)
