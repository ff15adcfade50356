"""Reads a cluster's facts, each at most once.

What it takes: about thirty requests, one for each right of our accounts (some eighty), and lists of nodes, GPUNodes and
pods in pages of 500. Time and requests grow with the pods of the cluster, one request for each 500; of these only
the pods that some check looks at are kept, so memory grows with pods that have to do with cards, with nodes, and with
nothing else. At most `most_pods` are looked at, and beyond that the checks of pods say so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from aliquot.api.names import (
    API_GROUP,
    DEFAULT_NAMES,
    PLACEMENT_ANNOTATION,
    SCHEDULER_NAME,
    WEBHOOKS_NAME,
    ResourceNames,
)
from aliquot.crds.resources import GPU_NODES, GPU_POOLS
from aliquot.dialects.projects import HAMI, in_other_domain, speaks
from aliquot.doctor.checks.admission import SECRETS_POLICY
from aliquot.doctor.facts import objects
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster, Pods, holds, names_told
from aliquot.doctor.facts.fact import Fact, NotKnownError
from aliquot.doctor.facts.gpu_software import VISIBLE, is_neighbour
from aliquot.doctor.facts.objects import Workload
from aliquot.doctor.facts.rights import KUBE_SCHEDULER, RIGHTS, Right
from aliquot.doctor.finding import some
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.objects import UNREADABLE, KubeObject, Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.server.cert_rotation import SECRETS

T = TypeVar("T")
F = TypeVar("F")
K = TypeVar("K", bound=KubeObject)

MOST_PODS: Final = 200_000
AT_ONCE: Final = 8
"""Requests under way."""
DEFINITIONS: Final = tuple(f"{plural}.{API_GROUP}" for plural in ("gpunodes", "gpupools", "gpuquotas"))
TLS_SECRETS: Final = tuple(f"{name}-tls" for name in COMPONENTS)
SERVICES: Final = {"aliquot-webhook": 443, "aliquot-scheduler": 9443}
GPU_DRIVERS: Final = ("gpu.nvidia.com", "hami-core-gpu.project-hami.io")
"""Those that hand out cards by Dynamic Resource Allocation."""


class _Version(msgspec.Struct):
    git_version: str = msgspec.field(default="", name="gitVersion")


class _Review(msgspec.Struct):
    status: dict[str, Any] = {}


@dataclass(frozen=True)
class Reader:
    """Reads by one client, as whoever the kubeconfig names."""

    api: Api
    namespace: str
    most_pods: int = MOST_PODS

    async def read(self) -> Cluster:
        """All facts; those of a server that does not answer are all unknown."""
        version = await self._version()
        if isinstance(version, ApiError):
            return Cluster(self.namespace, unreachable=str(version))
        workloads = await self._workloads()
        found = await self._objects(_names(workloads))
        # Of what may not be seen the rights are asked for all the same.
        installed = {name: Workload() if fact.reason else fact.get() for name, fact in workloads.items()}
        return Cluster(
            self.namespace,
            version=version,
            workloads=workloads,
            definitions=await _each(DEFINITIONS, lambda name: self._get(objects.DEFINITIONS, name)),
            secrets=await _each(TLS_SECRETS, lambda name: self._get(SECRETS, name, self.namespace)),
            ready=await _each(SERVICES, self._ready),
            rights=await _each(_needed(installed, heals=_heals(found)), self._may),
            **found,
        )

    async def _objects(self, names: ResourceNames) -> dict[str, Any]:
        """The facts of one request or one list each, by their names in Cluster."""
        reads: dict[str, Awaitable[Any]] = {
            "nodes": self._list(objects.NODES),
            "gpu_nodes": self._list(GPU_NODES),
            "pools": self._list(GPU_POOLS),
            "pods": self._pods(names),
            "own_pods": self._list(PODS, namespace=self.namespace),
            "policies": self._list(objects.POLICIES),
            "bindings": self._list(objects.POLICY_BINDINGS),
            "webhooks": self._get(objects.WEBHOOKS, WEBHOOKS_NAME),
            "configuration": self._get(objects.CONFIG_MAPS, "aliquot-scheduler", self.namespace),
            "slices": self._resource_slices(),
            "operators": self._list(objects.CLUSTER_POLICIES, optional=True),
        }
        return dict(zip(reads, await asyncio.gather(*reads.values()), strict=True))

    async def _version(self) -> Fact[str] | ApiError:
        try:
            raw = await self.api.request("GET", "/version")
            return Fact.of(msgspec.json.decode(raw, type=_Version).git_version)
        except ApiError as error:
            return error if error.unreachable else Fact.unknown(_why("get /version", error))
        except UNREADABLE as error:
            return ApiError(0, "", f"what answers at {self.api.server} is no API server: {error}")

    async def _workloads(self) -> dict[str, Fact[Workload | None]]:
        def kind(name: str) -> Resource[Workload]:
            return objects.DAEMON_SETS if name == "aliquot-agent" else objects.DEPLOYMENTS

        found = await asyncio.gather(*(self._get(kind(name), name, self.namespace) for name in COMPONENTS))
        return dict(zip(COMPONENTS, found, strict=True))

    async def _get(self, resource: Resource[K], name: str, namespace: str = "") -> Fact[K | None]:
        try:
            return Fact.of(await self.api.get(resource, name, namespace))
        except ApiError as error:
            if error.not_found:
                return Fact.of(None)
            return Fact.unknown(_why(f"get {resource.plural} {name}", error, namespace))

    async def _list(
        self, resource: Resource[K], *, namespace: str = "", optional: bool = False, selector: str = ""
    ) -> Fact[tuple[K, ...]]:
        """All objects of a kind; of an optional one none where the cluster does not have the kind."""
        try:
            found = await self.api.list(resource, namespace, field_selector=selector)
        except ApiError as error:
            if optional and error.not_found:
                return Fact.of(())
            if error.not_found and resource.group == API_GROUP:
                return Fact.unknown(f"the cluster has no {resource.plural}.{API_GROUP}: there is no such CRD")
            return Fact.unknown(_why(f"list {resource.plural}", error, namespace))
        if found.unreadable:
            return Fact.unknown(f"some {resource.plural} are not as expected: {found.unreadable[0]}")
        return Fact.of(found.items)

    async def _pods(self, names: ResourceNames) -> Fact[Pods]:
        kept, strange, looked_at = list[Pod](), list[str](), 0
        try:
            async for page in self.api.pages(PODS):
                if looked_at >= self.most_pods:
                    why = f"the first {looked_at} pods were looked at, and there are more (--most-pods)"
                    return Fact.of(Pods(tuple(kept), why))
                looked_at += len(page.items) + len(page.unreadable)
                kept += (pod for pod in page.items if self._of_interest(pod, names))
                strange += page.unreadable
        except ApiError as error:
            return Fact.unknown(_why("list pods", error))
        return Fact.of(
            Pods(tuple(kept), f"pods that are not as expected: {some(strange)}" if strange else "")
        )

    def _of_interest(self, pod: Pod, names: ResourceNames) -> bool:
        spec = pod.spec
        return (
            pod.metadata.namespace == self.namespace
            or PLACEMENT_ANNOTATION in pod.metadata.annotations
            or spec.scheduler_name == SCHEDULER_NAME
            or bool(spec.runtime_class_name)
            or any(env.name == VISIBLE for c in (*spec.containers, *spec.init_containers) for env in c.env)
            or is_neighbour(pod)
            or holds(pod, names)
            or bool(in_other_domain(pod, names))
            or (not spec.node_name and speaks(pod, HAMI))
        )

    async def _ready(self, service: str) -> Fact[str]:
        """Why a service is not ready, through the API server's proxy."""
        name = f"https:{service}:{SERVICES[service]}"
        try:
            await self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/services/{name}/proxy/readyz")
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN or error.unreachable:
                return Fact.unknown(_why(f"get services/proxy {name}", error, self.namespace))
            return Fact.of(error.message)
        return Fact.of("")

    async def _may(self, right: Right) -> Fact[bool]:
        resource, _, subresource = right.resource.partition("/")
        asked = {"verb": right.verb, "group": right.group, "resource": resource, "name": right.name}
        asked |= {"subresource": subresource, "namespace": self.namespace if right.namespaced else ""}
        spec = {
            "user": f"system:serviceaccount:{self.namespace}:{right.account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{self.namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": {key: value for key, value in asked.items() if value},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        try:
            review = msgspec.json.decode(await self.api.request("POST", path, body=body), type=_Review)
        except ApiError as error:
            return Fact.unknown(_why("create subjectaccessreviews.authorization.k8s.io", error))
        except UNREADABLE as error:
            return Fact.unknown(f"no SubjectAccessReview came back: {error}")
        return Fact.of(bool(review.status.get("allowed")))

    async def _resource_slices(self) -> Fact[tuple[objects.ResourceSlice, ...]]:
        found: tuple[objects.ResourceSlice, ...] = ()
        for driver in GPU_DRIVERS:
            one = await self._list(objects.RESOURCE_SLICES, optional=True, selector=f"spec.driver={driver}")
            if one.reason:
                return one
            found += one.get()
        return Fact.of(found)


async def _each(names: Iterable[T], read: Callable[[T], Awaitable[F]]) -> dict[T, F]:
    """A fact for each name, a few at a time."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(name: T) -> F:
        async with turns:
            return await read(name)

    every = tuple(names)
    return dict(zip(every, await asyncio.gather(*map(one, every)), strict=True))


def _heals(found: Mapping[str, Any]) -> bool:
    """Whether the chart lets the keeper of certificates make Secrets: where a policy that denies says which."""
    bindings: Fact[tuple[objects.PolicyBinding, ...]] = found["bindings"]
    return not bindings.reason and any(
        one.metadata.name == SECRETS_POLICY and "Deny" in one.spec.validation_actions
        for one in bindings.get()
    )


def _needed(installed: Mapping[str, Workload | None], *, heals: bool) -> tuple[Right, ...]:
    """The rights that are needed by what is installed."""
    webhook, scheduler = installed.get("aliquot-webhook"), installed.get("aliquot-scheduler")
    keeper = installed.get("aliquot-certs")
    parts = {
        "": True,
        "quotas": bool(webhook and "--quotas" in webhook.words),
        "evict": bool(
            scheduler
            and (
                scheduler.flag("preemption", "extender") == "extender"
                or scheduler.flag("reclaims-per-minute", "10") != "0"
                or scheduler.flag("group-grace-seconds", "60") != "0"
            )
        ),
        "heals": heals,
        "monitored": bool(keeper and keeper.flag("leaf=aliquot-prometheus-tls")),
        "own": bool(scheduler and "kube-scheduler" in scheduler.words),
    }

    def needs(right: Right) -> bool:
        served = right.name.removesuffix("-tls")
        return bool(installed.get(right.account)) and parts[right.when] and bool(installed.get(served, True))

    return tuple(filter(needs, RIGHTS + KUBE_SCHEDULER))


def _names(workloads: Mapping[str, Fact[Workload | None]]) -> ResourceNames:
    """The resources' names; the default ones where they may not be seen."""
    try:
        return names_told(workloads)
    except NotKnownError:
        return DEFAULT_NAMES


def _why(what: str, error: ApiError, namespace: str = "") -> str:
    """Why something is not known."""
    where = f" in {namespace}" if namespace else ""
    if error.status == HTTPStatus.FORBIDDEN:
        return f"you lack the right to {what}{where}"
    return f"{what}{where}: {error}"
