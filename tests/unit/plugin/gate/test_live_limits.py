"""New limits of a running pod, applied by an agent that may be killed at any line: what a kill leaves is files."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.arbiter import Arbiter
from aliquot.crds.gpu_pool import NO_POOL, GroupLeases, PoolSpec
from aliquot.crds.gpu_pool import Enforcement as PoolEnforcement
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ObjectMeta, Pod, PodSpec
from aliquot.libshim.control_page import Enforcement, read_control
from aliquot.node.processes import Processes, identity_of
from aliquot.plugin.cluster.events import Events
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.tenant_pages import TenantDirectories, limit
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.gate.control_words import ControlWords
from aliquot.plugin.gate.live_limits import REASON, LiveLimits
from aliquot.plugin.gate.pod_locks import PodLocks
from aliquot.plugin.gate.recovery import adopt_admitted_pods
from aliquot.plugin.kubelet.container_identity import PodName
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.card_table import CardTable
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.request.placement import CardShare, Charge, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from aliquot.units import MIB
from tests.tools.kills import restored, states_during
from tests.unit.plugin.usage import write_usage

UID, POD = "uid-1", PodName("default", "p", "uid-1")


def placement(mib: int, cores: int) -> Placement:
    """One container on one card."""
    main = ContainerPlacement("main", ContainerKind.REGULAR, (CardShare("GPU-a", mib, cores),), resized=True)
    return Placement(UID, "n1", (main,))


@dataclass
class Node:
    """The files of a node whose pod was let in; an agent can be made of them as often as it is killed."""

    root: Path

    def let_in(self, mib: int, cores: int) -> None:
        """The pod passed the gate with this."""
        AdmittedPods(self.root / "tenancies").save(AdmittedPod(UID, "default", "p", placement(mib, cores)))
        TenantDirectories(self.root).prepare(
            UID, "main", self.agent().terms.control_of(POD, placement(mib, cores).containers[0])
        )

    def approve(self, mib: int, cores: int, **labels: str) -> None:
        """The scheduler has written another placement, and the agent has seen it."""
        said = {PLACEMENT_ANNOTATION: encode_placement(placement(mib, cores))}
        meta = ObjectMeta(name="p", namespace="default", uid=UID, annotations=said, labels=labels)
        (self.root / "pods").mkdir(exist_ok=True)
        (self.root / "pods" / f"{UID}.json").write_bytes(
            msgspec.json.encode(Pod(metadata=meta, spec=PodSpec(node_name="n1")))
        )

    def agent(
        self,
        usable_mib: int = 16384,
        pool_of: Callable[[str], PoolSpec] = lambda _: NO_POOL,
        arbiter: Arbiter | None = None,
    ) -> LiveLimits:
        """An agent that has just started."""
        leases = Leases(arbiter)
        api = Api(Access("http://127.0.0.1:1"))
        ledger, admitted_pods = (
            NodeLedger({"GPU-a": Capacity(usable_mib)}),
            AdmittedPods(self.root / "tenancies"),
        )
        adopt_admitted_pods(ledger, admitted_pods)
        pods = Pods(api, "n1", self.root / "pods")
        rebuilt = asyncio.Event()
        return LiveLimits(
            pods=pods,
            ledger=ledger,
            admitted_pods=admitted_pods,
            tenants=TenantDirectories(self.root, Processes(by_cgroup=False)),
            pod_locks=PodLocks(),
            terms=ControlWords(CardTable(0, Path("/proc"), pool_of), pods, ledger, leases),
            leases=leases,
            events=Events(api, "n1"),
            rebuilt=rebuilt,
        )

    def page(self) -> tuple[int, int]:
        """MiB and cores in force."""
        (card,) = read_control(self.root / "tenants" / UID / "main" / "control").cards
        return card.memory_bytes // MIB, card.core_percent

    def enforcement(self) -> Enforcement:
        """What is done about the limits."""
        return read_control(self.root / "tenants" / UID / "main" / "control").enforcement

    def written_down(self) -> tuple[int, int]:
        """MiB and cores that a fresh agent would charge."""
        known = AdmittedPods(self.root / "tenancies").get(UID)
        assert known is not None
        assert known.placement is not None
        charge = known.placement.charges()["GPU-a"]
        return charge.memory_mib, charge.cores


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with a pod of 4 GiB and 20 %."""
    made = Node(tmp_path)
    made.let_in(4096, 20)
    return made


SMALL, MORE, MORE_AND_LESS = (4096, 20), (12288, 20), (12288, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [(SMALL, MORE), (MORE, SMALL), (SMALL, MORE_AND_LESS), (MORE_AND_LESS, SMALL)],
    ids=["more", "less", "more and less", "less and more"],
)
def test_a_kill_at_any_line_is_caught_up_with(
    node: Node, tmp_path_factory: pytest.TempPathFactory, old: tuple[int, int], new: tuple[int, int]
) -> None:
    """What is written down is never less than the page, and the next agent brings both to what was approved."""
    node.approve(*old)
    asyncio.run(node.agent()._follow(UID))
    node.approve(*new)
    limits = node.agent()
    states = states_during(lambda: asyncio.run(limits._follow(UID)), node.root)
    assert node.page() == node.written_down() == new
    assert len(states) > 2
    for state in states:
        left = Node(restored(state, tmp_path_factory.mktemp("killed")))
        page, charged = left.page(), left.written_down()
        assert page[0] <= charged[0]
        assert page[1] <= charged[1]
        asyncio.run(left.agent()._follow(UID))
        assert left.page() == left.written_down() == new


def test_what_the_node_has_no_room_for_stays_as_it_is(node: Node) -> None:
    """The node's ledger is the last fence: limits and ledger are unchanged, and room is enough to continue."""
    node.approve(12288, 20)
    limits = node.agent(usable_mib=8192)
    asyncio.run(limits._follow(UID))
    assert node.page() == node.written_down() == (4096, 20)
    assert limits.ledger.promised("GPU-a").memory_mib == 4096
    limits.ledger.set_capacities({"GPU-a": Capacity(16384)})
    asyncio.run(limits._follow(UID))
    assert node.page() == (12288, 20)


def test_who_is_lowered_below_its_use_stays_charged_until_it_has_freed_it(node: Node) -> None:
    """Or a tenant could fill a card, ask for a mebibyte, and keep what others are then promised."""
    usage = node.root / "tenants" / UID / "main" / "usage"
    owner = identity_of(os.getpid())
    assert owner is not None
    write_usage(usage, 3000 * MIB, owner=owner)
    node.approve(1024, 10)
    limits = node.agent()
    asyncio.run(limits._follow(UID))
    assert node.page() == (1024, 10)
    assert node.written_down() == (4096, 20)
    assert limits.ledger.promised("GPU-a").memory_mib == 4096
    os.truncate(usage, 10)
    asyncio.run(limits._follow(UID))
    assert limits.ledger.promised("GPU-a").memory_mib == 4096
    write_usage(usage, 1024 * MIB, owner=owner)
    asyncio.run(limits._follow(UID))
    assert node.written_down() == (1024, 10)
    assert limits.ledger.promised("GPU-a").memory_mib == 1024


DEAD, NOBODY = (7, 1, 1), (0, 0, 0)
"""A process that is none of this machine's; and the owner of what a process has left and others have imported."""


@pytest.mark.parametrize(("owner", "kept"), [(DEAD, False), (NOBODY, True)])
def test_only_what_is_still_used_keeps_a_pod_charged(
    node: Node, owner: tuple[int, int, int], kept: bool
) -> None:
    """The tally of a process that has ended stands until another one of its container looks for it."""
    write_usage(node.root / "tenants" / UID / "main" / "usage", 3000 * MIB, owner=owner)
    node.approve(1024, 10)
    limits = node.agent()
    asyncio.run(limits._follow(UID))
    assert limits.ledger.promised("GPU-a").memory_mib == (4096 if kept else 1024)


def test_pages_that_the_gate_wrote_by_what_held_before_are_written_again(node: Node) -> None:
    """It began before the card had another tenant, and ended when the others' pages were right already."""
    limits = node.agent()
    asyncio.run(limits._follow(UID))
    (tenant,) = limits.tenants.of_pod(UID)
    limit(tenant, limits.terms.control_of(POD, placement(4096, 90).containers[0]))
    asyncio.run(limits._follow(UID))
    assert node.page() == (4096, 90), "who looks at no page cannot know"
    limits.look_again(UID)
    asyncio.run(limits._follow(UID))
    assert node.page() == (4096, 20)


def test_a_pod_is_leased_its_cards_with_the_group_that_its_labels_name(node: Node) -> None:
    """Also when they change."""
    arbiter = Arbiter()
    limits = node.agent(arbiter=arbiter)
    limits.ledger.adopt("neighbour", {"GPU-a": Charge(1024, 50, 1)})
    groups = []
    for name in ("", "train", "serve"):
        node.approve(4096, 20, **({"scheduling.x-k8s.io/pod-group": name} if name else {}))
        limits.pods._load(node.root / "pods" / f"{UID}.json")
        asyncio.run(limits._follow(UID))
        groups.append(arbiter._clients[f"{UID}/main"].group)
    assert groups == ["", "scheduling.x-k8s.io/default/train", "scheduling.x-k8s.io/default/serve"]


@pytest.mark.parametrize(
    ("labels", "exempt"), [({"scheduling.x-k8s.io/pod-group": "train"}, True), ({}, False)]
)
def test_groups_alone_are_exempt_from_leases_where_the_pool_has_them_so(
    node: Node, labels: dict[str, str], *, exempt: bool
) -> None:
    """Other pods are leased the same cards as usual."""
    arbiter = Arbiter()
    limits = node.agent(pool_of=lambda _: PoolSpec(group_leases=GroupLeases.EXEMPT), arbiter=arbiter)
    limits.terms.cards.set([Card("GPU-a", 0, 0, "H200", 16384, -1, "0")])
    limits.ledger.adopt("neighbour", {"GPU-a": Charge(1024, 50, 1)})
    node.approve(4096, 20, **labels)
    limits.pods._load(node.root / "pods" / f"{UID}.json")
    asyncio.run(limits._follow(UID))
    assert arbiter._clients[f"{UID}/main"].exempt == exempt


def test_nothing_is_followed_before_the_ledger_knows_everybody(node: Node) -> None:
    """A neighbour that only the kubelet knows of could lose its memory to a resize."""
    node.approve(12288, 20)

    async def scene() -> LiveLimits:
        limits = node.agent()
        worker = asyncio.create_task(limits.run())
        for _ in range(100):
            await asyncio.sleep(0)
        limits.ledger.adopt("neighbour", {"GPU-a": Charge(10240, 0, 1)})
        limits.rebuilt.set()
        await until(lambda: (UID, REASON) in limits.events._said)
        worker.cancel()
        return limits

    limits = asyncio.run(scene())
    assert limits.ledger.promised("GPU-a").memory_mib == 4096 + 10240
    assert node.page() == (4096, 20)


def test_a_changed_pool_is_followed_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent with nothing to retry sleeps long; whoever changes a pool wakes it."""
    monkeypatch.setattr("aliquot.plugin.gate.live_limits.RETRY_S", 1000.0)
    monkeypatch.setattr("aliquot.plugin.gate.live_limits.IDLE_S", 1000.0)

    async def scene() -> None:
        pools = [NO_POOL]
        limits = node.agent(pool_of=lambda _: pools[0])
        limits.terms.cards.set([Card("GPU-a", 0, 0, "H200", 16384, -1, "0")])
        limits.rebuilt.set()
        worker = asyncio.create_task(limits.run())
        await until(lambda: UID in limits._in_force)
        pools[0] = PoolSpec(enforcement=PoolEnforcement.OBSERVE)
        limits.pods.notify()
        await until(lambda: node.enforcement() is Enforcement.OBSERVE)
        worker.cancel()

    asyncio.run(scene())


async def until(holds: Callable[[], bool]) -> None:
    """Lets the agent work until something holds."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.001)
