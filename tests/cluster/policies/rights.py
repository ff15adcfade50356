"""What an account may do, asked of the API server: of all verbs on all resources that it serves.

    python -m tests.cluster.policies.rights > tests/data/rights.yaml     writes down how it is

The API server says which rules hold for an account (SelfSubjectRulesReview); what these may allow, here and in other
namespaces, is asked one by one (SubjectAccessReview), and so are some of the thousands of other things, at random. What
every account of a cluster may do anyway is left out.
"""

import os
import random
import sys
import time
from collections.abc import Iterator, Mapping

import yaml

from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.access import Cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.helm import HelmRelease
from tests.cluster.policies.manifests import SYSTEM

ACCOUNTS = ("aliquot-agent", "aliquot-asker", "aliquot-certs", "aliquot-scheduler", "aliquot-webhook")
NOBODY = "nobody-in-particular"
EVERYWHERE = ""
SCOPES = (EVERYWHERE, SYSTEM, "kube-system")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
SPECIAL = (
    ("", "users", "impersonate"),
    ("", "groups", "impersonate"),
    ("", "serviceaccounts", "impersonate"),
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    ("rbac.authorization.k8s.io", "roles", "bind"),
    ("rbac.authorization.k8s.io", "roles", "escalate"),
    ("certificates.k8s.io", "signers", "approve"),
    ("certificates.k8s.io", "signers", "sign"),
)
UNSERVED = tuple(
    (f"scheduling.{domain}", "podgroups", verb) for domain in ("x-k8s.io", "volcano.sh") for verb in VERBS
)
"""What our accounts may be given although this cluster has no such resource."""
URLS = ("/metrics", "/why", "/defragment", "/debug/pprof", "/healthz", "/openapi/v3", "/logs")

OTHERS = 100
"""So many of the things that no rule of an account allows are asked for all the same."""

Question = tuple[str, str, str, str]
"""Group, resource, name and verb."""


class Rights:
    """Asks an API server about accounts; `names`, by resource, are asked for each by itself, too."""

    def __init__(self, cluster: Cluster, names: Mapping[str, set[str]], seed: int) -> None:
        self._cluster = cluster
        self._admin = cluster.kubectl
        self._dice = random.Random(seed)
        served = list(self._served())
        self._all = [(group, name, "", verb) for group, name in served for verb in VERBS]
        self._all += [(group, name, "", verb) for group, name, verb in (*SPECIAL, *UNSERVED)]
        self._all += [
            (group, name, one, verb)
            for group, name in served
            for one in names.get(name, ())
            for verb in VERBS
        ]
        self._anyway = {scope: self._allowed(NOBODY, scope) for scope in SCOPES}

    def of(self, account: str) -> dict[str, dict[str, list[str]]]:
        """What an account of Aliquot's may do more than any other, by where; nothing is said twice."""
        wide = self._allowed(account, EVERYWHERE) - self._anyway[EVERYWHERE]
        found = {"everywhere": wide}
        for namespace in SCOPES[1:]:
            found[namespace] = self._allowed(account, namespace) - wide - self._anyway[namespace]
        found["URLs"] = {("", url, "", "get") for url in URLS if self._may_get(account, url)}
        return {where: _written(allowed) for where, allowed in found.items() if allowed}

    def may(self, account: str, resource: str, verb: str, namespace: str) -> bool:
        """Whether an account may do one thing to a resource, as kubectl names it, in a namespace."""
        whole, _, part = resource.partition("/")
        name, _, group = whole.partition(".")
        return self._may(account, namespace, (group, f"{name}/{part}" if part else name, "", verb))

    def _allowed(self, account: str, namespace: str) -> set[Question]:
        rules = self._rules(account, namespace or SYSTEM)
        by_rule = {question for question in self._all if any(_matches(rule, question) for rule in rules)}
        others = self._dice.sample([question for question in self._all if question not in by_rule], OTHERS)
        return {question for question in (*by_rule, *others) if self._may(account, namespace, question)}

    def _rules(self, account: str, namespace: str) -> list[Obj]:
        """Those that hold for an account in a namespace, with those that hold everywhere."""
        user = Kubectl(self._cluster.user(*_identity(account)))
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        status = user.request("POST", path, review)["status"]
        assert not status["incomplete"], status
        rules: list[Obj] = status["resourceRules"]
        return rules

    def _may(self, account: str, namespace: str, question: Question) -> bool:
        group, resource, name, verb = question
        resource, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": resource, "subresource": subresource, "name": name}
        attributes |= {"verb": verb, "namespace": namespace}
        return self._ask(account, {"resourceAttributes": attributes})

    def _may_get(self, account: str, url: str) -> bool:
        attributes = {"nonResourceAttributes": {"path": url, "verb": "get"}}
        return self._ask(account, attributes) and not self._ask(NOBODY, attributes)

    def _ask(self, account: str, attributes: Obj) -> bool:
        user, *groups = _identity(account)
        spec = {"user": user, "groups": groups, **attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self._admin.request("POST", path, review)["status"]["allowed"])

    def _served(self) -> Iterator[tuple[str, str]]:
        """Group and name of every resource and subresource."""
        for entry in self._admin.request("GET", "/api/v1")["resources"]:
            yield "", entry["name"]
        for group in self._admin.request("GET", "/apis")["groups"]:
            path = f"/apis/{group['preferredVersion']['groupVersion']}"
            for entry in self._admin.request("GET", path)["resources"]:
                yield group["name"], entry["name"]


def _identity(account: str) -> tuple[str, ...]:
    """The name of an account's user, and its groups."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated")
    return (f"system:serviceaccount:{SYSTEM}:{account}", *groups)


def _matches(rule: Obj, question: Question) -> bool:
    """Whether a rule may allow something; the API server is asked whether it does."""
    group, resource, name, verb = question
    part = f"*/{resource.rpartition('/')[2]}"
    return (
        not {"*", group}.isdisjoint(rule.get("apiGroups", ()))
        and not {"*", resource, part}.isdisjoint(rule.get("resources", ()))
        and not {"*", verb}.isdisjoint(rule["verbs"])
        and name in rule.get("resourceNames", [name])
    )


def _written(allowed: set[Question]) -> dict[str, list[str]]:
    """As people read it: `pods/status: [patch]`, `leases.coordination.k8s.io aliquot-scheduler: [get]`."""
    found: dict[str, list[str]] = {}
    for group, resource, name, verb in sorted(allowed):
        if name and (group, resource, "", verb) in allowed:
            continue
        thing, _, part = resource.partition("/")
        whole = f"{thing}.{group}" if group else thing
        key = " ".join(filter(None, (f"{whole}/{part}" if part else whole, name)))
        found.setdefault(key, []).append(verb)
    return found


def install(cluster: Cluster) -> Rights:
    """The chart's accounts and roles, on a cluster that has nothing else of it. SEED=n asks what a run before did."""
    seed = int(os.environ.get("SEED", str(time.time_ns())))
    print(f"SEED={seed}", file=sys.stderr)
    for namespace in (SYSTEM, "kube-system"):
        cluster.namespace(namespace)
    release = HelmRelease(cluster)
    release.install_idle()
    names: dict[str, set[str]] = {"configmaps": {"extension-apiserver-authentication"}}
    for rule in (rule for one in release.objects() for rule in one.get("rules", ())):
        for resource in rule.get("resources", ()):
            names.setdefault(resource, set()).update(rule.get("resourceNames", ()))
    return Rights(cluster, names, seed)


if __name__ == "__main__":
    with ControlPlane() as plane:
        rights = install(plane)
        written = {account: rights.of(account) for account in ACCOUNTS}
    yaml.safe_dump(written, sys.stdout, default_flow_style=None, width=110)
