"""Versions that do not fit are named, with what to do."""

import pytest

from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.objects import Node, Workload
from aliquot.doctor.facts.versions import NEWEST_CUDA, OLDEST_KUBERNETES
from aliquot.doctor.finding import Result
from tests.cluster.programs import kubernetes_version
from tests.deploy import charts
from tests.unit.doctor.clusters import (
    agent_pod,
    broken,
    definition,
    found,
    healthy,
    named,
    node,
    read,
    worst,
)

FAILURE, WARNING, OK = Result.FAILURE, Result.WARNING, Result.OK


@pytest.mark.parametrize(
    ("version", "result", "words"),
    [
        ("v1.29.14", FAILURE, "before 1.30"),
        ("v1.30.0-rc.1+k3s1", OK, "v1.30.0"),
        ("v1.37.9-eks-1234", OK, "v1.37.9"),
        ("v1.38.0", WARNING, "tested up to 1.37"),
        ("unknown", WARNING, "cannot be read"),
    ],
)
def test_the_api_server(version: str, result: Result, words: str):
    """Too old, too new, or of a vendor."""
    kubelets = (node(info={"kubeletVersion": version}),)
    seen = found(broken(version=Fact.of(version), nodes=Fact.of(kubelets)), "kubernetes")[0]
    assert (seen.result, words in seen.seen) == (result, True), seen


def other(name: str, **info: str) -> Node:
    """Another node, whose kubelet says this."""
    return node(name, info=info)


@pytest.mark.parametrize(
    ("kubelet", "sharing", "result"),
    [
        ("v1.29.3", "gpu-1", FAILURE),
        ("v1.38.0", "gpu-1", WARNING),
        ("v1.33.1", "plain", WARNING),
        ("v1.34.1", "gpu-1", OK),
    ],
)
def test_kubelets(kubelet: str, sharing: str, result: Result):
    """Of nodes with slices they must take CDI devices; of all they must fit the API server."""
    nodes = (other(sharing, kubeletVersion=kubelet),)
    assert worst(broken(nodes=Fact.of(nodes)), "kubernetes").result is result


@pytest.mark.parametrize(
    ("runtime", "result", "words"),
    [
        ("containerd://2.4.2", OK, "on 1"),
        ("containerd://1.7.29", WARNING, "enable_cdi = true"),
        ("containerd://1.6.36", FAILURE, "containerd 1.7 or later"),
        ("cri-o://1.37.0", OK, "on 1"),
        ("cri-o://1.22.5", FAILURE, "CRI-O"),
        ("docker://27.3.1", WARNING, "/var/run/cdi"),
        ("", WARNING, "/var/run/cdi"),
    ],
)
def test_runtimes_of_nodes_with_slices(runtime: str, result: Result, words: str):
    """By what the kubelet tells of them."""
    seen = worst(broken(nodes=Fact.of((other("gpu-1", containerRuntimeVersion=runtime),))), "runtimes")
    assert (seen.result, words in seen.seen + seen.remedy) == (result, True), seen


@pytest.mark.parametrize(
    ("image", "result"),
    [
        ("registry.k8s.io/kube-scheduler:v1.37.0", OK),
        ("registry.k8s.io/kube-scheduler:v1.36.4", OK),
        ("registry.k8s.io/kube-scheduler:v1.35.9", WARNING),
        ("registry.k8s.io/kube-scheduler:v1.38.0", WARNING),
        (f"registry.k8s.io/kube-scheduler@sha256:{'1' * 64}", OK),
    ],
)
def test_a_kube_scheduler_that_an_upgrade_left_behind(image: str, result: Result):
    """The chart has one of the version that the cluster had; of a digest nothing is known."""
    document = named("Deployment", "aliquot-scheduler")
    document["spec"]["template"]["spec"]["containers"][0]["image"] = image
    other = Fact.of(read(document, Workload))
    cluster = broken(workloads={**healthy().workloads, "aliquot-scheduler": other})
    assert worst(cluster, "kubernetes").result is result


def test_runtimes_of_other_nodes_do_not_matter():
    """Nobody has a slice there."""
    nodes = (node(), other("plain", containerRuntimeVersion="docker://27.3.1"))
    assert worst(broken(nodes=Fact.of(nodes)), "runtimes").result is OK


def aged(name: str) -> Fact[Workload | None]:
    """A component of version 0.0.9."""
    document = {
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/version": "0.0.9"}}}},
    }
    return Fact.of(read(document, Workload))


@pytest.mark.parametrize("name", COMPONENTS)
def test_one_part_of_another_version(name: str):
    """Each is named with its version."""
    seen = worst(broken(workloads={**healthy().workloads, name: aged(name)}), "skew")
    assert seen.result is FAILURE
    assert f"{name} 0.0.9" in seen.seen


def test_crds_that_an_upgrade_left_behind():
    """Their label says of which version they are."""
    old = definition("gpunodes.aliquot.dev")
    old.metadata.labels["app.kubernetes.io/version"] = "0.0.9"
    cluster = broken(definitions={**healthy().definitions, "gpunodes.aliquot.dev": Fact.of(old)})
    assert "gpunodes.aliquot.dev 0.0.9" in worst(cluster, "skew").seen


def test_a_rollout_that_has_not_ended():
    """A pod of another version than its DaemonSet."""
    late = agent_pod("gpu-2")
    late.metadata.labels["app.kubernetes.io/version"] = "0.0.9"
    seen = worst(broken(own_pods=Fact.of((late,))), "skew")
    assert (seen.result, seen.objects) == (WARNING, ("aliquot-system/agent-gpu-2",))


def test_a_command_of_another_version_than_the_cluster():
    """All of the cluster is of one version, the command of another."""
    workloads = {name: aged(name) for name in COMPONENTS}
    cluster = Cluster(workloads=workloads, definitions={}, own_pods=Fact.of(()))
    assert "this command is" in worst(cluster, "skew").seen


def test_the_versions_here_are_those_of_the_chart_and_of_the_tests():
    """Oldest: what the chart is for; newest: what the tests run on."""
    assert "v{}.{}.{}".format(*OLDEST_KUBERNETES) == charts.KUBERNETES
    newest = kubernetes_version()
    assert found(broken(version=Fact.of(newest)), "kubernetes")[0].result is OK
    with (charts.ROOT / "constraints.txt").open() as lines:
        (pinned,) = [line for line in lines if line.startswith("cuda-bindings==")]
    major, minor = map(int, pinned.partition("==")[2].split(".")[:2])
    assert 1000 * major + 10 * minor == NEWEST_CUDA
