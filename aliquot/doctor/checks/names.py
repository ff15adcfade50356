"""The names of the resources: whether all parts use the same, and which pods use others."""

from collections.abc import Iterator

from aliquot.api.names import DOMAIN, ResourceNames
from aliquot.dialects.projects import in_other_domain
from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.finding import UPGRADE, Told, failure, some, warning
from aliquot.units import Quantity, QuantityError, parse_quantity

PARTS = {
    "aliquot-webhook": "the webhook",
    "aliquot-scheduler": "the extender",
    "aliquot-agent": "the agents",
}


def names(cluster: Cluster) -> Iterator[Told]:
    """Webhook, its configuration, extender and agents use one domain; pods use it, too, and no other plugin does."""
    told = [*_parts(cluster), *_other_plugins(cluster), *_pods(cluster)]
    yield from cluster.pods.get().conclude(told, f"the resources are called {cluster.names.gpu} and so on")


def _parts(cluster: Cluster) -> Iterator[Told]:
    installed = {part: cluster.workload(name) for name, part in PARTS.items()}
    domains = {
        part: one.flag("resource-domain", DOMAIN)
        for part, one in installed.items()
        if one is not None and not one.removes_files
    }
    if len(set(domains.values())) > 1:
        said = ", ".join(f"{part} {domain}" for part, domain in domains.items())
        yield failure(f"the parts do not agree on the domain of the resources: {said}.", UPGRADE)
    configuration, prefix = cluster.webhooks.get(), f"'{cluster.names.domain}/'"
    for one in configuration.webhooks if configuration else ():
        expressions = [each.expression for each in one.match_conditions or ()]
        if one.name.startswith("pods.") and not any(prefix in each for each in expressions):
            yield failure(
                f"webhook {one.name} is not asked about pods with resources of {cluster.names.domain}: "
                "they get no slice.",
                UPGRADE,
                [one.name],
            )


def _other_plugins(cluster: Cluster) -> Iterator[Told]:
    """Resources of the domain that are not Aliquot's: pods that ask for them are refused."""
    domain = cluster.names.domain
    foreign = {
        one for one in _served(cluster) if one.startswith(f"{domain}/") and not cluster.names.owns(one)
    }
    if foreign:
        yield warning(
            f"another device plugin names resources in the domain {domain}: {some(foreign)}. The webhook refuses pods "
            "that ask for them.",
            "Choose a domain that no other device plugin uses (resourceDomain in the chart's values).",
            sorted(foreign),
        )


def _served(cluster: Cluster) -> set[str]:
    """The resources that nodes have."""
    return {
        resource
        for node in cluster.nodes.get()
        for resource, amount in node.status.allocatable.items()
        if _is_some(amount)
    }


def _is_some(amount: Quantity) -> bool:
    try:
        return parse_quantity(amount) > 0
    except QuantityError:
        return False


def _pods(cluster: Cluster) -> Iterator[Told]:
    """Pods that ask in another domain, as after the admin has chosen this one."""
    usual, served = cluster.names, _served(cluster)
    pods = [
        pod
        for pod in cluster.pods.get().found
        if not pod.finished
        and any(usual.misnamed(one) or one not in served for one in in_other_domain(pod, usual))
    ]
    waiting = [pod.key for pod in pods if not pod.spec.node_name]
    if waiting:
        yield failure(
            f"pods that wait for resources which no node has any more: {some(waiting)}. {_called(usual)}",
            "Write these names into their manifests, and make the pods anew.",
            waiting,
        )
    running = [pod.key for pod in pods if pod.spec.node_name]
    if running:
        yield warning(
            f"pods that run under other names of the resources: {some(running)}. They keep what they have, and their "
            f"successors are refused. {_called(usual)}",
            "Write these names into their manifests, and make the pods anew.",
            running,
        )


def _called(usual: ResourceNames) -> str:
    return f"The resources are called {usual.gpu}, {usual.memory} and so on here."
