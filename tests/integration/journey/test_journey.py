"""A pod's journey through the real webhook, extender, node agent and interceptor, in a pocket cluster."""

import json
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import container, plain, pod

ASK_CARD = """
import json
from cuda.bindings import driver
driver.cuInit(0)
count = driver.cuDeviceGetCount()[1]
device = driver.cuDeviceGet(0)[1]
print(json.dumps({"cards": count, "total": driver.cuDeviceTotalMem(device)[1] >> 20}), flush=True)
"""


def placement_of(stored: dict[str, Any]) -> dict[str, Any]:
    """The placement annotation, decoded."""
    decoded: dict[str, Any] = json.loads(stored["metadata"]["annotations"]["aliquot.dev/placement"])
    return decoded


def test_a_container_sees_its_slice_and_nothing_else(stack: Stack) -> None:
    """An ordinary CUDA program in a pod finds one card of the size it asked for."""
    asking = pod("sees", container("main", {"mem": "3Gi"}, ["python", "-c", ASK_CARD]), restartPolicy="Never")
    stack.kubectl.apply(asking)
    stack.kubectl.wait_phase("sees", "Succeeded", "Failed")
    assert json.loads(stack.kubectl.logs("sees")) == {"cards": 1, "total": 3072}


def test_a_program_that_clears_its_preload_list_sees_the_slice_too(stack: Stack) -> None:
    """The forwarder stands in the driver's place, whatever the environment says."""
    command = ["env", "-u", "LD_PRELOAD", "python", "-c", ASK_CARD]
    stack.kubectl.apply(pod("clears", container("main", {"mem": "3Gi"}, command), restartPolicy="Never"))
    stack.kubectl.wait_phase("clears", "Succeeded", "Failed")
    assert json.loads(stack.kubectl.logs("clears")) == {"cards": 1, "total": 3072}


def test_a_pod_may_have_the_interceptor_by_file(stack: Stack) -> None:
    """Its LD_PRELOAD stays its own, and every program has the interceptor all the same."""
    asking = pod(
        "by-file", container("main", {"mem": "1Gi"}, ["cat", "/proc/self/maps"]), restartPolicy="Never"
    )
    asking["metadata"]["annotations"] = {"aliquot.dev/inject": "file"}
    stack.kubectl.apply(asking)
    stored = stack.kubectl.wait_phase("by-file", "Succeeded", "Failed")
    assert not stored["spec"]["containers"][0].get("env")
    assert "/libaliquot.so\n" in stack.kubectl.logs("by-file")


def test_what_a_pod_asked_for_before_it_started_is_not_taken_back(stack: Stack) -> None:
    """Its annotation is gone by the time it starts; nothing else would have it load the interceptor."""
    asking = pod(
        "changes", container("main", {"mem": "1Gi"}, ["cat", "/proc/self/maps"]), restartPolicy="Never"
    )
    asking["metadata"]["annotations"] = {"aliquot.dev/inject": "file"}
    asking["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    stack.kubectl.apply(asking)
    stack.kubectl.patch("pods", "changes", {"metadata": {"annotations": {"aliquot.dev/inject": None}}})
    stack.kubectl.patch("pods", "changes", {"spec": {"schedulingGates": []}})
    stored = stack.kubectl.wait_phase("changes", "Succeeded", "Failed")
    assert "aliquot.dev/inject" not in stored["metadata"]["annotations"]
    assert not stored["spec"]["containers"][0].get("env")
    assert "/libaliquot.so\n" in stack.kubectl.logs("changes")


def test_two_equal_pods_at_once_get_slices_of_their_own(stack: Stack) -> None:
    """Equal pods created in the same instant are told apart."""
    stack.kubectl.apply(*(plain(f"twin-{i}", mem="2Gi") for i in range(4)))
    for i in range(4):
        stack.kubectl.wait_phase(f"twin-{i}", "Running")
    audit(stack)


def test_several_containers_each_get_their_own_slice(stack: Stack) -> None:
    """Two containers of a pod that ask for different amounts get just these; a third that asks nothing, nothing."""
    stack.kubectl.apply(
        pod(
            "several",
            container("small", {"mem": "1Gi", "core": "10"}),
            container("large", {"mem": "4Gi", "core": "30"}),
            container("none", command=["sh", "-c", "ls $SIMGPU_DEV; exec sleep 1000"]),
        )
    )
    stored = stack.kubectl.wait_phase("several", "Running")
    assert [c["name"] for c in placement_of(stored)["containers"]] == ["small", "large"]
    assert stack.kubectl.logs("several", "none") == ""


def test_init_containers_and_sidecars_share_their_pods_cards(stack: Stack) -> None:
    """Plain init, sidecar and regular containers run, and the init container's cards are among its pod's."""
    steps = [
        container("prepare", {"mem": "2Gi"}, ["true"]),
        container("proxy", {"mem": "1Gi"}, restartPolicy="Always"),
    ]
    stack.kubectl.apply(pod("kinds", container("main", {"mem": "2Gi"}), initContainers=steps))
    stored = stack.kubectl.wait_phase("kinds", "Running")
    cards = {c["name"]: {card["uuid"] for card in c["cards"]} for c in placement_of(stored)["containers"]}
    kinds = {c["name"]: c["kind"] for c in placement_of(stored)["containers"]}
    assert kinds == {"prepare": "init", "proxy": "sidecar", "main": "regular"}
    assert cards["prepare"] <= cards["proxy"] | cards["main"]


def test_a_pod_whose_init_container_alone_asks_runs(stack: Stack) -> None:
    """The kubelet tells nobody who owns the devices of such a container; its checkpoint does."""
    init = container("prepare", {"mem": "2Gi"}, ["python", "-c", ASK_CARD])
    stack.kubectl.apply(pod("init-only", container("main"), initContainers=[init]))
    stack.kubectl.wait_phase("init-only", "Running")
    assert json.loads(stack.kubectl.logs("init-only", "prepare"))["total"] == 2048


def test_a_restarted_container_keeps_its_slice(stack: Stack) -> None:
    """A container that crashes starts again on the same card with the same limit."""
    crash = [
        "sh",
        "-c",
        "test $(wc -l < /data/runs) -ge 3 2>/dev/null && exec sleep 1000; echo x >> /data/runs; exit 1",
    ]
    main = container("main", {"mem": "2Gi"}, crash, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    stack.kubectl.apply(pod("crashes", main, volumes=[{"name": "data", "emptyDir": {}}]))

    def settled(stored: dict[str, Any]) -> bool:
        (status,) = stored["status"].get("containerStatuses") or [{}]
        return status.get("restartCount", 0) >= 3 and "running" in status.get("state", {})

    stack.kubectl.wait_for("pods", "crashes", settled, deadline=60)
    audit(stack)


def test_a_kubelet_restart_changes_nothing_for_running_pods(stack: Stack, node: Node) -> None:
    """The agent registers again, running containers are left alone and new pods start."""
    stack.kubectl.apply(plain("before"))
    before = stack.kubectl.wait_phase("before", "Running")
    stack.cluster.restart(f"kubelet-{node.name}")
    wait_for_slices(stack, node)
    stack.kubectl.apply(plain("after"))
    stack.kubectl.wait_phase("after", "Running")
    now = stack.kubectl.get("pods", "before")
    assert now["status"]["containerStatuses"][0]["restartCount"] == 0
    assert placement_of(now) == placement_of(before)


def wait_for_slices(stack: Stack, node: Node) -> None:
    """Wait until the node offers slices again."""
    stack.kubectl.wait_for(
        "nodes", node.name, lambda n: int(n["status"]["allocatable"].get("aliquot.dev/gpu", "0")) > 0
    )


@pytest.mark.slow
def test_a_pod_created_again_under_its_name_is_another_pod(stack: Stack) -> None:
    """The new pod gets a placement of its own UID and its own, different limit."""
    stack.kubectl.apply(plain("again", mem="1Gi"))
    first = stack.kubectl.wait_phase("again", "Running")
    stack.kubectl.delete("pods", "again", grace=0)
    stack.kubectl.wait_gone("pods", "again")
    stack.kubectl.apply(plain("again", mem="5Gi"))
    second = stack.kubectl.wait_phase("again", "Running")
    assert placement_of(first)["podUID"] != placement_of(second)["podUID"]
    assert placement_of(second)["containers"][0]["cards"][0]["memoryMiB"] == 5120


def test_a_node_is_filled_to_the_last_mebibyte_and_not_beyond(stack: Stack) -> None:
    """Four pods of 8 GiB fill two cards of 16 GiB; one of 1 MiB waits with a counted reason until one goes."""
    stack.kubectl.apply(*(plain(f"full-{i}", mem="8Gi") for i in range(4)))
    for i in range(4):
        stack.kubectl.wait_phase(f"full-{i}", "Running")
    stack.kubectl.apply(plain("late", mem="1Mi", core="1"))
    late = stack.kubectl.wait_for("pods", "late", lambda p: p["status"].get("conditions"))
    message = next(c["message"] for c in late["status"]["conditions"] if c["type"] == "PodScheduled")
    assert message.startswith("0/1 nodes are available: 1 ")
    assert "memory" in message
    stack.kubectl.delete("pods", "full-0", grace=0)
    stack.kubectl.wait_phase("late", "Running")


def test_two_cards_for_one_container_are_different_cards(stack: Stack) -> None:
    """`aliquot.dev/gpu: 2` is two slices on two cards; three cannot be had on this node."""
    stack.kubectl.apply(pod("pair", container("main", {"gpu": "2", "mem": "1Gi"})))
    stored = stack.kubectl.wait_phase("pair", "Running")
    assert len({card["uuid"] for card in placement_of(stored)["containers"][0]["cards"]}) == 2
    stack.kubectl.apply(pod("three", container("main", {"gpu": "3", "mem": "1Gi"})))
    stack.kubectl.wait_for("pods", "three", lambda p: p["status"].get("conditions"))
    assert stack.kubectl.get("pods", "three")["status"]["phase"] == "Pending"


def test_a_whole_card_is_shared_with_nobody(stack: Stack) -> None:
    """`aliquot.dev/gpu: 1` alone is an empty card, and stays alone."""
    stack.kubectl.apply(plain("other"))
    stack.kubectl.wait_phase("other", "Running")
    stack.kubectl.apply(pod("whole", container("main", {"gpu": "1"})))
    whole = placement_of(stack.kubectl.wait_phase("whole", "Running"))["containers"][0]["cards"][0]
    assert whole["exclusive"]
    assert whole["memoryMiB"] == 16384
    stack.kubectl.apply(plain("third"))
    third = placement_of(stack.kubectl.wait_phase("third", "Running"))["containers"][0]["cards"][0]
    assert third["uuid"] != whole["uuid"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"mem": "4096"}, ["main", "aliquot.dev/gpu-mem", "4096 is 4096 bytes; did you mean 4096Mi?"]),
        ({"mem": "1Gi", "mem-percent": "10"}, ["main", "give one of the two"]),
        ({"core": "101"}, ["main", "aliquot.dev/gpu-core", "101"]),
        ({"mem-percent": "0"}, ["main", "aliquot.dev/gpu-mem-percent", "0"]),
    ],
)
def test_nonsense_is_refused_with_a_sentence(stack: Stack, limits: dict[str, str], words: list[str]) -> None:
    """`kubectl apply` fails and says container, resource and remedy; no pod is made."""
    with pytest.raises(ApiError) as refused:
        stack.kubectl.apply(pod("nonsense", container("main", limits)))
    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert stack.kubectl.find("pods", "nonsense") is None


def test_what_dead_containers_held_is_free_again(stack: Stack, node: Node) -> None:
    """A deleted pod's processes, memory and pages are gone, and its slice can be used again."""
    stack.kubectl.apply(plain("gone", mem="16Gi"))
    stack.kubectl.wait_phase("gone", "Running")
    stack.kubectl.apply(plain("gone-too", mem="16Gi"))
    stack.kubectl.wait_phase("gone-too", "Running")
    stack.kubectl.delete("pods", "gone")
    stack.kubectl.wait_gone("pods", "gone")
    stack.kubectl.apply(plain("heir", mem="16Gi"))
    stack.kubectl.wait_phase("heir", "Running")
    wait_for("pages of the dead to go", lambda: len(list(node.tenants.iterdir())) == 2)


def test_hamis_whole_cores_are_a_card_alone(stack: Stack) -> None:
    """In HAMi's dialect `gpucores: 100` means a card for oneself, with as much memory as is asked."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "100"}
    stack.kubectl.apply(pod("hami-alone", container("main", limits)))
    share = placement_of(stack.kubectl.wait_phase("hami-alone", "Running"))["containers"][0]["cards"][0]
    assert (share["memoryMiB"], share["exclusive"]) == (4000, True)


def test_a_finished_pod_holds_nothing(stack: Stack) -> None:
    """A pod that has ended, and is still there to be read, leaves its cards to others."""
    for name in ("done-0", "done-1"):
        stack.kubectl.apply(pod(name, container("main", {"gpu": "1"}, ["true"]), restartPolicy="Never"))
    for name in ("done-0", "done-1"):
        stack.kubectl.wait_phase(name, "Succeeded")
    stack.kubectl.apply(pod("heir", container("main", {"gpu": "2"})))
    stack.kubectl.wait_phase("heir", "Running")
