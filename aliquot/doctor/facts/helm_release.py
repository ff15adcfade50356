"""The Helm release that Aliquot was installed as, by the labels and annotations of its objects."""

from collections.abc import Iterator
from typing import Any, Final

from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.fact import Fact, NotKnownError
from aliquot.kube.objects import KubeObject

INSTANCE: Final = "app.kubernetes.io/instance"
"""The chart labels all its objects with the release's name."""
HELM_NAMESPACE: Final = "meta.helm.sh/release-namespace"
"""Helm's own annotation."""
USUAL: Final = "aliquot"
"""The release's name in docs/install.md."""


def helm_command(cluster: Cluster) -> str:
    """What brings the chart's objects as they should be: an upgrade of the release, or its install if there is none."""
    found = next((one for one in _labelled(cluster) if INSTANCE in one.metadata.labels), None)
    if found is None and _all_known(cluster):
        return f"helm install {USUAL} CHART --namespace {cluster.namespace} --create-namespace"
    name, namespace = USUAL, cluster.namespace
    if found is not None:
        name = found.metadata.labels[INSTANCE]
        namespace = found.metadata.annotations.get(HELM_NAMESPACE, namespace)
    return f"helm upgrade {name} CHART --namespace {namespace} --reset-then-reuse-values"


def _all_known(cluster: Cluster) -> bool:
    """Whether everything could be read by which a release would be known."""
    return not any(fact.reason for fact in _facts(cluster))


def _labelled(cluster: Cluster) -> Iterator[KubeObject]:
    """The chart's objects, as far as they are there and could be read; those of its namespace first."""
    for fact in _facts(cluster):
        try:
            one = fact.get()
        except NotKnownError:
            continue
        if one is not None:
            yield one


def _facts(cluster: Cluster) -> Iterator[Fact[Any]]:
    """The facts of single objects. CRDs are left out: they outlive their release."""
    yield from cluster.workloads.values()
    yield cluster.configuration
    yield cluster.webhooks
