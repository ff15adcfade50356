"""Kinds of objects, each with its place in the API."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from aliquot.kube.objects import KubeObject, Lease, Node, Pod

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of object: group, version and plural as in its URL, and the struct it is read into."""

    group: str
    version: str
    plural: str
    type: type[T]
    namespaced: bool = True

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, or of a collection (all namespaces where none is given)."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [self.plural, name, subresource]
        return "/" + "/".join(quote(part, safe="") for part in parts if part)


PODS: Final = Resource("", "v1", "pods", Pod)
NODES: Final = Resource("", "v1", "nodes", Node, namespaced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", Lease)
