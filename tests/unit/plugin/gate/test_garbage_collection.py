"""What is given back, and above all what is not."""

import asyncio
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.arbiter import Arbiter
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ObjectMeta, Pod, PodSpec
from aliquot.libshim.control_page import CardLimit, Control
from aliquot.node.processes import ProcessTable
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.cdi_spec import CdiSpecs
from aliquot.plugin.container.interceptor import Interceptor
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.devices.driver_root import DriverRoot
from aliquot.plugin.gate.garbage_collection import UNCLAIMED_FOR_S, GarbageCollector
from aliquot.plugin.gate.pod_locks import PodLocks
from aliquot.plugin.kubelet.allocation_journal import Allocation, AllocationJournal
from aliquot.plugin.kubelet.pod_resources import Holder, PodResources, Running
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind

GPU = "aliquot.dev/gpu"
IDS = frozenset({"GPU-1::0"})
NOBODY = ProcessTable()


@pytest.fixture(autouse=True, name="loop")
def a_loop() -> Iterator[None]:
    """A gRPC channel wants a loop when it is made, though nobody calls over it here."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


class Node:
    """A node's files and what the API server and the kubelet have said of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = AllocationJournal(root / "journal")
        self.admitted_pods = AdmittedPods(root / "tenancies")
        self.tenants = TenantDirectories(root / "run")
        self.ledger = NodeLedger({"GPU-1": Capacity(16384)})
        self.pod_locks = PodLocks()
        self.leases = Leases(Arbiter())
        self.pods = Pods(Api(Access("http://127.0.0.1:9")), "n1", root / "pods")
        self.pods._reflector.synced.set()
        self.housekeeper = GarbageCollector(
            pods=self.pods,
            pod_resources=PodResources(root / "pod-resources.sock"),
            checkpoint=root / "checkpoint",
            journal=self.journal,
            admitted_pods=self.admitted_pods,
            tenants=self.tenants,
            specs=CdiSpecs(root / "cdi", DriverRoot(root, root), root, Interceptor(root, root, {})),
            ledger=self.ledger,
            leases=self.leases,
            pod_locks=self.pod_locks,
        )

    def told(self, uid: str) -> None:
        """The watch brings a pod."""
        meta = ObjectMeta(name="web-0", namespace="default", uid=uid)
        self.pods._reflector._put("default/web-0", Pod(metadata=meta, spec=PodSpec(node_name="n1")))

    def let_in(self, uid: str, mib: int = 10240) -> None:
        """The gate has let a pod in; its container is about to be created."""
        share = CardShare("GPU-1", mib, 0)
        placement = Placement(uid, "n1", (ContainerPlacement("main", ContainerKind.REGULAR, (share,)),))
        self.ledger.admit(uid, placement.charges())
        self.admitted_pods.save(AdmittedPod(uid, "default", "web-0", placement, {"main": (f"nonce-{uid}",)}))
        control = Control(f"default/web-0/{uid}", (CardLimit("GPU-1", 10 << 30),))
        self.tenants.prepare(uid, "main", control)

    def checkpoint(self, *uids: str) -> None:
        """The kubelet notes who holds the slice."""
        entries = [
            {"PodUID": uid, "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": {"-1": sorted(IDS)}}
            for uid in uids
        ]
        (self.root / "checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))

    def sweep(self) -> None:
        """Give back what can be, while the kubelet runs the pod of this name and no process lives."""
        holder = Holder("default", "web-0", "main", {GPU: IDS})
        running = Running(frozenset({("default", "web-0")}), (holder,))
        freed: list[str] = []
        self.housekeeper._give_back(tuple(self.admitted_pods), running, NOBODY, freed)
        self.journal.forget([*freed, *self.housekeeper._unclaimed(running)])


def test_a_pod_made_anew_is_not_given_back_for_its_predecessor_in_a_stale_watch(tmp_path: Path):
    """The gate has read the new pod itself; the watch, which lags, still shows the old one of that name."""
    node = Node(tmp_path)
    node.told("old")
    node.let_in("new")
    node.checkpoint("new")
    node.sweep()
    assert "new" in node.ledger
    assert node.tenants.of_pod("new")


def test_a_pod_that_is_being_let_in_keeps_its_place(tmp_path: Path):
    """It is in the ledger before its tenancy is on disk, and the watch may not have brought it yet."""
    node = Node(tmp_path)
    node.let_in("new")
    node.admitted_pods.remove("new")
    turn = node.pod_locks.of("new")
    node.sweep()
    assert "new" in node.ledger
    del turn
    node.sweep()
    assert "new" not in node.ledger


def test_a_pod_that_is_gone_is_leased_no_more_time(tmp_path: Path):
    """Or its neighbours' shares would be leased to nobody."""
    node = Node(tmp_path)
    node.let_in("old")
    limit = CardLimit("GPU-1", 10 << 30, core_share_bp=5000, core_most_percent=100)
    (tenant,) = node.tenants.of_pod("old")
    node.leases.follow(tenant, Control("default/web-0/old", (limit,)))
    assert set(node.leases.states()) == {"old/main"}
    node.told("new")
    node.checkpoint("new")
    node.sweep()
    assert "old" not in node.ledger
    assert not node.leases.states()


def test_a_predecessor_is_given_back_once_the_kubelet_runs_its_successor(tmp_path: Path):
    """The kubelet runs a pod of that name, but not this one."""
    node = Node(tmp_path)
    node.let_in("old")
    node.told("new")
    node.checkpoint("new")
    node.sweep()
    assert "old" not in node.ledger
    assert not node.tenants.of_pod("old")


def test_one_pod_that_cannot_be_given_back_keeps_no_other(tmp_path: Path):
    """Its own pages go all the same, and a later sweep gives the rest back."""
    node = Node(tmp_path)
    for uid in ("damaged", "other"):
        node.let_in(uid, 1024)
    record = tmp_path / "tenancies" / "damaged.json"
    record.unlink()
    record.mkdir()
    node.told("new")
    node.checkpoint("new")
    node.sweep()
    assert ("damaged" in node.ledger, "other" in node.ledger) == (True, False)
    assert not node.tenants.pod_uids()
    record.rmdir()
    node.sweep()
    assert "damaged" not in node.ledger


def test_a_sweep_that_fails_as_a_whole_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The agent goes on: the directory of CDI specs may be read again later."""
    node = Node(tmp_path)
    node.let_in("old")
    node.told("new")
    node.checkpoint("new")

    def fails(_: CdiSpecs) -> frozenset[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def runs(_: PodResources) -> Running:
        return Running(frozenset({("default", "web-0")}), ())

    monkeypatch.setattr(PodResources, "list", runs)
    monkeypatch.setattr(CdiSpecs, "nonces", fails)
    asyncio.get_event_loop_policy().get_event_loop().run_until_complete(node.housekeeper.sweep())
    assert "old" not in node.ledger


@pytest.mark.parametrize("content", [None, "another format"])
def test_an_answer_of_a_pod_that_waits_is_kept_without_the_kubelets_notes(
    tmp_path: Path, content: str | None
):
    """Its image may take minutes to pull; without notes, what the kubelet says it holds counts."""
    node = Node(tmp_path)
    if content:
        (tmp_path / "checkpoint").write_text(content)
    held = Allocation("held", GPU, IDS)
    node.journal.record([held, Allocation("stray", GPU, frozenset({"GPU-1::1"}))])
    node.sweep()
    for nonce in node.housekeeper.unclaimed_since:
        node.housekeeper.unclaimed_since[nonce] -= 2 * UNCLAIMED_FOR_S
    node.sweep()
    assert node.journal.all() == (held,)
