"""Others who hand out the same cards, and pods that get cards without a slice."""

from dataclasses import replace
from typing import Any

import pytest

from aliquot.doctor.facts.cluster import Pods
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.gpu_software import HANDERS
from aliquot.doctor.facts.objects import ResourceSlice
from aliquot.doctor.finding import Result
from aliquot.kube.objects import KubeObject, Pod
from tests.unit.doctor.clusters import broken, found, healthy, node, pod, pods, read, tenant, worst

FAILURE, WARNING, NOT_CHECKED, OK = Result.FAILURE, Result.WARNING, Result.NOT_CHECKED, Result.OK


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("nvidia.com/gpu", "NVIDIA's device plugin"),
        ("nvidia.com/gpu.shared", "NVIDIA's device plugin"),
        ("nvidia.com/mig-1g.10gb", "NVIDIA's device plugin"),
        ("nvidia.com/gpumem", "HAMi"),
        ("volcano.sh/vgpu-memory", "Volcano's GPU plugin"),
        ("aliyun.com/gpu-mem", "Aliyun gpushare"),
        ("tencent.com/vcuda-core", "Tencent's gpu-manager"),
        ("nvidia.com/vgpu-number", "vgpu-manager"),
        ("nvshare.com/gpu", "nvshare"),
    ],
)
def test_a_node_that_serves_others_resources(resource: str, name: str):
    """On a node with slices that is a failure; with none left to serve, or elsewhere, it is none."""
    seen = worst(broken(nodes=Fact.of((node(**{resource: "8"}),))), "neighbours")
    assert (seen.result, seen.objects) == (FAILURE, ("gpu-1",))
    assert seen.seen.startswith(name)
    assert worst(broken(nodes=Fact.of((node(**{resource: "0"}),))), "neighbours").result is OK
    assert worst(broken(nodes=Fact.of((node(), node("b", **{resource: "8"})))), "neighbours").result is OK


@pytest.mark.parametrize(
    ("image", "owner", "name"),
    [
        (
            "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            "nvidia-device-plugin-daemonset",
            "NVIDIA's device plugin",
        ),
        ("mirror/nvdp@sha256:0", "nvdp-nvidia-device-plugin", "NVIDIA's device plugin"),
        ("projecthami/hami:v2.10.0", "hami-device-plugin", "HAMi"),
        (
            "docker.io/projecthami/volcano-vgpu-device-plugin:v1.11",
            "volcano-device-plugin",
            "Volcano's GPU plugin",
        ),
        ("registry/acs/k8s-gpushare-plugin:v2", "gpushare-device-plugin-ds", "Aliyun gpushare"),
        (
            "nvcr.io/nvidia/k8s-dra-driver-gpu:v25",
            "nvidia-dra-driver-gpu-kubelet-plugin",
            "NVIDIA's DRA driver",
        ),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "nvidia-device-plugin-mps-control-daemon", "CUDA MPS"),
    ],
)
def test_a_plugins_pod_on_a_node_with_slices(image: str, owner: str, name: str):
    """Known by its image or by the DaemonSet that made it, whatever it serves; not after its end, nor elsewhere."""
    one = pod("plugin", image=image, owner=owner, namespace="gpu")
    (told,) = found(broken(pods=pods(one)), "neighbours")
    assert (told.result, told.seen.startswith(name)) == (FAILURE, True), told
    elsewhere = pod("plugin", "other", image=image, owner=owner)
    ended = pod("plugin", image=image, owner=owner, status={"phase": "Failed"})
    assert worst(broken(pods=pods(elsewhere, ended)), "neighbours").result is OK


def test_hami_serves_nvidias_resources():
    """By what it writes on its nodes it is told from NVIDIA's plugin."""
    one = node(**{"nvidia.com/gpu": "80"})
    one.metadata.annotations["hami.io/node-nvidia-register"] = "[]"
    (told,) = found(broken(nodes=Fact.of((one,))), "neighbours")
    assert (told.result, told.seen.startswith("HAMi")) == (FAILURE, True)


@pytest.mark.parametrize(
    ("image", "owner"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.20.0", {"owner": "gpu-feature-discovery"}),
        ("projecthami/hami:v2.10.0", {}),
        ("example/vgpu-manager-docs", {}),
    ],
)
def test_what_only_has_such_an_image(image: str, owner: dict[str, str]):
    """GPU Feature Discovery has that of NVIDIA's plugin, HAMi's scheduler that of HAMi's."""
    assert worst(broken(pods=pods(pod("x", image=image, **owner))), "neighbours").result is OK


def test_cards_that_are_handed_out_by_dra():
    """ResourceSlices tell of it, and where."""
    one = read({"spec": {"driver": "gpu.nvidia.com", "nodeName": "gpu-1"}}, ResourceSlice)
    seen = worst(broken(slices=Fact.of((one,))), "neighbours")
    assert (seen.result, seen.seen.startswith("NVIDIA's DRA driver")) == (FAILURE, True)


def test_mig_manager_is_a_warning():
    """It changes cards under their users."""
    one = pod("m", image="nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12", owner="nvidia-mig-manager")
    assert worst(broken(pods=pods(one)), "neighbours").result is WARNING


def test_the_operator_alone_is_no_failure():
    """What counts is what it runs."""
    seen = worst(broken(operators=Fact.of((KubeObject(),))), "neighbours")
    assert (seen.result, "GPU Operator" in seen.seen) == (OK, True)


def test_each_neighbour_is_known_by_something():
    """And has its remedy."""
    assert all((one.resources or one.marks) and one.remedy for one in HANDERS)


def visible(value: str | None) -> list[dict[str, Any]]:
    """The variable, with a value or from elsewhere."""
    source = {"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}
    return [{"name": "NVIDIA_VISIBLE_DEVICES", **(source if value is None else {"value": value})}]


EXPORTER = {"image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.5", "env": visible("all")}


@pytest.mark.parametrize(
    ("one", "result"),
    [
        (pod("sly", env=visible("all")), FAILURE),
        (pod("sly", env=visible("GPU-gpu-1-0")), FAILURE),
        (pod("sly", spec={"initContainers": [{"name": "i", "env": visible("0")}]}), FAILURE),
        (pod("sly", limits={"nvidia.com/gpu": "1"}, env=visible("all")), FAILURE),
        (tenant("sly", spec={"initContainers": [{"name": "i", "env": visible("0")}]}), FAILURE),
        (pod("sly", namespace="aliquot-system", env=visible("all")), FAILURE),
        (pod("sly", **EXPORTER), FAILURE),
        (pod("exporter", owner="nvidia-dcgm-exporter", **EXPORTER), OK),
        (pod("void", env=visible("void")), OK),
        (pod("none", env=visible("none")), OK),
        (pod("ended", env=visible("all"), status={"phase": "Succeeded"}), OK),
        (pod("elsewhere", "plain", env=visible("all")), OK),
        (tenant("sliced", env=visible("all")), OK),
        (pod("whence", env=visible(None)), WARNING),
        (pod("image", spec={"runtimeClassName": "nvidia"}), WARNING),
        (pod("voided", env=visible("void"), spec={"runtimeClassName": "nvidia"}), OK),
        (pod("kata", spec={"runtimeClassName": "kata"}), OK),
    ],
)
def test_pods_that_ask_nvidias_runtime(one: Pod, result: Result):
    """By the variable in any container that has no slice; not the agent, nor NVIDIA's own DaemonSets."""
    seen = worst(broken(pods=pods(one)), "bypasses")
    assert seen.result is result, seen
    assert result is OK or seen.objects == (one.key,)


def test_pods_that_were_not_looked_at_are_not_ok():
    """Beyond the most pods that are read nothing is known, by any check of pods; what was seen is told all the same."""
    left_out = replace(healthy().pods.get(), left_out="there are more")
    bad = {one.check for one in found(broken(pods=Fact.of(left_out))) if one.result is not OK}
    checks = {
        "scheduler",
        "extender-errors",
        "enforcement",
        "pools",
        "names",
        "slices",
        "unscheduled",
        "kubelet-restarts",
        "neighbours",
        "bypasses",
    }
    assert bad == checks
    taken = Pods((pod("sly", env=visible("all")),), "there are more")
    told = found(broken(pods=Fact.of(taken)), "bypasses")
    assert [one.result for one in told] == [FAILURE, NOT_CHECKED]
