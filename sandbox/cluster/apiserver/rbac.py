"""Who may do what, by the RBAC objects in the store: for SubjectAccessReviews, and for requests of service accounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.objects import namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.apiserver.accounts import User
    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.objects import Obj

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"


@dataclass(frozen=True)
class Ask:
    """What somebody wants: a verb on a resource (`pods/log` in a subresource's case), or on a path."""

    verb: str
    resource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @classmethod
    def of_review(cls, spec: Obj) -> Ask:
        """What a SubjectAccessReview asks for; 422."""
        on_path, on_resource = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
        if (on_path is None) == (on_resource is None):
            why = "must specify exactly one of resourceAttributes and nonResourceAttributes"
            raise errors.invalid("SubjectAccessReview", "", [f"spec: Invalid value: {why}"])
        if on_path is not None:
            return cls(on_path.get("verb", ""), path=on_path.get("path", ""))
        found = on_resource or {}
        sub = found.get("subresource", "")
        resource = f"{found.get('resource', '')}/{sub}" if sub else found.get("resource", "")
        return cls(
            found.get("verb", ""),
            resource,
            found.get("group", ""),
            found.get("namespace", ""),
            found.get("name", ""),
        )

    def allowed_by(self, rule: Obj) -> bool:
        """Whether a rule covers it."""
        if not _covers(rule.get("verbs"), self.verb):
            return False
        if self.path:
            return any(_path_matches(url, self.path) for url in rule.get("nonResourceURLs") or ())
        names = rule.get("resourceNames") or ()
        return (
            _covers(rule.get("apiGroups"), self.group)
            and (_covers(rule.get("resources"), self.resource) or _subresource(rule, self.resource))
            and (not names or self.name in names)
        )


class Authorizer:
    """Reads roles and bindings anew each time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, user: User, ask: Ask) -> str:
        """Why it is allowed; empty where it is not."""
        if MASTERS in user.groups:
            return f"{MASTERS} may do everything"
        for binding, rules in self._rules(ask.namespace):
            if any(_is_subject(one, user, binding) for one in binding.get("subjects") or ()) and any(
                ask.allowed_by(rule) for rule in rules
            ):
                return f'RBAC: allowed by {binding["kind"]} "{binding["metadata"]["name"]}"'
        return ""

    def review(self, asked: Obj, user: User) -> Obj:
        """A SubjectAccessReview with its status."""
        why = self.allows(user, Ask.of_review(asked.get("spec") or {}))
        status: Obj = {"allowed": bool(why)} | ({"reason": why} if why else {})
        return {**asked, "metadata": asked.get("metadata") or {}, "status": status}

    def _rules(self, namespace: str) -> Iterator[tuple[Obj, list[Obj]]]:
        for binding in self._store.list(f"clusterrolebindings.{GROUP}"):
            yield binding, self._role(binding, "")
        for binding in self._store.list(f"rolebindings.{GROUP}", namespace) if namespace else ():
            yield binding, self._role(binding, namespace)

    def _role(self, binding: Obj, namespace: str) -> list[Obj]:
        ref = binding["roleRef"]
        kind, inside = ("clusterroles", "") if ref["kind"] == "ClusterRole" else ("roles", namespace)
        role = self._store.get(f"{kind}.{GROUP}", inside, ref["name"]) or {}
        return list(role.get("rules") or ())


def _covers(listed: list[str] | None, word: str) -> bool:
    return word in (listed or ()) or "*" in (listed or ())


def _subresource(rule: Obj, resource: str) -> bool:
    """Whether a rule names this subresource of everything (`*/status`)."""
    _, _, sub = resource.partition("/")
    return bool(sub) and f"*/{sub}" in (rule.get("resources") or ())


def _path_matches(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))


def _is_subject(subject: Obj, user: User, binding: Obj) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.username)
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            namespace = subject.get("namespace") or namespace_of(binding)
            return bool(user.username == f"system:serviceaccount:{namespace}:{subject['name']}")
    return False
