"""MIG instances: discovered, advertised by profile and handed out whole."""

import pytest

from aliquot.libshim.control_page import CardLimit, Enforcement, read_control
from aliquot.request.placement import CardShare
from aliquot.sandbox.gpus import SimCard, SimMig
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

SMALL, LARGE = "aliquot.dev/mig-1g.18gb", "aliquot.dev/mig-2g.35gb.me"


@pytest.fixture
def mig_world(make_world: MakeWorld) -> World:
    """One whole card, and one divided into three instances of two profiles."""
    migs = (SimMig("1g.18gb", gi=7), SimMig("1g.18gb", gi=8), SimMig("2g.35gb+me", gi=3, memory_mib=35000))
    world = make_world(SimCard(), SimCard(mig=migs))
    for resource in (SMALL, LARGE):
        world.ready(resource)
    return world


def test_instances_are_advertised_by_profile_and_their_card_offers_no_slices(mig_world: World):
    """Ids are the instances' UUIDs; a plus sign becomes a dot."""
    whole, divided = mig_world.machine.cards
    endpoints = mig_world.kubelet.endpoints
    assert set(endpoints[SMALL].devices) == {mig.uuid for mig in divided.mig[:2]}
    assert set(endpoints[LARGE].devices) == {divided.mig[2].uuid}
    assert {one.partition("::")[0] for one in endpoints[GPU].devices} == {whole.uuid}


def test_a_container_gets_its_instance_with_no_placement(mig_world: World):
    """Parent node, two capability nodes, a page with the instance's own memory; identity is known all the same."""
    divided = mig_world.machine.cards[1]
    instance = divided.mig[2]
    pod = mig_world.pod("whole", [container("main", {LARGE: "1"})], None)
    held = mig_world.kubelet.allocate(pod, "main", LARGE, 1)
    mig_world.kubelet.pre_start(held)
    minors = dict(
        line.rsplit(" ", 1)
        for line in (mig_world.machine.root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    )
    caps = [minors["gpu1/gi3/access"], minors["gpu1/gi3/ci0/access"]]
    nodes = mig_world.edits(held.nonce)[1]
    assert nodes[:3] == ["/dev/nvidia1", *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in caps)]
    control = read_control(mig_world.control(held.nonce))
    assert control.tenant == "default/whole/main"
    assert control.cards == (CardLimit(instance.uuid, 35000 << 20, 0),)
    assert control.enforcement is Enforcement.OBSERVE


def test_a_container_with_two_profiles_sees_all_its_instances_in_one_page(mig_world: World):
    """Each resource has a nonce of its own, and both lead to the same pages."""
    pod = mig_world.pod("mixed", [container("main", {SMALL: "2", LARGE: "1"})], None)
    small = mig_world.kubelet.allocate(pod, "main", SMALL, 2)
    large = mig_world.kubelet.allocate(pod, "main", LARGE, 1)
    for held in (small, large):
        mig_world.kubelet.pre_start(held)
    control = read_control(mig_world.control(small.nonce))
    assert {card.uuid for card in control.cards} == {*small.ids, *large.ids}
    assert mig_world.control(small.nonce) == mig_world.control(large.nonce)


def test_a_slice_on_a_divided_card_is_refused(mig_world: World):
    """Also when the scheduler has not heard of it yet."""
    divided = mig_world.machine.cards[1]
    limits = {GPU: "1", "aliquot.dev/gpu-mem": "1Gi"}
    share = CardShare(divided.uuid, 1024, 0)
    pod = mig_world.pod("slice", [container("main", limits)], {"main": [share]})
    held = mig_world.kubelet.allocate(pod, "main", GPU, 1)
    call = mig_world.kubelet.ask(held)
    until(lambda: f"card {divided.uuid} is divided by MIG and offers no slices" in mig_world.log, "refused")
    call.cancel()


def test_the_inventory_lists_instances(mig_world: World):
    """With profile, memory and numbers, under a card that says it is divided."""

    def cards() -> list:
        path = f"/apis/aliquot.dev/v1alpha1/gpunodes/{mig_world.node}"
        try:
            return mig_world.api.request("GET", path).get("status", {}).get("cards", [])
        except OSError:
            return []

    whole, divided = until(cards, "published")
    assert (whole["migEnabled"], divided["migEnabled"]) == (False, True)
    assert [(mig["profile"], mig["memoryMiB"], mig["gi"]) for mig in divided["mig"]] == [
        ("1g.18gb", 18432, 7),
        ("1g.18gb", 18432, 8),
        ("2g.35gb+me", 35000, 3),
    ]


@pytest.mark.slow
def test_a_card_that_an_admin_divides_under_its_tenants(world: World):
    """Nobody starts on a slice of it, none of its instances is given away before they have gone, and back again."""
    share = {"main": [CardShare(world.uuids[0], 10240, 0)]}
    runs = world.kubelet.allocate(
        world.pod("runs", [container("main", slice_of("10Gi"))], share), "main", GPU, 1
    )
    world.kubelet.pre_start(runs)
    inode, own = world.control(runs.nonce).stat().st_ino, world.control(runs.nonce)
    world.machine.divide(0, SimMig("1g.18gb", gi=7))
    world.restart_plugin()
    world.ready(SMALL)
    pod = world.pod("instance", [container("main", {SMALL: "1"})], None)
    instance = world.kubelet.allocate(pod, "main", SMALL, 1)
    divided = f"card {world.uuids[0]} is divided by MIG and offers no slices"
    for held, says in ((runs, divided), (instance, f"pods with slices still run on card {world.uuids[0]}")):
        call = world.kubelet.ask(held)
        until(lambda says=says: says in world.log, "refused")
        call.cancel()
    assert own.stat().st_ino == inode
    world.delete("runs")
    world.kubelet.forget(runs.uid)
    world.kubelet.pre_start(instance)
    assert not own.exists()
    world.delete("instance")
    world.kubelet.forget(instance.uid)
    world.machine.divide(0)
    world.restart_plugin()
    again = world.pod("again", [container("main", slice_of("10Gi"))], share)
    world.kubelet.pre_start(world.kubelet.allocate(again, "main", GPU, 1))


@pytest.mark.slow
def test_an_instance_held_under_names_before_is_not_offered_under_the_chosen_ones(mig_world: World):
    """The domain changes while a pod holds an instance: it runs on, and nobody else gets its instance."""
    pod = mig_world.pod("before", [container("main", {SMALL: "1"})], None)
    held = mig_world.kubelet.allocate(pod, "main", SMALL, 1)
    mig_world.kubelet.pre_start(held)
    page = mig_world.control(held.nonce)
    mig_world.restart_plugin("--resource-domain", "gpu.example.com")
    chosen = "gpu.example.com/mig-1g.18gb"
    mig_world.ready(chosen)
    offered = mig_world.kubelet.endpoints[chosen].devices
    assert {uuid for uuid, health in offered.items() if health == "Unhealthy"} == set(held.ids)
    assert len(offered) == 2
    until(lambda: set(mig_world.kubelet.endpoints[SMALL].devices) == set(held.ids), "served under both")
    mig_world.kubelet.pre_start(held)
    assert mig_world.control(held.nonce) == page
    mig_world.delete("before")
    mig_world.kubelet.forget(held.uid)
    until(
        lambda: set(mig_world.kubelet.endpoints[chosen].devices.values()) == {"Healthy"},
        "offered again",
        120,
    )
