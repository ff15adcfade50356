"""What an agent does before Aliquot is taken away: its node is left as it was."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.charts import CHART, case, one

SCRIPT = CHART / "files/remove-files.sh"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with what the agent writes, beside what is others'."""
    for name in (
        "state/aliquot/lib/1a2b/libaliquot.so",
        "state/aliquot/journal",
        "state/kubelet/config",
        "run/aliquot/host/agent",
        "run/other.sock",
        "cdi/aliquot.dev-slice_1.json",
        "cdi/.aliquot.dev-slice_2.json.tmp",
        "cdi/nvidia.yaml",
        "device-plugins/aliquot-gpu.sock",
        "device-plugins/kubelet.sock",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "run/aliquot/host/tenants").mkdir()
    return tmp_path


def remove(node: Path) -> subprocess.CompletedProcess[str]:
    """Run it as the pod does, on a node's directories."""
    return subprocess.run(command(node), capture_output=True, text=True, check=False)


def command(node: Path) -> list[str]:
    """How it is run."""
    places = ("state/aliquot", "run/aliquot", "cdi", "device-plugins", "pods")
    return ["sh", "-c", SCRIPT.read_text(), "remove-files", *(str(node / place) for place in places)]


def left(node: Path) -> set[str]:
    """The files that remain."""
    return {path.relative_to(node).as_posix() for path in node.rglob("*") if path.is_file()}


OTHERS = {"state/kubelet/config", "run/other.sock", "cdi/nvidia.yaml", "device-plugins/kubelet.sock"}


def test_nothing_of_ours_is_left_and_all_of_others(node: Path):
    """And a second run has nothing to do."""
    for _ in range(2):
        done = remove(node)
        assert done.returncode == 0, done.stderr
        assert left(node) == OTHERS
        assert not (node / "state/aliquot").exists()
        assert not (node / "run/aliquot").exists()


def test_while_pods_have_slices_nothing_is_touched(node: Path):
    """Their pages are in use; the pod says which, waits for them, and heeds no pages of pods that have ended."""
    for uid in ("5f0c", "77aa", "e0d1"):
        (node / "run/aliquot/host/tenants" / uid).mkdir()
    for uid in ("5f0c", "77aa", "of-others"):
        (node / "pods" / uid).mkdir(parents=True)
    before = left(node)
    with subprocess.Popen(command(node), stderr=subprocess.PIPE, text=True) as removes:
        assert removes.stderr is not None
        assert removes.stderr.readline().strip().endswith("still on this node (by UID): 5f0c 77aa")
        assert "nothing is removed until they have ended" in removes.stderr.readline()
        (node / "pods/77aa").rmdir()
        assert removes.stderr.readline().strip().endswith("(by UID): 5f0c")
        assert left(node) == before
        (node / "pods/5f0c").rmdir()
        assert removes.wait(60) == 0
    assert left(node) == OTHERS


def test_who_waits_ends_when_told(node: Path):
    """As the kubelet tells it."""
    (node / "run/aliquot/host/tenants/5f0c").mkdir()
    (node / "pods/5f0c").mkdir(parents=True)
    with subprocess.Popen(command(node), stderr=subprocess.PIPE, text=True) as removes:
        assert removes.stderr is not None
        removes.stderr.readline()
        removes.terminate()
        assert removes.wait(60) == 143


def test_the_pod_is_ready_when_the_state_is_gone(node: Path):
    """Or its directory is empty, where it cannot be removed because it is a mount."""
    spec = one(case("about to go"), "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
    *probe, _ = spec["containers"][0]["readinessProbe"]["exec"]["command"]
    state = node / "state/aliquot"
    assert subprocess.run([*probe, state], check=False).returncode != 0
    remove(node)
    assert subprocess.run([*probe, state], check=False).returncode == 0
    state.mkdir()
    assert subprocess.run([*probe, state], check=False).returncode == 0


def test_the_pod_runs_it_where_the_host_has_these_directories():
    """On their parents, for a mount point cannot be removed; ready when it is done."""
    spec = one(case("about to go"), "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    script, *arguments = container["args"]
    assert script.startswith(SCRIPT.read_text())
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    found = [_on_host(argument, mounted, paths) for argument in arguments[1:]]
    kubelet = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pods")
    assert found == ["/var/lib/aliquot", "/run/aliquot", "/var/run/cdi", *kubelet]
    assert container["readinessProbe"]["exec"]["command"][-1] == arguments[1]


def _on_host(path: str, mounted: dict[str, str], paths: dict[str, str]) -> str:
    """A path of the container, as the host names it."""
    for place, volume in mounted.items():
        if path == place or path.startswith(f"{place}/"):
            return paths[volume] + path.removeprefix(place)
    return path
