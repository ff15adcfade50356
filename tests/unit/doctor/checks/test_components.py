"""Parts of the chart that are missing, down or told wrongly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from aliquot.crds.gpu_pool import GPUPool
from aliquot.doctor.facts import objects
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster, Pods
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.finding import Result
from aliquot.kube.objects import Pod
from tests.deploy import charts
from tests.unit.doctor.clusters import (
    NOW,
    Json,
    bindings,
    broken,
    configuration,
    definition,
    found,
    healthy,
    named,
    node,
    pod,
    pods,
    policies,
    read,
    tenant,
    workload,
    worst,
)

FAILURE, WARNING, NOT_CHECKED, OK = Result.FAILURE, Result.WARNING, Result.NOT_CHECKED, Result.OK


def with_workload(name: str, one: objects.Workload | None) -> Cluster:
    """A cluster with another component."""
    return broken(workloads={**healthy().workloads, name: Fact.of(one)})


@pytest.mark.parametrize("name", [one for one in COMPONENTS if one != "aliquot-certs"])
def test_a_component_that_is_not_installed(name: str):
    """It is named."""
    cluster = replace(with_workload(name, None), gpu_nodes=Fact.of(()))
    seen = worst(cluster, "components")
    assert (seen.result, seen.objects) == (FAILURE, (name,))


def test_agents_that_were_started_otherwise():
    """As units of systemd, for example: there is no DaemonSet, and nodes share their cards all the same."""
    assert worst(with_workload("aliquot-agent", None), "components").result is NOT_CHECKED


def removing(ready: int, wanted: int = 2) -> Cluster:
    """A cluster of another domain whose agents are told to remove their files, and are done on so many nodes."""
    values = {"resourceDomain": "gpu.example.com"}
    objects_of = {
        (one["kind"], one["metadata"]["name"]): one
        for one in charts.objects({**values, "agent": {"removeFiles": True}}, kubernetes="v1.37.2")
    }
    status = {"desiredNumberScheduled": wanted, "numberReady": ready}
    agent = {**objects_of["DaemonSet", "aliquot-agent"], "status": status}
    others = {
        name: {**objects_of["Deployment", name], "status": {"readyReplicas": 2}}
        for name in COMPONENTS
        if name != "aliquot-agent"
    }
    documents = {**others, "aliquot-agent": agent}
    workloads = {name: Fact.of(read(one, objects.Workload)) for name, one in documents.items()}
    webhooks = read(objects_of["MutatingWebhookConfiguration", "aliquot"], objects.WebhookConfiguration)
    away = (node(**{"aliquot.dev/gpu": "0"}),)
    empty = Fact.of(Pods(()))
    return broken(
        workloads=workloads, webhooks=Fact.of(webhooks), nodes=Fact.of(away), own_pods=Fact.of(()), pods=empty
    )


@pytest.mark.parametrize(
    ("ready", "words", "remedy"),
    [
        (1, "done on 1 of 2 nodes", "delete them, or set agent.removeFiles=false"),
        (2, "done on 2 of 2 nodes", "helm uninstall"),
    ],
)
def test_agents_that_remove_their_files(ready: int, words: str, remedy: str):
    """The admin has told them to: it is said once, and nothing else is called wrong because of it."""
    cluster = removing(ready)
    seen = worst(cluster, "components")
    assert (seen.result, words in seen.seen, remedy in seen.remedy) == (WARNING, True, True), seen
    for check, result in (("inventory", NOT_CHECKED), ("names", OK), ("enforcement", NOT_CHECKED)):
        told = worst(cluster, check)
        assert told.result is result, told


def test_certificates_may_be_made_by_others():
    """aliquot-certs is missed only where there is no certificate either."""
    cluster = with_workload("aliquot-certs", None)
    assert worst(cluster, "components").result is OK
    without = replace(cluster, secrets={**healthy().secrets, "aliquot-webhook-tls": Fact.of(None)})
    assert worst(without, "components").result is FAILURE


@pytest.mark.parametrize(
    ("name", "status", "result"),
    [
        ("aliquot-webhook", {"readyReplicas": 1}, WARNING),
        ("aliquot-webhook", {"readyReplicas": 0}, FAILURE),
        ("aliquot-scheduler", {"readyReplicas": 0}, FAILURE),
        ("aliquot-agent", {"desiredNumberScheduled": 3, "numberReady": 2}, FAILURE),
        ("aliquot-agent", {"desiredNumberScheduled": 0, "numberReady": 0}, WARNING),
    ],
)
def test_pods_that_are_not_ready(name: str, status: Json, result: Result):
    """One replica of several is a warning; a node without its agent is a failure."""
    seen = worst(with_workload(name, workload(name, status)), "components")
    assert (seen.result, name in seen.seen) == (result, True)


@pytest.mark.parametrize(
    ("name", "usual"), [("aliquot-certs", 1), ("aliquot-webhook", 2), ("aliquot-scheduler", 2)]
)
def test_a_component_that_was_scaled_down(name: str, usual: int):
    """The remedy brings as many replicas as the chart has."""
    document = named("Deployment", name)
    assert document["spec"]["replicas"] == usual
    document["spec"]["replicas"] = 0
    seen = worst(with_workload(name, read(document, objects.Workload)), "components")
    assert (seen.result, seen.seen) == (FAILURE, f"{name} has 0 replicas.")
    assert seen.remedy.endswith(f"scale deployment {name} --replicas {usual}")


@pytest.mark.parametrize("name", ["aliquot-webhook", "aliquot-scheduler"])
def test_a_service_that_does_not_answer(name: str):
    """With what the API server's proxy says."""
    cluster = broken(ready={**healthy().ready, name: Fact.of("no endpoints available")})
    seen = worst(cluster, "services")
    assert (seen.result, seen.seen) == (FAILURE, f"{name} is not ready: no endpoints available")


@pytest.mark.parametrize("name", ["gpunodes", "gpupools", "gpuquotas"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "no CRD"),
        ({"versions": [{"name": "v1", "served": True, "storage": True}]}, "needs v1alpha1"),
        ({"versions": [{"name": "v1alpha1", "served": False, "storage": True}]}, "needs v1alpha1"),
    ],
)
def test_a_crd_that_is_missing_or_of_another_version(name: str, change: Json | None, words: str):
    """Nothing of ours works without."""
    full = f"{name}.aliquot.dev"
    one = None if change is None else definition(full, **change)
    seen = worst(broken(definitions={**healthy().definitions, full: Fact.of(one)}), "definitions")
    assert (seen.result, words in seen.seen) == (FAILURE, True)


@pytest.mark.parametrize(
    ("changes", "result", "words"),
    [
        ({"matchConditions": []}, FAILURE, "every pod of the cluster"),
        ({"failurePolicy": "Ignore"}, WARNING, "come in unchanged"),
        ({"namespaceSelector": {"matchLabels": {"slices": "on"}}}, WARNING, "namespaceSelector"),
        ({"objectSelector": {"matchLabels": {"slices": "on"}}}, WARNING, "objectSelector"),
        ({"namespaceSelector": {}, "objectSelector": {}}, OK, "scoped"),
        (
            {"clientConfig": {"service": {"namespace": "x", "name": "y"}}},
            FAILURE,
            "calls the Service x/y",
        ),
    ],
)
def test_the_webhook_configuration(changes: Json, result: Result, words: str):
    """Which pods are shown to the webhook, and what happens while it is down."""
    seen = worst(broken(webhooks=Fact.of(configuration(**changes))), "webhook")
    assert (seen.result, words in seen.seen) == (result, True), seen


def test_no_webhook_configuration():
    """Nobody gets a slice then."""
    assert worst(broken(webhooks=Fact.of(None)), "webhook").result is FAILURE


def test_dialects_that_only_the_webhook_was_told_of():
    """Its configuration, or the extender, lacks them."""
    told = workload("aliquot-webhook", args=["--dialects", "hami", "--log-level=info"])
    seen = worst(with_workload("aliquot-webhook", told), "webhook")
    assert (seen.result, "the webhook hami, its configuration none" in seen.seen) == (FAILURE, True)


def test_policies_that_are_missing():
    """One by one by name; all together are the admin's choice, and a warning."""
    some = broken(policies=Fact.of(tuple(p for p in policies() if p.metadata.name != "aliquot-slices")))
    assert worst(some, "policies").objects == ("aliquot-slices",)
    assert worst(some, "policies").result is FAILURE
    assert worst(broken(policies=Fact.of(()), bindings=Fact.of(())), "policies").result is WARNING


def test_without_the_webhook_no_policy_is_for_its_configuration():
    """The chart makes none with webhook.enabled=false."""
    left = tuple(one for one in policies() if one.metadata.name != "aliquot-webhooks")
    bound = tuple(one for one in bindings() if one.spec.policy_name != "aliquot-webhooks")
    without = replace(with_workload("aliquot-webhook", None), policies=Fact.of(left), bindings=Fact.of(bound))
    assert worst(without, "policies").seen == "7 policies are bound and deny"
    assert worst(broken(policies=Fact.of(left), bindings=Fact.of(bound)), "policies").result is FAILURE


@pytest.mark.parametrize(
    ("changes", "result", "words"),
    [
        ({"validationActions": ["Warn"]}, WARNING, "only does Warn"),
        ({"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, FAILURE, "selector"),
        ({"matchResources": {"namespaceSelector": {}, "matchPolicy": "Equivalent"}}, OK, "8 policies"),
    ],
)
def test_bindings_that_do_not_hold_everywhere(changes: Json, result: Result, words: str):
    """They must deny, in every namespace."""
    seen = worst(broken(bindings=Fact.of(bindings(**changes))), "policies")
    assert (seen.result, words in seen.seen) == (result, True)


def test_a_policy_that_the_cluster_does_not_understand():
    """As kube-controller-manager's type check tells."""
    warned = {
        "status": {"typeChecking": {"expressionWarnings": [{"fieldRef": "x", "warning": "undefined field"}]}}
    }
    names = [one.metadata.name for one in policies()]
    odd = tuple(read({"metadata": {"name": name}, **warned}, objects.Policy) for name in names)
    assert "undefined field" in worst(broken(policies=Fact.of(odd)), "policies").seen


def scheduler_told(change: Callable[[Json], Any]) -> Cluster:
    """A cluster whose kube-scheduler is told otherwise."""
    document = named("ConfigMap", "aliquot-scheduler")
    told = yaml.safe_load(document["data"]["configuration.yaml"])
    change(told)
    document["data"]["configuration.yaml"] = yaml.safe_dump(told)
    return broken(configuration=Fact.of(read(document, objects.ConfigMap)))


def extender_told(**changes: Any) -> Cluster:
    """A cluster whose kube-scheduler's extender entry is another."""
    return scheduler_told(lambda told: told["extenders"][0].update(changes))


@pytest.mark.parametrize(
    ("cluster", "result", "words"),
    [
        (extender_told(ignorable=True), FAILURE, "ignorable is not false"),
        (extender_told(enableHTTPS=False), FAILURE, "enableHTTPS"),
        (extender_told(urlPrefix="http://127.0.0.1:9443"), FAILURE, "not https"),
        (extender_told(tlsConfig={"caFile": "ca.crt"}), FAILURE, "lacks files"),
        (extender_told(managedResources=[{"name": "aliquot.dev/gpu"}]), FAILURE, "resources"),
        (extender_told(nodeCacheCapable=False), FAILURE, "nodeCacheCapable"),
        (extender_told(bindVerb=""), FAILURE, "bindVerb"),
        (scheduler_told(lambda told: told.update(extenders=[])), FAILURE, "knows no extender"),
        (
            scheduler_told(lambda told: told.update(profiles=[{"schedulerName": "mine"}])),
            FAILURE,
            "no profile aliquot-scheduler (it has mine)",
        ),
        (scheduler_told(lambda told: told.pop("percentageOfNodesToScore")), WARNING, "all nodes"),
        (broken(configuration=Fact.of(None)), FAILURE, "no ConfigMap"),
    ],
)
def test_kube_scheduler(cluster: Cluster, result: Result, words: str):
    """Its profile, and its way to the extender."""
    seen = worst(cluster, "scheduler")
    assert (seen.result, words in seen.seen) == (result, True), seen


def test_a_scheduler_of_the_admins_own_is_not_ok_by_itself():
    """Its configuration cannot be seen."""
    snippet = read({"data": {"snippet.yaml": "profiles: []"}}, objects.ConfigMap)
    seen = worst(broken(configuration=Fact.of(snippet)), "scheduler")
    assert (seen.result, "existing" in seen.seen) == (NOT_CHECKED, True)


@pytest.mark.parametrize(("seconds", "result"), [(600, FAILURE), (5, OK)])
def test_pods_that_no_scheduler_looks_at(seconds: int, result: Result):
    """They have no condition PodScheduled, and have waited."""
    made = NOW.timestamp() - seconds
    created = NOW.fromtimestamp(made, NOW.tzinfo).isoformat().replace("+00:00", "Z")
    waiting = pod(
        "lonely",
        "",
        spec={"schedulerName": "aliquot-scheduler"},
        status={"phase": "Pending", "conditions": []},
        meta={"creationTimestamp": created},
    )
    assert worst(broken(pods=pods(waiting)), "scheduler").result is result


def pool(**spec: Any) -> Fact[tuple[GPUPool, ...]]:
    """The only GPUPool."""
    return Fact.of((read({"metadata": {"name": "trial"}, "spec": spec}, GPUPool),))


def test_enforcement_that_is_off_somewhere():
    """By the chart, by a pool, by a pod that its pool lets."""
    watched = workload("aliquot-agent", args=["--enforcement=observe"])
    assert "only observed" in worst(with_workload("aliquot-agent", watched), "enforcement").seen
    assert worst(broken(pools=pool(enforcement="off")), "enforcement").objects == ("trial",)
    weak = tenant("weak")
    weak.metadata.annotations["aliquot.dev/enforcement"] = "off"
    let = broken(pools=pool(podsMayWeakenEnforcement=True), pods=pods(weak))
    assert worst(let, "enforcement").objects == ("default/weak",)
    assert worst(broken(pods=pods(weak)), "enforcement").result is OK


def test_every_finding_says_what_to_do():
    """But those that are ok."""
    told = [one for check in ("components", "webhook", "policies") for one in found(extender_told(), check)]
    assert all(one.remedy for one in told if one.result in (FAILURE, WARNING))


def test_a_dialect_may_be_for_some_namespaces_alone():
    """The chart says so with dialectNamespaces; our own names are for all."""
    one = {
        "name": "hami.aliquot.dev",
        "failurePolicy": "Fail",
        "matchConditions": [{"name": "asks", "expression": "true"}],
        "namespaceSelector": {"matchLabels": {"hami": "on"}},
    }
    document = read({"webhooks": [one]}, objects.WebhookConfiguration)
    both = objects.WebhookConfiguration(webhooks=(*configuration().webhooks, *document.webhooks))
    told = ["--dialects", "hami"]
    workloads = {
        name: Fact.of(workload(name, args=told)) for name in ("aliquot-webhook", "aliquot-scheduler")
    }
    cluster = broken(webhooks=Fact.of(both), workloads={**healthy().workloads, **workloads})
    assert worst(cluster, "webhook").result is OK


@pytest.mark.parametrize(
    ("ready", "state", "result"),
    [
        (True, {"running": {}}, OK),
        (False, {"waiting": {"reason": "CrashLoopBackOff"}}, FAILURE),
        (False, {"running": {}}, FAILURE),
    ],
)
def test_a_kube_scheduler_beside_an_extender_that_does_not_answer(ready: bool, state: Json, result: Result):
    """It may lead, and asks no other extender: then no pod with a slice is scheduled."""
    beside = {"name": "kube-scheduler", "ready": True, "state": {"running": {}}}
    extender = {"name": "extender", "ready": ready, "state": state, "restartCount": 3}
    status = {"containerStatuses": [beside], "initContainerStatuses": [extender]}
    one = read({"metadata": {"name": "aliquot-scheduler-0"}, "status": status}, Pod)
    told = worst(broken(own_pods=Fact.of((*healthy().own_pods.get(), one))), "components")
    assert told.result is result
    assert result is OK or told.objects == ("aliquot-scheduler-0",)
