"""Registering with a kubelet that comes, goes and wipes its directory."""

import functools
import json
import subprocess

import pytest

from aliquot.request.placement import CardShare
from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2 as dp
from aliquot.sandbox.gpus import SimCard
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.world import GPU, MakeWorld, World, container, slice_of

GIB = 1024


def test_all_slices_of_all_cards_are_listed_healthy(busy: World):
    """Ids are `<card>::<n>`, ten a card, none longer than the kubelet allows."""
    devices = busy.kubelet.wait_for(GPU).devices
    assert devices == {
        f"{uuid}::{n}": "Healthy" for uuid in [card.uuid for card in busy.machine.cards] for n in range(10)
    }
    assert max(map(len, devices)) <= 63


def test_options_ask_for_the_gate_and_offer_preferences(busy: World):
    """The options are the same at registration and on request."""
    endpoint = busy.kubelet.wait_for(GPU)
    asked = endpoint.stub.GetDevicePluginOptions(dp.Empty())
    for options in (asked, endpoint.options):
        assert (options.pre_start_required, options.get_preferred_allocation_available) == (True, True)


def test_a_restarted_kubelet_is_told_again(world: World):
    """The kubelet's new socket and the wiped directory lead to a new registration with the same ids."""
    before = dict(world.kubelet.wait_for(GPU).devices)
    world.kubelet.stop()
    world.kubelet.start()
    assert world.kubelet.wait_for(GPU).devices == before
    assert world.kubelet.registrations == 2


def test_a_removed_plugin_socket_is_made_again(world: World):
    """Somebody cleans the directory while the kubelet lives."""
    (world.kubelet.plugins / "aliquot-gpu.sock").unlink()
    until(lambda: world.kubelet.registrations == 2, "registered again")
    assert world.kubelet.wait_for(GPU).devices


def test_a_kubelet_that_seems_to_be_new_is_told_when_the_connection_before_has_ended(world: World):
    """Its socket changes a moment after it is made; a call over the same connection would end all later ones."""
    world.kubelet.wait_for(GPU)
    world.kubelet.socket.chmod(0o700)
    until(lambda: world.kubelet.registrations == 2, "registered again")
    assert world.kubelet.wait_for(GPU).devices
    assert not world.kubelet.refused


def test_an_absent_kubelet_is_waited_for_and_mentioned_once(make_world: MakeWorld):
    """A node whose kubelet starts last."""
    world = make_world(start=False)
    world.kubelet.stop()
    world.start_plugin()
    until(lambda: "no kubelet at" in world.log, "the complaint")
    world.kubelet.start()
    world.ready()
    assert world.log.count("no kubelet at") == 1


def test_a_dead_kubelet_socket_is_tried_on_and_mentioned_once(make_world: MakeWorld):
    """A socket file that nobody listens on is no kubelet."""
    world = make_world(start=False)
    world.kubelet.stop()
    world.kubelet.socket.touch()
    world.start_plugin()
    until(lambda: "not registered with the kubelet" in world.log, "the complaint")
    world.kubelet.start()
    world.ready()
    assert world.log.count("not registered with the kubelet") == 1


def test_a_second_agent_on_the_node_refuses_to_start(busy: World):
    """The lock names the process that has it; the first agent does not notice."""
    second = subprocess.run(
        busy.command(), env=busy.env(), capture_output=True, text=True, timeout=120, check=False
    )
    assert second.returncode == 1
    assert f"another node agent (process {busy.process.pid}) works on this node" in second.stderr
    assert busy.kubelet.registrations == 1


def test_preferred_ids_are_on_distinct_cards(busy: World):
    """A container that asks for two slices gets tokens of two cards."""
    pod = busy.pod("two", [container("main", slice_of("1Gi", cards=2))], None)
    held = busy.kubelet.allocate(pod, "main", GPU, 2)
    assert len({one.partition("::")[0] for one in held.ids}) == 2


def test_preferred_ids_follow_the_scheduler_where_its_choice_is_known(busy: World):
    """The one pod that waits was placed on the second card."""
    share = CardShare(busy.uuids[1], GIB, 0)
    pod = busy.pod("steered", [container("main", slice_of("1Gi"))], {"main": [share]})
    uid = pod["metadata"]["uid"]
    until((busy.state / "pods" / f"{uid}.json").exists, "the plugin has seen the pod")
    assert busy.kubelet.allocate(pod, "main", GPU, 1).ids[0].startswith(busy.uuids[1])


@pytest.mark.slow
def test_a_lost_card_is_unhealthy_for_kubelet_and_cluster_and_comes_back(world: World):
    """Only the slices of that card are withdrawn; answering again makes them healthy."""
    endpoint = world.kubelet.wait_for(GPU)
    until(lambda: published(world), "published")
    world.machine.update(0, lost=True)
    until(lambda: "Unhealthy" in endpoint.devices.values(), "unhealthy slices")
    assert {i.partition("::")[0] for i, h in endpoint.devices.items() if h == "Unhealthy"} == {world.uuids[0]}
    until(lambda: published(world)["cards"][0]["health"] == "Unhealthy", "unhealthy in the inventory")
    assert published(world)["cards"][1]["health"] == "Healthy"
    world.machine.update(0, lost=False)
    until(lambda: set(endpoint.devices.values()) == {"Healthy"}, "healthy again")


def test_an_xid_that_is_the_cards_own_fault_makes_it_unhealthy(world: World):
    """A program's page fault (31) does not; a fall off the bus (79) does, with its number as the reason."""
    endpoint = world.kubelet.wait_for(GPU)
    until(lambda: published(world), "published")
    world.machine.raise_xid(1, 31)
    world.machine.raise_xid(0, 79)
    until(lambda: "Unhealthy" in endpoint.devices.values(), "unhealthy slices")
    until(lambda: published(world)["cards"][0]["reason"] == "XID 79", "the reason in the inventory")
    assert published(world)["cards"][1]["health"] == "Healthy"


def test_the_inventory_says_what_the_node_has(make_world: MakeWorld):
    """GPUNode carries memory less the driver's part, the reserve, and where the card is."""
    world = make_world(SimCard(reserved_mib=384), flags=["--reserve", "1Gi", "--slices-per-card", "4"])
    status = until(functools.partial(published, world), "published")
    (card,) = status["cards"]
    assert status["slicesPerCard"] == 4
    assert (card["uuid"], card["memoryMiB"], card["reserveMiB"]) == (world.uuids[0], 16000, 1024)
    assert (card["model"], card["health"], card["migEnabled"]) == ("NVIDIA H200", "Healthy", False)


def test_a_deleted_inventory_is_published_again_after_a_restart(world: World):
    """Whoever deletes the object gets it back."""
    until(lambda: published(world), "published")
    world.api.request("DELETE", f"/apis/aliquot.dev/v1alpha1/gpunodes/{world.node}")
    world.restart_plugin()
    assert until(lambda: published(world), "published again")["cards"]


def published(world: World) -> dict:
    """The node's GPUNode status; empty while there is none."""
    nodes = world.api.request("GET", "/apis/aliquot.dev/v1alpha1/gpunodes")
    mine = [node for node in nodes["items"] if node["metadata"]["name"] == world.node]
    return json.loads(json.dumps(mine[0].get("status", {}))) if mine else {}
