"""Kube-scheduler's configuration: the profile for slices, and its way to the extender."""

from collections.abc import Iterator
from typing import Any

import yaml

from aliquot.api.names import SCHEDULER_NAME
from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.finding import UPGRADE, Told, failure, not_checked, some, warning

EVERY_NODE = 100
IGNORED_S = 60
TLS_FILES = ("caFile", "certFile", "keyFile")


def scheduler(cluster: Cluster) -> Iterator[Told]:
    """kube-scheduler's profile for slices, and its way to the extender."""
    configuration = cluster.configuration.get()
    workload = cluster.workload("aliquot-scheduler")
    if workload is None:
        yield not_checked("aliquot-scheduler is not installed")
        return
    if configuration is None:
        yield failure("there is no ConfigMap aliquot-scheduler.", UPGRADE)
        return
    if "configuration.yaml" not in configuration.data:
        yield from _ignored_pods(cluster)
        yield not_checked(
            "the chart's scheduler.mode is existing: that kube-scheduler's configuration is a file of its own",
            "Compare it with the ConfigMap aliquot-scheduler, key snippet.yaml (docs/chart.md).",
        )
        return
    try:
        document = yaml.safe_load(configuration.data["configuration.yaml"])
        told = [*_profile(document), *_extender(cluster, document)]
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        told = [failure(f"kube-scheduler's configuration cannot be read: {error}", UPGRADE)]
    told += _ignored_pods(cluster)
    good = f"profile {SCHEDULER_NAME}, with the extender over mutual TLS"
    yield from cluster.pods.get().conclude(told, good)


def _ignored_pods(cluster: Cluster) -> Iterator[Told]:
    """Pods for our scheduler that no scheduler has ever looked at."""
    waiting = [
        pod.key
        for pod in cluster.pods.get().found
        if pod.spec.scheduler_name == SCHEDULER_NAME
        and not pod.spec.node_name
        and not pod.finished
        and not any(one.type == "PodScheduled" for one in pod.status.conditions)
        and cluster.seconds_since(pod.metadata.creation_timestamp) > IGNORED_S
    ]
    if waiting:
        yield failure(
            f"no scheduler has looked at {some(waiting)} for {IGNORED_S} s: is there a profile {SCHEDULER_NAME}?",
            f"See that aliquot-scheduler leads and runs: kubectl -n {cluster.namespace} logs "
            "deployment/aliquot-scheduler -c kube-scheduler",
            sorted(waiting),
        )


def _profile(document: dict[str, Any]) -> Iterator[Told]:
    names = [profile.get("schedulerName", "default-scheduler") for profile in document.get("profiles") or ()]
    if SCHEDULER_NAME not in names:
        yield failure(
            f"kube-scheduler has no profile {SCHEDULER_NAME} (it has {some(names) or 'none'}): the webhook sends pods "
            "there, and they wait for ever.",
            UPGRADE,
        )
    if document.get("percentageOfNodesToScore") != EVERY_NODE:
        yield warning(
            "kube-scheduler does not look at all nodes (percentageOfNodesToScore): the extender never hears of some.",
            UPGRADE,
        )


def _extender(cluster: Cluster, document: dict[str, Any]) -> Iterator[Told]:
    extenders = [one for one in document.get("extenders") or () if "filter" in str(one.get("filterVerb", ""))]
    if not extenders:
        yield failure("kube-scheduler knows no extender: slices are placed on no card.", UPGRADE)
        return
    one = extenders[0]
    named = {each.get("name") for each in one.get("managedResources") or ()}
    wrong = {
        "is asked for resources": named.issuperset(cluster.names.slices),
        "ignorable is not false": not one.get("ignorable"),
        "nodeCacheCapable is not true": one.get("nodeCacheCapable") is True,
        "bindVerb is not there": bool(one.get("bindVerb")),
        "enableHTTPS is not true": one.get("enableHTTPS") is True,
        "urlPrefix is not https": str(one.get("urlPrefix", "")).startswith("https://"),
        "tlsConfig lacks files": all((one.get("tlsConfig") or {}).get(f) for f in TLS_FILES),
        f"serverName is not {_host(cluster)}": (one.get("tlsConfig") or {}).get("serverName")
        == _host(cluster),
    }
    bad = [words for words, good in wrong.items() if not good]
    if bad:
        yield failure(f"kube-scheduler's extender entry: {'; '.join(bad)}", f"{UPGRADE}, and let it restart.")


def _host(cluster: Cluster) -> str:
    return f"aliquot-scheduler.{cluster.namespace}.svc"
