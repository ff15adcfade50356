"""Tokens, reviews and RBAC of the pocket API server, with the real one's answers."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster

Document = dict[str, Any]
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server with an account, which may read /metrics and the pods of one namespace."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        cluster.start_apiserver()
        account = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}
        cluster.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "prometheus", "namespace": "default"},
            }
        )
        grant(
            cluster, "ClusterRole", "metrics", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}], account
        )
        pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
        grant(cluster, "Role", "pods", [pods], account)
        yield cluster


def grant(
    cluster: PocketCluster,
    kind: str,
    name: str,
    rules: list[Document],
    subject: Document,
) -> None:
    """A role and its binding."""
    meta = {"name": name} | ({"namespace": "default"} if kind == "Role" else {})
    api = f"{RBAC}/v1"
    cluster.kubectl.apply({"apiVersion": api, "kind": kind, "metadata": meta, "rules": rules})
    ref = {"apiGroup": RBAC, "kind": kind, "name": name}
    binding = {"apiVersion": api, "kind": f"{kind}Binding", "metadata": meta, "roleRef": ref}
    cluster.kubectl.apply({**binding, "subjects": [subject]})


def token(cluster: PocketCluster, *audiences: str, account: str = "prometheus") -> str:
    """A token of the account."""
    spec: Document = {"audiences": list(audiences)} if audiences else {}
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    answer = cluster.kubectl.request("POST", path, {"kind": "TokenRequest", "spec": spec})
    return str(answer["status"]["token"])


def review(cluster: PocketCluster, text: str, *audiences: str) -> Document:
    """What the API server says of a token."""
    spec: Document = {"token": text} | ({"audiences": list(audiences)} if audiences else {})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    status: Document = cluster.kubectl.request("POST", TOKEN_REVIEWS, body)["status"]
    return status


def allowed(cluster: PocketCluster, status: Document, **what: Document) -> bool:
    """Whether the owner of a reviewed token may do something."""
    user = status["user"]
    spec = {"user": user["username"], "groups": user["groups"], **what}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = cluster.kubectl.request("POST", ACCESS_REVIEWS, body)["status"]
    return bool(answer["allowed"])


def test_a_token_is_its_accounts(cluster: PocketCluster):
    """Name, UID and groups as of the real one."""
    status = review(cluster, token(cluster))
    assert status["authenticated"]
    assert status["user"]["username"] == "system:serviceaccount:default:prometheus"
    assert "system:serviceaccounts:default" in status["user"]["groups"]
    assert status["user"]["uid"]


def test_a_token_is_for_its_audience_alone(cluster: PocketCluster):
    """One for somebody else is nobody's to the API server, and the other way round."""
    ours, plain = token(cluster, "aliquot"), token(cluster)
    assert review(cluster, ours, "aliquot", "other")["audiences"] == ["aliquot"]
    assert "authenticated" not in review(cluster, ours)
    assert "authenticated" not in review(cluster, plain, "aliquot")


@pytest.mark.parametrize("text", ["nonsense", "a.b.c", "eyJh.e30.AAAA"])
def test_what_is_no_token_is_nobodys(cluster: PocketCluster, text: str):
    """Also where it looks like one."""
    assert "authenticated" not in review(cluster, text)


def test_a_token_that_was_tampered_with_is_nobodys(cluster: PocketCluster):
    """The signature covers the claims."""
    head, body, signature = token(cluster).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["sub"] = "system:serviceaccount:kube-system:admin"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert "authenticated" not in review(cluster, f"{head}.{forged}.{signature}")


def test_reviews_follow_rbac(cluster: PocketCluster):
    """Paths by ClusterRoles, pods of the one namespace by its Role."""
    status = review(cluster, token(cluster))
    assert allowed(cluster, status, nonResourceAttributes={"path": "/metrics", "verb": "get"})
    assert not allowed(cluster, status, nonResourceAttributes={"path": "/metrics", "verb": "post"})
    assert not allowed(cluster, status, nonResourceAttributes={"path": "/why", "verb": "get"})
    pods = {"resource": "pods", "verb": "list"}
    assert allowed(cluster, status, resourceAttributes={**pods, "namespace": "default"})
    assert not allowed(cluster, status, resourceAttributes={**pods, "namespace": "kube-system"})
    assert not allowed(cluster, status, resourceAttributes=pods)


def test_requests_with_a_token_are_held_to_rbac(cluster: PocketCluster):
    """403 in the real one's words for what no role allows, 401 for a token of another audience."""
    server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    pool = urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False)

    def ask(path: str, bearer: str) -> urllib3.BaseHTTPResponse:
        return pool.request("GET", server + path, headers={"Authorization": f"Bearer {bearer}"})

    mine = token(cluster)
    assert ask("/api/v1/namespaces/default/pods", mine).status == 200
    refused = ask("/api/v1/namespaces/default/secrets/x", mine)
    assert refused.status == 403
    assert refused.json()["message"] == (
        'secrets "x" is forbidden: User "system:serviceaccount:default:prometheus" cannot get resource "secrets"'
        ' in API group "" in the namespace "default"'
    )
    assert ask("/api/v1/namespaces/default/pods", token(cluster, "aliquot")).status == 401


def test_a_token_dies_with_its_account(cluster: PocketCluster):
    """Also where one of the same name comes after it."""
    meta = {"name": "brief", "namespace": "default"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    cluster.kubectl.apply(account)
    old = token(cluster, account="brief")
    assert review(cluster, old)["authenticated"]
    cluster.kubectl.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/brief")
    cluster.kubectl.apply(account)
    assert "authenticated" not in review(cluster, old)
