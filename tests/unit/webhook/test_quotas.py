"""What a namespace's quota makes of pods at admission."""

from typing import Any

import msgspec
import pytest

from aliquot.api.names import ResourceNames
from aliquot.crds.gpu_quota import GPUQuota
from aliquot.dialects.hami import HamiDialect
from aliquot.webhook.mutate import Mutator
from aliquot.webhook.refusal import Refusal
from tests.unit.webhook.pods import CORE, GPU, MEM, Document, container, mutate, pod, resources

PERCENT = "aliquot.dev/gpu-mem-percent"


def within(**spec: Any) -> Mutator:
    """A webhook that knows one quota, of every namespace."""
    found = msgspec.convert(
        {"metadata": {"name": "q"}, "spec": {"namespaces": ["default"], **spec}}, GPUQuota
    )
    return Mutator(
        ResourceNames(), (HamiDialect(),), lambda namespace: found if namespace == "default" else None
    )


ALONE = {"gpuAlone": {"memoryMiB": 8192, "cores": 25}}
DEFAULTS: dict[str, tuple[Document, Document, Document]] = {
    "cards alone are slices where the quota says so": ({GPU: "2"}, ALONE, {GPU: "2", MEM: "8Gi", CORE: "25"}),
    "memory alone leaves the slice uncapped": (
        {GPU: "1"},
        {"gpuAlone": {"memoryMiB": 1000}},
        {GPU: "1", MEM: "1000Mi"},
    ),
    "cores alone mean as much memory": ({GPU: "1"}, {"gpuAlone": {"cores": 25}}, {GPU: "1", CORE: "25"}),
    "cards alone stay whole where it does not": ({GPU: "1"}, {"cores": 20}, {GPU: "1"}),
    "a share is added to memory": ({MEM: "4Gi"}, {"cores": 20}, {GPU: "1", MEM: "4Gi", CORE: "20"}),
    "a share is added to a percentage": (
        {PERCENT: "50"},
        {"cores": 20},
        {GPU: "1", PERCENT: "50", CORE: "20"},
    ),
    "a share that is given stays": (
        {MEM: "4Gi", CORE: "50"},
        {"cores": 20} | ALONE,
        {GPU: "1", MEM: "4Gi", CORE: "50"},
    ),
    "what another dialect says is whole": (
        {"nvidia.com/gpu": "1"},
        {"cores": 20} | ALONE,
        {"nvidia.com/gpu": "1", GPU: "1"},
    ),
}


@pytest.mark.parametrize(("limits", "defaults", "after"), DEFAULTS.values(), ids=DEFAULTS.keys())
def test_defaults_fill_in_what_a_container_leaves_out(limits: Document, defaults: Document, after: Document):
    """In limits and requests, once: the result is not filled in again."""
    webhook = within(defaults=defaults)
    changed, warnings = mutate(pod(container(limits)), webhook)
    assert resources(changed) == after
    assert bool(warnings) == (len(after) > len({GPU: "", **limits}))
    assert mutate(changed, webhook) == (changed, [])


def test_a_container_that_wants_to_be_uncapped_gets_no_share():
    """It says so in its annotation; a container beside it gets one."""
    document = pod(
        container({MEM: "4Gi"}),
        container({MEM: "4Gi"}, name="side"),
        annotations={"main.aliquot.dev/core-mode": "uncapped"},
    )
    changed, _ = mutate(document, within(defaults={"cores": 20}))
    assert [resources(changed, n) for n in (0, 1)] == [
        {GPU: "1", MEM: "4Gi"},
        {GPU: "1", MEM: "4Gi", CORE: "20"},
    ]


def test_init_containers_and_sidecars_are_filled_in_too_and_others_left_alone():
    """Whatever asks for a card; what asks for none gets none."""
    document = pod(
        container({GPU: "1"}), container(name="plain"), initContainers=[container({GPU: "1"}, name="init")]
    )
    changed, warnings = mutate(document, within(defaults=ALONE))
    assert resources(changed) == resources(changed, 0, "initContainers") == {GPU: "1", MEM: "8Gi", CORE: "25"}
    assert "resources" not in changed["spec"]["containers"][1]
    assert warnings[0] == f"container 'init': gets {MEM}: 8Gi, {CORE}: 25 by default of GPUQuota q"


def test_another_namespaces_quota_says_nothing():
    """Nor does one in which no quota is."""
    changed, warnings = mutate(pod(container({GPU: "1"})), within(defaults=ALONE), namespace="other")
    assert (resources(changed), warnings) == ({GPU: "1"}, [])


TOO_LARGE = {
    "memory on all cards together": (
        {GPU: "2", MEM: "5Gi"},
        {"memoryMiB": 9216},
        "asks for 10Gi of GPU memory, and may have 9Gi",
    ),
    "cores": ({MEM: "1Gi", CORE: "60"}, {"cores": 50}, "asks for 60 gpu-core, and may have 50 at most"),
    "cards": (
        {GPU: "3"},
        {"cards": 2},
        "asks for 3 cards, and may have 2 at most; ask for less, or have podMax.cards",
    ),
    "another dialect's": (
        {"nvidia.com/gpumem": "5000"},
        {"memoryMiB": 4000},
        "asks for 5000Mi of GPU memory",
    ),
}


@pytest.mark.parametrize(("limits", "most", "said"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_pod_above_the_most_is_refused_in_words(limits: Document, most: Document, said: str):
    """They name the quota, the namespace, both amounts and the remedy."""
    with pytest.raises(Refusal) as caught:
        mutate(pod(container(limits)), within(podMax=most))
    assert str(caught.value).startswith("GPUQuota q: a pod of namespace default ")
    assert said in str(caught.value)


def test_the_most_is_of_the_pod_with_its_defaults_and_of_all_containers_that_run_together():
    """As quotas count."""
    both = pod(container({GPU: "1"}), container({GPU: "1"}, name="side"))
    with pytest.raises(Refusal, match="asks for 16Gi"):
        mutate(both, within(defaults=ALONE, podMax={"memoryMiB": 8192}))
    init = pod(container({GPU: "1"}), initContainers=[container({GPU: "1"}, name="init")])
    changed, _ = mutate(init, within(defaults=ALONE, podMax={"memoryMiB": 8192}))
    assert resources(changed)[MEM] == "8Gi"


def test_memory_that_is_not_known_yet_is_left_to_the_scheduler():
    """A percentage is one of a card that is not chosen."""
    changed, _ = mutate(pod(container({PERCENT: "100"})), within(podMax={"memoryMiB": 1}))
    assert resources(changed)[PERCENT] == "100"
