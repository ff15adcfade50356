"""Feeds the quotas from the cluster: GPUQuotas and ResourceQuotas."""

import asyncio

from aliquot.crds.gpu_quota import GPUQuota, ResourceQuota
from aliquot.crds.resources import GPU_QUOTAS, RESOURCE_QUOTAS
from aliquot.kube.api import Api
from aliquot.kube.reflector import Reflector
from aliquot.scheduler_ext.quota.quotas import Quotas


class QuotaInformer:
    """Keeps the quotas in step with the cluster while `run()` runs.

    An API server without GPUQuotas (their CRD is not applied) has none; one that has not answered may have some.
    """

    def __init__(self, api: Api, quotas: Quotas, pools: asyncio.Event) -> None:
        """Read nothing yet.

        Args:
            api: The cluster.
            quotas: Where to put them.
            pools: Set once it is known which pools there are.
        """
        self._quotas = quotas
        self._pools = pools
        self._ours = Reflector(
            api, GPU_QUOTAS, on_add=quotas.put, on_update=self._changed, on_delete=self._dropped
        )
        self._native = Reflector(
            api,
            RESOURCE_QUOTAS,
            on_add=quotas.put_native,
            on_update=self._native_changed,
            on_delete=self._native_dropped,
        )
        quotas.read.clear()

    def missing(self) -> str:
        """What has not been read once yet, in words; before that a limit could be passed."""
        return "" if self._quotas.read.is_set() else "quotas not read yet"

    async def read(self) -> None:
        """Return once nothing is missing."""
        await self._quotas.read.wait()

    async def run(self) -> None:
        """Follow the quotas until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ours.run())
            group.create_task(self._native.run())
            await self.settle()

    async def settle(self) -> None:
        """Wait for what a limit depends on: the quotas, and the pools if a quota is one of a pool's cards."""
        for reflector in (self._ours, self._native):
            await reflector.answered.wait()
        if self._quotas.count_pools:
            await self._pools.wait()
        self._quotas.read.set()

    def _changed(self, old: GPUQuota, new: GPUQuota) -> None:
        self._quotas.put(new, same=old.spec == new.spec)

    def _dropped(self, quota: GPUQuota) -> None:
        self._quotas.drop(quota.metadata.name)

    def _native_changed(self, old: ResourceQuota, new: ResourceQuota) -> None:
        if old.spec != new.spec:
            self._quotas.put_native(new)

    def _native_dropped(self, quota: ResourceQuota) -> None:
        self._quotas.drop_native(quota.metadata.namespace, quota.metadata.name)
