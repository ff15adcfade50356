"""Certificates for servers of ours: a small CA of their own, and TLS contexts that follow the files.

The API server trusts a webhook by the CA bundle in its configuration, so any CA will do; a cluster without
cert-manager gets one made here. Renewing a pair keeps the CA while it lasts, so that nobody has to be told.
"""

import datetime as dt
import ipaddress
import logging
import os
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_log = logging.getLogger(__name__)
_CA_DAYS: Final = 3650
_LEAF_DAYS: Final = 365
_SKEW: Final = dt.timedelta(minutes=5)
_PURPOSES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Replicas of a server call each other with what they serve with."""


@dataclass(frozen=True)
class CertificatePair:
    """The files of one server: its certificate and key, and the CA that vouches for them."""

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True)
class _Authority:
    """A CA in memory."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def write_pair(directory: Path, names: Sequence[str], *, days: int = _LEAF_DAYS) -> CertificatePair:
    """Write `ca.crt`, `tls.crt` and `tls.key` for a server of these host names or addresses; files are 0600.

    The CA (`ca.crt`, `ca.key`) is made once and used again while it outlives the new certificate.

    Raises:
        ValueError: no names.
    """
    if not names:
        raise ValueError("a certificate needs at least one host name or address")
    directory.mkdir(parents=True, exist_ok=True)
    authority = _read_authority(directory, days) or _make_authority(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign_leaf(authority, key, names, days)
    pair = CertificatePair(directory / "ca.crt", directory / "tls.crt", directory / "tls.key")
    _write(pair.key, _key_pem(key))
    _write(pair.cert, certificate.public_bytes(serialization.Encoding.PEM))
    return pair


def _read_authority(directory: Path, days: int) -> _Authority | None:
    """Read the CA of a directory; None where there is none that lasts long enough."""
    try:
        certificate = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    except (OSError, ValueError):
        return None
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.not_valid_after_utc < until:
        return None
    return _Authority(certificate, key) if key.public_key() == certificate.public_key() else None


def _make_authority(directory: Path) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    common_name = x509.NameAttribute(NameOID.COMMON_NAME, f"aliquot-ca-{secrets.token_hex(8)}")
    name = x509.Name([common_name])
    builder = _builder(name, name, key, _CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write(directory / "ca.key", _key_pem(key))
    _write(directory / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(certificate, key)


def _sign_leaf(
    authority: _Authority, key: ec.EllipticCurvePrivateKey, names: Sequence[str], days: int
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(subject, authority.certificate.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False)
        .add_extension(authority_id, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    """Name a server by address or by DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    """Put a file in place at once; it is 0600 from its first byte on."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def server_context(cert: Path, key: Path, peers: Path | None = None) -> ssl.SSLContext:
    """Make a TLS context for a server that presents a renewed certificate from the next handshake on.

    Both files are read in every handshake, which costs little beside it. While they do not fit each other, as
    halfway through a renewal, the last good pair stays in use.

    Args:
        cert: Its certificate.
        key: The certificate's key.
        peers: A CA that vouches for clients; they may show a certificate then, and a bad one ends the connection.

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
        self._files = (cert, key)
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
        context.load_cert_chain(*self._files)
        if self._peers is not None:
            context.load_verify_locations(self._peers)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
