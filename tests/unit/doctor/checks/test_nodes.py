"""Nodes whose cards nobody looks after, and slices that lead nowhere."""

from typing import Any

import msgspec
import pytest

from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.objects import Webhook, WebhookConfiguration
from aliquot.doctor.finding import Result
from aliquot.kube.objects import Pod
from tests.unit.doctor.clusters import (
    agent_pod,
    broken,
    configuration,
    gpu_node,
    node,
    pod,
    pods,
    tenant,
    worst,
)

FAILURE, WARNING, OK = Result.FAILURE, Result.WARNING, Result.OK


@pytest.mark.parametrize(
    ("cluster", "result", "words"),
    [
        (broken(gpu_nodes=Fact.of((gpu_node(), gpu_node("gone")))), WARNING, "nodes that are gone: gone"),
        (broken(nodes=Fact.of((node(), node("new")))), FAILURE, "published nothing: new"),
        (broken(nodes=Fact.of((node(), node("off", ready=False)))), OK, "2 cards"),
        (broken(own_pods=Fact.of(())), FAILURE, "keeps the inventory of gpu-1"),
        (broken(nodes=Fact.of((node(**{"aliquot.dev/gpu": "0"}),))), FAILURE, "other slices"),
        (broken(nodes=Fact.of((node(**{"aliquot.dev/gpu": "23"}),))), OK, "2 cards"),
        (
            broken(gpu_nodes=Fact.of((gpu_node(health="Unhealthy", reason="XID 79"),))),
            WARNING,
            "card 1 XID 79",
        ),
        (broken(gpu_nodes=Fact.of((gpu_node(migEnabled=True),))), OK, "2 cards"),
        (broken(gpu_nodes=Fact.of(()), nodes=Fact.of(())), WARNING, "no node shares its cards yet"),
    ],
)
def test_inventory(cluster: Cluster, result: Result, words: str):
    """GPUNodes without node, nodes without GPUNode, without agent, and cards that the kubelet has otherwise."""
    seen = worst(cluster, "inventory")
    assert (seen.result, words in seen.seen) == (result, True), seen


def test_an_agent_that_is_not_ready_keeps_nothing_true():
    """It runs, and says that it is not well."""
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    labels = dict(agent_pod().metadata.labels)
    sick = pod("agent", namespace="aliquot-system", labels=labels, owner="aliquot-agent", status=status)
    assert worst(broken(own_pods=Fact.of((sick,))), "inventory").result is FAILURE


@pytest.mark.parametrize(
    ("one", "result", "words"),
    [
        (tenant("stray", card="GPU-other"), FAILURE, "the node has no card GPU-other"),
        (tenant("forged", annotations={"aliquot.dev/placement": "{}"}), FAILURE, "no placement"),
        (tenant("bound", annotations={}), FAILURE, "without a placement: default/bound"),
        (tenant("lost", node_name="gone"), FAILURE, "it is for node gpu-1"),
        (tenant("ended", card="GPU-other", status={"phase": "Succeeded"}), OK, "1 pod"),
        (pod("mig", limits={"aliquot.dev/mig-1g.10gb": "1"}), OK, "2 pods"),
        (
            tenant("stuck", meta={"deletionTimestamp": "2026-11-23T11:00:00Z"}),
            WARNING,
            "should have ended 10 minutes ago",
        ),
        (tenant("ending", meta={"deletionTimestamp": "2026-11-23T11:59:00Z"}), OK, "2 pods"),
    ],
)
def test_slices(one: Any, result: Result, words: str):
    """Pods whose cards, node or end are not there."""
    seen = worst(broken(pods=pods(one)), "slices")
    assert (seen.result, words in seen.seen) == (result, True), seen


def test_slices_on_a_node_that_is_not_ready():
    """They stay promised."""
    seen = worst(broken(nodes=Fact.of((node(ready=False),))), "slices")
    assert (seen.result, seen.objects) == (WARNING, ("default/chat",))


def waiting(name: str, limits: dict[str, str], scheduler: str) -> Pod:
    """A pod that has no node yet."""
    return pod(
        name,
        "",
        limits=limits,
        spec={"schedulerName": scheduler},
        status={"phase": "Pending", "conditions": []},
    )


OURS, HAMIS = {"aliquot.dev/gpu-mem": "4Gi"}, {"nvidia.com/gpumem": "4096"}


@pytest.mark.parametrize(
    ("one", "result"),
    [
        (waiting("missed", OURS, "default-scheduler"), FAILURE),
        (waiting("seen", OURS, "aliquot-scheduler"), OK),
        (waiting("plain", {"cpu": "1"}, "default-scheduler"), OK),
        (waiting("others", HAMIS, "default-scheduler"), OK),
    ],
)
def test_pods_that_came_past_the_webhook(one: Pod, result: Result):
    """They wait for a scheduler that never asks."""
    seen = worst(broken(pods=pods(one)), "unscheduled")
    assert seen.result is result, seen
    assert seen.objects == ((one.key,) if result is FAILURE else ())


@pytest.mark.parametrize("selector", [None, {"matchLabels": {"a": "b"}}])
def test_pods_of_a_dialect_that_came_past_the_webhook(selector: dict[str, Any] | None):
    """They are judged only where all namespaces speak it: elsewhere they may be another project's."""
    described = webhook_of("hami.aliquot.dev", selector)
    cluster = broken(pods=pods(waiting("theirs", HAMIS, "default-scheduler")), webhooks=Fact.of(described))
    assert worst(cluster, "unscheduled").result is (OK if selector else FAILURE)


def webhook_of(name: str, selector: dict[str, Any] | None) -> WebhookConfiguration:
    """A configuration with one more webhook."""
    usual = configuration()
    more = Webhook(name=name, namespace_selector=selector)
    return msgspec.structs.replace(usual, webhooks=(*usual.webhooks, more))


@pytest.mark.parametrize(
    ("init", "result"),
    [
        ({"resources": {"limits": {"aliquot.dev/gpu": "1"}}}, WARNING),
        ({"resources": {"limits": {"aliquot.dev/mig-1g.10gb": "1"}}}, WARNING),
        ({"resources": {"limits": {"aliquot.dev/gpu": "1"}}, "restartPolicy": "Always"}, OK),
        ({"resources": {"limits": {"cpu": "1"}}}, OK),
    ],
)
def test_pods_that_a_restart_of_the_kubelet_may_end(init: dict[str, Any], result: Result):
    """Those whose init container has a slice; a sidecar runs on."""
    one = tenant("prepared", spec={"initContainers": [{"name": "first", **init}]})
    seen = worst(broken(pods=pods(one)), "kubelet-restarts")
    assert (seen.result, seen.objects) == (result, ("default/prepared",) if result is WARNING else ())
    finished = tenant(
        "done", spec={"initContainers": [{"name": "first", **init}]}, status={"phase": "Failed"}
    )
    assert worst(broken(pods=pods(finished)), "kubelet-restarts").result is OK
