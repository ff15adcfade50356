"""The kinds of our own objects, and of the quotas that we read beside them."""

from typing import Final

from aliquot.api.names import API_GROUP, API_VERSION
from aliquot.crds.gpu_node import PLURAL as GPU_NODES_PLURAL
from aliquot.crds.gpu_node import GPUNode
from aliquot.crds.gpu_pool import PLURAL as GPU_POOLS_PLURAL
from aliquot.crds.gpu_pool import GPUPool
from aliquot.crds.gpu_quota import PLURAL as GPU_QUOTAS_PLURAL
from aliquot.crds.gpu_quota import GPUQuota, ResourceQuota
from aliquot.kube.resources import Resource

GPU_POOLS: Final = Resource(API_GROUP, API_VERSION, GPU_POOLS_PLURAL, GPUPool, namespaced=False)
GPU_QUOTAS: Final = Resource(API_GROUP, API_VERSION, GPU_QUOTAS_PLURAL, GPUQuota, namespaced=False)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", ResourceQuota)
GPU_NODES: Final = Resource(API_GROUP, API_VERSION, GPU_NODES_PLURAL, GPUNode, namespaced=False)
