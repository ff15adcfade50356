"""Allocations of one process used by another on a simulated machine: IPC handles, shared pools, external memory."""

from collections.abc import Callable

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.pairs import PROGRAM, Pair
from tests.native.sims import run_python

GIVE = {
    "an IPC handle": """
address = check(cuda.cuMemAlloc(64 * MIB))
check(cuda.cuMemcpyHtoD(int(address) + 40 * MIB, b"hello", 5))
handle = check(cuda.cuIpcGetMemHandle(address))
peer.sendall(raw(handle))
""",
    "an IPC handle of a small allocation": """
address = [check(cuda.cuMemAlloc(48 * MIB)), check(cuda.cuMemAlloc(512 << 10)), check(cuda.cuMemAlloc(512 << 10))][2]
check(cuda.cuMemcpyHtoD(address, b"hello", 5))
peer.sendall(raw(check(cuda.cuIpcGetMemHandle(address))))
""",
    "a pool": """
props = cuda.CUmemPoolProps()
props.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type, props.handleTypes = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, FD
pool = check(cuda.cuMemPoolCreate(props))
address = check(cuda.cuMemAllocFromPoolAsync(64 * MIB, pool, 0))
check(cuda.cuMemcpyHtoD(int(address) + 40 * MIB, b"hello", 5))
send_fd(int(check(cuda.cuMemPoolExportToShareableHandle(pool, FD, 0))))
peer.sendall(raw(check(cuda.cuMemPoolExportPointer(address))))
""",
}
TAKE = {
    "an IPC handle": """
handle = filled(cuda.CUipcMemHandle(), peer.recv(64))
address = check(cuda.cuIpcOpenMemHandle(handle, 1))
again = check(cuda.cuIpcOpenMemHandle(handle, 1))
assert int(address) == int(again)
say(text(int(address) + 40 * MIB).decode())
assert int(cuda.cuMemFree(address)[0]) == 1
check(cuda.cuMemcpyHtoD(address, b"world", 5)); say("written"); wait()
check(cuda.cuIpcCloseMemHandle(address)); check(cuda.cuIpcCloseMemHandle(again))
assert int(cuda.cuIpcCloseMemHandle(address)[0]) == 1
""",
    "an IPC handle of a small allocation": """
handle = filled(cuda.CUipcMemHandle(), peer.recv(64))
address = check(cuda.cuIpcOpenMemHandle(handle, 1))
say(text(address).decode())
check(cuda.cuMemcpyHtoD(address, b"world", 5)); say("written"); wait()
check(cuda.cuIpcCloseMemHandle(address))
""",
    "a pool": """
pool = check(cuda.cuMemPoolImportFromShareableHandle(receive_fd(), FD, 0))
data = filled(cuda.CUmemPoolPtrExportData(), peer.recv(64))
address = check(cuda.cuMemPoolImportPointer(pool, data))
assert int(cuda.cuMemAllocFromPoolAsync(1, pool, 0)[0]) == 1
say(text(int(address) + 40 * MIB).decode())
check(cuda.cuMemcpyHtoD(address, b"world", 5)); say("written"); wait()
check(cuda.cuMemFreeAsync(address, 0))
assert int(cuda.cuMemFree(address)[0]) == 1
""",
}


@pytest.mark.parametrize("route", GIVE)
def test_an_allocation_of_another_process_is_used_and_stays_its_own(
    pair: Callable[[str, str], Pair], route: str
):
    """Both see the same bytes; only the one that made it pays, until it frees it or dies."""
    first = GIVE[route] + "wait(); say(text(address).decode()); wait()"
    both: Pair = pair(first, TAKE[route] + 'say("closed"); wait()')
    assert both.read(both.second) == "hello"
    assert both.read(both.second) == "written"
    both.go_on(both.first)
    assert both.read(both.first) == "world"
    assert both.held() == {"first": 50 if "small" in route else 64}
    both.go_on(both.second)
    assert both.read(both.second) == "closed"
    both.first.kill()
    both.first.wait()
    assert both.held() == {}


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("cuda.cuIpcOpenMemHandle(check(cuda.cuIpcGetMemHandle(check(cuda.cuMemAlloc(MIB)))), 1)", 201),
        ("cuda.cuIpcGetMemHandle(check(cuda.cuMemAllocAsync(MIB, 0)))", 1),
        ("cuda.cuIpcGetMemHandle(check(cuda.cuMemAllocManaged(MIB, 1)))", 1),
        ("cuda.cuIpcGetMemHandle(0)", 1),
        ("cuda.cuIpcOpenMemHandle(cuda.CUipcMemHandle(), 1)", 1),
        ("cuda.cuIpcGetEventHandle(check(cuda.cuEventCreate(0)))", 400),
        ("cuda.cuIpcOpenEventHandle(check(cuda.cuIpcGetEventHandle(check(cuda.cuEventCreate(6)))))", 201),
        ("cuda.cuMemPoolExportToShareableHandle(check(cuda.cuDeviceGetDefaultMemPool(0)), FD, 0)", 1),
        ("cuda.cuMemPoolExportPointer(check(cuda.cuMemAllocAsync(MIB, 0)))", 1),
    ],
)
def test_what_cannot_be_shared_is_refused(machine: SimMachine, call: str, code: int):
    """Other kinds of memory, a process's own handles, and what is no handle."""
    assert run_python(machine, PROGRAM + f"print(int(({call})[0]))").split() == [str(code)]


EXTERNAL = """
desc = cuda.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
desc.type = cuda.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
desc.size, desc.handle.fd = 64 * MIB, make()
print(used())
memory = check(cuda.cuImportExternalMemory(desc)); print(used())
buffer = cuda.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
buffer.size = 64 * MIB
address = check(cuda.cuExternalMemoryGetMappedBuffer(memory, buffer)); print(used())
check(cuda.cuMemsetD8(address, 7, 5)); assert text(address) == bytes([7] * 5)
check(cuda.cuDestroyExternalMemory(memory)); print(used())
check(cuda.cuMemFree(address)); print(used())
"""
MAKERS = {
    "a graphics API's": (
        "def make():\n    fd = os.memfd_create('vulkan')\n    os.ftruncate(fd, 64 * MIB)\n    return fd\n",
        [0, 64, 64, 64, 0],
    ),
    "the driver's own": (
        """own = create(64)
def make():
    return int(check(cuda.cuMemExportToShareableHandle(own, FD, 0)))
""",
        [64, 64, 64, 64, 64],
    ),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_external_memory_is_on_the_card_while_it_is_imported(machine: SimMachine, maker: str):
    """From import until it is destroyed and its buffers are freed; what the driver exported is not had twice."""
    make, used = MAKERS[maker]
    assert run_python(machine, PROGRAM + make + EXTERNAL).split() == [str(mib) for mib in used]


def test_cards_reach_each_other(machine: SimMachine):
    """Peer access is enabled once, and copies between cards move bytes."""
    program = """
print(check(cuda.cuDeviceCanAccessPeer(0, 1)), check(cuda.cuDeviceCanAccessPeer(0, 0)))
own = check(cuda.cuCtxGetCurrent())
other = check(cuda.cuDevicePrimaryCtxRetain(1))
print(int(cuda.cuCtxDisablePeerAccess(other)[0]), int(cuda.cuCtxEnablePeerAccess(other, 0)[0]),
      int(cuda.cuCtxEnablePeerAccess(other, 0)[0]), int(cuda.cuCtxDisablePeerAccess(other)[0]))
here = check(cuda.cuMemAlloc(MIB)); check(cuda.cuMemcpyHtoD(here, b"hello", 5))
check(cuda.cuCtxSetCurrent(other)); there = check(cuda.cuMemAlloc(MIB))
check(cuda.cuMemcpyPeer(there, other, here, own, MIB)); print(text(there).decode())
"""
    assert run_python(machine, PROGRAM + program).split() == ["1", "0", "705", "0", "704", "0", "hello"]


def test_a_pool_grows_no_larger_than_it_may(machine: SimMachine):
    """Its maxSize bounds what a pool reserves, however much room the card has."""
    program = """
props = cuda.CUmemPoolProps()
props.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type, props.maxSize = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 100 * MIB
pool = check(cuda.cuMemPoolCreate(props))
take = lambda mib: int(cuda.cuMemAllocFromPoolAsync(mib * MIB, pool, 0)[0])
print(take(64), take(40), take(36), take(1))
"""
    assert run_python(machine, PROGRAM + program).split() == ["0", "2", "0", "2"]


def test_a_checkpoint_takes_a_process_off_the_card(pair: Callable[[str, str], Pair]):
    """Another process locks it, has its memory put on the host, and gives it back when there is room."""
    first = """
memory = check(cuda.cuMemAlloc(64 * MIB)); check(cuda.cuMemcpyHtoD(memory, b"hello", 5))
peer.sendall(os.getpid().to_bytes(4, "little")); wait(); say(text(memory).decode())
"""
    second = """
pid = int.from_bytes(peer.recv(4), "little")
codes = lambda *answers: " ".join(str(int(answer[0])) for answer in answers)
say(codes(cuda.cuCheckpointProcessCheckpoint(pid, None), cuda.cuCheckpointProcessLock(pid, None),
          cuda.cuCheckpointProcessCheckpoint(pid, None), cuda.cuCheckpointProcessLock(10 ** 9, None)))
wait()
rest = check(cuda.cuMemAlloc(check(cuda.cuMemGetInfo())[0]))
full = codes(cuda.cuCheckpointProcessRestore(pid, None)); check(cuda.cuMemFree(rest))
say(full + " " + codes(cuda.cuCheckpointProcessRestore(pid, None), cuda.cuCheckpointProcessUnlock(pid, None)))
wait()
"""
    both = pair(first, second)
    assert both.read(both.second) == "401 0 0 1"
    assert both.held() == {}
    both.go_on(both.second)
    assert both.read(both.second) == "2 0 0"
    assert both.held() == {"first": 64}
    both.go_on(both.first)
    assert both.read(both.first) == "hello"


def test_pools_of_host_memory_cost_the_card_nothing(machine: SimMachine):
    """A location names the pool; a device's is the one that cuDeviceGetMemPool knows."""
    program = """
place = cuda.CUmemLocation()
pinned = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
place.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
print(int(check(cuda.cuMemGetMemPool(place, pinned))) == int(check(cuda.cuDeviceGetMemPool(0))))
place.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
host = check(cuda.cuMemGetDefaultMemPool(place, pinned))
address = check(cuda.cuMemAllocFromPoolAsync(64 * MIB, host, 0)); print(used())
check(cuda.cuMemcpyHtoD(address, b"hello", 5)); print(text(address).decode())
props = cuda.CUmemPoolProps()
props.allocType, props.location = pinned, place
own = check(cuda.cuMemPoolCreate(props)); check(cuda.cuMemSetMemPool(place, pinned, own))
print(int(check(cuda.cuMemGetMemPool(place, pinned))) == int(own), int(cuda.cuDeviceSetMemPool(0, own)[0]))
check(cuda.cuMemFreeAsync(address, 0)); check(cuda.cuCtxSynchronize()); print(used())
"""
    assert run_python(machine, PROGRAM + program).split() == ["True", "0", "hello", "True", "1", "0"]
