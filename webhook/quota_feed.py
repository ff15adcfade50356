"""Follows the GPUQuotas of a cluster, for the webhook."""

from aliquot.crds.gpu_quota import GPUQuota, quota_of
from aliquot.crds.resources import GPU_QUOTAS
from aliquot.kube.api import Api
from aliquot.kube.reflector import Reflector


class QuotaFeed:
    """A copy of all quotas, kept in step while `run()` runs."""

    def __init__(self, api: Api) -> None:
        self._reflector = Reflector(api, GPU_QUOTAS)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        await self._reflector.run()

    def of(self, namespace: str) -> GPUQuota | None:
        """The quota of a namespace, of those that count all cards."""
        return quota_of(self._reflector.store.values(), namespace)

    def missing(self) -> str:
        """What has not been read yet, in words; before that a default might be left out."""
        return "" if self._reflector.answered.is_set() else "gpuquotas not read yet"
