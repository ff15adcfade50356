"""The kinds of objects we read and write, each with its place in the API."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from aliquot.inventory import PLURAL as GPU_NODES_PLURAL
from aliquot.inventory import GPUNode
from aliquot.kube.objects import KubeObject, Lease, Node, Pod
from aliquot.names import API_GROUP, API_VERSION
from aliquot.pool import PLURAL as GPU_POOLS_PLURAL
from aliquot.pool import GPUPool
from aliquot.quota import PLURAL as GPU_QUOTAS_PLURAL
from aliquot.quota import GPUQuota, ResourceQuota

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
GPU_POOLS: Final = Resource(API_GROUP, API_VERSION, GPU_POOLS_PLURAL, GPUPool, namespaced=False)
GPU_QUOTAS: Final = Resource(API_GROUP, API_VERSION, GPU_QUOTAS_PLURAL, GPUQuota, namespaced=False)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", ResourceQuota)
GPU_NODES: Final = Resource(API_GROUP, API_VERSION, GPU_NODES_PLURAL, GPUNode, namespaced=False)
