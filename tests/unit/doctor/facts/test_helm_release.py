"""The Helm release that remedies name."""

from dataclasses import replace
from typing import Any

import pytest

from aliquot.doctor.facts import objects
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.helm_release import helm_command
from aliquot.doctor.finding import UPGRADE, with_helm_command
from tests.unit.doctor.clusters import broken, found, healthy, named, read

UNKNOWN = Fact[Any].unknown("you lack the right to get deployments")


def released(name: str, kind: str = "Deployment", **annotations: str) -> Any:
    """A workload of a release."""
    document = named(kind, "aliquot-webhook" if kind == "Deployment" else "aliquot")
    document["metadata"]["labels"]["app.kubernetes.io/instance"] = name
    document["metadata"]["annotations"] = annotations
    return read(document, objects.Workload if kind == "Deployment" else objects.WebhookConfiguration)


def nothing(**changes: Any) -> Cluster:
    """A cluster without the chart."""
    workloads = {name: Fact.of(None) for name in COMPONENTS}
    none = {"workloads": workloads, "configuration": Fact.of(None), "webhooks": Fact.of(None)}
    return broken(**{**none, **changes})


def test_the_release_has_the_name_that_it_was_installed_by():
    """By the label of what is there; one component is enough."""
    workloads = {**nothing().workloads, "aliquot-webhook": Fact.of(released("aq"))}
    cluster = replace(nothing(workloads=workloads), namespace="gpu-system")
    assert helm_command(cluster) == "helm upgrade aq CHART --namespace gpu-system --reset-then-reuse-values"


def test_a_release_of_another_namespace_is_upgraded_there():
    """Helm's annotation says where, when only objects without a namespace are seen."""
    elsewhere = released("aq", "MutatingWebhookConfiguration", **{"meta.helm.sh/release-namespace": "gpu"})
    assert helm_command(nothing(webhooks=Fact.of(elsewhere))).startswith(
        "helm upgrade aq CHART --namespace gpu "
    )


def test_where_there_is_no_release_one_is_installed():
    """An upgrade would find none."""
    assert (
        helm_command(nothing()) == "helm install aliquot CHART --namespace aliquot-system --create-namespace"
    )


@pytest.mark.parametrize("cluster", [Cluster(), nothing(webhooks=UNKNOWN)])
def test_what_may_not_be_seen_is_not_taken_for_absent(cluster: Cluster):
    """There may be a release, by the usual name."""
    assert helm_command(cluster).startswith("helm upgrade aliquot CHART --namespace aliquot-system")


def test_remedies_are_told_with_the_command():
    """No mark is left in them."""
    findings = found(replace(nothing(), gpu_nodes=healthy().gpu_nodes))
    told = with_helm_command(findings, "helm install me")
    assert any("helm install me" in one.remedy for one in told)
    assert not any(UPGRADE in one.remedy for one in told)
