"""An API server for one extender to be measured with: large lists made in advance, watches, Bindings, a Lease.

It is a process of its own, for what it does must not be counted as the extender's: `python -m bench.extender.apiserver
NODES SLICES OTHERS`. On its first line it says its port. A Binding is answered once its pod is known to have changed;
the watch says so at once, and says that another pod, one of those placed at random, has gone: the cluster stays as
full as it was.
"""

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from aliquot.api.names import PLACEMENT_ANNOTATION
from bench.extender import world

FIRST_VERSION = 1000
FRESH_KINDS = 40


class Collection:
    """The objects of one kind, encoded; in pages where the client asks for pages."""

    def __init__(self, kind: str, objects: Sequence[bytes]) -> None:
        self._kind = kind
        self._objects = objects
        self._watches: list[asyncio.Queue[bytes]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A list, or a watch."""
        if request.query.get("watch"):
            return await self._watch(request)
        if request.query.get("fieldSelector"):
            return self._page((), "", 0)
        limit = int(request.query.get("limit", len(self._objects) or 1))
        start = int(request.query.get("continue", "0"))
        end = start + limit
        left = max(0, len(self._objects) - end)
        return self._page(self._objects[start:end], str(end) if left else "", left)

    def tell(self, kind: str, thing: bytes) -> None:
        """Send an event to every watch."""
        for watch in self._watches:
            watch.put_nowait(b'{"type":"%s","object":%s}\n' % (kind.encode(), thing))

    def _page(self, objects: Sequence[bytes], token: str, left: int) -> web.Response:
        meta = {"resourceVersion": str(FIRST_VERSION), "continue": token, "remainingItemCount": left}
        head = f'{{"kind":"{self._kind}List","apiVersion":"v1","metadata":{json.dumps(meta)},"items":['
        return web.Response(body=head.encode() + b",".join(objects) + b"]}", content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        events = asyncio.Queue[bytes]()
        self._watches.append(events)
        try:
            while True:
                await answer.write(await events.get())
        finally:
            self._watches.remove(events)


class Server:
    """The API server."""

    def __init__(self, nodes: int, slices: int, others: int) -> None:
        self._known = world.Pods(list(world.fresh_kinds(FRESH_KINDS)))
        self._dice = random.Random(11)  # noqa: S311
        self._version = FIRST_VERSION
        self._placed = list(world.placed(self._known, nodes, slices))
        every = [*self._placed, *world.without_slices(nodes, slices, others)]
        self._pods = Collection(
            "Pod", [world.bound(self._known, name, 1, node, said) for name, node, said in every]
        )
        self._leases: dict[str, dict[str, Any]] = {}
        self._others = {
            "/api/v1/nodes": Collection("Node", [_encode(world.node(n)) for n in range(nodes)]),
            "/apis/aliquot.dev/v1alpha1/gpunodes": Collection(
                "GPUNode", [_encode(world.gpu_node(n)) for n in range(nodes)]
            ),
        }
        self._empty = Collection("Nothing", [])

    def app(self) -> web.Application:
        """Everything that the extender calls."""
        app = web.Application()
        app.router.add_post("/api/v1/namespaces/{namespace}/pods/{name}/binding", self._bind)
        app.router.add_get("/api/v1/pods", self._pods.answer)
        leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        app.router.add_post(leases, self._make_lease)
        app.router.add_get(f"{leases}/{{name}}", self._get_lease)
        app.router.add_patch(f"{leases}/{{name}}", self._change_lease)
        app.router.add_get(
            "/{path:.*}", lambda request: self._others.get(request.path, self._empty).answer(request)
        )
        return app

    async def _bind(self, request: web.Request) -> web.Response:
        binding = json.loads(await request.read())
        name, node = request.match_info["name"], binding["target"]["name"]
        said = binding["metadata"]["annotations"][PLACEMENT_ANNOTATION]
        self._tell("MODIFIED", name, node, said)
        if self._placed:
            at = self._dice.randrange(len(self._placed))
            self._placed[at], gone = (name, node, said), self._placed[at]
            self._tell("DELETED", *gone)
        return web.Response(body=b'{"kind":"Status","apiVersion":"v1","status":"Success"}', status=201)

    def _tell(self, kind: str, name: str, node: str, said: str) -> None:
        self._version += 1
        self._pods.tell(kind, world.bound(self._known, name, self._version, node, said))

    async def _make_lease(self, request: web.Request) -> web.Response:
        lease = json.loads(await request.read())
        return self._keep(lease["metadata"]["name"], lease)

    async def _get_lease(self, request: web.Request) -> web.Response:
        lease = self._leases.get(request.match_info["name"])
        if lease is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return web.json_response(lease)

    async def _change_lease(self, request: web.Request) -> web.Response:
        change, lease = json.loads(await request.read()), self._leases[request.match_info["name"]]
        lease["spec"] |= change["spec"]
        return self._keep(request.match_info["name"], lease)

    def _keep(self, name: str, lease: dict[str, Any]) -> web.Response:
        self._version += 1
        lease["metadata"]["resourceVersion"] = str(self._version)
        self._leases[name] = lease
        return web.json_response(lease)


def _encode(thing: world.Document) -> bytes:
    return json.dumps(thing, separators=(",", ":")).encode()


async def serve(nodes: int, slices: int, others: int) -> None:
    """Answer until killed."""
    runner = web.AppRunner(Server(nodes, slices, others).app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:4])))
