"""Attempts of one node's agent, or of whoever has its token, against another node."""

from typing import Any

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.policies.attempts import AGENTS, APPLY, EVENTS, JSON, MERGE, OPERATIONS, Attempt
from tests.cluster.policies.manifests import TEAM, event, gpu_node

NODES = "/apis/aliquot.dev/v1alpha1/gpunodes"


def _of_agents() -> list[Attempt]:
    refused = "GPUNode aliquot-trial-node-a is not written by the node agent of aliquot-trial-node-b"
    theirs = f"{refused}, which writes its own node's alone"
    healthy = {"status": {"slicesPerCard": 99}}

    def attempt(
        what: str,
        method: str,
        path: str,
        body: Any,
        *,
        who: str = "agent-b",
        says: str = theirs,
        media: str = JSON,
        query: Obj | None = None,
    ) -> Attempt:
        return Attempt(what, AGENTS, says, who, method, f"{NODES}{path}", body, media, query or {})

    return [
        attempt(
            "patches the status of another node",
            "PATCH",
            "/aliquot-trial-node-a/status",
            healthy,
            media=MERGE,
        ),
        attempt(
            "patches the status of another node by a JSON Patch",
            "PATCH",
            "/aliquot-trial-node-a/status",
            [{"op": "add", "path": "/status", "value": {"slicesPerCard": 99}}],
            media=OPERATIONS,
        ),
        attempt(
            "applies the status of another node",
            "PATCH",
            "/aliquot-trial-node-a/status",
            gpu_node("aliquot-trial-node-a", slicesPerCard=99),
            media=APPLY,
            query={"fieldManager": "agent", "force": "true"},
        ),
        attempt(
            "labels another node's GPUNode",
            "PATCH",
            "/aliquot-trial-node-a",
            {"metadata": {"labels": {"a": "b"}}},
            media=MERGE,
        ),
        attempt(
            "creates the GPUNode of another node",
            "POST",
            "",
            gpu_node("aliquot-trial-node-c"),
            says="GPUNode aliquot-trial-node-c is not written by the node agent of aliquot-trial-node-b",
        ),
        attempt(
            "creates a GPUNode by a generated name",
            "POST",
            "",
            {**gpu_node(""), "metadata": {"generateName": "aliquot-trial-node-b"}},
            says="is not written by the node agent of aliquot-trial-node-b",
        ),
        attempt("deletes another node's GPUNode", "DELETE", "/aliquot-trial-node-a", None),
        attempt(
            "deletes all GPUNodes",
            "DELETE",
            "",
            None,
            says="is not written by the node agent of aliquot-trial-node-b",
            query={"fieldSelector": "metadata.name=aliquot-trial-node-a"},
        ),
        attempt(
            "patches a status with a token that names no node",
            "PATCH",
            "/aliquot-trial-node-a/status",
            healthy,
            who="agent",
            media=MERGE,
            says="GPUNode aliquot-trial-node-a is not written by a node agent whose token names no node",
        ),
    ]


def _events() -> list[Attempt]:
    core, newer = f"/api/v1/namespaces/{TEAM}/events", f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events"

    def attempt(what: str, body: Obj, says: str, who: str = "agent-b", path: str = core) -> Attempt:
        return Attempt(what, EVENTS, says, who, "POST", path, body)

    speaks = "is not written by the node agent of aliquot-trial-node-b, which speaks for its own node alone"
    modern = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "running.1", "namespace": TEAM},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "aliquot.dev/agent",
        "reportingInstance": "x",
        "action": "Warned",
        "reason": "Lie",
        "type": "Warning",
        "regarding": event("")["involvedObject"],
    }

    def editing(what: str, change: Obj) -> Attempt:
        says = f"event ResizeNotApplied of host aliquot-trial-node-a {speaks}"
        return Attempt(what, EVENTS, says, "agent-b", "PATCH", f"{core}/said", change, MERGE)

    return [
        editing("edits what another node said", {"message": "a lie"}),
        editing(
            "edits what another node said and takes its name off",
            {"source": {"host": "aliquot-trial-node-b"}},
        ),
        attempt(
            "speaks for another node",
            event("aliquot-trial-node-a"),
            f"event ResizeNotApplied of host aliquot-trial-node-a {speaks}",
        ),
        attempt("speaks for no node", event(""), f"event ResizeNotApplied of host (none) {speaks}"),
        attempt(
            "speaks with a token that names no node",
            event("aliquot-trial-node-a"),
            "is not written by a node agent whose token names no node",
            "agent",
        ),
        attempt(
            "speaks about a Secret",
            event("aliquot-trial-node-b", "Secret", "s"),
            "about Secret s is not written by the node agent of aliquot-trial-node-b, which speaks about pods alone",
        ),
        attempt(
            "speaks for another node by events.k8s.io",
            modern,
            f"event Lie of host (none) {speaks}",
            path=newer,
        ),
    ]


OF_OTHER_NODES = [*_of_agents(), *_events()]
