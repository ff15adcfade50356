"""A wire between a process and the API server that can be cut, or made to lose what the server says."""

import contextlib
import socket
import threading
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster

CHUNK = 1 << 16


def lead_through(cluster: PocketCluster, url: str, path: Path, ca: Path | None = None) -> Path:
    """A kubeconfig of the cluster's admin by way of another URL; `ca`: of who listens there, where it has its own."""
    config: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    entry = config["clusters"][0]["cluster"]
    entry["server"] = url
    if ca is not None:
        entry.pop("certificate-authority-data", None)
        entry["certificate-authority"] = str(ca)
    path.write_text(yaml.safe_dump(config))
    return path


class Mode(Enum):
    """What a wire does."""

    CARRIES = "carries"
    DEAF = "deaf"
    """What the server says is lost; what the process says arrives."""
    STALE = "stale"
    """The same on connections that are there; new ones carry."""
    CUT = "cut"


class Wire:
    """A TCP proxy in front of the API server, with a kubeconfig that leads through it."""

    def __init__(self, cluster: PocketCluster, directory: Path) -> None:
        server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        self._target = int(server.rsplit(":", 1)[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._mode = Mode.CARRIES
        self._ends: set[socket.socket] = set()
        self._stale: set[socket.socket] = set()
        url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.kubeconfig = lead_through(cluster, url, directory / "kubeconfig")
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: Mode) -> None:
        """Do this from now on; connections that have lost something are broken."""
        self._mode = mode
        if mode is Mode.STALE:
            self._stale = set(self._ends)
        elif mode is not Mode.DEAF:
            for end in tuple(self._ends):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all."""
        self._listener.close()
        self.set(Mode.CUT)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                if self._mode is Mode.CUT:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
            except ConnectionRefusedError:
                near.close()
                continue
            except OSError:
                return
            self._ends |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink, source is far), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if not (answers and self._loses(source)):
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._ends.discard(end)

    def _loses(self, source: socket.socket) -> bool:
        return self._mode is Mode.DEAF or source in self._stale
