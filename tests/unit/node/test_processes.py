"""Finding processes as tenants name them."""

import os
import subprocess
from pathlib import Path

import pytest

from aliquot.node.processes import Processes, ProcessName, ProcessTable, name_of, pod_of
from tests.unit.host import HOST_CGROUP, OTHER, POD, process


def test_a_living_process_is_found_by_pid_namespace_and_start_time():
    """This test's own process."""
    me = name_of(Path("/proc/self"))
    assert me.pid == os.getpid()
    assert me in Processes().read().owners
    assert ProcessName(me.pid, me.pid_namespace, me.start_time + 1) not in Processes().read().owners


def test_a_zombie_is_dead():
    """It waits for its parent and holds nothing."""
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ValueError, match="ended"):
        name_of(Path(f"/proc/{process.pid}"))
    process.wait()


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/kubepods/burstable/pod579440e0-a5b1-4921-8e8c-c63689d36b11/abc",
        "0::/kubepods.slice/kubepods-pod579440e0_a5b1_4921_8e8c_c63689d36b11.slice/cri-containerd-abc.scope",
    ],
)
def test_a_pods_cgroup_names_its_uid(cgroup: str, tmp_path: Path):
    """As cgroupfs and systemd write it."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"{cgroup}\n")
    assert pod_of(7, tmp_path) == "579440e0-a5b1-4921-8e8c-c63689d36b11"


def test_who_is_in_no_pod_is_nobodys(tmp_path: Path):
    """A process of the node, and one that has ended."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/user.slice/session.scope\n")
    assert pod_of(7, tmp_path) is None
    assert pod_of(8, tmp_path) is None


@pytest.mark.parametrize("by_cgroup", [True, False])
def test_a_process_is_its_cgroups_pod_whatever_names_it(tmp_path: Path, by_cgroup: bool):
    """Where there are no cgroups, it is whoever's names it."""
    own, others = (
        process(tmp_path, 70, f"0::/kubepods/pod{POD}/a"),
        process(tmp_path, 71, f"0::/kubepods/pod{OTHER}/a"),
    )
    hosts = process(tmp_path, 72, HOST_CGROUP)
    table = Processes(tmp_path, by_cgroup).read()
    assert table.has(own, POD)
    assert table.has(others, POD) is not by_cgroup
    assert table.has(hosts, POD) is not by_cgroup
    assert table.has(hosts, "") or not by_cgroup
    assert table.pod_uids == {POD, OTHER, ""}


def test_of_a_process_that_may_not_be_looked_at_the_cgroup_counts():
    """Its namespace is not known."""
    own = ProcessTable(veiled=frozenset({(7, 100, POD)}))
    assert own.has(ProcessName(7, 1, 100), POD)
    assert not own.has(ProcessName(7, 1, 100), OTHER)
    assert not own.has(ProcessName(7, 1, 101), POD)
