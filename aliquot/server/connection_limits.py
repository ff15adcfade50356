"""How many connections a server has at once: some per caller, some in all.

Counted where connections are accepted, before TLS or HTTP cost anything, and until they are closed. Who calls from the
same machine (kube-scheduler in the extender's pod) does not count among all, so that no crowd from elsewhere keeps it
out.
"""

import errno
import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

PER_PEER: Final = 512
"""kube-scheduler binds over some 80 connections at once."""
IN_ALL: Final = 2048
_SAY_EVERY_S: Final = 60.0
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1024)
def is_local(address: str) -> bool:
    """Whether an address is this machine's own loopback, also as IPv6 writes one of IPv4."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


@dataclass
class ConnectionLimits:
    """Who is connected.

    Attributes:
        per_peer: Connections that one address may have.
        in_all: Connections of all addresses that are not spared.
        spared: Addresses that do not count among all.
    """

    per_peer: int = PER_PEER
    in_all: int = IN_ALL
    spared: Callable[[str], bool] = is_local
    _peers: Counter[str] = field(default_factory=Counter, init=False)
    _strangers: int = field(default=0, init=False)
    _said: float = field(default=float("-inf"), init=False)

    @property
    def size(self) -> int:
        """How many connections there are."""
        return self._peers.total()

    def enter(self, peer: str) -> bool:
        """Count a connection in; False where it has to go."""
        full = self._strangers >= self.in_all and not self.spared(peer)
        if full or self._peers[peer] >= self.per_peer:
            self._say(peer)
            return False
        self._peers[peer] += 1
        self._strangers += not self.spared(peer)
        return True

    def leave(self, peer: str) -> None:
        """Count it out."""
        self._peers[peer] -= 1
        self._strangers -= not self.spared(peer)
        if not self._peers[peer]:
            del self._peers[peer]

    def _say(self, peer: str) -> None:
        if not self._peers[peer]:
            del self._peers[peer]
        if time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            _log.warning("connections of %s are refused: there are %d of its own", peer, self._peers[peer])


class Door(socket.socket):
    """A listening socket that lets no more in than a crowd may have."""

    crowd: ConnectionLimits

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises BlockingIOError where there is none, and where it had to be sent away."""
        accepted, address = super().accept()
        peer = str(address[0])
        if not self.crowd.enter(peer):
            accepted.close()
            raise BlockingIOError
        guest = _Guest(accepted.family, accepted.type, accepted.proto, accepted.detach())
        guest.crowd, guest.peer = self.crowd, peer
        guest.settimeout(0.0)
        return guest, address


class _Guest(socket.socket):
    """A connection that is counted out when it is closed."""

    crowd: ConnectionLimits | None = None
    peer: str = ""

    def close(self) -> None:
        """Close it."""
        crowd, self.crowd = self.crowd, None
        if crowd is not None:
            crowd.leave(self.peer)
        super().close()


def doors(host: str | None, port: int, crowd: ConnectionLimits) -> list[Door]:
    """Sockets that listen there (None: on all addresses, of IPv6 only where the machine has it). Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[Door] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            opened.append(_open(family, kind, protocol, address, crowd))
        except OSError as error:
            if host is None and family == socket.AF_INET6 and error.errno in _NO_IPV6:
                continue
            for door in opened:
                door.close()
            raise
    return opened


def _open(family: int, kind: int, protocol: int, address: Any, crowd: ConnectionLimits) -> Door:
    door = Door(family, kind, protocol)
    door.crowd = crowd
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        door.bind(address)
    except OSError as error:
        door.close()
        raise OSError(error.errno, f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from error
    return door
