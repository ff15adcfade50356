"""What the webhook makes of pods."""

import msgspec
import pytest

from aliquot.api.names import GRANTS, LIBRARY_PATH, ResourceNames
from aliquot.kube.objects import Pod
from aliquot.webhook.mutate import Mutator
from aliquot.webhook.refusal import Refusal
from aliquot.webhook.review import LONGEST_WARNING
from tests.unit.webhook.pods import CORE, GPU, HERE, MEM, Document, container, mutate, pod, resources


def refusal(document: Document) -> str:
    """Why the pod is not admitted."""
    with pytest.raises(Refusal) as caught:
        mutate(document)
    return str(caught.value)


def preload(document: Document, position: int = 0, kind: str = "containers") -> str | None:
    """A container's LD_PRELOAD as its process will see it."""
    env = {e["name"]: e.get("value") for e in document["spec"][kind][position].get("env") or []}
    return env.get("LD_PRELOAD")


UNTOUCHED = {
    "a pod that asks for nothing": pod(container()),
    "a pod that asks for other things": pod(container({"cpu": "1", "nvidia.com/mig-1g.5gb": "1"})),
    "a pod that asks for 0 cards": pod(container({GPU: "0"})),
}


@pytest.mark.parametrize("document", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_pods_of_others_stay_as_they_are(document: Document):
    """Whatever asks for no slice is not changed and not commented."""
    assert mutate(document) == (document, [])


ASKS = {
    "memory alone implies one card": ({MEM: "8Gi"}, {GPU: "1", MEM: "8Gi"}),
    "compute alone implies one card": ({CORE: "30"}, {GPU: "1", CORE: "30"}),
    "what is complete stays": ({GPU: "2", MEM: "8Gi", CORE: "30"}, {GPU: "2", MEM: "8Gi", CORE: "30"}),
    "whole cards stay whole": ({GPU: "2"}, {GPU: "2"}),
    "HAMi's names are kept and ours added": (
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"},
        {GPU: "1", MEM: "3000Mi", CORE: "30"},
    ),
    "a HAMi card without memory and cores is a whole one": ({"nvidia.com/gpu": "1"}, {GPU: "1"}),
}


@pytest.mark.parametrize(("limits", "ours"), ASKS.values(), ids=ASKS.keys())
def test_the_request_is_written_out(limits: Document, ours: Document):
    """Limits and requests name our resources, beside whatever the pod wrote."""
    changed, warnings = mutate(pod(container(limits)))
    assert resources(changed) == limits | ours
    assert changed["spec"]["schedulerName"] == "aliquot-scheduler"
    assert preload(changed) == LIBRARY_PATH
    assert warnings == []


@pytest.mark.parametrize("limits", [limits for limits, _ in ASKS.values()], ids=ASKS.keys())
def test_a_second_round_changes_nothing(limits: Document):
    """The API server may call again with the result, and users re-apply it."""
    changed, _ = mutate(pod(container(limits)))
    assert mutate(changed) == (changed, [])


def test_resources_given_as_limits_alone_get_requests():
    """The API server would copy them too, but only before admission."""
    changed, _ = mutate(pod({"name": "main", "resources": {"limits": {MEM: "8Gi"}}}))
    assert resources(changed) == {GPU: "1", MEM: "8Gi"}


def test_init_containers_and_sidecars_are_changed_too():
    """Whatever runs a program with a slice gets the interceptor; the others do not."""
    document = pod(
        container({MEM: "1Gi"}),
        container(name="web"),
        initContainers=[
            container({MEM: "2Gi"}, name="prepare"),
            container({CORE: "20"}, name="side", restartPolicy="Always"),
        ],
    )
    changed, warnings = mutate(document)
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "init container 'prepare' has a slice: a kubelet that restarts while the node agent"
    )
    assert len(warnings[0]) <= LONGEST_WARNING
    assert [preload(changed, n, "initContainers") for n in (0, 1)] == [LIBRARY_PATH] * 2
    assert [preload(changed, n) for n in (0, 1)] == [LIBRARY_PATH, None]
    assert changed["spec"]["containers"][1] == container(name="web")
    assert resources(changed, 1, "initContainers") == {GPU: "1", CORE: "20"}


MERGES = {
    "the pod's own comes after ours": ("/opt/a.so", f"{LIBRARY_PATH}:/opt/a.so"),
    "spaces separate too": ("/opt/a.so /opt/b.so", f"{LIBRARY_PATH}:/opt/a.so:/opt/b.so"),
    "an empty one is ours alone": ("", LIBRARY_PATH),
    "ours is moved to the front": (f"/opt/a.so:{LIBRARY_PATH}", f"{LIBRARY_PATH}:/opt/a.so"),
    "ours is there once": (f"{LIBRARY_PATH}:{LIBRARY_PATH}", LIBRARY_PATH),
}


@pytest.mark.parametrize(("own", "expected"), MERGES.values(), ids=MERGES.keys())
def test_preload_is_merged(own: str, expected: str):
    """Both libraries are loaded, ours first."""
    env = [{"name": "A", "value": "1"}, {"name": "LD_PRELOAD", "value": own}]
    changed, _ = mutate(pod(container({MEM: "1Gi"}, env=env)))
    assert preload(changed) == expected
    assert len(changed["spec"]["containers"][0]["env"]) == 2


def test_the_last_of_several_preloads_counts():
    """Kubernetes gives the process the last entry of a name."""
    env = [{"name": "LD_PRELOAD", "value": "/old.so"}, {"name": "LD_PRELOAD", "value": "/new.so"}]
    changed, _ = mutate(pod(container({MEM: "1Gi"}, env=env)))
    assert preload(changed) == f"{LIBRARY_PATH}:/new.so"


def test_a_preload_from_elsewhere_is_refused_with_a_remedy():
    """Nothing can be put before a value that is read when the container starts."""
    env = [{"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    message = refusal(pod(container({MEM: "1Gi"}, env=env)))
    assert "'main'" in message
    assert "configMapKeyRef" in message
    assert "aliquot.dev/inject: file" in message


def test_injection_by_file_sets_no_preload():
    """The node takes care of it, whatever the pod's LD_PRELOAD says."""
    env = [{"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    document = pod(container({MEM: "1Gi"}, env=env), annotations={"aliquot.dev/inject": "file"})
    changed, _ = mutate(document)
    assert changed["spec"]["containers"][0]["env"] == env
    assert resources(changed) == {GPU: "1", MEM: "1Gi"}


REFUSED = {
    "a negative amount": ({MEM: "-1"}, [MEM, "-1"]),
    "more than 64 bits": ({MEM: "1e9Ei"}, [MEM, "1e9Ei"]),
    "a fraction of a byte": ({MEM: "0.1m"}, [MEM, "0.1m"]),
    "a forgotten suffix": ({MEM: "4096"}, [MEM, "4096 is 4096 bytes; did you mean 4096Mi?"]),
    "no percentage": ({"aliquot.dev/gpu-mem-percent": "0"}, ["gpu-mem-percent", "from 1 to 100"]),
    "too much of a percentage": ({CORE: "101"}, [CORE, "101"]),
    "memory given twice": ({MEM: "1Gi", "aliquot.dev/gpu-mem-percent": "10"}, ["gpu-mem-percent", "one of"]),
    "half a card": ({GPU: "500m"}, [GPU, "500m"]),
    "a misspelt resource": ({"aliquot.dev/gpu-memory": "1Gi"}, ["did you mean aliquot.dev/gpu-mem"]),
    "HAMi's percentage out of range": (
        {"nvidia.com/gpumem-percentage": "150"}, ["nvidia.com/gpumem-percentage", "150"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_nonsense_is_refused_in_words(limits: Document, words: list[str]):
    """The message names the container, the resource and the value."""
    message = refusal(pod(container(limits, name="trainer")))
    assert "'trainer'" in message
    assert [word for word in words if word not in message] == []


LIMITS = (
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_MEMORY_LIMIT_0",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_DISABLE_CONTROL",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
)


def test_a_pod_with_a_node_of_its_own_is_refused():
    """It would pass by the scheduler and wait on the node for cards for ever."""
    assert "nodeSelector" in refusal(pod(container({MEM: "1Gi"}), nodeName="n1"))


def test_an_unknown_kind_of_injection_is_refused():
    """A typo must not silently mean no injection."""
    assert "'files'" in refusal(pod(container({MEM: "1Gi"}), annotations={"aliquot.dev/inject": "files"}))


def test_another_scheduler_is_kept_and_commented():
    """Whoever names a scheduler means it, but should know what it takes."""
    changed, warnings = mutate(pod(container({MEM: "1Gi"}), schedulerName="volcano"))
    assert changed["spec"]["schedulerName"] == "volcano"
    assert len(warnings) == 1
    assert "volcano" in warnings[0]


@pytest.mark.parametrize("grant", GRANTS)
def test_what_the_scheduler_alone_writes_is_taken_off_a_new_pod(grant: str):
    """A copy would be believed, or wait for what was planned for another; also one that asks for nothing."""
    annotations = {grant: "{}", "keep": "this"}
    for document in (
        pod(container(), annotations=annotations),
        pod(container({MEM: "1Gi"}), annotations=annotations),
    ):
        changed, warnings = mutate(document)
        assert changed["metadata"]["annotations"] == {"keep": "this"}
        assert warnings == [f"annotation {grant} is removed: only the scheduler writes it"]


EDITS = {"changed": ("1", "2"), "taken away": ("1", None), "brought in": (None, "2")}


@pytest.mark.parametrize(("before", "after"), EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("grant", GRANTS)
def test_an_edit_of_it_is_undone(grant: str, before: str | None, after: str | None):
    """It is as it was stored, and whoever edited it is told."""
    stored, edited = (
        pod(container({MEM: "1Gi"}), annotations={"keep": "this"} | ({grant: value} if value else {}))
        for value in (before, after)
    )
    mutation = HERE.review_edit(edited, msgspec.convert(edited, Pod), msgspec.convert(stored, Pod))
    (operation,) = mutation.operations
    assert operation.get("value") == before
    assert operation["path"].endswith(grant.replace("/", "~1"))
    assert mutation.warnings == [f"annotation {grant} stays as it was: only the scheduler writes it"]


def test_suspicious_settings_are_commented():
    """What the pod sets in vain, or what gives it more than its slice, is said to its author."""
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    document = pod(
        container({MEM: "1Gi"}, env=env, securityContext={"privileged": True}),
        container(name="other", env=env),
    )
    _, warnings = mutate(document)
    assert ["NVIDIA_VISIBLE_DEVICES" in warnings[0], "privileged" in warnings[1], len(warnings)] == [
        True,
        True,
        2,
    ]


@pytest.mark.parametrize("name", LIMITS)
def test_limits_in_the_environment_are_refused(name: str):
    """The admission policies refuse them as well: a pod is not told first that they merely have no effect."""
    silent = container(name="web", env=[{"name": name, "value": "1"}])
    message = refusal(pod(container({MEM: "1Gi"}), silent))
    assert message == (
        f"container 'web': env {name}: limits do not come from the environment; "
        "leave it out and ask in resources.limits"
    )
    document = pod(silent)
    assert mutate(document) == (document, [])


def test_an_environment_that_asks_for_no_card_is_not_commented():
    """The policies let it pass, too."""
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert mutate(pod(container({MEM: "1Gi"}, env=env)))[1] == []


def test_what_a_dialect_does_not_honour_is_refused():
    """With what to write instead; a pod that speaks no dialect has it for others to read."""
    annotations = {"nvidia.com/use-gputype": "A100", "keep": "this"}
    document = pod(container({"nvidia.com/gpu": "1"}), annotations=annotations)
    assert refusal(document) == (
        "annotation nvidia.com/use-gputype: 'A100' is HAMi's and not honoured here; "
        "write aliquot.dev/card-model and the whole name of the model, such as NVIDIA H200"
    )
    assert mutate(document, Mutator(ResourceNames())) == (document, [])


def test_without_the_dialect_its_names_mean_nothing():
    """A dialect is the admin's choice."""
    document = pod(container({"nvidia.com/gpu": "1"}))
    assert mutate(document, Mutator(ResourceNames())) == (document, [])


def edit(before: Document, after: Document) -> None:
    """An edit of a pod reaches the webhook."""
    HERE.review_edit(after, msgspec.convert(after, Pod), msgspec.convert(before, Pod))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"aliquot.dev/resize-gpu-mem": "4096"},
            "annotation aliquot.dev/resize-gpu-mem: 4096 is 4096 bytes; did you mean 4096Mi?",
        ),
        (
            {"main.aliquot.dev/resize-gpu-core": "half"},
            "annotation main.aliquot.dev/resize-gpu-core: ",
        ),
        (
            {"other.aliquot.dev/resize-gpu-mem": "4Gi"},
            "annotation other.aliquot.dev/resize-gpu-mem: no container 'other' has a slice; there are: main",
        ),
        (
            {"aliquot.dev/core-mode": "burst"},
            "container 'main': aliquot.dev/core-mode: burst needs a share of the card's time; ask for gpu-core too",
        ),
        (
            {"main.aliquot.dev/core-limit": "150"},
            "container 'main': main.aliquot.dev/core-limit: 150 is no percentage",
        ),
        (
            {"aliquot.dev/topology": "fast"},
            "container 'main': aliquot.dev/topology: 'fast' is none of none, best-effort, best-links, numa",
        ),
        ({"main.aliquot.dev/rdma": "yes"}, "main.aliquot.dev/rdma: 'yes' is none of none, near, numa, pcie"),
        ({"aliquot.dev/priority": "high"}, "container 'main': aliquot.dev/priority: 'high' is no priority"),
        ({"aliquot.dev/managed": "Resident"}, "aliquot.dev/managed: 'Resident' is none of reserve, resident"),
        ({"main.aliquot.dev/managed": ""}, "main.aliquot.dev/managed: '' is none of reserve, resident"),
    ],
)
def test_what_annotations_ask_is_checked_at_creation_and_at_each_edit(asked: Document, words: str):
    """Whoever writes nonsense learns it from kubectl; an edit of something else is not held up by it."""
    made = pod(container({GPU: "1", MEM: "2Gi"}))
    asking = pod(container({GPU: "1", MEM: "2Gi"}), annotations=asked)
    assert words in refusal(asking)
    with pytest.raises(Refusal) as caught:
        edit(made, asking)
    assert words in str(caught.value)
    edit(asking, asking)


def test_what_has_no_amounts_cannot_ask_for_others():
    """A MIG instance is as large as its profile: nobody would ever answer."""
    mig, asked = container({"aliquot.dev/mig-1g.10gb": "1"}), {"aliquot.dev/resize-gpu-mem": "4Gi"}
    assert "only slices can be resized, and this pod has none" in refusal(pod(mig, annotations=asked))
    with pytest.raises(Refusal, match="a MIG instance is as large as its profile"):
        edit(pod(mig), pod(mig, annotations=asked))
    edit(pod(mig, annotations=asked), pod(mig))


def test_an_ask_that_makes_sense_is_let_in():
    """Both amounts, for all containers or for one."""
    asked = {"aliquot.dev/resize-gpu-mem": "4Gi", "main.aliquot.dev/resize-gpu-core": "none"}
    made = pod(container({GPU: "1", MEM: "2Gi"}))
    edit(made, pod(container({GPU: "1", MEM: "2Gi"}), annotations=asked))
