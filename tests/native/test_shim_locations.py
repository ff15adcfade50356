"""A locality domain is a part of a card: memory that is asked for there is charged to the card's slice."""

from collections.abc import Callable

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.sims import PRELUDE
from tests.native.tenants import Tenant, truth

MIB = 1 << 20
LIMIT = 1024 * MIB

TenantMaker = Callable[..., Tenant]

BEGIN = """
cuda.cuInit(0)
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
MIB = 1 << 20
PINNED = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
def domain(device, part):
    place = cuda.CUmemLocation()
    place.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
    place.id = device | part << 8
    return place
def until_refused(take):
    count = 0
    while int(take()[0]) == 0:
        count += 1
    return count
def hold(count):
    print(count, flush=True)
    sys.stdin.readline()
"""

WAYS = {
    "memory by handle": """
prop = cuda.CUmemAllocationProp()
prop.type, prop.location = PINNED, domain(0, 1)
hold(until_refused(lambda: cuda.cuMemCreate(256 * MIB, prop, 0)))
""",
    "a pool": """
props = cuda.CUmemPoolProps()
props.allocType, props.location = PINNED, domain(0, 1)
pool = check(cuda.cuMemPoolCreate(props))
hold(until_refused(lambda: cuda.cuMemAllocFromPoolAsync(256 * MIB, pool, 0)))
""",
    "nodes of a graph": """
graphs = []
def launch():
    graph = check(cuda.cuGraphCreate(0))
    params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType, params.poolProps.location, params.bytesize = PINNED, domain(0, 1), 256 * MIB
    check(cuda.cuGraphAddMemAllocNode(graph, [], 0, params))
    graphs.append(check(cuda.cuGraphInstantiate(graph, 0)))
    return cuda.cuGraphLaunch(graphs[-1], 0)
hold(until_refused(launch))
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_memory_of_a_locality_domain_is_the_cards(tenant: TenantMaker, way: str):
    """Four quarters of the slice are had, a fifth is not."""
    own = tenant(LIMIT)
    process = own.start(PRELUDE + BEGIN + WAYS[way])
    assert process.stdout is not None
    assert process.stdout.readline() == "4\n"
    assert own.usage().cards[0].memory_used_bytes == truth(own) == LIMIT
    process.communicate("\n")
    assert process.returncode == 0


PREFETCH = """
memory = check(cuda.cuMemAllocManaged(512 * MIB, 1))
check(cuda.cuMemPrefetchAsync(memory, 512 * MIB, domain(1, 1), 0, 0))
check(cuda.cuCtxSynchronize())
hold(0)
"""


@pytest.mark.parametrize(("limit", "there"), [(1024, 512), (256, 0)])
def test_managed_memory_goes_to_another_cards_domain_as_its_slice_holds_it(
    machine: SimMachine, tenant: TenantMaker, limit: int, there: int
):
    """It is charged there, or stays where it is."""
    limits = [
        CardLimit(card.uuid, size * MIB) for card, size in zip(machine.cards, (1024, limit), strict=True)
    ]
    own = tenant(limits=limits)
    process = own.start(PRELUDE + BEGIN + PREFETCH)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    assert machine.memory_used(machine.cards[1].uuid) == there * MIB
    assert own.usage().cards[1].memory_used_bytes == there * MIB
    process.communicate("\n")
    assert process.returncode == 0
