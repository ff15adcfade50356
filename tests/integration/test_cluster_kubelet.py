"""The pocket kubelet against a device plugin of our own: the order of calls, the gate, restarts, containers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.cluster.cluster import PocketCluster
from sandbox.cluster.objects import dig
from sandbox.cluster.processes import wait_for
from tests.integration.fake_plugin import RESOURCE, FakePlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.cluster.kubectl import Kubectl

Obj = dict[str, Any]

IDS = [f"gpu{card}-s{number}" for card in range(2) for number in range(4)]
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
FLAGS = (
    "--first-retry",
    "0.1",
    "--retry-period",
    "0.3",
    "--restart-backoff",
    "0.2",
    "--plugin-patience",
    "3",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server and one node."""
    with PocketCluster(tmp_path_factory.mktemp("k")) as cluster:
        cluster.start_apiserver()
        cluster.start_kubelet("n1", *FLAGS)
        yield cluster


@pytest.fixture
def kubectl(cluster: PocketCluster) -> Kubectl:
    """The cluster's client."""
    return cluster.kubectl


@pytest.fixture
def plugin(cluster: PocketCluster) -> Iterator[FakePlugin]:
    """A registered plugin whose devices count; every pod is gone afterwards."""
    plugin = FakePlugin(cluster.node("n1"), IDS)
    for spec in plugin.paths.cdi.glob("*.json"):
        spec.unlink()
    plugin.start()
    wait_allocatable(cluster.kubectl, "8")
    yield plugin
    plugin.hold_allocate.set()
    for pod in cluster.kubectl.list("pods"):
        cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    wait_for("no containers", lambda: not list(cluster.node("n1").pods.iterdir()))
    plugin.stop()


def wait_allocatable(kubectl: Kubectl, number: str) -> None:
    """Until the node offers so many devices."""
    kubectl.wait_for("nodes", "n1", lambda n: dig(n, "status.allocatable").get(RESOURCE) == number)


def container(name: str, script: str = FOREVER, amount: int = 1, **more: Any) -> Obj:
    """A container that runs a shell script; with `amount` 0 it asks for no device."""
    limits = {RESOURCE: str(amount)} if amount else {}
    return {
        "name": name,
        "image": "lab.local/busybox:1",
        "command": ["sh", "-c", script],
        "resources": {"limits": limits},
        **more,
    }


def run(kubectl: Kubectl, name: str, *containers: Obj, bound: bool = True, **spec: Any) -> Obj:
    """Create a pod, on the node at once unless told otherwise."""
    spec = {"containers": list(containers) or [container("main")], "terminationGracePeriodSeconds": 1, **spec}
    metadata = {"name": name, "namespace": "default"}
    created = kubectl.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    if bound:
        bind(kubectl, created)
    return created


def bind(kubectl: Kubectl, pod: Obj) -> None:
    """Put a pod on the node."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    body = {"metadata": {"name": name, "uid": uid}, "target": {"name": "n1"}}
    kubectl.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)


def state(pod: Obj, name: str = "main") -> Obj:
    """The state of one container: {kind: details}."""
    statuses = (dig(pod, "status.containerStatuses") or []) + (dig(pod, "status.initContainerStatuses") or [])
    return next((s["state"] for s in statuses if s["name"] == name), {})


def restarts(pod: Obj) -> int:
    """How often the first container was restarted."""
    return (dig(pod, "status.containerStatuses") or [{"restartCount": 0}])[0]["restartCount"]


def pid_of(cluster: PocketCluster, pod: Obj, name: str = "main") -> int:
    """The process of a container's last attempt."""
    directory = cluster.node("n1").pods / pod["metadata"]["uid"] / name
    reports = sorted(directory.glob("*.pid"), key=lambda path: int(path.stem))
    return int(json.loads(reports[-1].read_text())["pid"])


def assert_registered(names: list[str]) -> None:
    """Options are asked within Register; the list at about its end; and nothing else happens."""
    assert names[0] == "GetDevicePluginOptions"
    assert sorted(names[1:]) == ["ListAndWatch", "Registered"]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


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
    assert all(29 < s["deadline"] < 31 for s in started)


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
    wire = Path(__file__).parent.parent / "data/wire/kubelet_internal_checkpoint.json"
    real = json.loads(wire.read_text())
    assert list(ours) == list(real)
    assert list(ours["Data"]) == list(real["Data"])
    (entry,), example = ours["Data"]["PodDeviceEntries"], real["Data"]["PodDeviceEntries"][0]
    assert {key: type(value) for key, value in entry.items()} == {k: type(v) for k, v in example.items()}
    assert entry["DeviceIDs"] == {"-1": ["gpu0-s0"]}
    assert set(ours["Data"]["RegisteredDevices"][RESOURCE]) == set(
        real["Data"]["RegisteredDevices"][RESOURCE]
    )


def test_environment_precedence(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """The pod's environment beats Allocate's; a CDI spec's beats the pod's."""
    env = [{"name": "LAB_ALLOC_IDS", "value": "evil"}, {"name": "LAB_OWNER", "value": "evil"}]
    run(kubectl, "precedence", container("main", "env; sleep 100", env=env))
    kubectl.wait_phase("precedence", "Running")
    wait_for("the log", lambda: "LAB_OWNER" in kubectl.logs("precedence"))
    lines = kubectl.logs("precedence").splitlines()
    assert "LAB_ALLOC_IDS=evil" in lines
    assert "LAB_OWNER=default/precedence/main" in lines


def test_cdi_edits(plugin: FakePlugin, kubectl: Kubectl, tmp_path: Path) -> None:
    """Mounted paths are rewritten, libraries go on LD_LIBRARY_PATH, device nodes show in SIMGPU_DEV alone."""
    (tmp_path / "page").write_text("the page")
    (tmp_path / "lib123").write_text("a library")
    (tmp_path / "card0").touch()
    plugin.edits = {
        "env": ["PAGE=/run/lab/page", "OTHER=/run/lab/pages:x/run/lab/page"],
        "mounts": [
            {"containerPath": "/run/lab/page", "hostPath": str(tmp_path / "page")},
            {"containerPath": "/usr/lib/x/libcuda.so.1", "hostPath": str(tmp_path / "lib123")},
        ],
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": str(tmp_path / "card0")}],
    }
    script = "cat /run/lab/page; echo; cat $LD_LIBRARY_PATH/libcuda.so.1; echo; echo $OTHER; ls $SIMGPU_DEV; sleep 99"
    run(
        kubectl,
        "edited",
        container("main", script),
        container("other", "ls $SIMGPU_DEV; echo end; sleep 99", 0),
    )
    kubectl.wait_phase("edited", "Running")
    wait_for(
        "the logs", lambda: "nvidia0" in kubectl.logs("edited") and "end" in kubectl.logs("edited", "other")
    )
    expected = ["the page", "a library", "/run/lab/pages:x/run/lab/page", "nvidia0"]
    assert kubectl.logs("edited", "main").splitlines() == expected
    assert kubectl.logs("edited", "other").splitlines() == ["end"]


def test_volumes_and_references(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """A configMap volume that comes late is waited for; env references and $(NAME) are resolved."""
    env = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "BOTH", "value": "$(WHO)-$(NOBODY)"},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k.sh"}}},
    ]
    mounts = [{"name": "app", "mountPath": "/app"}]
    main = container("main", amount=0, env=env, volumeMounts=mounts) | {
        "command": ["sh", "/app/k.sh", "$(BOTH)"]
    }
    run(
        kubectl,
        "volumes",
        main,
        volumes=[{"name": "app", "configMap": {"name": "late"}}],
        restartPolicy="Never",
    )
    wait_for("the event", lambda: any("FailedMount" in e for e in kubectl.events("volumes")))
    metadata = {"name": "late", "namespace": "default"}
    data = {"k.sh": "echo got $1; echo $KEY"}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    kubectl.wait_phase("volumes", "Succeeded")
    assert kubectl.logs("volumes").splitlines() == ["got volumes-$(NOBODY)", "echo got $1; echo $KEY"]


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


def test_a_crashed_container_comes_back(plugin: FakePlugin, kubectl: Kubectl, tmp_path: Path) -> None:
    """It passes the gate again with its ids, is not allocated again, and keeps its last log and exit code."""
    script = f"echo run; test -e {tmp_path}/calm || exit 3; sleep 99"
    run(kubectl, "crashing", container("main", script))
    kubectl.wait_for("pods", "crashing", lambda p: restarts(p) >= 2)
    (tmp_path / "calm").touch()
    calm = kubectl.wait_for("pods", "crashing", lambda p: "running" in state(p))
    assert calm["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    assert kubectl.logs("crashing", previous=True) == "run\n"
    assert {tuple(s["ids"]) for s in plugin.of("PreStart")} == {("gpu0-s0",)}
    assert len(plugin.of("PreStart")) == restarts(calm) + 1
    assert len(plugin.of("Allocate")) == 1


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 5, "Failed"), ("OnFailure", 0, "Succeeded")],
)
def test_pods_that_end(plugin: FakePlugin, kubectl: Kubectl, policy: str, code: int, phase: str) -> None:
    """A finished pod has its phase and exit code, and its devices are free for the next pod."""
    run(kubectl, "ending", container("main", f"exit {code}", amount=8), restartPolicy=policy)
    ended = kubectl.wait_phase("ending", phase)
    assert state(ended)["terminated"]["exitCode"] == code
    run(kubectl, "after", container("main", amount=8))
    kubectl.wait_phase("after", "Running")


def test_a_program_that_is_not_there(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """Such a container ends with code 128 and says what it looked for."""
    missing = container("main") | {"command": ["no-such-program"]}
    run(kubectl, "missing", missing, restartPolicy="Never")
    terminated = state(kubectl.wait_phase("missing", "Failed"))["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (128, "StartError")
    assert "no-such-program" in terminated["message"]


def test_deletion(plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster) -> None:
    """SIGTERM, then SIGKILL after the grace period, children included; then the object goes."""
    stubborn = "trap '' TERM; setsid sleep 1000 & echo child $!; while :; do sleep 0.05; done"
    pod = run(kubectl, "stubborn", container("main", stubborn))
    kubectl.wait_phase("stubborn", "Running")
    child = int(wait_for("the child", lambda: kubectl.logs("stubborn")).split()[1])
    pid = pid_of(cluster, pod)
    assert alive(pid)
    assert alive(child)
    kubectl.delete("pods", "stubborn", grace=1)
    assert kubectl.get("pods", "stubborn")["metadata"]["deletionGracePeriodSeconds"] == 1
    kubectl.wait_gone("pods", "stubborn")
    assert not alive(pid)
    wait_for("the child's end", lambda: not alive(child))


def test_forced_deletion_ends_the_process_later(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """With grace 0 the object goes at once, the process a moment later."""
    pod = run(kubectl, "forced")
    kubectl.wait_phase("forced", "Running")
    pid = pid_of(cluster, pod)
    kubectl.delete("pods", "forced", grace=0)
    assert kubectl.find("pods", "forced") is None
    wait_for("its end", lambda: not alive(pid))


def test_same_name_again(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """A pod created anew under the same name is another pod: it is admitted, gated and reported on its own."""
    first = run(kubectl, "again")
    kubectl.wait_phase("again", "Running")
    kubectl.delete("pods", "again", grace=0)
    second = run(kubectl, "again")
    running = kubectl.wait_phase("again", "Running")
    assert running["metadata"]["uid"] == second["metadata"]["uid"] != first["metadata"]["uid"]
    assert len(plugin.of("Allocate")) == 2


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


def test_plugin_away_while_a_container_restarts(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """The container waits with the observed text and comes back once the plugin has registered again."""
    pod = run(kubectl, "orphaned")
    kubectl.wait_phase("orphaned", "Running")
    plugin.stop()
    wait_allocatable(kubectl, "0")
    os.kill(pid_of(cluster, pod), signal.SIGKILL)
    waiting = kubectl.wait_for("pods", "orphaned", lambda p: "message" in state(p).get("waiting", {}))
    assert state(waiting)["waiting"]["message"].endswith(f"endpoint {RESOURCE} has been stopped")
    plugin.start()
    kubectl.wait_for("pods", "orphaned", lambda p: "running" in state(p))
    assert len(plugin.of("Allocate")) == 1


def test_kubelet_restart(plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster) -> None:
    """After a SIGKILL containers run on untouched, sockets are wiped, and later restarts use the old ids."""
    pod = run(kubectl, "survivor")
    kubectl.wait_phase("survivor", "Running")
    pid, before = pid_of(cluster, pod), len(plugin.calls)
    cluster.kill("kubelet-n1")
    assert alive(pid)
    cluster.restart("kubelet-n1")
    assert not (plugin.paths.device_plugins / "lab.sock").exists()
    plugin.stop()
    plugin.start()
    wait_allocatable(kubectl, "8")
    assert alive(pid)
    assert_registered(plugin.names()[before:])
    os.kill(pid, signal.SIGKILL)
    kubectl.wait_for("pods", "survivor", lambda p: restarts(p) == 1 and "running" in state(p))
    assert plugin.calls[-1][0] == "PreStart"
    assert plugin.calls[-1][1]["owners"] == [("default", "survivor", "main", ("gpu0-s0",))]
    run(kubectl, "newcomer")
    kubectl.wait_phase("newcomer", "Running")
    assert plugin.of("Allocate")[-1]["ids"] == ["gpu0-s1"]


def test_kubelet_restart_in_the_middle_of_a_start(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """A pod that waits at the gate waits on after the restart, with the ids it had, if the plugin comes back."""
    plugin.pre_start_error = "not yet"
    run(kubectl, "midway")
    wait_for("the gate", lambda: plugin.of("PreStart"))
    cluster.kill("kubelet-n1")
    plugin.stop()
    cluster.restart("kubelet-n1")
    plugin.start()
    plugin.pre_start_error = ""
    kubectl.wait_phase("midway", "Running")
    assert len(plugin.of("Allocate")) == 1
    assert {tuple(s["ids"]) for s in plugin.of("PreStart")} == {("gpu0-s0",)}


def test_kubelet_killed_while_allocating(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """What the plugin was asked for and the kubelet never wrote down is asked for again."""
    plugin.hold_allocate.clear()
    run(kubectl, "unwritten")
    wait_for("Allocate", lambda: plugin.of("Allocate"))
    cluster.kill("kubelet-n1")
    plugin.hold_allocate.set()
    plugin.stop()
    cluster.restart("kubelet-n1")
    plugin.start()
    kubectl.wait_phase("unwritten", "Running")
    assert len(plugin.of("Allocate")) == 2
    assert {owner[1] for owner in plugin.owners()} == {"unwritten"}


def test_kubelet_restart_without_the_plugin(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """A pod whose container does not run then is rejected for good; a running one stays."""
    lost, kept = run(kubectl, "lost"), run(kubectl, "kept")
    for name in ("lost", "kept"):
        kubectl.wait_phase(name, "Running")
    cluster.kill("kubelet-n1")
    plugin.stop()
    os.kill(pid_of(cluster, lost), signal.SIGKILL)
    pid = pid_of(cluster, kept)
    cluster.restart("kubelet-n1")
    status = kubectl.wait_phase("lost", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}" in status["message"]
    assert alive(pid)
    assert "running" in state(kubectl.get("pods", "kept"))
    plugin.start()


def test_what_happens_while_the_kubelet_is_dead(
    plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster
) -> None:
    """Exit codes are not lost, removed pods are ended, deletions are finalised by the next kubelet."""
    ending = run(kubectl, "ending", container("main", "sleep 0.1; exit 7"), restartPolicy="Never")
    forced, leaving = run(kubectl, "forced"), run(kubectl, "leaving")
    for name in ("ending", "forced", "leaving"):
        kubectl.wait_for("pods", name, lambda p: "running" in state(p) or "terminated" in state(p))
    cluster.kill("kubelet-n1")
    pids = [pid_of(cluster, pod) for pod in (ending, forced, leaving)]
    kubectl.delete("pods", "forced", grace=0)
    kubectl.delete("pods", "leaving", grace=1)
    wait_for("the end", lambda: not alive(pids[0]))
    cluster.restart("kubelet-n1")
    plugin.stop()
    plugin.start()
    kubectl.wait_gone("pods", "leaving")
    wait_for("both ends", lambda: not alive(pids[1]) and not alive(pids[2]))
    ended = kubectl.wait_phase("ending", "Failed", "Succeeded")
    code = dig(state(ended), "terminated.exitCode")
    assert code == 7 or ended["status"]["reason"] == "UnexpectedAdmissionError"


def test_apiserver_away(plugin: FakePlugin, kubectl: Kubectl, cluster: PocketCluster) -> None:
    """While the API server is down a crashed container comes back; its new status is written afterwards."""
    pod = run(kubectl, "alone")
    kubectl.wait_phase("alone", "Running")
    cluster.kill("apiserver")
    old = pid_of(cluster, pod)
    os.kill(old, signal.SIGKILL)
    wait_for("a new process", lambda: pid_of(cluster, pod) != old)
    cluster.restart("apiserver")
    kubectl.wait_for("pods", "alone", lambda p: restarts(p) == 1 and "running" in state(p))


def test_unknown_resources_are_passed_over(plugin: FakePlugin, kubectl: Kubectl) -> None:
    """An extended resource that no plugin of the node serves does not stop a pod."""
    main = container("main", amount=0)
    main["resources"]["limits"] = {"other.example/thing": "4"}
    run(kubectl, "unknown", main)
    kubectl.wait_phase("unknown", "Running")
    assert plugin.of("Allocate") == []
