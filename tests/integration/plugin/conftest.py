"""Makes pretend nodes for the tests of the node agent."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from aliquot.sandbox.cluster.processes import free_port
from aliquot.sandbox.gpus import SimCard
from tests.integration.plugin.world import REPOSITORY, ApiServer, MakeWorld, World


def short_directory() -> Path:
    """A directory whose sockets fit the 107 bytes of a socket's address."""
    return Path(tempfile.mkdtemp(prefix="aq", dir="/tmp"))


def start_api(directory: Path) -> ApiServer:
    """An API server that knows our CRD."""
    server = ApiServer(directory, free_port())
    server.start()
    for path in (REPOSITORY / "deploy" / "crds").glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    return server


@pytest.fixture(scope="session")
def shared_api() -> Iterator[ApiServer]:
    """One API server for all tests that do not kill it."""
    directory = short_directory()
    server = start_api(directory)
    yield server
    server.kill()
    shutil.rmtree(directory)


@pytest.fixture
def own_api() -> Iterator[ApiServer]:
    """An API server that a test may kill."""
    directory = short_directory()
    server = start_api(directory)
    yield server
    server.kill()
    shutil.rmtree(directory)


def new_world(api: ApiServer, cards: Sequence[SimCard]) -> World:
    """A node of its own name with a running kubelet."""
    root = short_directory()
    world = World(root, root.name.lower().replace("_", "-"), api, cards)
    world.join()
    world.kubelet.start()
    return world


@pytest.fixture
def make_world(shared_api: ApiServer) -> Iterator[MakeWorld]:
    """Makes nodes with a running kubelet and, unless told otherwise, a running plugin."""
    worlds: list[World] = []

    def make(
        *cards: SimCard, api: ApiServer | None = None, start: bool = True, flags: Sequence[str] = ()
    ) -> World:
        world = new_world(api or shared_api, cards or (SimCard(), SimCard()))
        world.flags += flags
        worlds.append(world)
        if start:
            world.start_plugin()
            world.ready()
        return world

    yield make
    for world in worlds:
        world.close()
        shutil.rmtree(world.root)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A node with two cards of 16 GiB, its plugin registered."""
    return make_world()


@pytest.fixture(scope="session")
def large_world(shared_api: ApiServer) -> Iterator[World]:
    """A node with 16 cards whose plugin runs through many tests."""
    world = new_world(shared_api, [SimCard() for _ in range(16)])
    world.flags[:] = ["--placement-wait", "1.5"]
    world.start_plugin()
    world.ready()
    yield world
    world.close()
    shutil.rmtree(world.root)


@pytest.fixture
def busy(large_world: World) -> Iterator[World]:
    """The large node, with two cards that no other test has used lately."""
    cards = [card.uuid for card in large_world.machine.cards]
    place = cards.index(large_world.uuids[0])
    large_world.uuids = [cards[(place + step) % len(cards)] for step in (2, 3)]
    yield large_world
    large_world.clear()
