"""The kinds the API server serves: built-in ones, and those that CustomResourceDefinitions add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.objects import Obj


@dataclass(frozen=True)
class Resource:
    """One served resource. `schema` is a CRD's OpenAPI schema; built-in kinds have none."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    short_names: tuple[str, ...] = ()
    custom: bool = False
    schema: Obj | None = None

    @property
    def key(self) -> str:
        """Qualified plural, for errors and the store: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version


BUILT_IN = (
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, status=True, short_names=("ns",)),
    Resource("", "v1", "nodes", "Node", namespaced=False, status=True, short_names=("no",)),
    Resource("", "v1", "pods", "Pod", status=True, short_names=("po",)),
    Resource("", "v1", "events", "Event", short_names=("ev",)),
    Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "resourcequotas", "ResourceQuota", status=True, short_names=("quota",)),
    Resource("", "v1", "services", "Service", status=True, short_names=("svc",)),
    Resource("", "v1", "endpoints", "Endpoints", short_names=("ep",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",)),
    Resource(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", status=True, short_names=("pdb",)
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        namespaced=False,
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        status=True,
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
    ),
    Resource("apps", "v1", "deployments", "Deployment", status=True, short_names=("deploy",)),
    Resource("apps", "v1", "daemonsets", "DaemonSet", status=True, short_names=("ds",)),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        status=True,
        short_names=("crd",),
    ),
)


class Registry:
    """Looks resources up by the path they are served under."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        for resource in BUILT_IN:
            self._serve(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def find(self, group: str, version: str, plural: str) -> Resource:
        """The resource under a path; StatusError 404 when nothing serves it, UnservedPathError without its group."""
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise self.nothing_at(group) from None

    def nothing_at(self, group: str) -> Exception:
        """The error for a path that begins with this group and leads nowhere."""
        served = any(resource.group == group for resource in self)
        return errors.path_not_found() if served else errors.UnservedPathError()

    def core(self, plural: str) -> Resource:
        """A resource of the core group, known to exist."""
        return self._served["", "v1", plural]

    def add_definition(self, definition: Obj) -> None:
        """Serve (or serve anew) what a CustomResourceDefinition describes."""
        self.remove_definition(definition)
        for resource in _described(definition):
            self._serve(resource)

    def remove_definition(self, definition: Obj) -> None:
        """Stop serving a CustomResourceDefinition's resources."""
        spec = definition["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        for key in [key for key in self._served if key[0] == group and key[2] == plural]:
            del self._served[key]

    def _serve(self, resource: Resource) -> None:
        self._served[resource.group, resource.version, resource.plural] = resource


def _described(definition: Obj) -> Iterator[Resource]:
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        yield Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec.get("scope") == "Namespaced",
            status="status" in version.get("subresources", {}),
            short_names=tuple(names.get("shortNames", ())),
            custom=True,
            schema=version.get("schema", {}).get("openAPIV3Schema"),
        )
