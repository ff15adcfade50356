"""What a kube-proxy does, without touching the kernel's tables: every Service's address leads to its pods.

    python -m tests.cluster.services --kubeconfig FILE --api HOST:PORT

The addresses are added to the loopback interface, where pods find them by way of their node, and each port is a
listener that passes connections on to one of the Service's ready endpoints. The API server's own Service leads to
`--api`. Addresses have a term: what a killed process leaves ends by itself.
"""

import argparse
import asyncio
import contextlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.sandbox.cluster.client import Client, Credentials
from aliquot.sandbox.cluster.objects import Obj

TERM_S = "7200"
KEY = "kubernetes.io/service-name"

Port = tuple[str, int]


@dataclass
class Proxy:
    """Listeners and where they lead."""

    api: Port
    listeners: dict[Port, asyncio.Server] = field(default_factory=dict)
    names: dict[Port, tuple[str, str, str]] = field(default_factory=dict)
    """Namespace, Service and name of the port behind each listener."""
    slices: dict[str, Obj] = field(default_factory=dict)
    turn: int = 0

    async def put_service(self, service: Obj) -> None:
        """Listen on all ports of a Service that has an address."""
        meta, spec = service["metadata"], service["spec"]
        address = spec.get("clusterIP", "None")
        if address in ("", "None"):
            return
        add_address(address)
        for port in spec.get("ports", ()):
            at = (address, int(port["port"]))
            self.names[at] = (meta["namespace"], meta["name"], port.get("name", ""))
            if at not in self.listeners:
                self.listeners[at] = await asyncio.start_server(
                    lambda reader, writer, at=at: self._serve(at, reader, writer), *at
                )

    def endpoints(self, at: Port) -> list[Port]:
        """Where a listener leads now."""
        namespace, service, name = self.names[at]
        if (namespace, service) == ("default", "kubernetes"):
            return [self.api]
        return [
            (address, int(port["port"]))
            for piece in self.slices.values()
            if (piece["metadata"]["namespace"], piece["metadata"]["labels"].get(KEY)) == (namespace, service)
            for port in piece.get("ports") or ()
            if port.get("name", "") == name
            for endpoint in piece.get("endpoints") or ()
            if endpoint.get("conditions", {}).get("ready")
            for address in endpoint["addresses"]
        ]

    async def _serve(self, at: Port, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = self.endpoints(at)
        with contextlib.closing(writer), contextlib.suppress(OSError):
            if found:
                self.turn += 1
                host, port = found[self.turn % len(found)]
                inner, outer = await asyncio.open_connection(host, port)
                with contextlib.closing(outer):
                    await asyncio.gather(pump(reader, outer), pump(inner, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, and that nothing more comes."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def add_address(address: str) -> None:
    """Give the machine an address for a while."""
    term = ["valid_lft", TERM_S, "preferred_lft", TERM_S]
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo", *term], check=True)


def remove_addresses(network: str) -> None:
    """Take back every address of a network."""
    subprocess.run(["ip", "address", "flush", "dev", "lo", "to", network], check=True)


async def follow(kubeconfig: Path, api: Port) -> None:
    """Keep listeners in step with the cluster until killed."""
    client, proxy = Client(Credentials.of_kubeconfig(kubeconfig)), Proxy(api)
    async with asyncio.TaskGroup() as group:
        group.create_task(_follow_services(client, proxy))
        group.create_task(_follow_slices(client, proxy.slices))


async def _follow_services(client: Client, proxy: Proxy) -> None:
    async for notice in client.follow("/api/v1/services"):
        if notice.type in ("ADDED", "MODIFIED"):
            await proxy.put_service(notice.object)


async def _follow_slices(client: Client, slices: dict[str, Obj]) -> None:
    async for notice in client.follow("/apis/discovery.k8s.io/v1/endpointslices"):
        if notice.type == "DELETED":
            slices.pop(_key(notice.object), None)
        elif notice.type != "SYNCED":
            slices[_key(notice.object)] = notice.object


def _key(obj: Mapping[str, Obj]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def main() -> None:
    """Follows the cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--api", required=True)
    given = parser.parse_args()
    host, _, port = given.api.rpartition(":")
    asyncio.run(follow(given.kubeconfig, (host, int(port))))


if __name__ == "__main__":
    main()
