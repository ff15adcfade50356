"""Certificates for servers of ours, by a small CA of their own; servers themselves only read them (tls.py).

On a disk here; in a cluster they are kept by `aliquot.server.cert_rotation`.

The API server trusts a webhook by the CA bundle in its configuration, so any CA will do; a cluster without
cert-manager gets one made here. Renewing a pair keeps the CA while it lasts, so that nobody has to be told.
"""

import datetime as dt
import ipaddress
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aliquot.server.tls import CertificatePair

CA_DAYS: Final = 3650
_LEAF_DAYS: Final = 365
SKEW: Final = dt.timedelta(hours=1, minutes=5)
"""By how much certificates begin before they are made, for whose clock is behind."""
_PURPOSES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Replicas of a server call each other with what they serve with."""


@dataclass(frozen=True)
class Authority:
    """A CA in memory."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """Its key."""
        return _key_pem(self.key)


@dataclass(frozen=True)
class Leaf:
    """A certificate for one of our servers, and its key, as PEM."""

    pem: bytes
    key_pem: bytes


def write_pair(directory: Path, names: Sequence[str], *, days: int = _LEAF_DAYS) -> CertificatePair:
    """Write `ca.crt`, `tls.crt` and `tls.key` for a server of these host names or addresses; files are 0600.

    The CA (`ca.crt`, `ca.key`) is made once and used again while it outlives the new certificate.

    Raises:
        ValueError: no names.
    """
    if not names:
        raise ValueError("a certificate needs at least one host name or address")
    directory.mkdir(parents=True, exist_ok=True)
    authority = _authority_of(directory, days) or _make_authority(directory)
    leaf = new_leaf(authority, names[0], names, dt.timedelta(days=days))
    pair = CertificatePair(directory / "ca.crt", directory / "tls.crt", directory / "tls.key")
    _write(pair.key, leaf.key_pem)
    _write(pair.cert, leaf.pem)
    return pair


def _authority_of(directory: Path, days: int) -> Authority | None:
    """Read the CA of a directory; None where there is none that lasts long enough."""
    try:
        pem, key = (directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes()
    except OSError:
        return None
    authority = read_authority(pem, key)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    return authority if authority and authority.certificate.not_valid_after_utc >= until else None


def _make_authority(directory: Path) -> Authority:
    authority = new_authority(dt.timedelta(days=CA_DAYS))
    _write(directory / "ca.key", authority.key_pem)
    _write(directory / "ca.crt", authority.pem)
    return authority


def read_authority(pem: bytes, key_pem: bytes) -> Authority | None:
    """A CA from its certificate (the first one there) and its key; None where they are none, or do not fit."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Authority(certificate, key)


def new_authority(life: dt.timedelta, now: dt.datetime | None = None) -> Authority:
    """Make a CA that signs servers, and no other CAs."""
    key = ec.generate_private_key(ec.SECP256R1())
    common_name = x509.NameAttribute(NameOID.COMMON_NAME, f"aliquot-ca-{secrets.token_hex(8)}")
    name = x509.Name([common_name])
    builder = _builder(name, name, key, life, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def new_leaf(
    authority: Authority,
    common_name: str,
    names: Sequence[str],
    life: dt.timedelta,
    now: dt.datetime | None = None,
) -> Leaf:
    """Make a certificate for a server of these host names and addresses, that is a client by its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(subject, authority.certificate.subject, key, life, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
        .add_extension(x509.SubjectAlternativeName([alternative(n) for n in names]), critical=False)
        .add_extension(authority_id, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Leaf(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    life: dt.timedelta,
    now: dt.datetime | None,
) -> x509.CertificateBuilder:
    now = now or dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
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


def alternative(name: str) -> x509.GeneralName:
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
