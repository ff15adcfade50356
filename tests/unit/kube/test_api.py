"""The Kubernetes client: what it sends, and what it makes of bad answers."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.crds.resources import GPU_NODES
from aliquot.kube.access import Access
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api, PatchType
from aliquot.kube.resources import NODES, PODS
from aliquot.server.certs import write_pair
from aliquot.server.tls import server_context

Kube = Any  # the server of conftest.py


def with_client(kube: Kube, scene: Callable[[Api], Awaitable[None]]) -> None:
    """Run a scene with the server up and a client of it."""

    async def run() -> None:
        async with kube, Api(Access(kube.url)) as api:
            await scene(api)

    asyncio.run(run())


def test_paths_are_those_of_the_api():
    """Core and group resources, namespaced or not, with subresources; odd names cannot leave their place."""
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("p", "ns", "binding") == "/api/v1/namespaces/ns/pods/p/binding"
    assert NODES.path("n") == "/api/v1/nodes/n"
    assert GPU_NODES.path("n", subresource="status") == "/apis/aliquot.dev/v1alpha1/gpunodes/n/status"
    assert PODS.path("../nodes/n", "ns") == "/api/v1/namespaces/ns/pods/..%2Fnodes%2Fn"


def test_the_binding_carries_uid_and_annotations(kube: Kube):
    """One write names the pod by UID, its node, and the placement."""

    async def scene(api: Api) -> None:
        await api.bind_pod("ns", "p", "u-1", "node-a", {"aliquot.dev/placement": "{}"})

    with_client(kube, scene)
    ((method, path, _, body),) = kube.requests
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert body["kind"] == "Binding"
    assert body["metadata"]["uid"] == "u-1"
    assert body["metadata"]["annotations"] == {"aliquot.dev/placement": "{}"}
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a"}


def test_patches_say_what_kind_they_are(kube: Kube):
    """The content type tells the API server how to apply a body."""

    async def scene(api: Api) -> None:
        await api.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, "ns")
        await api.patch(PODS, "p", [{"op": "remove", "path": "/spec"}], "ns", how=PatchType.JSON)
        status = GPUNodeStatus(cards=(Card(uuid="GPU-1", memory_mib=16384),))
        await api.patch_status(GPU_NODES, "node-a", status)

    with_client(kube, scene)
    merge, json_patch, status = kube.requests
    assert merge[2] == "application/merge-patch+json"
    assert json_patch[2] == "application/json-patch+json"
    assert status[1].endswith("/gpunodes/node-a/status")
    assert status[3]["status"]["cards"][0]["memoryMiB"] == 16384


def test_deletion_can_insist_on_a_uid(kube: Kube):
    """A pod re-created under the name is not deleted by mistake."""

    async def scene(api: Api) -> None:
        await api.delete(PODS, "p", "ns", uid="u-1")
        await api.delete(PODS, "p", "ns")

    with_client(kube, scene)
    assert [request[3] for request in kube.requests] == [{"preconditions": {"uid": "u-1"}}, None]


ANSWERS: dict[str, tuple[int, str, str, dict[str, bool]]] = {
    "not found": (
        404,
        '{"reason":"NotFound","message":"pods \\"p\\" not found"}',
        "NotFound",
        {"not_found": True},
    ),
    "conflict": (409, '{"reason":"Conflict","message":"changed"}', "Conflict", {"conflict": True}),
    "gone": (410, '{"reason":"Expired","message":"too old"}', "Expired", {"gone": True}),
    "too many": (
        429,
        '{"reason":"TooManyRequests","message":"wait"}',
        "TooManyRequests",
        {"transient": True},
    ),
    "a proxy's page": (502, "<html>bad gateway</html>", "", {"transient": True}),
    "an empty answer": (500, "", "", {"transient": True}),
    "something else than JSON": (
        200,
        "<html>login</html>",
        "Unreadable",
        {"unreachable": True, "transient": True},
    ),
    "something else than a pod": (200, "[]", "Unreadable", {"unreachable": True, "transient": True}),
}
KINDS = ("not_found", "conflict", "gone", "transient", "unreachable")


@pytest.mark.parametrize(("code", "text", "reason", "kinds"), ANSWERS.values(), ids=ANSWERS)
def test_bad_answers_become_errors_of_one_kind(
    kube: Kube, code: int, text: str, reason: str, kinds: dict[str, bool]
):
    """Whatever comes back, the caller gets an ApiError that says what it may do about it."""
    kube.answer = lambda _: web.Response(status=code, text=text)

    async def scene(api: Api) -> None:
        with pytest.raises(ApiError) as refused:
            await api.get(PODS, "p", "ns")
        assert refused.value.reason == reason
        assert refused.value.message
        assert {kind: True for kind in KINDS if getattr(refused.value, kind)} == kinds

    with_client(kube, scene)


def test_a_server_that_is_not_there_is_unreachable(kube: Kube):
    """No connection is an ApiError too, and worth another try."""

    async def scene(api: Api) -> None:
        await kube.stop()
        with pytest.raises(ApiError, match="no answer from http://127") as refused:
            await api.get(PODS, "p", "ns")
        assert refused.value.unreachable

    with_client(kube, scene)


def test_a_watch_takes_lines_of_any_length(kube: Kube):
    """A pod larger than the reader's buffer is one event."""

    async def scene(api: Api) -> None:
        watch = api.watch(PODS, "1")
        kube.put("big", message="x" * 3_000_000)
        event = await anext(watch)
        assert event.type == "ADDED"
        assert len(bytes(event.object)) > 3_000_000
        await watch.aclose()  # type: ignore[attr-defined]

    with_client(kube, scene)


def kubeconfig(path: Path, server: str, ca: bytes, user: dict[str, Any]) -> Path:
    """Write a kubeconfig of one cluster and one user."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


def test_a_kubeconfig_is_enough_to_talk_tls(tmp_path: Path):
    """Server, CA and token come from the file; a server that the CA did not sign is not spoken to."""
    pair = write_pair(tmp_path / "good", ["127.0.0.1"])
    other = write_pair(tmp_path / "other", ["127.0.0.1"])
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"metadata": {"name": "n"}})

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(pair.cert, pair.key)).start()
        server = f"https://127.0.0.1:{runner.addresses[0][1]}"
        good = kubeconfig(tmp_path / "good.yaml", server, pair.ca.read_bytes(), {"token": "s3cret"})
        async with Api.from_kubeconfig(good) as api:
            assert (await api.get(NODES, "n")).metadata.name == "n"
        bad = kubeconfig(tmp_path / "bad.yaml", server, other.ca.read_bytes(), {"token": "s3cret"})
        async with Api.from_kubeconfig(bad) as api:
            with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
                await api.get(NODES, "n")
        await runner.cleanup()

    asyncio.run(run())
    assert seen == ["Bearer s3cret"]


def test_a_refused_token_is_read_again(kube: Kube, tmp_path: Path):
    """A token that expired is replaced before the next request; one that is being replaced is waited for."""
    token = tmp_path / "token"
    tokens: list[str] = []

    def authorize() -> str:
        if not token.read_text():
            raise ValueError("it is empty")
        return f"Bearer {token.read_text()}"

    def answer(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        good = tokens[-1] == "Bearer new"
        return web.json_response({"reason": "Unauthorized"}, status=200 if good else 401)

    async def run() -> None:
        kube.answer = answer
        async with kube, Api(Access(kube.url, authorize=authorize)) as api:
            token.write_text("")
            with pytest.raises(ApiError, match="no credentials") as refused:
                await api.get(PODS, "p", "ns")
            assert refused.value.transient
            token.write_text("old")
            with pytest.raises(ApiError):
                await api.get(PODS, "p", "ns")
            token.write_text("new")
            await api.get(PODS, "p", "ns")
            token.write_text("newer, not needed yet")
            await api.get(PODS, "p", "ns")

    asyncio.run(run())
    assert tokens == ["Bearer old", "Bearer new", "Bearer new"]


def test_a_long_list_comes_in_pages(kube: Kube):
    """No answer of a large cluster is larger than five hundred objects; together they are all there are."""

    async def scene(api: Api) -> None:
        for n in range(1203):
            kube.put(f"pod-{n:04}")
        listing = await api.list(PODS)
        assert [item.metadata.name for item in listing.items] == sorted(kube.pods)
        assert listing.resource_version == "1204"
        assert kube.pages == [("500", ""), ("500", "1204:pod-0499"), ("500", "1204:pod-0999")]

    with_client(kube, scene)


def test_a_list_forgotten_between_two_pages_is_read_in_one(kube: Kube):
    """A server that compacts faster than it is read is asked for everything at once; nothing old is in the answer."""

    async def scene(api: Api) -> None:
        for n in range(700):
            kube.put(f"pod-{n:04}")
        kube.before_page = compact
        listing = await api.list(PODS)
        assert [item.metadata.name for item in listing.items] == sorted(kube.pods)
        assert [limit for limit, _ in kube.pages] == ["500", "500", ""]

    def compact(token: str) -> None:
        if token:
            kube.remove("pod-0000")
            kube.forget()
            kube.before_page = lambda _: None

    with_client(kube, scene)


def test_an_object_that_cannot_be_read_costs_its_page_nothing_else(kube: Kube):
    """The others of its page are there, and it is named."""

    async def scene(api: Api) -> None:
        for name in ("a", "b", "c"):
            kube.put(name)
        kube.pods["b"]["metadata"]["labels"] = "none"
        listing = await api.list(PODS)
        assert [item.metadata.name for item in listing.items] == ["a", "c"]
        assert len(listing.unreadable) == 1
        assert "b" in listing.unreadable[0]

    with_client(kube, scene)


@pytest.mark.parametrize("excepted", [False, True])
def test_a_proxy_of_the_environment_is_used_but_for_those_it_excepts(
    kube: Kube, monkeypatch: pytest.MonkeyPatch, excepted: bool
):
    """The server itself is not there: what comes back has come through the proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1" if excepted else "elsewhere.example")

    async def run() -> None:
        async with kube:
            monkeypatch.setenv("http_proxy", kube.url)
            async with Api(Access("http://127.0.0.1:1")) as api:
                if excepted:
                    with pytest.raises(ApiError, match="no answer from http://127"):
                        await api.delete(PODS, "p", "ns")
                else:
                    await api.delete(PODS, "p", "ns")

    asyncio.run(run())
    assert [request[1] for request in kube.requests] == ([] if excepted else ["/api/v1/namespaces/ns/pods/p"])


def test_a_request_needs_no_thread(kube: Kube):
    """Handing each request to a thread and back takes longer than the request."""

    async def scene(api: Api) -> None:
        await api.delete(PODS, "p", "ns")
        assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]

    with_client(kube, scene)
