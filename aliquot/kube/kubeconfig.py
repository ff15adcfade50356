"""Where the API server is and how to be let in, as the account of our pod or a kubeconfig says.

What files say is read here. Where a program is to be asked for credentials, or KUBECONFIG names several files, the
official client does it (plugins.py), which no other service has to import: it costs a fifth of a second and 18 MiB.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from aliquot.kube.access import Access, AccessError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    exec: Any = None
    auth_provider: Any = None

    def asks_a_program(self) -> bool:
        return bool(self.auth_provider or (self.exec and not self.token and not self.token_file))


class _Context(msgspec.Struct):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster]
    contexts: list[_NamedContext]
    users: list[_NamedUser] | None = None
    current_context: str = ""


def load_access(
    kubeconfig: Path | str | None = None,
    context: str | None = None,
    *,
    account: Path = _ACCOUNT,
    environment: Mapping[str, str] = os.environ,
) -> Access:
    """Read how to reach the cluster: this kubeconfig, or without one the pod's account, or ~/.kube/config.

    Raises:
        AccessError: there is no configuration, or it cannot be read.
    """
    try:
        if kubeconfig is None and (access := _of_pod(account, environment)):
            return access
        paths = str(kubeconfig or environment.get("KUBECONFIG") or "~/.kube/config")
        return _of_kubeconfig(paths, context)
    except (msgspec.MsgspecError, OSError, ValueError, TypeError, AttributeError) as error:
        raise AccessError(
            f"no access to a cluster ({kubeconfig or 'pod or default kubeconfig'}): {error}"
        ) from error


def _of_pod(account: Path, environment: Mapping[str, str]) -> Access | None:
    """The service account of the pod we run in, if we run in one that has one."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{word}") for word in ("HOST", "PORT"))
    authority, token, namespace = (account / name for name in ("ca.crt", "token", "namespace"))
    if not host or not port or not authority.is_file() or not token.is_file():
        return None
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=ssl.create_default_context(cafile=authority),
        authorize=partial(_bearer, token),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def _of_kubeconfig(paths: str, context: str | None) -> Access:
    """What a context of a kubeconfig says, by default its current one."""
    file = Path(paths).expanduser()
    config = None
    if os.pathsep not in paths:
        config = msgspec.convert(_read_yaml(file), _Kubeconfig)
        chosen = _named(config.contexts, context or config.current_context, "context").context
        user = (_named(config.users or [], chosen.user, "user").user if chosen.user else None) or _User()
    if config is None or user.asks_a_program():
        from aliquot.kube.plugins import load_with_plugins

        return load_with_plugins(paths, context)
    cluster = _named(config.clusters, chosen.cluster, "cluster").cluster
    return Access(
        server=cluster.server.rstrip("/"),
        tls=_tls(cluster, user, file.parent) if cluster.server.startswith("https://") else None,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
        authorize=_authorize(user, file.parent),
        namespace=chosen.namespace or "default",
    )


def _read_yaml(file: Path) -> Any:
    """A file's content; OSError or ValueError when it cannot be read. In pods nobody has to import what reads it."""
    import yaml

    try:
        return yaml.safe_load(file.read_bytes())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _named(things: list[Any], name: str, kind: str) -> Any:
    """The one thing of that name."""
    found = [thing for thing in things if thing.name == name]
    if len(found) != 1:
        raise ValueError(f"it has {len(found)} {kind}s of the name {name!r}")
    return found[0]


def _tls(cluster: _Cluster, user: _User, base: Path) -> ssl.SSLContext:
    """Trust what the cluster's entry trusts, and carry the user's certificate; what lies in files lies beside ours."""
    authority = cluster.certificate_authority_data.decode()
    file = base / cluster.certificate_authority if cluster.certificate_authority and not authority else None
    context = ssl.create_default_context(cafile=file, cadata=authority or None)
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.client_certificate or user.client_certificate_data:
        with tempfile.TemporaryDirectory() as directory:
            certificate = base / user.client_certificate
            key = base / user.client_key
            if user.client_certificate_data:
                certificate = Path(directory, "certificate")
                certificate.write_bytes(user.client_certificate_data)
            if user.client_key_data:
                key = Path(directory, "key")
                key.write_bytes(user.client_key_data)
            context.load_cert_chain(certificate, key)
    return context


def _authorize(user: _User, base: Path) -> Callable[[], str | None] | None:
    """What returns the Authorization header of now."""
    if user.token_file:
        return partial(_bearer, base / user.token_file)
    header = None
    if user.token:
        header = f"Bearer {user.token}"
    elif user.username:
        pair = f"{user.username}:{user.password}".encode()
        header = f"Basic {base64.b64encode(pair).decode()}"
    return (lambda: header) if header else None


def _bearer(file: Path) -> str:
    token = file.read_text().strip()
    if not token:
        raise ValueError(f"{file} is empty")
    return f"Bearer {token}"
