"""Whose time it was that the driver saw: the pod's whose cgroup the process is in, whatever other pages say."""

from pathlib import Path

import pytest

from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ContainerStatus, ObjectMeta, Pod, PodStatus
from aliquot.node.processes import Processes, ProcessName
from aliquot.plugin.cluster.events import Events
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages
from aliquot.plugin.devices.nvml_cards import Utilization
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.sharing.watchdog import Said, Watchdog, whose
from aliquot.plugin.state.admitted_pods import AdmittedPods
from tests.unit.host import OTHER, POD, process

CARD = "GPU-1"
PID = 70


class OneSample:
    """NVML of a card that one process kept busy."""

    def utilization(self, _uuid: str, _since_us: int) -> tuple[Utilization, ...]:
        """Half of half a second."""
        return (Utilization(PID, 0.5, 500_000),)


def said(*named: ProcessName) -> Said:
    """A tenant of the card that names these."""
    return Said({CARD: 0.0}, frozenset(named))


@pytest.mark.parametrize("by_cgroup", [True, False])
def test_an_accomplice_does_not_take_the_blame(tmp_path: Path, by_cgroup: bool) -> None:
    """Its page names the process of a pod that names none; without cgroups nobody can tell."""
    name = process(tmp_path, PID, f"0::/kubepods/pod{POD}/a")
    quiet, accomplice = (TenantPages(uid, "main", tmp_path) for uid in (POD, OTHER))
    tenants = {accomplice: said(name), quiet: said()}
    assert whose(PID, CARD, tenants, {}, Processes(tmp_path, by_cgroup)) == (
        quiet if by_cgroup else accomplice
    )


def test_of_a_pods_containers_the_one_that_names_it(tmp_path: Path) -> None:
    """Where none does, and there are several, it is nobody's."""
    name = process(tmp_path, PID, f"0::/kubepods/pod{POD}/a")
    one, other = (TenantPages(POD, container, tmp_path) for container in ("one", "other"))
    assert whose(PID, CARD, {one: said(), other: said(name)}, {}, Processes(tmp_path)) == other
    assert whose(PID, CARD, {one: said(), other: said()}, {}, Processes(tmp_path)) is None
    assert whose(PID, CARD, {one: said()}, {}, Processes(tmp_path)) == one
    assert whose(PID, "GPU-2", {one: said(name)}, {}, Processes(tmp_path)) is None


def test_the_containers_id_tells_more_than_pages(tmp_path: Path) -> None:
    """An accomplice in the same pod names the process; ids that the kubelet has not told yet exclude nobody."""
    own, others = "a" * 64, "b" * 64
    name = process(tmp_path, PID, f"0::/kubepods.slice/pod{POD}.slice/cri-containerd-{own}.scope")
    quiet, accomplice = (TenantPages(POD, container, tmp_path) for container in ("quiet", "accomplice"))
    tenants, here = {accomplice: said(name), quiet: said()}, Processes(tmp_path)
    assert whose(PID, CARD, tenants, {quiet: own, accomplice: others}, here) == quiet
    assert whose(PID, CARD, tenants, {quiet: "", accomplice: others}, here) == quiet
    assert whose(PID, CARD, tenants, {quiet: "", accomplice: ""}, here) == accomplice
    assert whose(PID, CARD, tenants, {quiet: others, accomplice: others}, here) is None


def test_where_the_cgroup_names_no_container_its_pod_counts(tmp_path: Path) -> None:
    """A runtime may name its containers otherwise; its pods are watched all the same."""
    process(tmp_path, PID, f"0::/kubepods/pod{POD}/short")
    quiet = TenantPages(POD, "main", tmp_path)
    assert whose(PID, CARD, {quiet: said()}, {quiet: "a" * 64}, Processes(tmp_path)) == quiet


def watching(root: Path, pods: Pods) -> Watchdog:
    """A watchdog of that card."""
    return Watchdog(
        nvml=OneSample(),  # type: ignore[arg-type] - nothing else is asked of it
        leases=Leases(None),
        admitted_pods=AdmittedPods(root / "tenancies"),
        tenants=TenantDirectories(root / "run"),
        pods=pods,
        events=Events(pods._api, "n1"),
        processes=Processes(root / "proc"),
    )


def test_the_kubelet_tells_the_containers_ids(tmp_path: Path) -> None:
    """As they stand in the pod's status."""
    name = process(tmp_path / "proc", PID, f"0::/kubepods/pod{POD}/{'a' * 64}")
    api = Api(Access("http://127.0.0.1:1"))
    pods = Pods(api, "n1", tmp_path / "pods")
    told = tuple(
        ContainerStatus(name=container, container_id=f"containerd://{letter * 64}")
        for container, letter in (("quiet", "a"), ("accomplice", "b"))
    )
    pods._by_uid[POD] = Pod(metadata=ObjectMeta(uid=POD), status=PodStatus(container_statuses=told))
    watchdog = watching(tmp_path, pods)
    quiet, accomplice = (TenantPages(POD, container, tmp_path) for container in ("quiet", "accomplice"))
    seen = watchdog._seen({accomplice: said(name), quiet: said()})
    assert (seen.of(quiet), seen.of(accomplice), seen.covered_s) == ({CARD: 0.25}, {}, {CARD: 0.5})


def test_time_of_a_process_that_has_ended_covers_nothing(tmp_path: Path) -> None:
    """It may have been anybody's, who is not absent for that."""
    (tmp_path / "proc").mkdir()
    watchdog = watching(tmp_path, Pods(Api(Access("http://127.0.0.1:1")), "n1", tmp_path / "pods"))
    seen = watchdog._seen({TenantPages(POD, "main", tmp_path): said()})
    assert (dict(seen.busy_s), seen.covered_s) == ({}, {CARD: 0.25})
