"""A bound pod's placement is edited past webhook and admission policies: neither node nor ledger heeds it."""

import json
from pathlib import Path
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import Control, read_control
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.faults.living import promised_by
from tests.integration.journey.auditor import audit, placement_of
from tests.integration.journey.pods import container, plain, pod

pytestmark = pytest.mark.slow

UNTIL_TOLD = ("sh", "-c", "until [ -e /data/end ]; do sleep 0.02; done; rm /data/end; exit 1")


def edited(placement: dict[str, Any], **changes: Any) -> str:
    """A placement with another share."""
    (only,) = placement["containers"]
    (share,) = only["cards"]
    return json.dumps(placement | {"containers": [only | {"cards": [share | changes]}]})


def write(stack: Stack, text: str | None) -> None:
    """By who may write `pods/status`, which the webhook does not see; without the policies nobody refuses it."""
    body = {"metadata": {"annotations": {"aliquot.dev/placement": text}, "labels": {"team": None}}}
    path = "/api/v1/namespaces/default/pods/held/status"
    stack.kubectl.request("PATCH", path, body, media_type="application/merge-patch+json")


def page(node: Node, uid: str) -> Control:
    """What the pod's container is held to."""
    return read_control(node.tenants / uid / "main" / "control")


def end_container(stack: Stack, node: Node, uid: str, count: int) -> None:
    """Have it end, and return when the next one runs."""
    (volume,) = (stack.cluster.node(node.name).pods / uid).glob("**/data")
    Path(volume, "end").touch()

    def again(one: dict[str, Any]) -> bool:
        (status,) = one["status"]["containerStatuses"]
        return status["restartCount"] == count and "running" in status["state"]

    stack.kubectl.wait_for("pods", "held", again, 60)


def test_an_edited_placement_moves_and_frees_nothing(stack: Stack, node: Node) -> None:
    """To another card, of another pod, nonsense, or none at all: also where the container starts anew."""
    main = container("main", {"mem": "12Gi", "core": "30"}, UNTIL_TOLD)
    main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    manifest = pod("held", main, volumes=[{"name": "data", "emptyDir": {}}])
    manifest["metadata"]["labels"] = {"team": "a"}
    stack.kubectl.apply(manifest)
    bound = stack.kubectl.wait_phase("held", "Running", deadline=60)
    uid, placement = bound["metadata"]["uid"], placement_of(bound)
    assert placement
    promised, granted = promised_by(stack.cluster), page(node, uid)
    mine = placement["containers"][0]["cards"][0]["uuid"]
    (other,) = {card.uuid for card in node.machine.cards} - {mine}
    edits = (edited(placement, uuid=other), json.dumps(placement | {"podUID": "another"}), "nonsense", None)
    for count, text in enumerate(edits, 1):
        write(stack, text)
        stack.kubectl.apply(plain(f"after-{count}", mem="3Gi", core="5"))
        stack.kubectl.wait_phase(f"after-{count}", "Running", deadline=60)
        end_container(stack, node, uid, count)
        assert page(node, uid) == granted
        stack.kubectl.delete("pods", f"after-{count}", grace=0)
        stack.kubectl.wait_gone("pods", f"after-{count}")
    stack.kubectl.apply(plain("no-room", mem="12Gi"), plain("nor-here", mem="12Gi"))
    wait_for("one of two to run", lambda: len(running(stack, "no-room", "nor-here")) == 1, 60)
    write(stack, json.dumps(placement))
    audit(stack)
    assert promised_by(stack.cluster) == {**promised, other: 12288}
    assert len(running(stack, "no-room", "nor-here")) == 1


def running(stack: Stack, *names: str) -> list[str]:
    """Those of the pods that run."""
    return [name for name in names if stack.kubectl.get("pods", name)["status"].get("phase") == "Running"]
