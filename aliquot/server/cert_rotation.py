"""Keeps certificates in a cluster: a CA and what it signs as Secrets, and the CA's word in our webhooks' configuration.

Nothing is remembered between two looks: each look reads what the cluster has, and makes the writes that are missing,
one object at a time, each only if nobody has written it since. So a keeper may be killed between any two writes, and
several may run at once.

Trust comes before use. A new CA is trusted everywhere (`ca.crt` of all Secrets, the webhooks' `caBundle`) for the
overlap before it signs anything, and the old one for the overlap after that. The certificates of a CA whose key was
lost stay in use for the overlap, too, where all Secrets and webhooks trust it. Only where one does not, or it has
expired, is there no overlap.
"""

import asyncio
import base64
import binascii
import datetime as dt
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from aliquot.api.names import WEBHOOKS_NAME
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api, PatchType
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import KubeObject
from aliquot.kube.resources import Resource
from aliquot.server.certs import SKEW, Authority, Leaf, alternative, new_authority, new_leaf, read_authority

CA_SECRET: Final = "aliquot-ca"  # noqa: S105 - a name
TRUSTED, CERT, KEY, NEXT_CERT, NEXT_KEY = "ca.crt", "tls.crt", "tls.key", "next.crt", "next.key"
_UNPROCESSABLE: Final = 422
_MOST_LOOKS: Final = 20
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"

_log = logging.getLogger(__name__)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


class Secret(KubeObject, frozen=True, kw_only=True):
    """A Secret; values are base64."""

    data: dict[str, str] = msgspec.field(default_factory=dict)

    def bytes_of(self, key: str) -> bytes:
        """One value; empty where there is none that can be read."""
        return _decoded(self.data.get(key, ""))


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)

    @property
    def authorities(self) -> bytes:
        """The CAs by which the API server knows it; empty where they cannot be read."""
        return _decoded(self.client_config.ca_bundle)


class Configuration(KubeObject, frozen=True, kw_only=True):
    """A MutatingWebhookConfiguration."""

    webhooks: tuple[_Webhook, ...] = ()


SECRETS: Final = Resource("", "v1", "secrets", Secret)
CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", Configuration, namespaced=False
)


@dataclass(frozen=True)
class Terms:
    """How long certificates live, and when they are renewed: after `renew_at` of their lives."""

    leaf: dt.timedelta = dt.timedelta(days=90)
    authority: dt.timedelta = dt.timedelta(days=3650)
    overlap: dt.timedelta = dt.timedelta(days=30)
    renew_at: float = 2 / 3

    def due(self, certificate: x509.Certificate, now: dt.datetime) -> bool:
        """Whether a certificate is to be renewed."""
        begin, end = certificate.not_valid_before_utc + SKEW, certificate.not_valid_after_utc
        return now >= begin + (end - begin) * self.renew_at


@dataclass(frozen=True)
class Wanted:
    """A certificate that somebody needs: its Secret, and the names and addresses that it is good for."""

    secret: str
    names: tuple[str, ...]

    @property
    def common_name(self) -> str:
        """As whom its owner calls others."""
        return self.secret.removesuffix("-tls")


def usual(namespace: str) -> tuple[Wanted, ...]:
    """What the services of a namespace need. kube-scheduler calls the extender in its own pod by address."""

    def of(service: str, *more: str) -> Wanted:
        host = f"{service}.{namespace}.svc"
        names = (host, service, f"{service}.{namespace}", f"{host}.cluster.local")
        return Wanted(f"{service}-tls", (*names, *more))

    local = ("localhost", "127.0.0.1", "::1")
    return of("aliquot-webhook"), of("aliquot-scheduler", *local), of("aliquot-agent")


@dataclass(frozen=True)
class Trust:
    """The CAs of a cluster.

    Attributes:
        signing: Signs.
        coming: Will sign; trusted already.
        others: Trusted still.
    """

    signing: Authority
    coming: Authority | None = None
    others: tuple[x509.Certificate, ...] = ()

    @property
    def bundle(self) -> bytes:
        """All that is trusted, the one that signs first."""
        coming = (self.coming.certificate,) if self.coming else ()
        return _pem((self.signing.certificate, *coming, *self.others))

    def issuers(self, terms: Terms, now: dt.datetime) -> tuple[x509.Certificate, ...]:
        """The CAs whose certificates may be in use.

        A CA signs once it has been trusted for the overlap. A younger one that signs was made in place of a lost one,
        whose certificates stay in use until then.
        """
        young = now < _made(self.signing) + terms.overlap
        return (self.signing.certificate, *(self.others if young else ()))

    def data(self) -> dict[str, bytes | None]:
        """What the CA's Secret says."""
        return {
            CERT: self.signing.pem,
            KEY: self.signing.key_pem,
            TRUSTED: self.bundle,
            NEXT_CERT: self.coming.pem if self.coming else None,
            NEXT_KEY: self.coming.key_pem if self.coming else None,
        }


def read_trust(secret: Secret, now: dt.datetime) -> Trust | None:
    """The CAs of a Secret; None where it has none that can sign."""
    signing = _living(read_authority(secret.bytes_of(CERT), secret.bytes_of(KEY)), now)
    coming = _living(read_authority(secret.bytes_of(NEXT_CERT), secret.bytes_of(NEXT_KEY)), now)
    if signing is None and coming is None:
        return None
    trusted = certificates_in(secret.bytes_of(TRUSTED))
    first, second = (signing, coming) if signing is not None else (coming, None)
    assert first is not None  # noqa: S101 - one of them is there
    known = {one.certificate for one in (first, second) if one is not None}
    others = tuple(c for c in trusted if c not in known and c.not_valid_after_utc > now)
    return Trust(first, second, others)


def advanced(trust: Trust | None, lost: Sequence[x509.Certificate], terms: Terms, now: dt.datetime) -> Trust:
    """The CAs as they should be now; the same where nothing is to be done.

    `lost` are CAs without a key whose certificates may still be in use.
    """
    if trust is None:
        return Trust(new_authority(terms.authority, now), None, tuple(lost))
    signing, coming = trust.signing, trust.coming
    if coming is None and terms.due(signing.certificate, now):
        return Trust(signing, new_authority(terms.authority, now), trust.others)
    if coming is not None and now >= _made(coming) + terms.overlap:
        return Trust(coming, None, (signing.certificate, *trust.others))
    if coming is None and trust.others and now >= _made(signing) + 2 * terms.overlap:
        return Trust(signing)
    return trust


def _made(authority: Authority) -> dt.datetime:
    return authority.certificate.not_valid_before_utc + SKEW


def _living(authority: Authority | None, now: dt.datetime) -> Authority | None:
    return authority if authority and authority.certificate.not_valid_after_utc > now else None


def certificates_in(pem: bytes) -> list[x509.Certificate]:
    """All certificates of a PEM file that can be read."""
    found: list[x509.Certificate] = []
    for part in pem.split(_BEGIN)[1:]:
        try:
            found.append(x509.load_pem_x509_certificate(_BEGIN + part))
        except ValueError:
            continue
    return found


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def good_leaf(
    secret: Secret, wanted: Wanted, trust: Trust, terms: Terms, now: dt.datetime
) -> x509.Certificate | None:
    """The certificate of a Secret, where it is what is wanted and not yet to be renewed."""
    try:
        certificate = x509.load_pem_x509_certificate(secret.bytes_of(CERT))
        key = serialization.load_pem_private_key(secret.bytes_of(KEY), password=None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return None
    if not any(has_issued(one, certificate) for one in trust.issuers(terms, now)):
        return None
    common_names = [a.value for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    fits = key.public_key() == certificate.public_key() and common_names == [wanted.common_name]
    if not fits or set(names) != {alternative(name) for name in wanted.names}:
        return None
    return None if terms.due(certificate, now) else certificate


def may_sign(certificate: x509.Certificate) -> bool:
    """Whether a certificate is a CA's."""
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (ValueError, x509.ExtensionNotFound):
        return False


def has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether a CA has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@dataclass
class CertRotation:
    """Keeps them.

    Attributes:
        expiries: When each Secret's certificate ends, as of the last look.
        renewed: Is called with a Secret's name for each certificate made.
        seen: Is called at each look with what every certificate's Secret holds: its name, and its data.
    """

    api: Api
    namespace: str
    wanted: Sequence[Wanted]
    configuration: str = WEBHOOKS_NAME
    terms: Terms = Terms()
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    renewed: Callable[[str], None] = lambda _: None
    seen: Callable[[str, Mapping[str, bytes]], None] = lambda _, __: None
    expiries: dict[str, dt.datetime] = field(default_factory=dict, init=False)

    async def look(self) -> bool:
        """Bring everything to what it should be; False where somebody else wrote meanwhile: look again.

        Raises:
            ApiError: the API server refused or did not answer.
        """
        try:
            trust = await self._keep_authority()
            await self._tell_webhooks(trust)
            for wanted in self.wanted:
                await self._spread(wanted, trust)
            for wanted in self.wanted:
                await self._keep_leaf(wanted, trust)
        except ApiError as error:
            if error.conflict or error.status == _UNPROCESSABLE:
                _log.info("somebody else writes, too: %s", error)
                return False
            raise
        return True

    async def settle(self) -> None:
        """Look until nothing is left to do. Raises ApiError."""
        backoff = Backoff(first=0.05, most=1.0)
        for _ in range(_MOST_LOOKS):
            if await self.look():
                return
            await asyncio.sleep(backoff.next())
        raise ApiError(0, "", f"others have written each time in {_MOST_LOOKS} looks")

    async def is_wanted(self) -> bool:
        """Whether a webhook has come that knows no CA: none of its pods can be made until it is told."""
        try:
            found = await self.api.get(CONFIGURATIONS, self.configuration)
        except ApiError:
            return False  # the next look says what is wrong
        return not all(webhook.client_config.ca_bundle for webhook in found.webhooks)

    async def _keep_authority(self) -> Trust:
        secret = await self._secret(CA_SECRET)
        now = self.now()
        trust = read_trust(secret, now)
        lost = await self._lost(secret, now) if trust is None else ()
        should = advanced(trust, lost, self.terms, now)
        if should is not trust or should.bundle != secret.bytes_of(TRUSTED):
            await self._write(secret, CA_SECRET, should.data())
            self.renewed(CA_SECRET)
        self.expiries[CA_SECRET] = should.signing.certificate.not_valid_after_utc
        return should

    async def _lost(self, secret: Secret, now: dt.datetime) -> list[x509.Certificate]:
        """The CAs whose key is lost and which all Secrets and webhooks trust.

        One that only some of the Secrets have may come from somebody who could write these.
        """
        held = [await self._secret(wanted.secret) for wanted in self.wanted]
        bundles = [one.bytes_of(TRUSTED) for one in held if one.bytes_of(CERT)]
        configuration = await self._webhook_configuration()
        bundles += [webhook.authorities for webhook in (configuration.webhooks if configuration else ())]
        trusted = [certificates_in(bundle) for bundle in bundles]
        return [
            one
            for one in dict.fromkeys([*certificates_in(secret.bytes_of(TRUSTED)), *itertools.chain(*trusted)])
            if one.not_valid_after_utc > now and may_sign(one) and all(one in bundle for bundle in trusted)
        ]

    async def _webhook_configuration(self) -> Configuration | None:
        """Ours; None where there is none."""
        try:
            return await self.api.get(CONFIGURATIONS, self.configuration)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def _tell_webhooks(self, trust: Trust) -> None:
        """The API server trusts what is in the configuration; where there is none yet, nobody has to be told."""
        found = await self._webhook_configuration()
        if found is None:
            _log.warning("there is no MutatingWebhookConfiguration %s to tell of the CA", self.configuration)
            return
        bundle = base64.b64encode(trust.bundle).decode()
        changes = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, webhook in enumerate(found.webhooks)
            if webhook.client_config.ca_bundle != bundle
        ]
        if not changes:
            return
        unchanged = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": found.metadata.resource_version,
        }
        await self.api.patch(CONFIGURATIONS, self.configuration, [unchanged, *changes], how=PatchType.JSON)
        _log.info("webhooks of %s trust %d CAs", self.configuration, trust.bundle.count(_BEGIN))

    async def _spread(self, wanted: Wanted, trust: Trust) -> None:
        """Have who holds a certificate already trust what is about to be used."""
        secret = await self._secret(wanted.secret)
        if secret.bytes_of(CERT) and secret.bytes_of(TRUSTED) != trust.bundle:
            await self._write(secret, wanted.secret, {TRUSTED: trust.bundle})

    async def _keep_leaf(self, wanted: Wanted, trust: Trust) -> None:
        secret, now = await self._secret(wanted.secret), self.now()
        certificate = good_leaf(secret, wanted, trust, self.terms, now)
        data = {key: secret.bytes_of(key) for key in (CERT, KEY, TRUSTED)}
        if certificate is None:
            leaf = self._signed(wanted, trust, now)
            data = {CERT: leaf.pem, KEY: leaf.key_pem, TRUSTED: trust.bundle}
            await self._write(secret, wanted.secret, data)
            self.renewed(wanted.secret)
            certificate = x509.load_pem_x509_certificate(leaf.pem)
        self.expiries[wanted.secret] = certificate.not_valid_after_utc
        self.seen(wanted.secret, data)

    def _signed(self, wanted: Wanted, trust: Trust, now: dt.datetime) -> Leaf:
        """A new certificate, that does not outlive its CA."""
        life = min(self.terms.leaf, trust.signing.certificate.not_valid_after_utc - now)
        return new_leaf(trust.signing, wanted.common_name, wanted.names, life, now)

    async def _secret(self, name: str) -> Secret:
        """A Secret as it is; one without a version where there is none."""
        try:
            return await self.api.get(SECRETS, name, self.namespace)
        except ApiError as error:
            if error.not_found:
                return Secret()
            raise

    async def _write(self, secret: Secret, name: str, data: Mapping[str, bytes | None]) -> None:
        """Make a Secret, or change it if it is still as it was read."""
        encoded = {
            key: None if value is None else base64.b64encode(value).decode() for key, value in data.items()
        }
        version = secret.metadata.resource_version
        if version:
            body = {"metadata": {"resourceVersion": version}, "data": encoded}
            await self.api.patch(SECRETS, name, body, self.namespace)
        else:
            given = {key: value for key, value in encoded.items() if value is not None}
            # Without labels: Helm sets those of a Secret of its chart, and gives up where others own one of them.
            metadata = {"name": name, "namespace": self.namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": given}
            await self.api.create(SECRETS, body, self.namespace)
        _log.info("Secret %s/%s is written: %s", self.namespace, name, ", ".join(sorted(data)))
