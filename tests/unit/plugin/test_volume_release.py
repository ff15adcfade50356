"""When the usage pages in volumes of pods are closed, and that they stay so."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.arbiter import Arbiter
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ObjectMeta, Pod, PodSpec, PodStatus
from aliquot.libshim.control_page import CardLimit, Control
from aliquot.libshim.usage_page import read_usage
from aliquot.plugin.leases import Leases
from aliquot.plugin.pods import Pods
from aliquot.plugin.tenants import TenantPages, Tenants
from aliquot.plugin.turns import Turns
from aliquot.plugin.volume_release import MOST_S, VolumeRelease
from aliquot.processes import Processes, ProcessName, ProcessTable
from tests.native.sims import wait_for

UID = "uid"
CONTROL = Control(
    "default/web/main", (CardLimit("GPU-1", 10 << 30, core_share_bp=5000, core_most_percent=100),)
)
NOBODY, SOMEBODY = ProcessTable(), ProcessTable({ProcessName(7, 1, 1): UID})
DELETED = ObjectMeta(name="web", namespace="default", uid=UID, deletion_timestamp="2026-11-27T13:00:00Z")
HERE = ObjectMeta(name="web", namespace="default", uid=UID)


@dataclass(frozen=True)
class Told(Processes):
    """Processes as a test says."""

    table: ProcessTable = NOBODY

    def read(self) -> ProcessTable:
        """Those."""
        return self.table


class Node:
    """A node with a pod whose container has a volume for its page, and a share of the card's time."""

    def __init__(self, root: Path) -> None:
        self.volume = root / "volume"
        self.volume.mkdir()
        self.pods = Pods(Api(Access("http://127.0.0.1:9")), "n1", root / "pods")
        self.pods._reflector.synced.set()
        self.tenants = Tenants(root / "run")
        self.leases = Leases(Arbiter())
        self.release = VolumeRelease(self.pods, self.tenants, self.leases, Turns())

    def tell(self, meta: ObjectMeta, phase: str = "Running") -> None:
        """The watch brings the pod."""
        pod = Pod(metadata=meta, spec=PodSpec(node_name="n1"), status=PodStatus(phase=phase))
        self.pods._reflector._put("default/web", pod)

    def start(self) -> TenantPages:
        """The gate lets the container start."""
        tenant = self.tenants.prepare(UID, "main", CONTROL, self.volume)
        self.look_around(tenant)
        return tenant

    def look(self, table: ProcessTable) -> bool:
        """Looks while there are these processes."""
        self.release.processes = Told(table=table)
        return asyncio.run(self.release.look())

    def look_around(self, tenant: TenantPages) -> None:
        """What others in the agent do at any time."""
        self.leases.follow(tenant, CONTROL)
        with contextlib.suppress(FileNotFoundError):
            read_usage(tenant.usage)

    def is_mounted(self, tenant: TenantPages) -> bool:
        """Whether anything keeps the volume mounted after everybody has looked at the page."""
        self.look_around(tenant)
        maps = Path("/proc/self/maps").read_text()
        links = (link for link in Path("/proc/self/fd").iterdir() if link.exists())
        return str(self.volume) in maps or any(link.readlink().is_relative_to(self.volume) for link in links)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """One of them."""
    return Node(tmp_path)


ENDS = {"deleted": (DELETED, "Running"), "finished": (HERE, "Succeeded"), "failed": (HERE, "Failed")}


@pytest.mark.parametrize(("meta", "phase"), ENDS.values(), ids=ENDS.keys())
def test_a_page_is_closed_once_the_processes_of_an_ending_pod_have_ended(
    node: Node, meta: ObjectMeta, phase: str
):
    """Not before; and nobody opens it again."""
    node.tell(HERE)
    tenant = node.start()
    node.tell(meta, phase)
    assert node.look(SOMEBODY)
    assert node.is_mounted(tenant)
    assert not node.look(NOBODY)
    assert not node.is_mounted(tenant)
    assert not node.look(NOBODY)


def test_a_pod_that_goes_on_keeps_its_pages(node: Node):
    """Its container is about to start, or to start again; the watch may not have brought it yet."""
    node.pods._seen(Pod(metadata=HERE))  # asked for by name
    tenant = node.start()
    assert not node.look(NOBODY)
    node.tell(HERE)
    assert not node.look(NOBODY)
    assert node.is_mounted(tenant)
    assert set(node.leases.states()) == {f"{UID}/main"}


def test_a_pod_that_was_deleted_by_force_is_no_exception(node: Node):
    """The API server knows it no more, while the kubelet still ends it."""
    node.tell(HERE)
    tenant = node.start()
    node.pods._reflector._remove("default/web")
    assert node.look(SOMEBODY)
    assert node.is_mounted(tenant)
    assert not node.look(NOBODY)
    assert not node.is_mounted(tenant)


def test_pages_of_a_pod_that_is_removed_are_closed_whoever_knows_them(node: Node, tmp_path: Path):
    """A look at a driver that hangs holds them for as long."""
    tenant = node.start()
    node.leases.leave(f"{UID}/main")
    node.tenants.remove(UID)
    wait_for(lambda: not node.is_mounted(tenant), "the page to be closed")


def test_it_looks_more_and_more_seldom(node: Node):
    """Whoever takes long to end costs no more than any other."""
    pauses = []
    for changed in (True, False, False, False, False, False, False):
        node.release._pause_s = node.release._next_pause(left=True, changed=changed)
        pauses.append(node.release._pause_s)
    assert pauses == [0.25, 0.5, 1, 2, 4, MOST_S, MOST_S]
    assert node.release._next_pause(left=False, changed=True) == MOST_S
