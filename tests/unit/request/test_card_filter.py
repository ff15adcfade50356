"""Annotations that say which cards and which policy a pod wants."""

import msgspec
import pytest

from aliquot.kube.objects import Pod
from aliquot.request.card_filter import CardFilter, CardFilterError, read_card_filter
from aliquot.request.placement_policy import Policy, Preference
from aliquot.request.pod_request import RequestError, read_pod_request


def test_models_are_compared_without_capitals_and_maker():
    """People copy names from different tools."""
    only = read_card_filter({"aliquot.dev/card-model": "nvidia h200,  L40S "}, "main")
    assert [only.allows_model(m) for m in ("NVIDIA H200", "NVIDIA L40S", "NVIDIA H100")] == [
        True,
        True,
        False,
    ]


def test_a_container_can_be_meant_alone():
    """As with every annotation that refines."""
    annotations = {"main.aliquot.dev/not-card-uuid": "GPU-1", "aliquot.dev/not-card-uuid": "GPU-2"}
    assert not read_card_filter(annotations, "main").allows("any", "GPU-1")
    assert read_card_filter(annotations, "main").allows("any", "GPU-2")
    assert not read_card_filter(annotations, "other").allows("any", "GPU-2")


@pytest.mark.parametrize("value", ["", "a,,b", ",".join(map(str, range(65)))])
def test_what_names_nothing_or_too_much_is_refused(value: str):
    """A forgotten template value must not mean every card."""
    with pytest.raises(CardFilterError):
        read_card_filter({"aliquot.dev/card-model": value}, "main")


def read(annotations: dict[str, str], limits: dict[str, str]) -> object:
    """Read a pod's request."""
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return read_pod_request(msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod))


def test_a_request_carries_filter_preference_and_host():
    """All that placement needs."""
    annotations = {"aliquot.dev/card-model": "H200", "aliquot.dev/node-policy": "spread"}
    request = read(annotations, {"aliquot.dev/gpu-mem": "1Gi", "cpu": "2", "memory": "1Gi"})
    assert request.containers[0].slice.only == CardFilter(models=frozenset({"h200"}))
    assert request.preference == Preference(node=Policy.SPREAD)
    assert (request.host.cpu_milli, request.host.memory_mib) == (2000, 1024)


def test_refusals_say_what_is_wrong():
    """In the webhook, where people read it."""
    slices = {"aliquot.dev/gpu-mem": "1Gi"}
    with pytest.raises(
        RequestError,
        match=r"annotation aliquot.dev/card-policy: 'best' is none of FragAware, Binpack, Spread",
    ):
        read({"aliquot.dev/card-policy": "best"}, slices)
    with pytest.raises(RequestError, match=r"container 'main': aliquot.dev/card-uuid: a name is empty"):
        read({"aliquot.dev/card-uuid": ""}, slices)
    assert not read({"aliquot.dev/card-policy": "best"}, {"cpu": "1"}).containers
