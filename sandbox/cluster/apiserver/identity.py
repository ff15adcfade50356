"""Who the API server is and who may talk to it: its CA, its certificate, the admin's token, the kubeconfig.

Everything is made once and kept in the directory, so that clients survive a restart of the server.
"""

from __future__ import annotations

import base64
import secrets
import ssl
from typing import TYPE_CHECKING

import yaml

from aliquot.server.certs import write_pair

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("127.0.0.1", "localhost")


class Identity:
    """Certificates and token of one API server, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / "token").exists():
            write_pair(directory, NAMES)
            _write_private(directory / "token", secrets.token_urlsafe(24).encode())

    @property
    def token(self) -> str:
        """The admin's bearer token."""
        return (self._directory / "token").read_text()

    def context(self) -> ssl.SSLContext:
        """TLS for the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
        return context

    def write_kubeconfig(self, path: Path, server: str) -> None:
        """Write the admin's kubeconfig (temporary file and rename)."""
        authority = base64.b64encode((self._directory / "ca.crt").read_bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "pocket", "cluster": {"server": server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "pocket", "context": {"cluster": "pocket", "user": "admin"}}],
            "current-context": "pocket",
        }
        temporary = path.with_suffix(".tmp")
        _write_private(temporary, yaml.safe_dump(document).encode())
        temporary.replace(path)


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
