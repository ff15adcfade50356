"""Who may call a cluster: kubeconfigs, and the tokens of service accounts."""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.objects import Obj

TOKEN_S: Final = 7200
NOT_YET: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""What the API server answers about a resource that was defined a moment ago."""


class Cluster(Protocol):
    """What a test needs of any cluster, one that was made for it or one that somebody has."""

    kubeconfig: Path
    """Of whoever may do everything."""
    kubectl: Kubectl
    """A client with it."""

    def user(self, name: str, *groups: str) -> Path:
        """A kubeconfig of any user in any groups."""

    def service_account(self, namespace: str, name: str, *, pod: str = "", node: str = "") -> Path:
        """A kubeconfig of a ServiceAccount that exists, bound to a pod or a node that exists."""

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """See to it that a namespace is there, and its default account."""


def token(kubectl: Kubectl, namespace: str, name: str, pod: str = "", node: str = "") -> str:
    """A token of a ServiceAccount that exists, by TokenRequest.

    One that is bound to a pod ends with it and names it and its node in the user's `extra`
    (`authentication.kubernetes.io/node-name`); one that is bound to a node names that.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"spec": {"expirationSeconds": TOKEN_S, **_bound(kubectl, namespace, pod, node)}}
    return str(kubectl.request("POST", path, body)["status"]["token"])


def write_kubeconfig(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Path:
    """A kubeconfig of one cluster and one user, which nobody else can read."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": dict(cluster)}],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.touch(0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def _bound(kubectl: Kubectl, namespace: str, pod: str, node: str) -> dict[str, Any]:
    if not pod and not node:
        return {}
    kind, resource, name = ("Pod", "pods", pod) if pod else ("Node", "nodes", node)
    uid = kubectl.get(resource, name, namespace if pod else "")["metadata"]["uid"]
    return {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}


def is_served(kubectl: Kubectl, defined: Obj) -> bool:
    """Whether the API server serves and tells of what a CustomResourceDefinition's spec defines."""
    group, plural = defined["group"], defined["names"]["plural"]
    root = f"/apis/{group}/{defined['versions'][0]['name']}"
    try:
        kubectl.request("GET", f"{root}/{plural}", query={"limit": "1"})
        told = kubectl.request("GET", root)["resources"]
        groups = kubectl.request("GET", "/apis")["groups"]
    except ApiError as error:
        if error.status not in NOT_YET:
            raise
        return False
    return plural in {one["name"] for one in told} and group in {one["name"] for one in groups}
