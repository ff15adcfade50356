"""A kubeconfig as the official client reads it: with plugins that are asked for credentials, and from several files.

Only the configuration of that library is used: its typed models cost 100 MiB and drop fields they do not know.
"""

import ssl
from functools import partial
from typing import Any

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config

from aliquot.kube.access import Access


def load_with_plugins(paths: str, context: str | None) -> Access:
    """Read these kubeconfigs, and ask their plugins.

    Raises:
        ValueError: there is no such configuration.
    """
    # Proxies that the environment names are found by who makes the connection, which heeds NO_PROXY as well.
    configuration = Configuration(proxy="")
    try:
        load_kube_config(paths, context, configuration, persist_config=False)
        contexts, current = list_kube_config_contexts(paths)
    except ConfigException as error:
        raise ValueError(str(error)) from error
    chosen = next((one for one in contexts if one["name"] == context), current)
    server = str(configuration.host).rstrip("/")
    return Access(
        server=server,
        tls=_tls(configuration) if server.startswith("https://") else None,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        authorize=partial(_authorization, configuration),
        namespace=chosen["context"].get("namespace") or "default",
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
    try:
        token: str | None = configuration.get_api_key_with_prefix("BearerToken")
    except ConfigException as error:
        raise ValueError(str(error)) from error
    return token
