"""Whose words the command line takes an error for that comes through the API server's proxy."""

import asyncio
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from aliquot.cli.commands.extender import Where, ask
from aliquot.cli.options import Refusal

SERVICE = "gpu/aliquot-scheduler:9443"
NO_REPLY = f"the extender's Service {SERVICE} does not answer: "
UNREACHED = (
    '{"kind": "Status", "reason": "ServiceUnavailable", "code": 503, "message": "no endpoints available"}'
)
ABSENT = '{"kind": "Status", "reason": "NotFound", "code": 404, "message": "services not found"}'


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, '{"error": "say for what"}', "the extender answers: say for what"),
        (
            503,
            '{"error": "no answer from the leader; try again"}',
            "the extender answers: no answer from the leader",
        ),
        (404, "404: Not Found", "the extender answers: 404: Not Found"),
        (503, "Error trying to reach service: 'dial tcp: refused'", f"{NO_REPLY}Error (503)"),
        (503, UNREACHED, f"{NO_REPLY}ServiceUnavailable (503): no endpoints available"),
        (404, ABSENT, f"{NO_REPLY}NotFound (404): services not found"),
    ],
)
def test_an_error_is_told_as_whose_it_is(tmp_path: Path, status: int, body: str, words: str):
    """The API server gives a reason for its own errors; the extender answers with a sentence alone."""

    async def answer(request: web.Request) -> web.Response:
        asked = "/api/v1/namespaces/gpu/serviceaccounts/aliquot-asker/token"
        assert request.path == asked or "/services/" in request.path
        return web.Response(status=status, text=body)

    async def refused() -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            where = Where(kubeconfig(tmp_path, *runner.addresses[0]), SERVICE, None, None, None, None, None)
            with pytest.raises(Refusal) as caught:
                await ask(where, "defragment", {})
        finally:
            await runner.cleanup()
        return caught.value.message

    assert asyncio.run(refused()).startswith(words)


def kubeconfig(directory: Path, host: str, port: int) -> Path:
    """A kubeconfig of the server."""
    entry = {"name": "x"}
    document = {
        "clusters": [{**entry, "cluster": {"server": f"http://{host}:{port}"}}],
        "users": [{**entry, "user": {}}],
        "contexts": [{**entry, "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path
