"""What a pod asks for: our resources, Kubernetes' rules, and the sentences that refuse."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.api.names import ResourceNames
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import (
    MAX_CARDS,
    ContainerKind,
    PodRequest,
    RequestError,
    SliceRequest,
    read_pod_request,
)

NAMES = ResourceNames()
GPU, MEM, PERCENT, CORE = (
    f"aliquot.dev/{name}" for name in ("gpu", "gpu-mem", "gpu-mem-percent", "gpu-core")
)
WHOLE_CARD = SliceRequest(1, None, 100, 100, exclusive=True)


def container(name: str = "main", requests: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Build a container as YAML would hold it; `limits` is one of the fields."""
    limits = fields.pop("limits", {})
    return {"name": name, "resources": {"limits": limits, "requests": requests or {}}, **fields}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    """Read a pod as the API server sends it."""
    meta = {"namespace": "ns", "name": "p", "uid": "u-1"}
    spec = {"containers": list(containers), "initContainers": list(init)}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def read_limits(limits: dict[str, Any], names: ResourceNames = NAMES) -> SliceRequest | None:
    """Read the slice of a pod of one container with these limits."""
    containers = read_pod_request(pod(container(limits=limits)), names).containers
    return containers[0].slice if containers else None


SLICES: dict[str, tuple[dict[str, Any], SliceRequest | None]] = {
    "memory alone: one card, uncapped compute": ({MEM: "8Gi"}, SliceRequest(1, 8192, None, 0)),
    "memory is rounded up to MiB": ({MEM: "1500M"}, SliceRequest(1, 1431, None, 0)),
    "percent of memory": ({PERCENT: "25"}, SliceRequest(1, None, 25, 0)),
    "cores alone stand for the same share of memory": ({CORE: "30"}, SliceRequest(1, None, 30, 30)),
    "memory and cores": ({MEM: "8Gi", CORE: 30}, SliceRequest(1, 8192, None, 30)),
    "several cards, the same on each": ({GPU: 2, MEM: "1Gi"}, SliceRequest(2, 1024, None, 0)),
    "a count alone: whole cards, alone on them": ({GPU: "1"}, WHOLE_CARD),
    "all the cores are still no whole card": ({CORE: 100}, SliceRequest(1, None, 100, 100)),
    "a count of 0 asks for nothing": ({GPU: 0}, None),
    "other resources are none of ours": ({"cpu": "0.5", "memory": "1Gi", "example.com/gpu": "1"}, None),
}


@pytest.mark.parametrize(("limits", "wanted"), SLICES.values(), ids=SLICES)
def test_limits_are_read_as_a_slice(limits: dict[str, Any], wanted: SliceRequest | None):
    """Each combination of our resources means one slice."""
    assert read_limits(limits) == wanted


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "memory twice": ({MEM: "1Gi", PERCENT: "5"}, MEM, "gpu-mem-percent is given too"),
    "negative": ({MEM: "-1"}, MEM, "negative"),
    "too large": ({MEM: "1e9Ei"}, MEM, "no quantity"),
    "a forgotten suffix": ({MEM: "4096"}, MEM, "did you mean 4096Mi?"),
    "milli for mega": ({MEM: "0.1m"}, MEM, "did you mean 1Mi?"),
    "no memory": ({MEM: "0"}, MEM, "leave it out"),
    "percent 0": ({PERCENT: "0"}, PERCENT, "from 1 to 100"),
    "percent 101": ({PERCENT: "101"}, PERCENT, "from 1 to 100"),
    "cores 0": ({CORE: "0"}, CORE, "from 1 to 100"),
    "cores 101": ({CORE: 101}, CORE, "from 1 to 100"),
    "half a card": ({GPU: "0.5"}, GPU, "for a part of a card give aliquot.dev/gpu-mem"),
    "more cards than a container can hold": ({GPU: 17}, GPU, "at most 16"),
    "no card, but memory": ({GPU: 0, MEM: "1Gi"}, GPU, "aliquot.dev/gpu-mem is given"),
    "a misspelt resource": (
        {"aliquot.dev/gpu-memory": "1Gi"}, "aliquot.dev/gpu-memory", "did you mean aliquot.dev/gpu-mem?"),
    "a slice and an instance": (
        {MEM: "1Gi", "aliquot.dev/mig-1g.10gb": 1}, "aliquot.dev/mig-1g.10gb", "either"),
    "half an instance": ({"aliquot.dev/mig-1g.10gb": "0.5"}, "aliquot.dev/mig-1g.10gb", "counted whole"),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "resource", "words"), REFUSED.values(), ids=REFUSED)
def test_nonsense_is_refused_by_container_resource_and_remedy(
    limits: dict[str, Any], resource: str, words: str
):
    """A refusal says which container, which resource, and what to write instead."""
    with pytest.raises(RequestError) as refused:
        read_limits(limits)
    assert refused.value.container == "main"
    assert refused.value.resource == resource
    assert str(refused.value).startswith(f"container 'main': {resource}: ")
    assert words in str(refused.value)


def test_a_container_holds_as_many_cards_as_its_control_page():
    """The limit at admission is the limit of the pages' ABI."""
    header = Path(__file__).parents[3] / "libshim" / "include" / "aliquot_pages.h"
    assert f"#define AQ_MAX_CARDS {MAX_CARDS}\n" in header.read_text()


def test_requests_stand_in_for_limits():
    """Where there is no limit, the request counts."""
    (asked,) = read_pod_request(pod(container(requests={MEM: "1Gi"}, limits={CORE: 10}))).containers
    assert asked.slice == SliceRequest(1, 1024, None, 10)


def test_limit_and_request_must_be_the_same_amount():
    """Written differently they may be, but an extended resource cannot burst."""
    same = container(limits={MEM: "1Gi"}, requests={MEM: "1024Mi"})
    assert read_pod_request(pod(same)).wants_slices
    with pytest.raises(RequestError, match="limit 2Gi and request 1Gi differ; give the limit alone"):
        read_pod_request(pod(container(limits={MEM: "2Gi"}, requests={MEM: "1Gi"})))
    with pytest.raises(RequestError, match="no quantity"):
        read_pod_request(pod(container(limits={MEM: "x"}, requests={MEM: "x"})))


def test_other_resources_may_burst():
    """What is not ours is not ours to judge."""
    assert not read_pod_request(pod(container(limits={"cpu": 2}, requests={"cpu": 1}))).containers


def test_containers_come_in_the_order_in_which_they_start():
    """Init containers and sidecars first, each of its kind; those that ask for nothing are left out."""
    asked = read_pod_request(
        pod(
            container("serve", limits={MEM: "4Gi"}),
            container("log"),
            container("mig", limits={"aliquot.dev/mig-1g.10gb.me": "2", "aliquot.dev/mig-2g.20gb": 0}),
            init=(
                container("proxy", limits={MEM: "1Gi"}, restartPolicy="Always"),
                container("fetch", limits={MEM: "2Gi"}),
            ),
        )
    )
    kinds = [(c.name, c.kind) for c in asked.containers]
    assert kinds == [
        ("proxy", ContainerKind.SIDECAR),
        ("fetch", ContainerKind.INIT),
        ("serve", ContainerKind.REGULAR),
        ("mig", ContainerKind.REGULAR),
    ]
    assert asked.containers[-1].mig == {"1g.10gb+me": 2}
    assert (asked.namespace, asked.name, asked.uid) == ("ns", "p", "u-1")
    assert asked.wants_slices
    assert asked.wants_mig


def test_a_pod_without_our_resources_wants_nothing():
    """Ordinary pods yield an empty request."""
    assert read_pod_request(pod(container(), container("b"))) == PodRequest("ns", "p", "u-1")


def test_resources_can_be_renamed():
    """A cluster's own names are read as ours are, in messages too."""
    names = ResourceNames(gpu="corp.example/gpu", memory="corp.example/vram")
    assert read_limits({"corp.example/vram": "1Gi"}, names) == SliceRequest(1, 1024, None, 0)
    with pytest.raises(RequestError, match=r"corp\.example/vram: 5 is 5 bytes"):
        read_limits({"corp.example/vram": "5"}, names)


MEMORY = st.one_of(st.tuples(st.integers(1, 1 << 30), st.none()), st.tuples(st.none(), st.integers(1, 100)))
PARTS = st.builds(
    lambda cards, memory, cores: SliceRequest(cards, *memory, cores),
    st.integers(1, 16),
    MEMORY,
    st.integers(0, 100),
)


@given(
    st.one_of(
        PARTS, st.integers(1, 16).map(lambda cards: SliceRequest(cards, None, 100, 100, exclusive=True))
    )
)
def test_a_slice_written_as_limits_is_read_back(part: SliceRequest):
    """What the webhook writes means what it read."""
    assert read_limits(part.limits(NAMES)) == part


@pytest.mark.parametrize(
    "profile", ["1g.10gb", "1g.10gb+me", "1g.24gb+me.all", "1g.24gb-me", "1c.3g.20gb", "1c.3g.20gb+me"]
)
def test_mig_profiles_survive_their_resource_names(profile: str):
    """A profile becomes a valid resource name and comes back as NVML writes it."""
    resource = NAMES.mig_resource(profile)
    assert "+" not in resource
    assert NAMES.mig_profile(resource) == profile
