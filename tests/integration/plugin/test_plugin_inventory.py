"""The GPUNode belongs to the Node of its name: Kubernetes collects it with that, and it comes with the next."""

import urllib.error
from http.client import NOT_FOUND

from aliquot.request.placement import CardShare
from aliquot.units import parse_quantity
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.world import NODES, Json, MakeWorld, World, container, slice_of

GPU_NODES = "/apis/aliquot.dev/v1alpha1/gpunodes"


def inventory(world: World) -> Json | None:
    """The node's GPUNode, if there is one."""
    try:
        found: Json = world.api.request("GET", f"{GPU_NODES}/{world.node}")
    except urllib.error.HTTPError as error:
        if error.code != NOT_FOUND:
            raise
        return None
    return found


def is_owned_by(world: World, uid: str) -> bool:
    """Whether cards are published, as this Node's."""
    found = inventory(world) or {}
    owner = {"apiVersion": "v1", "kind": "Node", "name": world.node, "uid": uid}
    owners = found.get("metadata", {}).get("ownerReferences")
    return owners == [owner] and len(found.get("status", {}).get("cards", ())) == len(world.uuids)


def test_nothing_is_published_without_a_node(make_world: MakeWorld):
    """An agent that outlives its Node, or has another name than its own, says so; when the node joins it publishes."""
    world = make_world(start=False)
    world.api.request("DELETE", f"{NODES}/{world.node}")
    world.start_plugin()
    told = f"there is no Node {world.node}: its cards are published when it joins"
    until(lambda: told in world.log, "said")
    assert inventory(world) is None
    uid = world.join()
    until(lambda: is_owned_by(world, uid), "published")


def test_the_node_that_joins_again_is_the_owner(world: World):
    """Whether what was there has been collected meanwhile or not."""
    for collected in (False, True):
        world.api.request("DELETE", f"{NODES}/{world.node}")
        if collected:
            world.api.request("DELETE", f"{GPU_NODES}/{world.node}")
        uid = world.join()
        until(lambda uid=uid: is_owned_by(world, uid), "its new owner")


def test_one_of_an_older_agent_gets_its_owner(make_world: MakeWorld):
    """Agents before this one named none."""
    world = make_world(start=False)
    made = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": world.node}}
    world.api.request("POST", GPU_NODES, made)
    node = world.api.request("GET", f"{NODES}/{world.node}")
    world.start_plugin()
    until(lambda: is_owned_by(world, node["metadata"]["uid"]), "its owner")


def test_free_capacity_follows_the_pods(world: World):
    """What is bound to the node is promised before it starts."""
    until(lambda: summary(world).get("promised") == "0", "published")
    whole = summary(world)
    share = CardShare(world.uuids[0], 4096, 0)
    world.pod("p", [container("main", slice_of("4Gi"))], {"main": [share]})
    until(lambda: summary(world)["promised"] == "4Gi", "promised")
    assert parse_quantity(whole["free"]) - parse_quantity(summary(world)["free"]) == 4 << 30
    assert summary(world)["memory"] == whole["memory"]
    assert summary(world)["healthy"] == f"{len(world.uuids)}/{len(world.uuids)}"


def summary(world: World) -> Json:
    """What the GPUNode says of all cards together."""
    found: Json = (inventory(world) or {}).get("status", {}).get("summary", {})
    return found
