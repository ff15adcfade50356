"""Names of the resources: parts that do not agree on them, and pods that use others."""

from dataclasses import replace
from typing import Any

import pytest

from aliquot.doctor.facts import objects
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.finding import Result
from aliquot.kube.objects import Pod
from tests.deploy import charts
from tests.unit.doctor.clusters import (
    Json,
    broken,
    found,
    healthy,
    node,
    pod,
    pods,
    read,
    tenant,
    workload,
    worst,
)

FAILURE, WARNING, OK = Result.FAILURE, Result.WARNING, Result.OK
DOMAIN = "gpu.example.com"
FLAG = f"--resource-domain={DOMAIN}"
MEMORY = {f"{DOMAIN}/gpu": "1", f"{DOMAIN}/gpu-mem": "4Gi"}
OLD = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "4Gi"}


def renamed(**changes: Any) -> Cluster:
    """A healthy cluster whose chart was installed with another domain; its only tenant uses the new names."""
    rendered = charts.objects({"resourceDomain": DOMAIN}, kubernetes="v1.37.2")

    def one(kind: str, name: str, kept: type[Any], **more: Any) -> Any:
        return read({**charts.one(rendered, kind, name), **more}, kept)

    parts = {
        name: one(
            "DaemonSet" if name == "aliquot-agent" else "Deployment",
            name,
            objects.Workload,
            status={"readyReplicas": 9},
        )
        for name in COMPONENTS
    }
    usual = {
        "workloads": {name: Fact.of(part) for name, part in parts.items()},
        "webhooks": Fact.of(one("MutatingWebhookConfiguration", "aliquot", objects.WebhookConfiguration)),
        "configuration": Fact.of(one("ConfigMap", "aliquot-scheduler", objects.ConfigMap)),
        "nodes": Fact.of((node(**{"aliquot.dev/gpu": "0", f"{DOMAIN}/gpu": "20"}),)),
        "pods": pods_of(),
    }
    return replace(healthy(), **{**usual, **changes})


def pods_of(*more: Pod) -> Any:
    """A tenant under the new names, and these."""
    (old, agent) = pods().get().found
    placed = {"annotations": dict(old.metadata.annotations)}
    return Fact.of(replace(pods().get(), found=(pod("chat", limits=MEMORY, **placed), agent, *more)))


def test_a_cluster_of_other_names_is_healthy():
    """Checks of slices, of the scheduler's configuration and of the kubelets' resources follow the chosen domain."""
    for check in ("names", "scheduler", "slices", "inventory", "unscheduled", "bypasses", "kubelet-restarts"):
        seen = worst(renamed(), check)
        assert seen.result is OK, seen
    assert f"{DOMAIN}/gpu" in worst(renamed(), "names").seen


@pytest.mark.parametrize("name", ["aliquot-scheduler", "aliquot-agent"])
def test_parts_that_were_told_another_domain(name: str):
    """By hand, or by half an upgrade."""
    there = {**healthy().workloads, name: Fact.of(workload(name, args=[FLAG]))}
    seen = worst(broken(workloads=there), "names")
    assert seen.result is FAILURE
    assert f"{DOMAIN}" in seen.seen
    assert "the webhook aliquot.dev" in seen.seen


def test_a_configuration_that_does_not_show_the_webhook_such_pods():
    """The webhook alone knows the domain."""
    there = {name: Fact.of(workload(name, args=[FLAG])) for name in COMPONENTS}
    seen = worst(broken(workloads=there, pods=pods_of()), "names")
    assert seen.result is FAILURE
    assert "pods.aliquot.dev is not asked about pods with resources of gpu.example.com" in seen.seen


@pytest.mark.parametrize(
    ("one", "result"),
    [
        (tenant("old"), WARNING),
        (pod("old", "", limits=OLD), FAILURE),
        (pod("old", "", limits={"gpu.example.org/gpu-mem": "4Gi"}), FAILURE),
        (tenant("old", status={"phase": "Succeeded"}), OK),
        (pod("old", "", limits={"aliyun.com/gpu-mem": "4"}), OK),
        (pod("old", "", limits={"amd.com/gpu": "1"}), OK),
        (pod("old", "", limits=MEMORY), OK),
    ],
)
def test_pods_under_other_names(one: Pod, result: Result):
    """They run on under them, or wait for ever; other projects' pods are not ours to judge."""
    seen = worst(renamed(pods=pods_of(one)), "names")
    assert seen.result is result, seen
    assert seen.objects == (() if result is OK else ("default/old",))
    assert result is OK or f"called {DOMAIN}/gpu, {DOMAIN}/gpu-mem" in seen.seen


@pytest.mark.parametrize("without", [("aliquot-webhook",), ("aliquot-webhook", "aliquot-scheduler")])
def test_the_domain_is_known_without_the_webhook(without: tuple[str, ...]):
    """Where it is not installed, or neither is the scheduler: then as the agents are told."""
    there = {**renamed().workloads, **{name: Fact.of(None) for name in without}}
    assert f"called {DOMAIN}/gpu" in worst(renamed(workloads=there), "names").seen


def test_an_init_container_of_the_names_before_is_in_danger_too():
    """When its kubelet restarts."""
    first = {"name": "first", "resources": {"limits": OLD}}
    one = tenant("old", spec={"initContainers": [first]})
    assert worst(renamed(pods=pods_of(one)), "kubelet-restarts").objects == ("default/old",)


def test_pods_of_a_domain_that_was_given_up():
    """Back to the default one, too."""
    seen = worst(broken(pods=pods(pod("old", "", limits=MEMORY))), "names")
    assert (seen.result, seen.objects) == (FAILURE, ("default/old",))


def test_resources_of_another_plugin_that_nodes_have_are_no_other_names():
    """Whatever they are called."""
    served = node(**{f"{DOMAIN}/gpu": "20", "gpu.example.org/gpu-mem": "40"})
    other = pod("other", "", limits={"gpu.example.org/gpu-mem": "4"})
    seen = worst(renamed(nodes=Fact.of((served,)), pods=pods_of(other)), "names")
    assert seen.result is OK, seen


def test_another_plugin_in_the_chosen_domain():
    """The webhook takes its resources for misspelt ones."""
    served = node(**{f"{DOMAIN}/gpu": "20", f"{DOMAIN}/fpga": "2", f"{DOMAIN}/nic": "0"})
    seen = worst(renamed(nodes=Fact.of((served,))), "names")
    assert (seen.result, seen.objects) == (WARNING, (f"{DOMAIN}/fpga",))


def test_a_pod_that_runs_under_the_old_names_is_no_bypass():
    """Nor without a placement, nor stranded."""
    placed: Json = {"spec": {"runtimeClassName": "nvidia"}}
    cluster = renamed(pods=pods_of(tenant("old", **placed)))
    for check in ("bypasses", "slices"):
        assert [one.result for one in found(cluster, check)] == [OK]
