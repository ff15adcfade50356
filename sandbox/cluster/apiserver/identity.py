"""Who the API server is and who may talk to it: its CA, its certificate, the admin's token, the kubeconfig.

Everything is made once and kept in the directory, so that clients survive a restart of the server.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import secrets
import ssl
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

LIFETIME = dt.timedelta(days=365)


class Identity:
    """Certificates and token of one API server, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / "token").exists():
            _write_certificates(directory)
            _write_private(directory / "token", secrets.token_urlsafe(24).encode())

    @property
    def token(self) -> str:
        """The admin's bearer token."""
        return (self._directory / "token").read_text()

    def context(self) -> ssl.SSLContext:
        """TLS for the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._directory / "server.crt", self._directory / "server.key")
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


def _write_certificates(directory: Path) -> None:
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("pocket-ca")
    authority = (
        _builder(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = (
        _builder(_name("pocket-apiserver"), issuer, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    (directory / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (directory / "server.crt").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_private(directory / "server.key", pem)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
