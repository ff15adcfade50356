"""Where the API server is said to be, and who we are to it: kubeconfigs, the account of a pod, and plugins."""

import asyncio
import base64
import json
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from aliquot.kube.kubeconfig import load_access
from aliquot.kube.resources import NODES
from aliquot.server.certs import write_pair

Json = dict[str, Any]
SERVER = "https://kube.example:6443"
USERS: dict[str, tuple[Json, str | None]] = {
    "a token": ({"token": "s3cret"}, "Bearer s3cret"),
    "a file with a token": ({"tokenFile": "token"}, "Bearer from-file"),
    "a file counts before a token": ({"token": "old", "tokenFile": "token"}, "Bearer from-file"),
    "a name and a password": ({"username": "me", "password": "x:y"}, "Basic bWU6eDp5"),
    "a token counts before a plugin": ({"token": "s3cret", "exec": {"command": "/none"}}, "Bearer s3cret"),
    "nobody": ({}, None),
}


def config(*users: Json, **cluster: Any) -> Json:
    """A kubeconfig of a cluster, and of a context for each user: x0, which is the current one, x1..."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": f"u{i}", "user": user} for i, user in enumerate(users)],
        "contexts": [
            {"name": f"x{i}", "context": {"cluster": "c", "user": f"u{i}"}} for i in range(len(users))
        ],
        "current-context": "x0",
    }


def written(path: Path, document: Json) -> Path:
    """The file, with the document in it."""
    path.write_text(yaml.safe_dump(document))
    return path


def header(path: Path | str | None = None, context: str | None = None) -> str | None:
    """As whom a kubeconfig lets us in."""
    return asyncio.run(load_access(path, context).headers()).get("Authorization")


@pytest.mark.parametrize("case", USERS)
def test_a_user_is_known_by(tmp_path: Path, case: str):
    """What its entry says; files lie beside the kubeconfig."""
    (tmp_path / "token").write_text("from-file\n")
    user, expected = USERS[case]
    assert header(written(tmp_path / "config", config(user))) == expected


def test_a_context_is_chosen_by_its_name(tmp_path: Path):
    """The current one where none is named."""
    path = written(tmp_path / "config", config({"token": "a"}, {"token": "b"}))
    assert [header(path), header(path, "x1")] == ["Bearer a", "Bearer b"]
    with pytest.raises(AccessError, match="0 contexts of the name 'x2'"):
        load_access(path, "x2")


def test_the_cluster_s_entry_says_how_it_is_reached(tmp_path: Path):
    """By which proxy, under which name, and whether it has to show who it is."""
    cluster = {"proxy-url": "http://proxy:1", "tls-server-name": "kube", "insecure-skip-tls-verify": True}
    access = load_access(written(tmp_path / "config", config({}, **cluster)))
    assert (access.server, access.proxy, access.server_name) == (SERVER, "http://proxy:1", "kube")
    assert access.tls
    assert access.tls.verify_mode == ssl.CERT_NONE
    access = load_access(written(tmp_path / "config", config({}, server="http://127.0.0.1:8001/")))
    assert (access.server, access.tls, access.proxy) == ("http://127.0.0.1:8001", None, None)


@pytest.mark.parametrize("inline", [False, True])
def test_a_client_certificate_lets_us_in(tmp_path: Path, inline: bool):
    """Whether it lies in files beside the kubeconfig or is part of it; no copy is left behind."""
    pair = write_pair(tmp_path / "pair", ["127.0.0.1"])
    files = {"certificate-authority": pair.ca, "client-certificate": pair.cert, "client-key": pair.key}

    def told(names: tuple[str, ...]) -> Json:
        if inline:
            return {f"{name}-data": base64.b64encode(files[name].read_bytes()).decode() for name in names}
        return {name: str(files[name].relative_to(tmp_path)) for name in names}

    shown: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport
        shown.append(request.transport.get_extra_info("peercert"))
        return web.json_response({"metadata": {"name": "n"}})

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pair.ca)
        tls.load_cert_chain(pair.cert, pair.key)
        tls.verify_mode = ssl.CERT_REQUIRED
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        cluster = {
            "server": f"https://127.0.0.1:{runner.addresses[0][1]}",
            **told(("certificate-authority",)),
        }
        document = config(told(("client-certificate", "client-key")), **cluster)
        async with Api.from_kubeconfig(written(tmp_path / "config", document)) as api:
            await api.get(NODES, "n")
        await runner.cleanup()

    asyncio.run(run())
    assert shown[0]["subject"]


def plugin(directory: Path, token: str) -> Json:
    """A user whose credentials a program tells."""
    told = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    program = directory / "plugin"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    program.chmod(0o755)
    return {
        "exec": {"apiVersion": told["apiVersion"], "command": str(program), "interactiveMode": "IfAvailable"}
    }


@pytest.mark.slow
def test_a_plugin_is_asked_for_a_token(tmp_path: Path):
    """As clouds' kubeconfigs have it."""
    assert header(written(tmp_path / "config", config(plugin(tmp_path, "fresh")))) == "Bearer fresh"


@pytest.mark.parametrize("asked", [False, True])
def test_a_context_has_a_namespace(tmp_path: Path, asked: bool):
    """As kubectl has it: that of the current context, or of the one that is named; else `default`."""
    user = plugin(tmp_path, "fresh") if asked else {"token": "a"}
    document = config(user, user)
    document["contexts"][1]["context"]["namespace"] = "team-a"
    path = written(tmp_path / "config", document)
    assert [load_access(path, name).namespace for name in (None, "x0", "x1")] == [
        "default",
        "default",
        "team-a",
    ]
    path = written(path, {**document, "current-context": "x1"})
    assert load_access(path).namespace == "team-a"


@pytest.mark.parametrize("asked", [False, True])
def test_a_proxy_of_the_environment_is_left_to_who_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
):
    """It heeds NO_PROXY as well; only a proxy that the kubeconfig names is for every host."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    user = plugin(tmp_path, "fresh") if asked else {"token": "a"}
    assert load_access(written(tmp_path / "config", config(user))).proxy is None


def test_several_kubeconfigs_are_one(tmp_path: Path):
    """What KUBECONFIG names with a colon in between."""
    users = written(tmp_path / "users", {**config({"token": "b"}), "clusters": []})
    clusters = written(tmp_path / "clusters", {**config(), "contexts": []})
    assert header(f"{clusters}:{users}") == "Bearer b"


def test_the_environment_names_the_kubeconfig(tmp_path: Path):
    """Where neither the caller nor a pod's account does."""
    path = written(tmp_path / "config", config({"token": "a"}))
    access = load_access(account=tmp_path / "none", environment={"KUBECONFIG": str(path)})
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer a"}


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("::1", "https://[::1]:443")]
)
def test_a_pod_has_an_account(tmp_path: Path, host: str, server: str):
    """Its token is read again after it was refused; an empty one is being replaced."""
    (tmp_path / "ca.crt").write_bytes(write_pair(tmp_path / "pair", ["10.0.0.1"]).ca.read_bytes())
    token = tmp_path / "token"
    token.write_text("first")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    access = load_access(account=tmp_path, environment=environment)
    assert access.server == server
    assert access.namespace == "default"
    (tmp_path / "namespace").write_text("team-a")
    assert load_access(account=tmp_path, environment=environment).namespace == "team-a"
    assert access.tls
    assert access.tls.cert_store_stats()["x509_ca"] == 1

    async def run() -> list[Mapping[str, str]]:
        found = [await access.headers()]
        token.write_text("second")
        found.append(await access.headers())
        access.forget_token()
        found.append(await access.headers())
        token.write_text("")
        access.forget_token()
        with pytest.raises(AccessError, match="is empty"):
            await access.headers()
        return found

    assert [given["Authorization"] for given in asyncio.run(run())] == [
        "Bearer first",
        "Bearer first",
        "Bearer second",
    ]


@pytest.mark.parametrize("text", [None, "", "]", "hello", "kind: Config\n"])
def test_a_useless_kubeconfig_is_refused_by_name(tmp_path: Path, text: str | None):
    """The error names the file."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AccessError, match=str(path)):
        load_access(path)


@pytest.mark.parametrize("service", ["plugin", "webhook", "scheduler_ext"])
def test_a_service_starts_without_what_it_has_no_use_for(tmp_path: Path, service: str):
    """The official client, which only plugins need, and what makes certificates: both are large."""
    path = written(tmp_path / "config", config({"token": "a"}))
    program = (
        f"import sys, {service}.__main__; from aliquot.kube.kubeconfig import load_access; "
        "load_access(sys.argv[1]); print({'kubernetes', 'cryptography', 'cel'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
