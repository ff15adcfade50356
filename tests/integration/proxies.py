"""An HTTP proxy in front of a server that does not treat all calls well."""

import http.server
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path

import urllib3

from aliquot.server.certs import write_pair

HOP = frozenset(("connection", "content-length", "transfer-encoding", "keep-alive", "date", "server"))
Lines = Callable[[str, Iterable[bytes]], Iterator[bytes]]
"""What becomes of the lines of a watch, by its path."""


class Fault(Enum):
    """What happens to a call."""

    HOLD = "it waits, and is passed on when the fault is over"
    MUTE = "it is passed on, and the answer waits until the fault is over"
    REFUSE = "it is answered with status 500"
    CUT_SHORT = "it is passed on, and half of the answer comes back"


class Proxy:
    """Passes calls on to one server; `faults` says by the beginning of a path what happens to others.

    Attributes:
        url: Where it listens, with TLS.
        tls: What it listens with.
        seen: The paths of all calls, as they came.
    """

    def __init__(self, target: str, directory: Path, lines: Lines | None = None) -> None:
        """Listen at once.

        Args:
            target: The server's URL, whose certificate is not looked at.
            directory: Where to put certificates.
            lines: Says what becomes of a watch; None: it is passed on.
        """
        self.tls = write_pair(directory, ["127.0.0.1"])
        self.seen: list[str] = []
        self._target, self._lines = target, lines
        self._faults: dict[str, tuple[Fault, threading.Event]] = {}
        self._pool = urllib3.PoolManager(64, cert_reqs="CERT_NONE", retries=False, assert_hostname=False)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.tls.cert, self.tls.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def begin(self, path: str, fault: Fault) -> None:
        """Do this to calls whose path begins so, from now on."""
        self._faults[path] = fault, threading.Event()

    def end(self, path: str) -> None:
        """Treat these calls well again, those that wait included."""
        self._faults.pop(path)[1].set()

    def close(self) -> None:
        """Listen no more; nobody waits."""
        for path in tuple(self._faults):
            self.end(path)
        self._server.shutdown()
        self._server.server_close()

    def answer(self, call: "_Handler") -> None:
        """Do with a call what is to be done."""
        self.seen.append(call.path)
        found = next((self._faults[path] for path in tuple(self._faults) if call.path.startswith(path)), None)
        fault, over = found or (None, threading.Event())
        body = call.rfile.read(int(call.headers.get("Content-Length", 0)))
        if fault is Fault.REFUSE:
            call.reply(500, {}, b"out of order")
            return
        if fault is Fault.HOLD:
            over.wait()
        headers = {name: value for name, value in call.headers.items() if name.lower() not in (*HOP, "host")}
        reply = self._pool.request(
            call.command, self._target + call.path, body=body, headers=headers, preload_content=False
        )
        kept = {name: value for name, value in reply.headers.items() if name.lower() not in HOP}
        if "watch=" in call.path:
            lines = self._lines(call.path, reply) if self._lines else iter(reply)
            call.stream(reply.status, kept, lines)
            reply.close()
            return
        content = reply.read()
        if fault is Fault.MUTE:
            over.wait()
        call.reply(reply.status, kept, content[: len(content) // 2] if fault is Fault.CUT_SHORT else content)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def handle_any(self) -> None:
        """A call of whatever method; who has hung up gets nothing."""
        try:
            self.proxy.answer(self)
        except (OSError, urllib3.exceptions.HTTPError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - http.server's names

    def reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        """Answer in one piece."""
        self.send_response(status)
        for name, value in (*headers.items(), ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def stream(self, status: int, headers: dict[str, str], lines: Iterator[bytes]) -> None:
        """Answer line by line, for as long as there are any; then the connection breaks."""
        self.send_response(status)
        for name, value in (*headers.items(), ("Transfer-Encoding", "chunked")):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        for line in lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _handler(proxy: Proxy) -> type[_Handler]:
    return type("Handler", (_Handler,), {"proxy": proxy})
