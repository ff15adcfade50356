"""The pocket kubelet and its device plugins: the order of calls, admission, the gate."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.objects import dig
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.kubelet.fake_plugin import RESOURCE
from tests.integration.kubelet.pods import Obj, bind, container, run, state, wait_allocatable

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.kubectl import Kubectl
    from tests.integration.kubelet.fake_plugin import FakePlugin


SOON_S = 30.0
"""Something else might wake a forgotten container after a minute."""


def assert_registered(names: list[str]) -> None:
    """Options are asked within Register; the list at about its end; and nothing else happens."""
    assert names[0] == "GetDevicePluginOptions"
    assert sorted(names[1:]) == ["ListAndWatch", "Registered"]


def test_order_of_calls_with_two_pods(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """Admission is serial and shows no owner yet; the gate comes later and shows exactly the owner."""
    assert_registered(plugin.names())
    pods = [run(kubectl, name, bound=False) for name in ("a1", "a2")]
    for pod in pods:
        bind(kubectl, pod)
    for name in ("a1", "a2"):
        kubectl.wait_phase(name, "Running")
    preferred, allocated, started = (plugin.of(n) for n in ("GetPreferredAllocation", "Allocate", "PreStart"))
    assert [(p["available"], p["size"], p["pick"]) for p in preferred] == [
        (8, 1, ["gpu0-s0"]),
        (7, 1, ["gpu0-s1"]),
    ]
    assert [(a["ids"], a["owners"]) for a in allocated] == [(["gpu0-s0"], []), (["gpu0-s1"], [])]
    assert [a["pods_listed"] for a in allocated] == [["a1"], ["a1", "a2"]]
    owners = {("default", "a1", "main", ("gpu0-s0",)), ("default", "a2", "main", ("gpu0-s1",))}
    assert {owner for s in started for owner in s["owners"]} == owners
    assert all(20 < s["deadline"] < 31 for s in started)


def test_init_and_sidecar_containers(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """Ids of a plain init container are used again without a preference; a sidecar keeps its own."""
    run(
        kubectl,
        "initpod",
        container("main1", amount=2),
        container("main2"),
        initContainers=[
            container("plaininit", "exit 0"),
            container("sidecar", restartPolicy="Always"),
        ],
    )
    kubectl.wait_phase("initpod", "Running")
    kubectl.wait_for("pods", "initpod", lambda p: "running" in state(p, "main2"))
    sizes = [(p["available"], p["size"]) for p in plugin.of("GetPreferredAllocation")]
    assert sizes == [(8, 1), (7, 2), (5, 1)]
    ids = [a["ids"] for a in plugin.of("Allocate")]
    assert ids == [["gpu0-s0"], ["gpu0-s0"], ["gpu0-s1", "gpu0-s2"], ["gpu0-s3"]]
    started = plugin.of("PreStart")
    assert [sorted(s["ids"]) for s in started] == ids
    assert started[0]["owners"] == [("default", "initpod", "sidecar", ("gpu0-s0",))]
    assert started[2]["owners"] == [
        ("default", "initpod", "main1", ("gpu0-s1",)),
        ("default", "initpod", "main1", ("gpu0-s2",)),
    ]


def test_a_pod_whose_init_container_alone_asks(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """At its gate PodResources shows no owner, while the checkpoint names the container."""
    pod = run(kubectl, "initonly", container("main", amount=0), initContainers=[container("only", "exit 0")])
    kubectl.wait_phase("initonly", "Running")
    assert plugin.of("PreStart")[0]["owners"] == []
    checkpoint = json.loads((plugin.paths.device_plugins / "kubelet_internal_checkpoint").read_text())
    entries = checkpoint["Data"]["PodDeviceEntries"]
    assert [(e["PodUID"], e["ContainerName"]) for e in entries] == [(pod["metadata"]["uid"], "only")]


def test_checkpoint_has_the_real_shape(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """The file has the captured one's keys and types throughout."""
    run(kubectl, "shaped")
    kubectl.wait_phase("shaped", "Running")
    ours = json.loads((plugin.paths.device_plugins / "kubelet_internal_checkpoint").read_text())
    wire = Path(__file__).parents[2] / "data/wire/kubelet_internal_checkpoint.json"
    real = json.loads(wire.read_text())
    assert list(ours) == list(real)
    assert list(ours["Data"]) == list(real["Data"])
    (entry,), example = ours["Data"]["PodDeviceEntries"], real["Data"]["PodDeviceEntries"][0]
    assert {key: type(value) for key, value in entry.items()} == {k: type(v) for k, v in example.items()}
    assert entry["DeviceIDs"] == {"-1": ["gpu0-s0"]}
    assert set(ours["Data"]["RegisteredDevices"][RESOURCE]) == set(
        real["Data"]["RegisteredDevices"][RESOURCE]
    )


def test_an_allocate_error_is_final(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """The pod is Failed for good, with the observed reason and text."""
    plugin.allocate_error = "my text"
    run(kubectl, "refused")
    status = kubectl.wait_phase("refused", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to rpc error: code = FailedPrecondition desc = my text,"
        " which is unexpected"
    )
    plugin.allocate_error = ""
    run(kubectl, "next")
    kubectl.wait_phase("next", "Running")
    assert plugin.of("Allocate")[-1]["ids"] == ["gpu0-s0"]


def test_too_few_devices(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """A pod that no device is left for is Failed, and says how many there were."""
    run(kubectl, "many", container("main", amount=7))
    kubectl.wait_phase("many", "Running")
    run(kubectl, "more", container("main", amount=2))
    message = kubectl.wait_phase("more", "Failed")["status"]["message"]
    assert f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1" in message


def test_amounts_are_read_as_the_api_server_writes_them(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """It stores 1000 as 1k."""
    run(kubectl, "thousand", container("main", amount=1000))
    rejected = kubectl.wait_phase("thousand", "Failed")
    assert "Requested: 1000, Available: 8" in rejected["status"]["message"]


def test_a_slow_allocate_blocks_all_admission(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """A pod without devices waits behind another's Allocate."""
    plugin.hold_allocate.clear()
    run(kubectl, "slow")
    wait_for("Allocate", lambda: plugin.of("Allocate"))
    run(kubectl, "behind", container("main", amount=0))
    assert plugin.listed_pods() == ["slow"]
    assert dig(kubectl.get("pods", "behind"), "status.phase") == "Pending"
    plugin.hold_allocate.set()
    kubectl.wait_phase("behind", "Running")


def test_the_gate_holds_a_container(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """While PreStart fails the container waits with the observed text; it starts once the plugin agrees."""
    plugin.pre_start_error = "not yet"
    run(kubectl, "gated")
    waiting = kubectl.wait_for("pods", "gated", lambda p: "message" in state(p).get("waiting", {}))
    text = "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = not yet"
    assert state(waiting)["waiting"] == {"reason": "CreateContainerConfigError", "message": text}
    wait_for("the event", lambda: f"Failed: Error: {text}" in kubectl.events("gated"))
    wait_for("a third try", lambda: len(plugin.of("PreStart")) >= 3)
    assert len(plugin.of("Allocate")) == 1
    plugin.pre_start_error = ""
    kubectl.wait_phase("gated", "Running")


def test_a_container_whose_time_comes_while_others_start_is_not_forgotten(
    plugin: FakePlugin, kubectl: Kubectl
) -> None:
    """The first is to be tried again after 0.6 s; the second takes longer to start."""

    def at_pre_start(number: int) -> None:
        plugin.pre_start_error = "not yet" if number == 1 else ""
        if number == 2:
            time.sleep(1.5)

    plugin.at_pre_start = at_pre_start
    run(kubectl, "late", container("first"), container("second"))
    kubectl.wait_for("pods", "late", lambda p: "running" in state(p, "first"), SOON_S)


def test_a_missing_cdi_spec_holds_a_container(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """Without a spec the container is not created; every try goes through the gate again."""
    plugin.write_specs = False
    run(kubectl, "specless")
    waiting = kubectl.wait_for("pods", "specless", lambda p: "message" in state(p).get("waiting", {}))
    assert state(waiting)["waiting"]["message"] == (
        "failed to create containerd container: CDI device injection failed:"
        f" unresolvable CDI devices {RESOURCE}=gpu0-s0"
    )
    plugin.write_specs = True
    kubectl.wait_phase("specless", "Running")
    assert len(plugin.of("PreStart")) >= 2


def test_health_and_capacity(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """An unhealthy device lowers allocatable and shows in the pod; a vanished plugin leaves capacity alone."""
    run(kubectl, "healthy")
    kubectl.wait_phase("healthy", "Running")
    plugin.set_health("gpu0-s0", "Unhealthy")
    wait_allocatable(kubectl, "7")

    def sick(pod: Obj) -> bool:
        entry = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]
        return entry == {"resourceID": "gpu0-s0", "health": "Unhealthy"}

    kubectl.wait_for("pods", "healthy", sick)
    assert dig(kubectl.get("pods", "healthy"), "status.phase") == "Running"
    plugin.stop()
    wait_allocatable(kubectl, "0")
    assert kubectl.get("nodes", "n1")["status"]["capacity"][RESOURCE] == "8"
    assert "running" in state(kubectl.get("pods", "healthy"))


def test_unknown_resources_are_passed_over(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """An extended resource that no plugin of the node serves does not stop a pod."""
    main = container("main", amount=0)
    main["resources"]["limits"] = {"other.example/thing": "4"}
    run(kubectl, "unknown", main)
    kubectl.wait_phase("unknown", "Running")
    assert plugin.of("Allocate") == []
