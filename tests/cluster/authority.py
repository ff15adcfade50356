"""A certificate authority that says who somebody is to the API server, and proves the API server to everybody."""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aliquot.server.certs import alternative

LIFE = dt.timedelta(days=2)
SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for users and servers; all lies in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-cluster")])
        builder = _builder(name, name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._root = builder.sign(self._key, hashes.SHA256())
        self.certificate = self._write("ca", self._root, self._key).certificate

    def user(self, name: str, groups: Sequence[str] = ()) -> Identity:
        """Who the API server takes for this user in these groups."""
        return self._leaf(name, groups, (), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, name: str, hosts: Sequence[str]) -> Identity:
        """A server of these host names and addresses."""
        return self._leaf(name, (), hosts, ExtendedKeyUsageOID.SERVER_AUTH)

    def _leaf(
        self, name: str, groups: Sequence[str], hosts: Sequence[str], purpose: x509.ObjectIdentifier
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        words = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*words, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._root.subject, key)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            alternatives = x509.SubjectAlternativeName([alternative(host) for host in hosts])
            builder = builder.add_extension(alternatives, critical=False)
        return self._write(_file_name(name, groups), builder.sign(self._key, hashes.SHA256()), key)

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
        files = Identity(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.touch(0o600)
        files.key.write_bytes(key_pem(key))
        return files


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as Kubernetes reads it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _file_name(name: str, groups: Sequence[str]) -> str:
    return re.sub(r"[^\w.-]", "_", "+".join((name, *groups)))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFE)
    )
