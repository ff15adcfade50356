"""The pocket kubelet and its containers: what they are given, how they end and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.kubelet.pods import alive, container, pid_of, restarts, run, state

if TYPE_CHECKING:
    from pathlib import Path

    from aliquot.sandbox.cluster.cluster import PocketCluster
    from aliquot.sandbox.cluster.kubectl import Kubectl
    from tests.integration.kubelet.fake_plugin import FakePlugin


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


def test_a_crashed_container_comes_back(plugin: FakePlugin, kubectl: Kubectl, tmp_path: Path) -> None:
    """It passes the gate again with its ids, is not allocated again, and keeps its last log and exit code."""
    script = f"echo run; test -e {tmp_path}/calm || exit 3; touch {tmp_path}/stays; sleep 99"
    run(kubectl, "crashing", container("main", script))
    kubectl.wait_for("pods", "crashing", lambda p: restarts(p) >= 2)
    (tmp_path / "calm").touch()
    wait_for("a start that lasts", (tmp_path / "stays").exists)
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


@pytest.mark.parametrize("reason", ["FailedMount", "FailedSync"])
def test_a_pod_that_cannot_be_made_says_why_and_can_be_deleted(
    plugin: FakePlugin, kubectl: Kubectl, reason: str
) -> None:
    """A directory below a file, and a source of variables that this kubelet does not know."""
    below_a_file = {"name": "v", "hostPath": {"path": f"{__file__}/below", "type": "DirectoryOrCreate"}}
    unknown = {"name": "X", "valueFrom": {"oracleRef": {"name": "delphi"}}}
    odd = {
        "FailedMount": {"volumes": [below_a_file]},
        "FailedSync": {"containers": [container("main", env=[unknown])]},
    }
    run(kubectl, "odd", **odd[reason])
    wait_for("the event", lambda: any(event.startswith(reason) for event in kubectl.events("odd")))
    kubectl.delete("pods", "odd")
    wait_for("its end", lambda: kubectl.find("pods", "odd") is None)
