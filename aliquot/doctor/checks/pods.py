"""Pods that wait for ever without being told, and pods that a restart of their kubelet would end."""

from collections.abc import Iterator

from aliquot.api.names import DEFAULT_SCHEDULER, ResourceNames
from aliquot.dialects.projects import HAMI, speaks
from aliquot.doctor.facts.cluster import Cluster, holds
from aliquot.doctor.finding import Told, count, failure, some, warning
from aliquot.kube.objects import Container


def unscheduled(cluster: Cluster) -> Iterator[Told]:
    """Pods that were made while the webhook was away: no scheduler asks Aliquot for them."""
    pods = cluster.pods.get()
    waiting = [pod for pod in pods.found if not pod.spec.node_name and not pod.finished]
    in_dialect = _reads_everywhere(cluster)
    missed = [
        pod.key
        for pod in waiting
        if pod.spec.scheduler_name == DEFAULT_SCHEDULER
        and (holds(pod, cluster.names) or (in_dialect and speaks(pod, HAMI)))
    ]
    told = []
    if missed:
        told.append(
            failure(
                f"pods that were made while the webhook was away: {some(missed)}. Their schedulerName is "
                f"{DEFAULT_SCHEDULER}, which does not ask Aliquot, and they wait for ever.",
                "Delete them; their controllers make them anew, and the webhook sees these.",
                missed,
            )
        )
    yield from pods.conclude(told, f"{count(len(waiting), 'pod')} without a node, none past the webhook")


def _reads_everywhere(cluster: Cluster) -> bool:
    """Whether HAMi's names are read in all namespaces; where they are in some, others' pods are not ours to judge."""
    configuration = cluster.webhooks.get()
    return configuration is not None and any(
        one.name.startswith("hami.") and not one.namespace_selector for one in configuration.webhooks
    )


def kubelet_restarts(cluster: Cluster) -> Iterator[Told]:
    """Running pods with an init container that has a slice: the kubelet may fail them when it restarts."""
    pods, names = cluster.pods.get(), cluster.names
    running = [pod for pod in pods.found if pod.spec.node_name and not pod.finished and holds(pod, names)]
    endangered = [
        pod.key for pod in running if any(_ends_with_a_slice(one, names) for one in pod.spec.init_containers)
    ]
    told = []
    if endangered:
        told.append(
            warning(
                f"running pods whose init container has a slice: {some(endangered)}. A kubelet that restarts "
                "while the node agent is away fails them.",
                "Ask for slices in containers and sidecars alone, or let a controller make such pods anew.",
                endangered,
            )
        )
    yield from pods.conclude(
        told, f"{count(len(running), 'pod')} with slices outlive a restart of their kubelet"
    )


def _ends_with_a_slice(container: Container, names: ResourceNames) -> bool:
    """Whether an init container has a slice or a MIG instance, and is no sidecar."""
    asked = (*container.resources.limits, *container.resources.requests)
    return container.restart_policy != "Always" and any(
        names.owns(one) or names.misnamed(one) for one in asked
    )
