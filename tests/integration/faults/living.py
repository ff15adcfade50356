"""What is true of cards, by the word of pods and of what lives on nodes."""

from collections import Counter

from aliquot.cli.demo.stack import Stack
from aliquot.sandbox.cluster.cluster import PocketCluster
from tests.integration.journey.auditor import containers_of, placement_of


def strangers(stack: Stack) -> set[str]:
    """UIDs of pods that live on a node and that the API server does not know."""
    known = {pod["metadata"]["uid"] for pod in stack.kubectl.list("pods")}
    return {uid for node in stack.nodes.values() for uid, _, _ in containers_of(node)} - known


def promised_by(cluster: PocketCluster) -> dict[str, int]:
    """Card → MiB, as the pods' own annotations add up; for pods whose containers all last."""
    promised: Counter[str] = Counter()
    for placement in filter(None, map(placement_of, cluster.kubectl.list("pods"))):
        for container in placement["containers"]:
            for share in container["cards"]:
                promised[share["uuid"]] += share["memoryMiB"]
    return dict(promised)
