"""kube-apiserver is down under a whole cluster: pods, limits and services stay, and all catch up.

MINUTES says for how long: `make -C tests api-down MINUTES=10`.
"""

import os
import time

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import audit
from tests.cluster.installation import NAMESPACE, READY_S, Installation
from tests.cluster.node import NAME
from tests.cluster.test_journey import PATIENCE_S, client, said

pytestmark = pytest.mark.cluster

AWAY_S = 60 * float(os.environ.get("MINUTES", "0.333"))
"""Otherwise more than a kubelet's Lease is renewed in, and more than twice the extender's."""
BACKOFF_S = 300.0
"""So long a kubelet waits at most before it starts a container again: kube-scheduler's ends with its Lease."""
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


@pytest.mark.timeout(AWAY_S + BACKOFF_S + 600)
def test_limits_hold_and_nobody_starts_again(installed: Installation):
    """The program asks for too much all the time, and is refused all the time; the next pod runs afterwards."""
    installed.kubectl.apply(client("works", program=PROGRAM))
    said(installed, "works", REFUSED)
    ours, theirs = restarts(installed, NAMESPACE), restarts(installed, "default")
    published = installed.kubectl.get("gpunodes.aliquot.dev", NAME, "")["status"]["cards"]
    begin = int(time.time())
    installed.plane.kill("kube-apiserver")
    end = time.monotonic() + AWAY_S
    wait_for("it to be away for long enough", lambda: time.monotonic() > end, 2 * AWAY_S)
    installed.plane.restart("kube-apiserver")
    back = time.monotonic()
    installed.await_services(READY_S + BACKOFF_S)
    installed.kubectl.apply(client("later"))
    assert f"2048 {REFUSED}" in said(installed, "later", "ready")
    print(f"away for {AWAY_S:.0f} s, the next pod ready {time.monotonic() - back:.0f} s after it is back")
    wait_for("the log of the program", lambda: installed.kubectl.logs("works"), PATIENCE_S)
    answers = [line.split() for line in installed.kubectl.logs("works").splitlines()]
    assert {word for _, word in answers} == {REFUSED}
    meanwhile = {int(second) for second, _ in answers if begin <= int(second) < begin + AWAY_S}
    assert len(meanwhile) > AWAY_S / 2
    print(f"asked for too much {len(answers)} times, and always refused")
    assert restarts(installed, NAMESPACE) == ours
    assert restarts(installed, "default").items() >= theirs.items()
    assert installed.kubectl.get("gpunodes.aliquot.dev", NAME, "")["status"]["cards"] == published
    audit(installed)
