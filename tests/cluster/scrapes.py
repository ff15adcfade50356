"""Reads the agent's metrics over HTTPS, with the token of an account."""

from pathlib import Path

import urllib3
import yaml

from tests.cluster.release import NAMESPACE


def scrape(host: str, port: int, ca: Path, kubeconfig: Path | None) -> urllib3.BaseHTTPResponse:
    """The agent's answer; the token is that of a kubeconfig, if any."""
    headers = {}
    if kubeconfig:
        (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
        headers["Authorization"] = f"Bearer {user['user']['token']}"
    name = f"aliquot-agent.{NAMESPACE}.svc"
    pool = urllib3.HTTPSConnectionPool(
        host, port, ca_certs=str(ca), server_hostname=name, assert_hostname=name, retries=False
    )
    return pool.request("GET", "/metrics", headers=headers)
