"""Certificates, and what the accounts may do."""

import base64
import binascii
import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import NotKnownError
from aliquot.doctor.finding import UPGRADE, Told, count, failure, not_checked, ok, some, warning
from aliquot.server.cert_rotation import CERT, KEY, TRUSTED, Secret, certificates_in
from aliquot.server.certs import alternative

LAST_PART = 1 / 5
"""Of a certificate's life: it should have been renewed long before."""
INJECTED: Final = "cert-manager.io/inject-ca-from"
"""By which cert-manager writes the webhooks' caBundle."""


def certificates(cluster: Cluster) -> Iterator[Told]:
    """The services' certificates: expiry, names, key, CA, the webhook's caBundle, and kube-scheduler's CAs."""
    for name in COMPONENTS:
        try:
            if cluster.workload(name) is not None:
                yield from _certificate(cluster, name, cluster.secret(f"{name}-tls"))
        except NotKnownError as error:
            yield not_checked(str(error))
    yield from _bundle(cluster)
    yield from _unread_authority(cluster)


def _certificate(cluster: Cluster, name: str, secret: Secret | None) -> Iterator[Told]:
    label = f"{name}-tls"
    found = certificates_in(secret.bytes_of(CERT)) if secret else []
    if not secret or not found:
        remedy = _renew(cluster, label) if secret else _make(cluster, label)
        yield failure(
            f"Secret {label} {'has no certificate' if secret else 'is not there'}: its pods do not start.",
            remedy,
            [label],
        )
        return
    leaf, now = found[0], cluster.now
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if not begin <= now < end:
        yield failure(
            f"{label} {'ended' if now >= end else 'begins only'} on {_day(end if now >= end else begin)}.",
            _renew(cluster, label),
            [label],
        )
        return
    wrong = list(_wrong(cluster, name, secret, leaf))
    if wrong:
        yield failure(f"{label}: {'; '.join(wrong)}", _renew(cluster, label), [label])
    elif end - now < (end - begin) * LAST_PART:
        yield warning(
            f"{label} ends on {_day(end)} and has not been renewed.",
            _renew(cluster, label),
            [label],
        )
    else:
        yield ok(f"{label} is good until {_day(end)}")


def _wrong(cluster: Cluster, name: str, secret: Secret, leaf: x509.Certificate) -> Iterator[str]:
    host = f"{name}.{cluster.namespace}.svc"
    if not _names(leaf, host):
        yield f"it does not name {host}"
    if name == "aliquot-scheduler":
        common = [a.value for a in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if common != [name]:
            yield f"its common name is {some(map(str, common)) or 'empty'}, not {name}, whom alone the extender lets in"
        if not _for_clients(leaf):
            yield "it is not good for clients, and kube-scheduler shows it to the extender"
    if not _fits(secret, leaf):
        yield "key and certificate do not belong together"
    if not _signed_by(leaf, certificates_in(secret.bytes_of(TRUSTED))):
        yield "no CA of its own ca.crt has signed it"


class Keeper(StrEnum):
    """Who makes the certificates, by the chart's `certificates.mode`."""

    ALIQUOT = "self"
    CERT_MANAGER = "cert-manager"
    ADMIN = "existing"


def _keeper(cluster: Cluster) -> Keeper:
    """Who does here. Raises NotKnownError."""
    if cluster.workload("aliquot-certs") is not None:
        return Keeper.ALIQUOT
    configuration = cluster.webhooks.get()
    injected = configuration is not None and INJECTED in configuration.metadata.annotations
    return Keeper.CERT_MANAGER if injected else Keeper.ADMIN


def _remedy(cluster: Cluster, remedies: Mapping[Keeper, str]) -> str:
    """The one for whoever keeps the certificates here; all of them where that is not known."""
    try:
        return remedies[_keeper(cluster)]
    except NotKnownError:
        return " ".join(f"With certificates.mode={keeper}: {text}" for keeper, text in remedies.items())


def _renew(cluster: Cluster, label: str) -> str:
    """How a certificate is made anew."""
    return _remedy(
        cluster,
        {
            Keeper.ALIQUOT: f"{_restart(cluster)}, and see its log.",
            Keeper.CERT_MANAGER: _described(cluster, label),
            Keeper.ADMIN: "make it anew (docs/chart.md, Certificates).",
        },
    )


def _restart(cluster: Cluster) -> str:
    return f"kubectl -n {cluster.namespace} rollout restart deployment/aliquot-certs"


def _described(cluster: Cluster, label: str) -> str:
    certificate = label.removesuffix("-tls")
    return f"cert-manager makes it; why it has not: kubectl -n {cluster.namespace} describe certificate {certificate}"


def _make(cluster: Cluster, label: str) -> str:
    """How a Secret comes back that is not there."""
    log = f"kubectl -n {cluster.namespace} logs deployment/aliquot-certs"
    if any(right.when == "heals" for right in cluster.rights):
        ours = f"aliquot-certs makes it anew within a minute. If it does not, see why: {log}"
    else:
        ours = f"{UPGRADE} makes {label} anew, and aliquot-certs fills it within a minute ({log})."
    return _remedy(
        cluster,
        {
            Keeper.ALIQUOT: ours,
            Keeper.CERT_MANAGER: _described(cluster, label),
            Keeper.ADMIN: "make it anew (docs/chart.md, Certificates).",
        },
    )


def _day(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%d")


def _names(leaf: x509.Certificate, host: str) -> bool:
    try:
        named = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return alternative(host) in list(named)


def _for_clients(leaf: x509.Certificate) -> bool:
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


def _fits(secret: Secret, leaf: x509.Certificate) -> bool:
    try:
        key = serialization.load_pem_private_key(secret.bytes_of(KEY), password=None)
    except (ValueError, TypeError):
        return False
    return key.public_key() == leaf.public_key()


def _signed_by(leaf: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    for one in authorities:
        try:
            leaf.verify_directly_issued_by(one)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _bundle(cluster: Cluster) -> Iterator[Told]:
    """The CA by which the API server knows the webhook."""
    configuration = cluster.webhooks.get()
    if configuration is None or cluster.workload("aliquot-webhook") is None:
        return
    secret = cluster.secret("aliquot-webhook-tls")
    leaf = next(iter(certificates_in(secret.bytes_of(CERT))), None) if secret else None
    wrong: dict[str, str] = {}
    for one in configuration.webhooks:
        trusted = certificates_in(_decoded(one.client_config.ca_bundle))
        if not trusted:
            wrong[one.name] = "has no caBundle"
        elif leaf and not _signed_by(leaf, trusted):
            wrong[one.name] = "has the caBundle of another CA"
        elif all(each.not_valid_after_utc <= cluster.now for each in trusted):
            wrong[one.name] = "has a caBundle that has ended"
    if wrong:
        reasons = some(set(wrong.values()))
        yield failure(
            f"the API server does not trust the webhook: {some(wrong)} {reasons}. Pods with slices are refused.",
            _remedy(
                cluster,
                {
                    Keeper.ALIQUOT: f"{_restart(cluster)} writes it anew.",
                    Keeper.CERT_MANAGER: "cert-manager's cainjector writes it: see that it runs, and its log.",
                    Keeper.ADMIN: f"{UPGRADE} --set-file certificates.caBundle=ca.crt",
                },
            ),
            sorted(wrong),
        )
    elif leaf:
        yield ok("the webhooks' caBundle is the CA of aliquot-webhook-tls")


def _unread_authority(cluster: Cluster) -> Iterator[Told]:
    """kube-schedulers that run since before a CA was made: they read `ca.crt` once.

    With two replicas the extender has the kubelet start them anew; with one the admin has to.
    """
    secret = cluster.secret("aliquot-scheduler-tls")
    trusted = certificates_in(secret.bytes_of(TRUSTED)) if secret else []
    newest = max((one.not_valid_before_utc for one in trusted), default=None)
    old = [
        pod.metadata.name
        for pod in cluster.own_pods.get()
        for status in pod.status.container_statuses
        if status.name == "kube-scheduler"
        and (started := status.state.get("running", {}).get("startedAt"))
        and newest
        and dt.datetime.fromisoformat(started) < newest
    ]
    if old:
        yield warning(
            f"kube-scheduler in {some(old)} was started before the newest CA of aliquot-scheduler-tls was made. With a "
            "certificate of that CA it will not trust the extender, and schedule no pod with a slice.",
            f"kubectl -n {cluster.namespace} rollout restart deployment/aliquot-scheduler: kube-scheduler reads the "
            "CAs once, when it starts.",
            old,
        )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def rights(cluster: Cluster) -> Iterator[Told]:
    """Each account has what it needs; what it may do beside is not looked at."""
    missing: dict[str, list[str]] = defaultdict(list)
    unknown = set[str]()
    for right, fact in cluster.rights.items():
        try:
            if not fact.get():
                missing[right.account].append(str(right))
        except NotKnownError as error:
            unknown.add(str(error))
    for account, lacking in sorted(missing.items()):
        yield failure(
            f"{account} may not {some(lacking)}.",
            f"{UPGRADE}, which writes the chart's roles and bindings anew.",
            sorted(lacking),
        )
    for why in sorted(unknown):
        yield not_checked(why)
    if not missing and not unknown and cluster.rights:
        accounts = {right.account for right in cluster.rights}
        yield ok(f"{count(len(accounts), 'account')} have all {len(cluster.rights)} rights that they need")
