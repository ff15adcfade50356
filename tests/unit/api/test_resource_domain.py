"""Another domain for the resources: which ones are taken, and what is read and refused then."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aliquot.api.names import DEFAULT_NAMES, ResourceNames, is_mig
from aliquot.api.resource_domain import LONGEST, ResourceDomainError, names_of
from aliquot.crds.gpu_quota import Most, ResourceQuota, hard_limits
from aliquot.kube.objects import Pod
from aliquot.plugin.settings import parse_settings
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import PodRequest, RequestError, read_pod_request
from aliquot.scheduler_ext.options import parse_arguments as parse_extender
from aliquot.scheduler_ext.state.pods import PlacedPod, pods_of
from aliquot.webhook.__main__ import parse_arguments as parse_webhook

NAMES = ResourceNames.of("gpu.example.com")
PARSERS: dict[str, Callable[[list[str]], Any]] = {
    "webhook": lambda words: parse_webhook([*words, "--tls-cert=x", "--tls-key=x"]),
    "extender": parse_extender,
    "agent": lambda words: parse_settings([*words, "--node-name=n"]),
}


def document(limits: dict[str, str]) -> dict[str, Any]:
    """A pod of one container."""
    container = {"name": "main", "resources": {"limits": limits}}
    return {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "n", "containers": [container]}}


def request(limits: dict[str, str], names: ResourceNames) -> PodRequest:
    """What a pod with these limits asks for."""
    return read_pod_request(msgspec.convert(document(limits), Pod), names)


def test_all_resources_are_in_the_domain():
    """The four of a slice, and MIG instances."""
    assert NAMES.slices == tuple(
        name.replace("aliquot.dev", "gpu.example.com") for name in DEFAULT_NAMES.slices
    )
    assert NAMES.mig_resource("1g.10gb+me") == "gpu.example.com/mig-1g.10gb.me"
    assert ResourceNames.of("aliquot.dev") == DEFAULT_NAMES
    assert is_mig("gpu.example.com/mig-1g.10gb")
    assert not is_mig("gpu.example.com/gpu-mem")


@pytest.mark.parametrize("service", PARSERS)
def test_every_service_is_told_by_the_same_flag(service: str):
    """Without it the names are the usual ones."""
    assert PARSERS[service](["--resource-domain=gpu.example.com"]).names == NAMES
    assert PARSERS[service]([]).names == DEFAULT_NAMES


@pytest.mark.parametrize("service", PARSERS)
def test_no_service_starts_with_a_domain_of_another_project(service: str, capsys: pytest.CaptureFixture[str]):
    """The message says what to write instead."""
    with pytest.raises(SystemExit):
        PARSERS[service](["--resource-domain=nvidia.com"])
    assert "choose a domain of your own, such as gpu.example.com" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ("", "is not a DNS name"),
        ("gpu", "is not a DNS name"),
        ("GPU.example.com", "is not a DNS name"),
        ("gpu.example.com/", "is not a DNS name"),
        ("gpu_.example.com", "is not a DNS name"),
        (f"{'a' * (LONGEST - 3)}.com", "at most 63 characters"),
        ("requests.example.com", "ResourceQuota"),
        ("kubernetes.io", "belongs to Kubernetes"),
        ("gpu.k8s.io", "belongs to Kubernetes"),
        ("nvidia.com", "belongs to another project"),
        ("gpu.intel.com", "belongs to another project, as intel.com does"),
    ],
)
def test_a_wrong_domain_is_refused_in_words(domain: str, words: str):
    """It is no DNS name, or resources of others are in it."""
    with pytest.raises(ResourceDomainError, match=words):
        names_of(domain)


def test_a_domain_of_ones_own_is_taken():
    """Also one that only looks like another project's."""
    for domain in ("example.com", "mynvidia.com", "gpu.aliquot.dev", f"{'a' * (LONGEST - 4)}.com"):
        assert names_of(domain).gpu == f"{domain}/gpu"


def test_a_request_is_read_in_the_chosen_names():
    """With the slices that the kubelet counts."""
    limits = {"gpu.example.com/gpu": "2", "gpu.example.com/gpu-mem": "4Gi", "gpu.example.com/gpu-core": "20"}
    read = request(limits, NAMES)
    assert read.containers[0].slice
    assert read.containers[0].slice.limits(NAMES) == limits
    assert read.host.slices == 2


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("aliquot.dev/gpu", "here this resource is called gpu.example.com/gpu$"),
        ("aliquot.dev/gpu-mem", "here this resource is called gpu.example.com/gpu-mem$"),
        ("aliquot.dev/mig-1g.10gb", "here this resource is called gpu.example.com/mig-1g.10gb$"),
        ("gpu.example.com/gpumem", "did you mean gpu.example.com/gpu-mem"),
    ],
)
def test_names_of_the_default_domain_are_refused(resource: str, words: str):
    """No node has them, so such a pod would wait for ever; and misspelt names of the chosen domain."""
    with pytest.raises(RequestError, match=f"container 'main': {resource}: .*{words}"):
        request({resource: "1"}, NAMES)


def test_other_domains_are_others():
    """Where no domain is chosen, nothing is said of resources that are not in the default one."""
    assert not request({"gpu.example.com/gpu-mem": "1"}, DEFAULT_NAMES).containers


def test_the_extender_counts_slices_in_the_chosen_names():
    """As it reads pods off the API server; other fields are read as always."""
    limits = {"gpu.example.com/gpu": "2", "aliquot.dev/gpu": "1", "cpu": "500m"}
    text = msgspec.json.encode(document(limits))
    read = msgspec.json.decode(text, type=pods_of(NAMES))
    assert isinstance(read, PlacedPod)
    assert read.spec.host == HostShare(cpu_milli=500, slices=2)
    assert (read.spec.node_name, read.metadata.uid, read.spec.containers) == ("n", "u", ())
    assert msgspec.json.decode(text, type=pods_of(DEFAULT_NAMES)).spec.host.slices == 1
    assert pods_of(DEFAULT_NAMES) is PlacedPod


def test_resource_quotas_hold_under_both_names():
    """One that was written before the domain was chosen would end without a word; the least of all counts."""
    for hard, cores in (
        ({"limits.gpu.example.com/gpu-core": "200"}, 200),
        ({"limits.aliquot.dev/gpu-core": "100", "limits.gpu.example.com/gpu-core": "200"}, 100),
    ):
        quota = msgspec.convert({"metadata": {"name": "q"}, "spec": {"hard": hard}}, ResourceQuota)
        assert hard_limits(quota, NAMES, ()) == Most(cores=cores)
    given_up = msgspec.convert({"spec": {"hard": {"limits.gpu.example.com/gpu-core": "200"}}}, ResourceQuota)
    assert hard_limits(given_up, DEFAULT_NAMES, ()) == Most()
