"""Where the API server is and how to be let in, as `kubernetes.config` reads it from kubeconfig or the pod.

Only the configuration of that library is used: its typed models cost 100 MiB and drop fields they do not
know. Tokens expire (service accounts hourly, exec plugins at will), so they are asked for again every half
minute, in a thread, because an exec plugin is a subprocess.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes import config as kube_config
from kubernetes.client import Configuration
from kubernetes.config import ConfigException

_TOKEN_SECONDS: Final = 30.0


class AccessError(Exception):
    """There is no usable way to an API server; the message says what was tried."""


@dataclass
class Access:
    """One API server: its URL without a trailing slash, TLS, and a source of authorization headers."""

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    configuration: Any = None
    _header: str | None = field(default=None, init=False)
    _fresh_until: float = field(default=0.0, init=False)

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request; empty with client certificates.

        Raises:
            AccessError: there is no token to be had now: the file is being replaced, or a plugin failed.
        """
        if self.configuration is not None and time.monotonic() >= self._fresh_until:
            try:
                self._header = await asyncio.to_thread(_authorization, self.configuration)
            except (ConfigException, OSError, ValueError) as error:
                raise AccessError(f"no credentials: {error}") from error
            self._fresh_until = time.monotonic() + _TOKEN_SECONDS
        return {"Authorization": self._header} if self._header else {}

    def forget_token(self) -> None:
        """Read the credentials again at the next request: the server refused these."""
        self._fresh_until = 0.0


def load_access(kubeconfig: Path | str | None = None, context: str | None = None) -> Access:
    """Read how to reach the cluster: this kubeconfig, or without one the pod's account, or ~/.kube/config.

    Raises:
        AccessError: there is no configuration, or it cannot be read.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and _in_cluster(configuration):
            return _access(configuration)
        path = None if kubeconfig is None else str(kubeconfig)
        kube_config.load_kube_config(
            config_file=path, context=context, client_configuration=configuration, persist_config=False
        )
        return _access(configuration)
    except (ConfigException, OSError, yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        raise AccessError(
            f"no access to a cluster ({kubeconfig or 'pod or default kubeconfig'}): {error}"
        ) from error


def _in_cluster(configuration: Any) -> bool:
    """Use the service account of the pod we run in, if we run in one."""
    try:
        kube_config.load_incluster_config(client_configuration=configuration)
    except ConfigException:
        return False
    return True


def _access(configuration: Any) -> Access:
    return Access(
        server=str(configuration.host).rstrip("/"),
        tls=_tls(configuration) if str(configuration.host).startswith("https://") else None,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        configuration=configuration,
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    """Trust what the configuration trusts, and carry its client certificate."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _authorization(configuration: Any) -> str | None:
    """Return the Authorization header, refreshed by the library's hook where it has one."""
    for key in ("BearerToken", "authorization"):
        token: str | None = configuration.get_api_key_with_prefix(key)
        if token:
            return token
    if configuration.username:
        basic: str = configuration.get_basic_auth_token()
        return basic
    return None
