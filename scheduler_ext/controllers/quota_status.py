"""Writes into every GPUQuota what its namespaces have, for people to read: slowly, and only what has changed."""

import asyncio
import logging
from typing import Any, Protocol

from aliquot.crds.gpu_quota import GPUQuota, Most, QuotaStatus
from aliquot.crds.resources import GPU_QUOTAS
from aliquot.kube.answers import ApiError
from aliquot.kube.resources import Resource
from aliquot.request.amounts import Amounts
from aliquot.scheduler_ext.quota.pool_quotas import Bound
from aliquot.scheduler_ext.quota.quotas import Quotas

_log = logging.getLogger(__name__)

PACE_SECONDS = 5.0


class StatusApi(Protocol):
    """What writing a status needs of the API server; `aliquot.kube.api.Api` has it."""

    async def patch_status(self, resource: Resource[GPUQuota], name: str, status: Any, /) -> GPUQuota:
        """Change a status; ApiError when that fails."""


class QuotaReporter:
    """Keeps the statuses of all GPUQuotas. Nothing reads them here: they are derived, and never a source."""

    def __init__(self, api: StatusApi, quotas: Quotas) -> None:
        self._api = api
        self._quotas = quotas

    async def run(self) -> None:
        """Write until cancelled."""
        await self._quotas.read.wait()
        while True:
            await self.write()
            await asyncio.sleep(PACE_SECONDS)

    async def write(self) -> None:
        """Write every status that is not what it says now."""
        for quota, status in statuses(self._quotas):
            if quota.status == status:
                continue
            try:
                await self._api.patch_status(GPU_QUOTAS, quota.metadata.name, status)
            except ApiError as error:
                _log.info("status of GPUQuota %s is not written: %s", quota.metadata.name, error)


def statuses(quotas: Quotas) -> list[tuple[GPUQuota, QuotaStatus]]:
    """Every GPUQuota, and what its status should be."""
    return [
        (quota, _status(quota, bound, used, quotas.parent_ignored(quota)))
        for quota, bound, used in quotas.ours()
    ]


def _status(quota: GPUQuota, bound: Bound, used: Amounts, parent_ignored: str) -> QuotaStatus:
    return QuotaStatus(
        used=_written(used),
        borrowed=_written((used - bound.guaranteed).positive),
        shadowed=tuple(one for one in quota.spec.namespaces if one not in bound.namespaces),
        parent_ignored=parent_ignored,
    )


def _written(amounts: Amounts) -> Most:
    return Most(memory_mib=amounts.memory_mib, cores=amounts.cores, cards=amounts.cards)
