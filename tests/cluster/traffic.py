"""Pods that stay and compute, and pods that come and go, while something happens to a real cluster."""

import time
from collections import Counter
from pathlib import Path

from aliquot.libshim.usage_page import read_usage
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import processes
from tests.cluster.installation import ROOT, RUN, Installation
from tests.cluster.test_journey import PATIENCE_S, client, said

KERNEL = (ROOT / "sandbox/kernels/spin.ptx").read_bytes() + bytes(1)
SPIN = f"""
import ctypes
from cuda.bindings import driver
assert not driver.cuInit(0)[0]
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
module = driver.cuModuleLoadData({KERNEL!r})[1]
spin = driver.cuModuleGetFunction(module, b"aliquot_spin")[1]
length = ctypes.c_uint64(2_000_000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(length))
assert not driver.cuMemAlloc(1024 << 20)[0]
while True:
    for _ in range(20):
        driver.cuLaunchKernel(spin, 64, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(arguments), 0)
    driver.cuCtxSynchronize()
    total, error = driver.cuMemGetInfo()[2] >> 20, driver.cuMemAlloc(1025 << 20)[0].name
    print("of", total, "MiB:", error, flush=True)
"""
CORE = 15
BEAT = "of 2048 MiB: CUDA_ERROR_OUT_OF_MEMORY"
"""What a pod says again and again that has its slice of 2 GiB, holds one and asks for more than the other."""
MOST_GUESTS = 3


class Steady:
    """A pod that computes as much as it may, and tries all the time to take more memory than it may."""

    def __init__(self, installed: Installation, name: str) -> None:
        self._installed, self.name = installed, name
        installed.kubectl.apply(client(name, core=str(CORE), program=SPIN))

    def begin(self) -> None:
        """Return once it computes."""
        said(self._installed, self.name, "of")
        pod = self._installed.kubectl.get("pods", self.name)
        self.uid = str(pod["metadata"]["uid"])
        self._container = pod["status"]["containerStatuses"][0]["containerID"]
        self.watch()

    def watch(self) -> None:
        """Count its time from now on."""
        self._since = time.monotonic_ns()

    @property
    def control(self) -> Path:
        """Its control page, as it is seen from outside of the box."""
        return self._installed.node.box.path(f"{RUN}/tenants/{self.uid}/main/control")

    @property
    def interceptor(self) -> str:
        """Which one its program has, as that says itself."""
        return read_usage(usage_page(self._installed, self.uid)).shim_version

    def check(self) -> None:
        """Assert that it runs on in the same container, and was never let have more than its slice."""
        (status,) = self._installed.kubectl.get("pods", self.name)["status"]["containerStatuses"]
        assert (status["containerID"], status["restartCount"]) == (self._container, 0), status
        assert set(self._beats()) == {BEAT}, set(self._beats())

    def check_time(self) -> None:
        """Assert that it computes, and has had no more of its card's time than it may since that is counted."""
        before = len(self._beats())
        wait_for(f"{self.name} to compute", lambda: len(self._beats()) > before, PATIENCE_S)
        assert 0 < self.share() < 1.2 * CORE, f"{self.name} had {self.share()} %"

    def share(self) -> float:
        """Percent of its card's time since that is counted, by the simulated card's record."""
        mine = {process.pid for process in processes(self._installed) if process.uid == self.uid}
        now = time.monotonic_ns()
        ran = sum(
            max(0, min(end, now) - max(start, self._since))
            for card in self._installed.node.machine.cards
            for pid, start, end in self._installed.node.machine.busy(card.uuid)
            if pid in mine
        )
        return 100 * ran / (now - self._since)

    def _beats(self) -> list[str]:
        return self._installed.kubectl.logs(self.name).splitlines()


def usage_page(installed: Installation, uid: str) -> Path:
    """The page of a pod's container `main`, in the pod's own volume, as it is seen from outside of the box."""
    box = installed.node.box
    return box.path(str(box.path(f"{RUN}/tenants/{uid}/main/usage").readlink()))


def await_its_share(steady: Steady) -> None:
    """Wait until a pod has its share of its card's time within two points, for two seconds."""

    def has_it() -> bool:
        steady.watch()
        time.sleep(2)
        share = steady.share()
        print(f"{steady.name} has {share:.1f} %")
        return abs(share - CORE) < 2

    wait_for(f"{steady.name} to have its share", has_it, PATIENCE_S)


class Traffic:
    """Guests: they come as long as there are few, and go when they have had their slice; `prefix` names them.

    Attributes:
        seen: how many were served, given up by the kubelet, or refused by the API server.
    """

    def __init__(self, installed: Installation, prefix: str) -> None:
        self._installed, self._prefix = installed, prefix
        self._here: list[str] = []
        self._made = 0
        self.seen: Counter[str] = Counter()

    def turn(self) -> None:
        """Those that are done go, and one comes."""
        for name in [name for name in self._here if self._is_done(name)]:
            self._here.remove(name)
            self._installed.kubectl.delete("pods", name, grace=1)
        if len(self._here) < MOST_GUESTS:
            self._come()

    def finish(self) -> None:
        """Return once all that are here were served or given up."""
        for name in self._here:
            wait_for(f"pod {name} to be served", lambda name=name: self._is_done(name), PATIENCE_S)

    def _come(self) -> None:
        self._made += 1
        name = f"{self._prefix}-{self._made}"
        try:
            self._installed.kubectl.create(client(name, core="5"))
        except ApiError as error:
            if "failed calling webhook" not in str(error):
                raise
            self.seen["refused"] += 1
        else:
            self._here.append(name)

    def _is_done(self, name: str) -> bool:
        """Whether a pod has found its limits, or was given up as the kubelet does while a device plugin is away."""
        status = self._installed.kubectl.get("pods", name)["status"]
        if status.get("phase") == "Failed":
            assert status["reason"] == "UnexpectedAdmissionError", status
            self.seen["given up"] += 1
            return True
        if status.get("phase") != "Running" or "ready" not in (log := self._installed.kubectl.logs(name)):
            return False
        assert "2048 CUDA_ERROR_OUT_OF_MEMORY" in log, log
        self.seen["served"] += 1
        return True
