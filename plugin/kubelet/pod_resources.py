"""Asks the kubelet which container of which pod holds which device ids (the PodResources interface)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from aliquot.plugin.pb.podresources.v1 import api_pb2, api_pb2_grpc

TIMEOUT_S = 5.0
MESSAGE_BYTES = 16 << 20


class PodResourcesError(Exception):
    """The kubelet does not answer; says why."""


@dataclass(frozen=True)
class Holder:
    """A container and the ids it holds by resource; the kubelet tells no UID and no plain init container."""

    namespace: str
    pod: str
    container: str
    devices: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Running:
    """One answer: the pods the kubelet runs, as (namespace, name), and the containers of theirs it lists."""

    pods: frozenset[tuple[str, str]]
    holders: tuple[Holder, ...]


class PodResources:
    """A client of the kubelet's socket. One connection, which gRPC renews when the kubelet restarts."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix://{socket}",
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self._stub: Any = api_pb2_grpc.PodResourcesListerStub(self._channel)

    async def list(self) -> Running:
        """All pods of the kubelet. Raises PodResourcesError."""
        try:
            answer = await self._stub.List(api_pb2.ListPodResourcesRequest(), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise PodResourcesError(f"PodResources: {error.details() or error.code()}") from error
        pods = answer.pod_resources
        return Running(
            pods=frozenset((pod.namespace, pod.name) for pod in pods),
            holders=tuple(
                Holder(pod.namespace, pod.name, container.name, by_resource(container.devices))
                for pod in pods
                for container in pod.containers
            ),
        )

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close(None)


def by_resource(devices: Iterable[Any]) -> dict[str, frozenset[str]]:
    """Ids by resource; a container with two ids comes as two entries of one resource."""
    held: dict[str, frozenset[str]] = {}
    for one in devices:
        held[one.resource_name] = held.get(one.resource_name, frozenset()) | frozenset(one.device_ids)
    return held
