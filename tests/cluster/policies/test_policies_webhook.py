"""Policies and webhook together: what the webhook makes of a pod passes, and what it does not undo is refused."""

import base64
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import urllib3

from aliquot.api.names import GRANTS
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import Obj
from aliquot.sandbox.cluster.processes import Process, free_port, wait_for
from aliquot.server.certs import write_pair
from tests.cluster.policies.attempts import MERGE, SLICES, annotated, creating, pods
from tests.cluster.policies.manifests import LIBRARY, PLACEMENT, TEAM, binding, container, pod
from tests.cluster.policies.world import ROOT, World, render

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("alone")]

CONFIGURATIONS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
BARE = {"aliquot.dev/gpu-mem": "8Gi"}
OURS = {"name": "LD_PRELOAD", "value": LIBRARY}


@pytest.fixture(scope="module", name="webhook")
def start_webhook(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A webhook process, shown to the API server by the chart's configuration."""
    directory, port = tmp_path_factory.mktemp("webhook"), free_port()
    pair = write_pair(directory / "tls", ["127.0.0.1"])
    files = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    flags = ["--host", "127.0.0.1", "--port", str(port), "--dialects", "hami"]
    argv = [sys.executable, "-m", "aliquot.webhook", *files, *flags]
    url = f"https://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return trusting.request("GET", f"{url}/readyz", timeout=5).status == HTTPStatus.OK
        except urllib3.exceptions.HTTPError:
            return False

    trusting = urllib3.PoolManager(ca_certs=str(pair.ca), retries=False)
    process = Process("webhook", argv, directory / "log", {"PYTHONPATH": str(ROOT)}, ready)
    process.start(60)
    configure(world, f"{url}/mutate", pair.ca)
    yield process
    world.admin.delete(CONFIGURATIONS, "aliquot", "")
    unseen = creating("creates a pod", SLICES, "", written(schedulerName="default-scheduler"))
    wait_for(
        "the webhook to be forgotten",
        lambda: "hands out no cards" in str(world.refusal(unseen, dry_run=True)),
        60,
    )
    process.kill()


def configure(world: World, url: str, authority: Path) -> None:
    """Have the API server call this address where the chart has it call a Service, and wait until it does."""
    (configuration,) = render("MutatingWebhookConfiguration", dialects=["hami"])
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"] = {"url": url, "caBundle": base64.b64encode(authority.read_bytes()).decode()}
    world.admin.apply(configuration)
    wait_for("the webhook to be called", lambda: len(made_of(world, written(), dry_run=True)["env"]) == 1, 60)


def written(limits: Obj | None = None, **more: Any) -> Obj:
    """A pod as people write it."""
    one = {"name": "main", "image": "registry.example/app", "resources": {"limits": limits or BARE}}
    return {**pod("good", {**one, **more.pop("container", {})}, **more)}


def made_of(world: World, manifest: Obj, *, dry_run: bool = False) -> Obj:
    """The container of what becomes of a manifest."""
    manifest["spec"].pop("schedulerName")
    query = {"dryRun": "All"} if dry_run else {}
    try:
        stored = world.client("alice").request("POST", pods(), manifest, query)
    except ApiError:
        if dry_run:
            return {"env": []}
        raise
    assert stored["spec"]["schedulerName"] == "aliquot-scheduler"
    found: Obj = {"env": [], **stored["spec"]["containers"][0]}
    return found


@pytest.fixture(autouse=True)
def clean(world: World) -> Iterator[None]:
    """No test leaves its pod to the next."""
    yield
    world.admin.delete("pods", "good", TEAM, grace=0)
    world.admin.wait_gone("pods", "good", namespace=TEAM)


HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}
OWN = {"env": [{"name": "LD_PRELOAD", "value": "/mine.so"}]}
FILE = {"aliquot.dev/inject": "file"}
LEGAL = {
    "memory alone": (written(), LIBRARY),
    "everything": (
        written({"aliquot.dev/gpu": "2", "aliquot.dev/gpu-mem-percent": "50", "aliquot.dev/gpu-core": "30"}),
        LIBRARY,
    ),
    "HAMi's words": (written(HAMI), LIBRARY),
    "a library of its own": (written(container=OWN), f"{LIBRARY}:/mine.so"),
    "a file in place of LD_PRELOAD": (written(container=OWN, annotations=FILE), "/mine.so"),
}


@pytest.mark.parametrize(("manifest", "preload"), LEGAL.values(), ids=LEGAL.keys())
def test_what_the_webhook_makes_passes_all_policies(
    world: World, webhook: Process, manifest: Obj, preload: str
):
    """From what people write to a placement and a resize, with everybody's own account."""
    stored = made_of(world, manifest)
    assert stored["env"] == [{"name": "LD_PRELOAD", "value": preload}]
    assert stored["resources"]["limits"]["aliquot.dev/gpu"] in {"1", "2"}
    bound = binding("good", "aliquot-trial-node-a", **{PLACEMENT: "placed"})
    world.client("scheduler").request("POST", pods("good", "binding"), bound)
    ask = annotated({"aliquot.dev/enforcement": "enforce"}, "good")
    world.client("alice").request("PATCH", pods("good"), ask, media_type=MERGE)
    approval = annotated({PLACEMENT: "resized", "aliquot.dev/resize-status": "{}"}, "good")
    last = world.client("scheduler").request("PATCH", pods("good", "status"), approval, media_type=MERGE)
    assert last["metadata"]["annotations"][PLACEMENT] == "resized"


def test_what_comes_along_of_a_copied_pod_is_taken_off(world: World, webhook: Process):
    """A copy is no attack: the webhook takes the scheduler's annotations off before the policies are asked."""
    made_of(world, written(annotations=dict.fromkeys(GRANTS, "of another pod")))
    assert not world.admin.get("pods", "good", TEAM)["metadata"].get("annotations", {}).keys() & {*GRANTS}


@pytest.mark.parametrize("grant", GRANTS)
def test_what_the_scheduler_has_written_is_put_back(world: World, webhook: Process, grant: str):
    """So the edit has no effect, and no policy has anything to refuse."""
    before = world.admin.get("pods", "running", TEAM)["metadata"]["annotations"]
    world.client("alice").request("PATCH", pods("running"), annotated({grant: "mine"}), media_type=MERGE)
    assert world.admin.get("pods", "running", TEAM)["metadata"]["annotations"] == before


REFUSED = {
    "a privileged container": (written(container={"securityContext": {"privileged": True}}), "is privileged"),
    "hostPID": (written(hostPID=True), "hostPID shows it"),
    "LD_AUDIT": (written(container={"env": [{"name": "LD_AUDIT", "value": "x"}]}), "(LD_AUDIT) is"),
}


@pytest.mark.parametrize(("manifest", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_the_policies_refuse_behind_the_webhook(world: World, webhook: Process, manifest: Obj, says: str):
    """What the webhook lets pass is looked at after it."""
    with pytest.raises(ApiError, match="denied request: ") as caught:
        made_of(world, manifest)
    assert says in str(caught.value)
    assert caught.value.status == 403


LIMIT = {"env": [{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "2g"}]}
BY_WEBHOOK = {
    "HAMi's choice of a model": (
        written(HAMI, annotations={"nvidia.com/use-gputype": "A100"}),
        "annotation nvidia.com/use-gputype: 'A100' is HAMi's and not honoured here; write aliquot.dev/card-model",
    ),
    "HAMi's priority": (written(HAMI | {"nvidia.com/priority": "1"}), "nvidia.com/priority: '1' is HAMi's"),
    "a limit in the environment": (
        written(container=LIMIT),
        "env CUDA_DEVICE_MEMORY_LIMIT: limits do not come",
    ),
}


@pytest.mark.parametrize(("manifest", "says"), BY_WEBHOOK.values(), ids=BY_WEBHOOK.keys())
def test_the_webhook_refuses_before_the_policies(world: World, webhook: Process, manifest: Obj, says: str):
    """What would be dropped or overruled is refused once, in one sentence, and nothing is made."""
    with pytest.raises(ApiError, match=r'admission webhook ".*aliquot.dev" denied the request') as caught:
        made_of(world, manifest)
    assert says in str(caught.value)
    assert world.admin.find("pods", "good", TEAM) is None


def test_while_the_webhook_is_away_only_slices_wait(world: World, webhook: Process):
    """The policies need no server: a pod with a slice is refused for want of the webhook, others come and go."""
    webhook.kill()
    with pytest.raises(ApiError, match="failed calling webhook"):
        made_of(world, written())
    plain = pod("good", container(limits={}), schedulerName="default-scheduler")
    world.client("alice").request("POST", pods(), plain)
    webhook.start(60)
