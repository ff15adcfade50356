"""An extender that leads, as a process of its own on one core, with an API server beside it."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Self

from aliquot.certs import write_pair
from bench.extender.wire import Wire

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 180.0


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
        self._context = ssl.create_default_context(cafile=self._pair.ca)
        self._port = _free_port()

    def __enter__(self) -> Self:
        os.sched_setaffinity(0, self._rest)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "bench.extender.apiserver", *self._world]
        self._server = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        port = self._server.stdout.readline().strip()
        kubeconfig = self._root / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(f"http://127.0.0.1:{port}"))
        self._log = (self._root / "extender.log").open("wb")
        argv = [sys.executable, "-m", "scheduler_ext", "--kubeconfig", kubeconfig, "--port", str(self._port)]
        argv += ["--tls-cert", self._pair.cert, "--tls-key", self._pair.key, "--tls-ca", self._pair.ca]
        argv += ["--leader-elect", "--advertise-url", f"https://127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environment,
            stderr=self._log,
        )
        os.sched_setaffinity(self._process.pid, self._own)
        self._wait("/readyz", lambda _: True)
        self.started_s = self.cpu_s()
        self._wait("/metrics", lambda text: b"aliquot_scheduler_leader 1.0" in text)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        self._server.kill()
        self._server.wait()
        self._log.close()

    def wire(self) -> Wire:
        """A connection to it."""
        return Wire(self._port, self._pair.ca)

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

    def _wait(self, path: str, good: Callable[[bytes], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"the extender has ended: {self.log()[-2000:]}")
            with suppress(OSError), self._get(path) as answer:
                if good(answer.read()):
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{path} of the extender: {self.log()[-2000:]}")

    def _get(self, path: str) -> HTTPResponse:
        url = f"https://127.0.0.1:{self._port}{path}"
        answer: HTTPResponse = urllib.request.urlopen(url, timeout=10, context=self._context)
        return answer


def _cores() -> tuple[set[int], set[int]]:
    """One core for the extender, the others for all else; the same where there is but one."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return {first}, set(rest) or {first}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _kubeconfig(url: str) -> str:
    return f"""\
apiVersion: v1
kind: Config
clusters: [{{name: bench, cluster: {{server: "{url}"}}}}]
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
users: [{{name: bench, user: {{}}}}]
current-context: bench
"""
