"""TLS contexts of ours, that follow the files of certificates; who makes certificates is `aliquot.server.certs`."""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CertificatePair:
    """The files of one server: its certificate and key, and the CA that vouches for them."""

    ca: Path
    cert: Path
    key: Path


def server_context(cert: Path, key: Path, peers: Path | None = None) -> ssl.SSLContext:
    """Make a TLS context for a server that presents a renewed certificate from the next handshake on.

    The files are read in every handshake, which costs little beside it. While they do not fit each other, as
    halfway through a renewal, those that were good last stay in use.

    Args:
        cert: Its certificate.
        key: The certificate's key.
        peers: CAs that vouch for clients; they may show a certificate then, and a bad one ends the connection.

    Raises:
        OSError: a file is missing (ssl.SSLError, its subclass: or it is no certificate, or they do not fit).
    """
    return _Reloader(cert, key, peers).front


def client_context(pair: CertificatePair) -> ssl.SSLContext:
    """Make a TLS context for calls to servers of this CA, as one of them.

    Raises:
        OSError: a file is missing (ssl.SSLError, its subclass: or it is no certificate, or they do not fit).
    """
    context = ssl.create_default_context(cafile=pair.ca)
    context.load_cert_chain(pair.cert, pair.key)
    return context


class _Reloader:
    """Gives each handshake the newest pair.

    The context that the server holds (`front`) only redirects: its callback runs early in the handshake
    and puts the connection on `_current`, which holds the newest certificate that could be loaded.
    """

    def __init__(self, cert: Path, key: Path, peers: Path | None) -> None:
        self._files = (cert, key) if peers is None else (cert, key, peers)
        self._peers = peers
        self._seen = self._read()
        self._current = self._load()
        self.front = self._load()
        self.front.sni_callback = self._redirect

    def _redirect(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        del name, context
        self._refresh()
        connection.context = self._current

    def _refresh(self) -> None:
        """Load the files if they changed; compared by content, since clocks and inodes can stand still."""
        try:
            found = self._read()
            if found != self._seen:
                self._seen = found
                self._current = self._load()
        except OSError as error:
            _log.warning("certificate %s cannot be loaded, the last stays: %s", self._files[0], error)

    def _read(self) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in self._files)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files[:2])
        if self._peers is not None:
            context.load_verify_locations(self._peers)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
