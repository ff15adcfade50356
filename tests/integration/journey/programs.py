"""CUDA programs in pods, that do what they are told while they run."""

from collections.abc import Mapping

from aliquot.cli.demo.stack import Stack
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.pods import container, pod

TENANT = """
import os, time
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
driver.cuCtxSetCurrent(context)
held, done = [], 0
print("ready", flush=True)
while True:
    wishes = open("/data/wishes").read().split() if os.path.exists("/data/wishes") else []
    for mib in wishes[done:]:
        if mib == "free":
            results = [driver.cuMemFree(block)[0] for block in held]
            held.clear()
            print(f"free {max(results, default=driver.CUresult(0)).name} of 0", flush=True)
            done += 1
            continue
        error, block = driver.cuMemAlloc(int(mib) << 20)
        if not error:
            held.append(block)
        print(f"{mib} {error.name} of {driver.cuMemGetInfo()[2] >> 20}", flush=True)
        done += 1
    time.sleep(0.01)
"""


STAYS = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


class Program:
    """A CUDA program in a pod, that allocates what it is told to; a `stubborn` one ends for no SIGTERM."""

    def __init__(
        self,
        stack: Stack,
        name: str,
        mem: str,
        annotations: Mapping[str, str] | None = None,
        *,
        stubborn: bool = False,
    ) -> None:
        self.stack, self.name, self.count = stack, name, 0
        main = container("main", {"mem": mem}, ["python", "-c", STAYS * stubborn + TENANT])
        main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        manifest = pod(name, main, volumes=[{"name": "data", "emptyDir": {}}])
        manifest["metadata"]["annotations"] = dict(annotations or {})
        stack.kubectl.apply(manifest)
        self.uid = stack.kubectl.wait_phase(name, "Running")["metadata"]["uid"]
        wait_for("the program", lambda: "ready" in stack.kubectl.logs(name))

    def free(self) -> str:
        """Has it give all back."""
        return self.alloc("free")

    def alloc(self, mib: int | str) -> str:
        """Asks for memory; the error's name, and how many MiB the program takes its card for."""
        self.tell(str(mib))
        said = wait_for("the program's answer", lambda: self.answers()[self.count - 1 :])
        return str(said[0]).partition(" ")[2]

    def tell(self, wish: str) -> None:
        """Tells it what to do, and does not wait for it."""
        (volume,) = self.stack.cluster.root.glob(f"node-1/pods/{self.uid}/**/data")
        with (volume / "wishes").open("a") as wishes:
            wishes.write(f"{wish}\n")
        self.count += 1

    def answers(self) -> list[str]:
        """What it has said."""
        return [line for line in self.stack.kubectl.logs(self.name).splitlines() if " of " in line]
