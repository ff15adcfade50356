"""Feeds the groups from the cluster: the PodGroups of all conventions, where their kinds are known."""

import asyncio

from aliquot.api.pod_groups import GroupKey
from aliquot.kube.api import Api
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import Resource
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.gang.pod_groups import RESOURCES, UNSAID, PodGroup


class GangInformer:
    """Keeps what PodGroups say in step with the cluster while `run()` runs."""

    def __init__(self, api: Api, gangs: Gangs) -> None:
        self._api = api
        self._gangs = gangs
        self._kinds = [self._reflector(resource) for resource in RESOURCES]

    def missing(self) -> str:
        """Nothing: members of a group that has not been read wait."""
        return ""

    async def read(self) -> None:
        """Return once all kinds are read or known not to be there."""
        for kind in self._kinds:
            await kind.answered.wait()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                group.create_task(kind.run())

    def _reflector(self, resource: Resource[PodGroup]) -> Reflector[PodGroup]:
        def key(group: PodGroup) -> GroupKey:
            return GroupKey(group.metadata.namespace, group.metadata.name, resource.group)

        return Reflector(
            self._api,
            resource,
            on_add=lambda new: self._gangs.put_terms(key(new), new.terms),
            on_update=lambda _, new: self._gangs.put_terms(key(new), new.terms),
            on_delete=lambda old: self._gangs.put_terms(key(old), UNSAID),
            optional=True,
        )
