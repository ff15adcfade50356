"""kube-scheduler's end of the wire: one TLS connection that is kept, bodies made in advance, answers read whole."""

import json
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Wire:
    """A connection to an extender."""

    def __init__(self, port: int, ca: Path) -> None:
        context = ssl.create_default_context(cafile=ca)
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._buffer = bytearray(1 << 20)

    def post(self, call: bytes) -> bytes:
        """Send a whole request, and read the body of its answer."""
        self._socket.sendall(call)
        have, end = 0, -1
        view = memoryview(self._buffer)
        while end < 0:
            have += self._read(view[have:])
            end = self._buffer.find(b"\r\n\r\n", 0, have)
        length = _length(bytes(self._buffer[:end])) + end + 4
        while have < length:
            have += self._read(view[have:])
        return bytes(self._buffer[end + 4 : length])

    def _read(self, into: memoryview) -> int:
        count = self._socket.recv_into(into)
        if not count:
            raise ConnectionError("the extender has closed the connection")
        return count

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise ValueError(f"an answer without a length: {head!r}")


def call(path: str, body: bytes) -> bytes:
    """A request as Go's client writes it."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}"
    return f"{head}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n".encode() + body


def filter_call(pod: dict[str, Any], names: bytes) -> bytes:
    """A filter call; the names are an encoded list."""
    said = json.dumps(pod, separators=(",", ":")).encode()
    return call("/filter", b'{"Pod":%s,"Nodes":null,"NodeNames":%s}\n' % (said, names))


def preempt_call(pod: dict[str, Any], nodes: Sequence[str]) -> bytes:
    """A preempt call as newer versions of kube-scheduler send it, that know of no victims themselves."""
    nobody = {"Pods": [], "NumPDBViolations": 0}
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": dict.fromkeys(nodes, nobody)}
    return call("/preempt", json.dumps(body, separators=(",", ":")).encode())


def bind_call(pod: dict[str, Any], node: str) -> bytes:
    """A bind call."""
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
    return call("/bind", json.dumps(body, separators=(",", ":")).encode())
