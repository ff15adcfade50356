"""What a tenant sees through NVML, in processes that never load the CUDA driver."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from aliquot.libshim.control_page import CardLimit, Control, Enforcement, create_control, update_control
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine, SimMig
from tests.native.shells import library
from tests.native.sims import wait_for
from tests.native.tenants import Tenant

GIB = 1 << 30
SPIN_PTX = Path(__file__).resolve().parents[2] / "sandbox" / "kernels" / "spin.ptx"

LOOK = """
import json, sys
import pynvml as nvml

def name_of_error(call, *arguments):
    try:
        call(*arguments)
    except nvml.NVMLError as error:
        return type(error).__name__
    return "none"

nvml.nvmlInit()
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
print(json.dumps({
    "uuids": [nvml.nvmlDeviceGetUUID(handle) for handle in handles],
    "indexes": [nvml.nvmlDeviceGetIndex(handle) for handle in handles],
    "beyond": name_of_error(nvml.nvmlDeviceGetHandleByIndex, len(handles)),
    "others": [name_of_error(nvml.nvmlDeviceGetHandleByUUID, uuid) for uuid in sys.argv[1:]],
    "v1": [[m.total, m.free, m.used] for m in map(nvml.nvmlDeviceGetMemoryInfo, handles)],
    "v2": [[m.total, m.free, m.used, m.reserved] for m in (
        nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2) for handle in handles)],
    "processes": [[[p.pid, p.usedGpuMemory] for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
                  for handle in handles],
    "details": [[[p.pid, p.usedGpuMemory] for p in nvml.nvmlDeviceGetRunningProcessDetailList(
                  handle, nvml.nvmlProcessDetailList_v1, mode)] for handle in handles for mode in (0, 1)],
    "graphics": [len(nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) for handle in handles],
    "cuda": any("libcuda" in line for line in open("/proc/self/maps")),
}))
"""

HOLD = """
import sys
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]

cuda.cuInit(0)
device = check(cuda.cuDeviceGet(int(sys.argv[2])))
cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(device)))
check(cuda.cuMemAlloc(int(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
"""


WORK = (
    HOLD.replace("sys.stdin.read()", "")
    + """
import ctypes, select
module = check(cuda.cuModuleLoadData(open(sys.argv[3], "rb").read() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
while not select.select([sys.stdin], [], [], 0)[0]:
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((5_000_000,), (ctypes.c_uint64,)), 0)
    cuda.cuCtxSynchronize()
"""
)

SAMPLE = """
import json
import pynvml as nvml

nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)

def sample():
    try:
        return sorted(s.pid for s in nvml.nvmlDeviceGetProcessUtilization(handle, 0))
    except nvml.NVMLError as error:
        return type(error).__name__

print(json.dumps(sample()))
"""


def look(tenant: Tenant, *others: str, **extra: str) -> dict[str, list[object]]:
    """What NVML tells a process of the tenant."""
    found: dict[str, list[object]] = json.loads(tenant.run(LOOK, *others, **extra))
    assert found["cuda"] is False
    return found


class Holder:
    """A process that holds memory of a card while the block lasts."""

    def __init__(self, tenant: Tenant, size: int, device: int = 0, program: str = HOLD, **extra: str) -> None:
        self._process = tenant.start(program, size, device, SPIN_PTX, **extra)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)


def test_the_card_is_as_large_as_the_slice(tenant: Callable[..., Tenant]):
    """Both versions of the memory query show limit, use and rest of the slice, adding up."""
    own = tenant(4 * GIB)
    with Holder(own, GIB):
        seen = look(own)
    assert seen["v1"] == [[4 * GIB, 3 * GIB, GIB]]
    assert seen["v2"] == [[4 * GIB, 3 * GIB, GIB, 0]]


def test_a_neighbour_is_not_seen(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Another tenant's memory and processes on the same card are none of ours."""
    own, neighbour = tenant(4 * GIB), tenant(8 * GIB)
    with Holder(neighbour, 2 * GIB) as other:
        assert other.pid in machine.processes(machine.cards[0].uuid)
        seen = look(own)
    assert seen["v1"] == [[4 * GIB, 4 * GIB, 0]]
    assert seen["processes"] == [[]]


def test_a_process_sees_those_of_its_container(tenant: Callable[..., Tenant]):
    """The list holds the container's own pids with what they hold."""
    own = tenant(4 * GIB)
    with Holder(own, GIB) as first, Holder(own, 2 * GIB) as second:
        seen = look(own)
    assert sorted(seen["processes"][0]) == sorted([[first.pid, GIB], [second.pid, 2 * GIB]])
    assert seen["graphics"] == [0]


def test_the_detailed_list_is_the_containers_own_too(tenant: Callable[..., Tenant]):
    """It holds the container's processes that compute, none that draw, and no neighbour."""
    own, neighbour = tenant(4 * GIB), tenant(8 * GIB)
    with Holder(neighbour, GIB), Holder(own, 2 * GIB) as mine:
        assert look(own)["details"] == [[[mine.pid, 2 * GIB]], []]


def test_utilisation_is_told_of_the_containers_own_processes(tenant: Callable[..., Tenant]):
    """Samples of a neighbour are as if there were none; NVML's error for none is the driver's."""
    own, neighbour = tenant(4 * GIB), tenant(8 * GIB)
    nobody = {"ALIQUOT_CONTROL_PAGE": "", "ALIQUOT_USAGE_PAGE": ""}
    with Holder(neighbour, GIB, program=WORK) as other, Holder(own, GIB, program=WORK) as mine:
        wait_for(
            lambda: json.loads(own.run(SAMPLE, **nobody)) == sorted([other.pid, mine.pid]), "both to work"
        )
        assert json.loads(own.run(SAMPLE)) == [mine.pid]
        assert json.loads(tenant(GIB).run(SAMPLE)) == "NVMLError_NotFound"


def test_a_process_that_ended_is_no_longer_listed(tenant: Callable[..., Tenant]):
    """Whoever is dead holds nothing and is not shown."""
    own = tenant(4 * GIB)
    with Holder(own, GIB):
        pass
    assert look(own)["processes"] == [[]]


def test_only_the_slices_cards_are_listed(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Cards count from 0 in the slice, and no other card is found by any name."""
    first, second = (card.uuid for card in machine.cards)
    own = tenant(4 * GIB, card=1)
    seen = look(own, first, second)
    assert seen["uuids"] == [second]
    assert seen["indexes"] == [0]
    assert seen["beyond"] == "NVMLError_InvalidArgument"
    assert seen["others"] == ["NVMLError_NotFound", "none"]


def test_each_card_of_a_slice_has_its_own_limit(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Limits go by UUID, whatever the order of the control page; the list keeps NVML's order."""
    first, second = (card.uuid for card in machine.cards)
    own = tenant(limits=[CardLimit(second, 2 * GIB), CardLimit(first, 3 * GIB)])
    seen = look(own)
    assert seen["uuids"] == [first, second]
    assert [memory[0] for memory in seen["v1"]] == [3 * GIB, 2 * GIB]


def test_a_limit_that_changes_is_seen_at_once(machine: SimMachine, tenant: Callable[..., Tenant]):
    """A running tenant's card grows with its control page."""
    own = tenant(4 * GIB)
    control = Control("test/tenant", (CardLimit(machine.cards[0].uuid, 6 * GIB),))
    update_control(own.control, control)
    assert look(own)["v1"] == [[6 * GIB, 6 * GIB, 0]]


def test_where_limits_are_only_observed_the_card_is_shown_as_it_is(
    machine: SimMachine, tenant: Callable[..., Tenant]
):
    """`observe` changes nothing that a program can see of the memory."""
    own = tenant(4 * GIB)
    limits = (CardLimit(machine.cards[0].uuid, 4 * GIB),)
    update_control(own.control, Control("test/tenant", limits, Enforcement.OBSERVE))
    assert look(own)["v1"] == [[16 * GIB, 16 * GIB, 0]]


def test_without_pages_nothing_changes(machine: SimMachine, tenant: Callable[..., Tenant]):
    """A process that no slice was made for sees the whole machine."""
    seen = look(tenant(GIB), ALIQUOT_CONTROL_PAGE="", ALIQUOT_USAGE_PAGE="")
    assert seen["uuids"] == [card.uuid for card in machine.cards]
    assert [memory[0] for memory in seen["v1"]] == [16 * GIB, 16 * GIB]


def test_hami_cores_environment_is_shown_by_cuda_ordinal(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Its limits follow CUDA_VISIBLE_DEVICES; the cards stay listed, as HAMi's users know them."""
    own = tenant(GIB)
    environment = {
        "ALIQUOT_CONTROL_PAGE": "",
        "ALIQUOT_USAGE_PAGE": "",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3g",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(own.directory / "hami.usage"),
        "CUDA_VISIBLE_DEVICES": machine.cards[1].uuid,
    }
    with Holder(own, GIB, **environment):
        seen = look(own, **environment)
    assert seen["v1"][1] == [3 * GIB, 2 * GIB, GIB]
    assert seen["uuids"] == [card.uuid for card in machine.cards]


def test_what_neighbours_use_is_neither_free_nor_ours(tenant: Callable[..., Tenant]):
    """Free is what the card still has; used stays the slice's own, and the rest is reserved."""
    own, neighbour = tenant(4 * GIB), tenant(16 * GIB)
    with Holder(own, GIB), Holder(neighbour, 13 * GIB):
        seen = look(own)
    ((total, free, used),) = seen["v1"]
    assert (total, used) == (4 * GIB, GIB)
    assert free <= 2 * GIB
    assert seen["v2"] == [[total, free, used, total - free - used]]


MIG_LOOK = """
import json
import pynvml as nvml

nvml.nvmlInit()
seen = []
for i in range(nvml.nvmlDeviceGetCount()):
    card = nvml.nvmlDeviceGetHandleByIndex(i)
    own = {nvml.nvmlDeviceGetUUID(card): card}
    for j in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, j)
        except nvml.NVMLError_NotFound:
            continue
        own[nvml.nvmlDeviceGetUUID(instance)] = instance
    for uuid, handle in own.items():
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        pids = [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        seen.append([uuid, memory.total, memory.free, memory.used, pids])
print(json.dumps(seen))
"""


def test_a_tenant_of_mig_instances_sees_those_and_their_cards(tmp_path: Path):
    """Other instances and other cards are not listed; a card shows what its own instances have."""
    instances = (SimMig("1g.18gb", gi=1), SimMig("1g.18gb", gi=2))
    machine = SimMachine(tmp_path / "mig", [SimCard(), SimCard(memory_mib=143771, mig=instances)])
    machine.create()
    card = machine.cards[1]
    _, instance = card.mig
    create_control(tmp_path / "control", Control("test/mig", (CardLimit(instance.uuid, 4 * GIB),)))
    create_usage(tmp_path / "usage")
    own = Tenant(machine, tmp_path)
    with Holder(own, GIB, CUDA_VISIBLE_DEVICES=instance.uuid) as holder:
        seen = json.loads(own.run(MIG_LOOK))
    assert seen == [[uuid, 4 * GIB, 3 * GIB, GIB, [holder.pid]] for uuid in (card.uuid, instance.uuid)]


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceGetAccountingPids",
        "nvmlDeviceGetAccountingStats",
        "nvmlDeviceGetAccountingStats_v2",
        "nvmlDeviceGetProcessesUtilizationInfo",
    ],
)
def test_what_tells_of_everybody_is_not_supported(tenant: Callable[..., Tenant], name: str):
    """An NVML that knows all processes of the card is asked for none of them; without pages it answers."""
    own, not_supported, success = tenant(GIB), 3, 0
    call = f"""
import ctypes
one, two = ctypes.c_uint(), ctypes.c_uint()
print(ctypes.CDLL({str(library("open_nvml"))!r}).{name}(1, ctypes.byref(one), ctypes.byref(two)))
"""
    assert int(own.run(call)) == not_supported
    assert int(own.run(call, ALIQUOT_CONTROL_PAGE="", ALIQUOT_USAGE_PAGE="")) == success
