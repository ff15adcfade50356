"""Client and server certificates of one CA, and accounts that may do something, for tests of who may call."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.server.certs import Authority, new_authority, new_leaf

Document = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Identities:
    """A CA, and what it signs, in files."""

    directory: Path
    authority: Authority

    @classmethod
    def make(cls, directory: Path) -> "Identities":
        """A new CA."""
        directory.mkdir(parents=True, exist_ok=True)
        made = cls(directory, new_authority(DAY))
        made.ca.write_bytes(made.authority.pem)
        return made

    @property
    def ca(self) -> Path:
        """The CA's certificate."""
        return self.directory / "ca.crt"

    def issue(self, common_name: str, *names: str) -> tuple[Path, Path]:
        """Certificate and key of somebody, who is a server of these names, too."""
        leaf = new_leaf(self.authority, common_name, names or ("127.0.0.1",), DAY)
        cert, key = (self.directory / f"{common_name}.{kind}" for kind in ("crt", "key"))
        cert.write_bytes(leaf.pem)
        key.write_bytes(leaf.key_pem)
        return cert, key

    def flags(self, common_name: str) -> list[str]:
        """Flags of a server that serves as this, and lets in clients of the CA."""
        cert, key = self.issue(common_name)
        return ["--tls-cert", str(cert), "--tls-key", str(key), "--client-ca", str(self.ca)]

    def client(self, common_name: str = "") -> urllib3.PoolManager:
        """A client that shows this, or nothing."""
        shown: dict[str, Any] = {}
        if common_name:
            cert, key = self.issue(common_name)
            shown = {"cert_file": str(cert), "key_file": str(key)}
        return urllib3.PoolManager(ca_certs=str(self.ca), retries=False, **shown)


def make_account(cluster: PocketCluster, name: str, namespace: str = "default") -> Document:
    """A service account; returned as a subject of bindings."""
    meta = {"name": name, "namespace": namespace}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    return {"kind": "ServiceAccount", **meta}


def grant(
    cluster: PocketCluster, subject: Document, name: str, *rules: Document, namespace: str = ""
) -> None:
    """A role with these rules and its binding: in a namespace, or (without one) for the cluster."""
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    api = f"{RBAC}/v1"
    cluster.kubectl.apply({"apiVersion": api, "kind": kind, "metadata": meta, "rules": list(rules)})
    ref = {"apiGroup": RBAC, "kind": kind, "name": name}
    binding = {"apiVersion": api, "kind": f"{kind}Binding", "metadata": meta, "roleRef": ref}
    cluster.kubectl.apply({**binding, "subjects": [subject]})


def token_of(cluster: PocketCluster, account: Document, *audiences: str) -> str:
    """A token of an account."""
    spec: Document = {"audiences": list(audiences)} if audiences else {}
    path = f"/api/v1/namespaces/{account['namespace']}/serviceaccounts/{account['name']}/token"
    answer = cluster.kubectl.request("POST", path, {"kind": "TokenRequest", "spec": spec})
    return str(answer["status"]["token"])
