"""An extender that leads, as a process of its own on one core, with an API server beside it."""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from aliquot.sandbox.cluster.processes import free_port
from aliquot.server.certs import write_pair
from bench.extender.wire import Wire

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 180.0
ENDING_S = 20.0
_NOBODY = {"Pod": {"metadata": {"name": "nobody", "uid": "nobody"}}, "NodeNames": ["nowhere"]}
"""A call that every leader answers, and that changes nothing."""


class Leader:
    """The process, and what it has used; leaving the context ends it."""

    def __init__(self, root: Path, nodes: int, slices: int, others: int) -> None:
        """Start nothing yet.

        Args:
            root: An empty directory.
            nodes: Of the cluster, with eight cards each.
            slices: Pods with slices that are bound already.
            others: Bound pods without.
        """
        self._root = root
        self._world = [str(n) for n in (nodes, slices, others)]
        self._own, self._rest = _cores()
        self._pair = write_pair(root / "tls", ["127.0.0.1"])
        self.ca = self._pair.ca
        self._context = ssl.create_default_context(cafile=self._pair.ca)
        self.port = free_port()

    def __enter__(self) -> Self:
        os.sched_setaffinity(0, self._rest)
        with ExitStack() as stack:
            self._start(stack)
            self._wait("/readyz")
            self.started_s = self.cpu_s()
            self._wait("/filter", json.dumps(_NOBODY).encode(), lambda answer: b"Error" not in answer)
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def _start(self, stack: ExitStack) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "bench.extender.apiserver", *self._world]
        server = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        stack.callback(_end, server)
        assert server.stdout is not None
        kubeconfig = self._root / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(f"http://127.0.0.1:{server.stdout.readline().strip()}"))
        log = stack.enter_context((self._root / "extender.log").open("wb"))
        argv = [
            sys.executable,
            "-m",
            "aliquot.scheduler_ext",
            "--kubeconfig",
            str(kubeconfig),
            "--port",
            str(self.port),
        ]
        argv += [
            "--tls-cert",
            str(self._pair.cert),
            "--tls-key",
            str(self._pair.key),
            "--tls-ca",
            str(self._pair.ca),
        ]
        argv += ["--leader-elect", "--advertise-url", f"https://127.0.0.1:{self.port}"]
        self._process = subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=log)
        stack.callback(_end, self._process)
        os.sched_setaffinity(self._process.pid, self._own)

    def wire(self) -> Wire:
        """A connection to it."""
        return Wire(self.port, self._pair.ca)

    def cpu_s(self) -> float:
        """Seconds of processor time that it has used, all threads, in steps of 10 ms."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def busy_ns(self) -> int:
        """Nanoseconds of processor time of its main thread, in which its event loop runs."""
        return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0])

    def rss_mib(self) -> float:
        """Its resident memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def log(self) -> str:
        """What it has written."""
        return (self._root / "extender.log").read_text()

    def _wait(
        self, path: str, body: bytes | None = None, good: Callable[[bytes], bool] = lambda _: True
    ) -> None:
        """Wait for a good answer; a body makes the call a POST."""
        call = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", body)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"the extender has ended: {self.log()[-2000:]}")
            with suppress(OSError), urllib.request.urlopen(call, timeout=10, context=self._context) as answer:  # noqa: S310
                if good(answer.read()):
                    return
            time.sleep(0.25)
        raise RuntimeError(f"{path} of the extender: {self.log()[-2000:]}")


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cores() -> tuple[set[int], set[int]]:
    """One core for the extender, the others for all else; the same where there is but one."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return {first}, set(rest) or {first}


def _kubeconfig(url: str) -> str:
    return f"""\
apiVersion: v1
kind: Config
clusters: [{{name: bench, cluster: {{server: "{url}"}}}}]
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
users: [{{name: bench, user: {{}}}}]
current-context: bench
"""
