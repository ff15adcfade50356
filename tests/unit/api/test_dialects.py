"""HAMi's resources mean here what they mean there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.api.names import ResourceNames
from aliquot.dialects import load_dialects
from aliquot.dialects.hami_unsupported import ANNOTATIONS, ENVIRONMENT
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import RequestError, SliceRequest, read_pod_request

N = "nvidia.com/"
WHOLE = SliceRequest(1, None, 100, 100, exclusive=True)


def read(limits: dict[str, Any], requests: dict[str, Any] | None = None) -> SliceRequest | None:
    """Read the slice of a one-container pod with HAMi's dialect on."""
    resources = {"limits": limits, "requests": requests or {}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    asked = read_pod_request(msgspec.convert({"spec": spec}, Pod), dialects=load_dialects(["hami"]))
    return asked.containers[0].slice if asked.containers else None


HAMI: dict[str, tuple[dict[str, Any], SliceRequest | None]] = {
    "a count alone takes the card alone": ({N + "gpu": 1}, WHOLE),
    "two whole cards": ({N + "gpu": "2"}, SliceRequest(2, None, 100, 100, exclusive=True)),
    "memory is MiB on each card": ({N + "gpu": 2, N + "gpumem": 3000}, SliceRequest(2, 3000, None, 0)),
    "the count is 1 where it is missing": ({N + "gpumem": "3000"}, SliceRequest(1, 3000, None, 0)),
    "cores 0 is unlimited": ({N + "gpumem": 3000, N + "gpucores": 0}, SliceRequest(1, 3000, None, 0)),
    "cores cap each card": ({N + "gpumem": 3000, N + "gpucores": 30}, SliceRequest(1, 3000, None, 30)),
    "cores without memory come with all of it": ({N + "gpucores": 30}, SliceRequest(1, None, 100, 30)),
    "100 cores take the card alone": ({N + "gpucores": 100}, WHOLE),
    "100 cores take the card alone, whatever the memory":
        ({N + "gpumem": 3000, N + "gpucores": 100}, SliceRequest(1, 3000, None, 100, exclusive=True)),
    "more cores than there are count as all": ({N + "gpucores": 250}, WHOLE),
    "a percentage of memory": ({N + "gpumem-percentage": 50}, SliceRequest(1, None, 50, 0)),
    "MiB win over the percentage":
        ({N + "gpumem": 3000, N + "gpumem-percentage": 50}, SliceRequest(1, 3000, None, 0)),
    "0 MiB are as good as none given":
        ({N + "gpu": 1, N + "gpumem": 0, N + "gpucores": 20}, SliceRequest(1, None, 100, 20)),
    "a count of 0 asks for nothing": ({N + "gpu": 0, N + "gpumem": 3000}, None),
    "priority alone asks for nothing": ({N + "priority": 1}, None),
    "nothing of HAMi's": ({"cpu": 1}, None),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "wanted"), HAMI.values(), ids=HAMI)
def test_hami_resources_are_translated(limits: dict[str, Any], wanted: SliceRequest | None):
    """Each combination means the slice that HAMi would give."""
    assert read(limits) == wanted


def test_hami_requests_stand_in_for_limits():
    """As in HAMi, a request counts where there is no limit."""
    assert read({}, {N + "gpumem": 100}) == SliceRequest(1, 100, None, 0)


@pytest.mark.parametrize(
    ("limits", "resource"),
    [
        ({N + "gpumem": "x"}, N + "gpumem"),
        ({N + "gpumem": "-5"}, N + "gpumem"),
        ({N + "gpumem-percentage": 101}, N + "gpumem-percentage"),
        ({N + "gpumem-percentage": 0}, N + "gpumem-percentage"),
        ({N + "gpu": "0.5"}, N + "gpu"),
    ],
)
def test_what_hami_would_zero_is_refused(limits: dict[str, Any], resource: str):
    """Nonsense in a dialect is refused by its own resource's name."""
    with pytest.raises(RequestError) as refused:
        read(limits)
    assert refused.value.resource == resource


@pytest.mark.parametrize("limits", [limits for limits, wanted in HAMI.values() if wanted], ids=str)
def test_reading_what_the_webhook_wrote_changes_nothing(limits: dict[str, Any]):
    """With ours added beside theirs the pod asks for the same, so it can be applied again."""
    first = read(limits)
    assert first is not None
    assert read({**limits, **first.limits(ResourceNames())}) == first


@pytest.mark.parametrize(("written", "meant"), [("6Gi", "6144"), ("6000M", "5723")])
def test_bytes_where_mebibytes_are_counted_are_refused(written: str, meant: str):
    """HAMi reads it into 32 bits and takes nothing, which is the whole card."""
    with pytest.raises(RequestError, match=f"{written} is too much: it counts MiB; write {meant}$"):
        read({N + "gpumem": written})


def test_two_names_for_different_things_are_refused():
    """A container that asks for one thing in our names and another in HAMi's gets neither."""
    with pytest.raises(RequestError, match="keep one of the two"):
        read({N + "gpumem": 3000, "aliquot.dev/gpu-mem": "4Gi"})


def test_without_the_dialect_their_names_mean_nothing():
    """A dialect that is off is as if it did not exist."""
    spec = {"containers": [{"name": "c", "resources": {"limits": {N + "gpu": 1}}}]}
    assert not read_pod_request(msgspec.convert({"spec": spec}, Pod)).containers


def refusal(
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> str:
    """Why a pod with a slice in HAMi's names is refused; empty where it is not."""
    main = {"name": "main", "resources": {"limits": {N + "gpumem": "3000"}}, **(container or {})}
    metadata = {"annotations": annotations or {}, "labels": labels or {}}
    pod = msgspec.convert({"metadata": metadata, "spec": {"containers": [main], **spec}}, Pod)
    try:
        read_pod_request(pod, dialects=load_dialects(["hami"]))
    except RequestError as error:
        return str(error)
    return ""


UNSUPPORTED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "use-gputype": (
        {"annotations": {N + "use-gputype": "A100"}},
        [N + "use-gputype", "A100", "aliquot.dev/card-model"],
    ),
    "nouse-gputype": (
        {"annotations": {N + "nouse-gputype": "H200"}},
        [N + "nouse-gputype", "H200", "aliquot.dev/not-card-model"],
    ),
    "use-gpuuuid": (
        {"annotations": {N + "use-gpuuuid": "GPU-1"}},
        [N + "use-gpuuuid", "GPU-1", "aliquot.dev/card-uuid"],
    ),
    "nouse-gpuuuid": (
        {"annotations": {N + "nouse-gpuuuid": "GPU-1"}},
        [N + "nouse-gpuuuid", "GPU-1", "aliquot.dev/not-card-uuid"],
    ),
    "numa-bind": (
        {"annotations": {N + "numa-bind": "true"}},
        [N + "numa-bind", "aliquot.dev/topology: numa"],
    ),
    "vgpu-mode mig": (
        {"annotations": {N + "vgpu-mode": "mig"}},
        [N + "vgpu-mode", "resource mig-PROFILE"],
    ),
    "vgpu-mode mps": ({"annotations": {N + "vgpu-mode": "mps"}}, [N + "vgpu-mode", "leave it out"]),
    "node-scheduler-policy": (
        {"annotations": {"hami.io/node-scheduler-policy": "binpack"}},
        ["hami.io/node-scheduler-policy", "aliquot.dev/node-policy: Binpack or Spread"],
    ),
    "gpu-scheduler-policy": (
        {"annotations": {"hami.io/gpu-scheduler-policy": "mutex,binpack"}},
        ["hami.io/gpu-scheduler-policy", "mutex,binpack", "aliquot.dev/card-policy"],
    ),
    "device-scoring-weights": (
        {"annotations": {"hami.io/device-scoring-weights": "slot=1"}},
        ["hami.io/device-scoring-weights", "aliquot.dev/card-policy"],
    ),
    "the label that sends HAMi's webhook away": (
        {"labels": {"hami.io/webhook": "ignore"}},
        ["label hami.io/webhook", "leave the resources for cards out"],
    ),
    "HAMi's scheduler": ({"schedulerName": "hami-scheduler"}, ["schedulerName", "write aliquot-scheduler"]),
    "priority, be it the one that is 0": (
        {"container": {"resources": {"limits": {N + "gpumem": "3000", N + "priority": "0"}}}},
        ["container 'main': nvidia.com/priority: '0'", "aliquot.dev/priority"],
    ),
    "priority of an init container": (
        {"initContainers": [{"name": "first", "resources": {"limits": {N + "gpu": "1", N + "priority": 1}}}]},
        ["container 'first': nvidia.com/priority: '1'"],
    ),
    "CUDA_TASK_PRIORITY": (
        {"container": {"env": [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]}},
        ["container 'main': env CUDA_TASK_PRIORITY", "aliquot.dev/priority"],
    ),
    "GPU_CORE_UTILIZATION_POLICY": (
        {"container": {"env": [{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "DISABLE"}]}},
        ["env GPU_CORE_UTILIZATION_POLICY", "aliquot.dev/core-mode"],
    ),
    "CUDA_OVERSUBSCRIBE from elsewhere": (
        {"container": {"env": [{"name": "CUDA_OVERSUBSCRIBE", "valueFrom": {"configMapKeyRef": {}}}]}},
        ["env CUDA_OVERSUBSCRIBE", "aliquot.dev/memory-class: burst"],
    ),
}


@pytest.mark.parametrize(("said", "words"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_is_not_honoured_is_refused(said: dict[str, Any], words: list[str]):
    """The message has the name, the value and what to write instead."""
    message = refusal(**said)
    assert [word for word in [*words, "is HAMi's and not honoured here"] if word not in message] == []


def test_all_that_is_not_honoured_is_named_at_once():
    """A manifest is mended in one go."""
    message = refusal({N + "use-gputype": "A100", N + "numa-bind": "true"}, schedulerName="hami-scheduler")
    assert [
        word for word in (N + "use-gputype", N + "numa-bind", "schedulerName") if word not in message
    ] == []


HONOURED: dict[str, dict[str, Any]] = {
    "no NUMA binding": {"annotations": {N + "numa-bind": "false"}},
    "the way of sharing that is ours, too": {"annotations": {N + "vgpu-mode": "hami-core"}},
    "one of several ways": {"annotations": {N + "vgpu-mode": "mig, hami-core"}},
    "an empty annotation": {"annotations": {N + "use-gputype": ""}},
    "a core limit that holds at all times": {
        "container": {"env": [{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}]}
    },
    "no memory beyond the card's": {"container": {"env": [{"name": "CUDA_OVERSUBSCRIBE", "value": "false"}]}},
    "another label of HAMi's name": {"labels": {"hami.io/webhook": "enforce"}},
    "what HAMi's scheduler wrote into a copied pod": {"annotations": {"hami.io/vgpu-node": "n"}},
}


@pytest.mark.parametrize("said", HONOURED.values(), ids=HONOURED)
def test_what_every_slice_has_anyway_is_let_pass(said: dict[str, Any]):
    """A value that asks for nothing beyond a slice is honoured by doing nothing."""
    assert refusal(**said) == ""


def test_a_pod_in_our_names_is_held_to_it_too():
    """Where the dialect is on, its words beside a slice in our names would be dropped as well."""
    ours = {"resources": {"limits": {"aliquot.dev/gpu-mem": "3Gi"}}}
    assert "aliquot.dev/card-model" in refusal({N + "use-gputype": "A100"}, container=ours)


def test_a_pod_without_a_slice_may_say_what_it_likes():
    """It is for another project to read."""
    nothing = {"resources": {"limits": {N + "gpu": "0", N + "gpumem": "3000"}}}
    assert refusal({N + "use-gputype": "A100"}, container=nothing) == ""


def test_the_page_tells_of_all_that_is_not_honoured():
    """docs/migrate-from-hami.md names each of them in its table of what is refused."""
    page = (Path(__file__).parents[3] / "docs" / "migrate-from-hami.md").read_text()
    table = page.partition("## What is refused")[2].partition("\n## ")[0]
    names = [*ANNOTATIONS, *ENVIRONMENT, N + "priority", "hami-scheduler", "hami.io/webhook: ignore"]
    assert [name for name in names if f"`{name}" not in table] == []


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    """A misspelt flag stops the service at once."""
    with pytest.raises(ValueError, match="no dialect 'hammy'; there are: hami"):
        load_dialects(["hammy"])
