"""NVIDIA's own Python clients run on the simulated driver unchanged."""

from pathlib import Path

from aliquot.sandbox.gpus import SOURCES, SimCard, SimMachine, SimMig
from tests.native.sims import busy_ns, run_python

SPIN = SOURCES.parent / "kernels" / "spin.ptx"

CORE = """
from pathlib import Path
from cuda.core import Device, EventOptions, LaunchConfig, ObjectCode, launch
device = Device()
device.set_current()
stream = device.create_stream()
kernel = ObjectCode.from_ptx(Path(sys.argv[1]).read_bytes()).get_kernel("aliquot_spin")
config = LaunchConfig(grid=1, block=32)
timed = EventOptions(timing_enabled=True)
"""


def test_cuda_core_launches_and_measures(machine: SimMachine):
    """Device, stream, PTX, launch, events with time, wait."""
    program = """
launch(stream, config, kernel, 1000)
first = stream.record(options=timed)
for _ in range(5):
    launch(stream, config, kernel, 2_000_000)
last = stream.record(options=timed)
last.sync()
print(device.name, kernel.num_arguments, last - first)
"""
    *name, arguments, elapsed = run_python(machine, CORE + program, SPIN).split()
    assert (" ".join(name), arguments) == ("NVIDIA H200", "1")
    assert busy_ns(machine) == 1000 + 10_000_000
    assert float(elapsed) > 9.99


def test_cuda_core_allocates_from_pools(machine: SimMachine):
    """Its device memory resource draws on memory pools; too much is an error that names the cause."""
    program = """
from cuda.core import DeviceMemoryResource, LegacyPinnedMemoryResource
import ctypes
resource = DeviceMemoryResource(0)
device.memory_resource = resource
buffer, twin = device.allocate(1 << 20, stream=stream), device.allocate(1 << 20, stream=stream)
host = LegacyPinnedMemoryResource().allocate(1 << 20)
ctypes.memset(int(host.handle), 9, 1 << 20)
buffer.copy_from(host, stream=stream)
twin.copy_from(buffer, stream=stream)
stream.sync()
ctypes.memset(int(host.handle), 0, 1 << 20)
twin.copy_to(host, stream=stream)
stream.sync()
print(set(ctypes.string_at(int(host.handle), 1 << 20)))
try:
    device.allocate(1 << 40, stream=stream)
except Exception as error:
    print(str(error).partition(":")[0])
buffer.close(stream)
twin.close(stream)
stream.sync()
"""
    assert run_python(machine, CORE + program, SPIN).splitlines() == ["{9}", "CUDA_ERROR_OUT_OF_MEMORY"]


def test_cuda_core_captures_graphs(machine: SimMachine):
    """A graph of three kernels takes their time at every launch."""
    program = """
builder = device.create_graph_builder().begin_building()
for _ in range(3):
    launch(builder, config, kernel, 1_000_000)
graph = builder.end_building().complete()
graph.upload(stream)
first = stream.record(options=timed)
graph.launch(stream)
graph.launch(stream)
last = stream.record(options=timed)
last.sync()
print(last - first)
"""
    assert float(run_python(machine, CORE + program, SPIN)) > 5.99
    assert busy_ns(machine) == 6_000_000


def test_captures_obey_their_rules(machine: SimMachine):
    """What would wait spoils a capture; forks must join; relaxed threads may do as they like."""
    program = """
start()
stream, other = (check(cuda.cuStreamCreate(1)) for _ in range(2))
event = check(cuda.cuEventCreate(0))
mode = cuda.CUstreamCaptureMode
def capture(*calls, mode=mode.CU_STREAM_CAPTURE_MODE_GLOBAL):
    check(cuda.cuStreamBeginCapture(stream, mode))
    answers = [int(call()[0]) for call in calls]
    return answers, int(cuda.cuStreamEndCapture(stream)[0])
record = lambda at: lambda: cuda.cuEventRecord(event, at)
wait = lambda at: lambda: cuda.cuStreamWaitEvent(at, event, 0)
fill = lambda at: lambda: cuda.cuMemsetD8Async(memory, 1, 10, at)
memory = check(cuda.cuMemAlloc(10))
print(capture(fill(stream)))
print(capture(lambda: cuda.cuStreamSynchronize(stream), fill(stream)))
print(capture(lambda: cuda.cuMemAlloc(10)))
print(capture(lambda: cuda.cuMemAlloc(10), mode=mode.CU_STREAM_CAPTURE_MODE_RELAXED))
print(capture(record(stream), wait(other), fill(other), record(other), wait(stream)))
print(capture(record(stream), wait(other), fill(other)))
print(capture(record(other), wait(stream)))
print(capture(record(stream), lambda: cuda.cuEventQuery(event)))
"""
    assert run_python(machine, program).splitlines() == [
        "([0], 0)",
        "([900, 901], 901)",
        "([900], 901)",
        "([0], 0)",
        "([0, 0, 0, 0, 0], 0)",
        "([0, 0, 0], 904)",
        "([0, 905], 901)",
        "([0, 907], 901)",
    ]


def test_host_functions_run_in_order_and_may_not_call_the_driver(machine: SimMachine):
    """They are called between the work before and after; calling CUDA there is not permitted."""
    program = """
import ctypes
start()
stream = check(cuda.cuStreamCreate(1))
seen = []
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
@FUNCTION
def call(data):
    seen.append(int(cuda.cuMemAlloc(10)[0]))
pointer = ctypes.cast(call, ctypes.c_void_p).value
check(cuda.cuLaunchHostFunc(stream, cuda.CUhostFn(pointer), 0))
check(cuda.cuStreamSynchronize(stream))
print(seen)
"""
    assert run_python(machine, program).strip() == "[800]"


NVML = """
import pynvml
pynvml.nvmlInit()
def refused(call, *args):
    try:
        return call(*args)
    except pynvml.NVMLError as error:
        return type(error).__name__
"""


def test_nvml_describes_the_cards(tmp_path: Path):
    """Names, UUIDs, minor numbers, bus ids, memory of both versions, NUMA nodes; what is not there is not supported."""
    cards = [SimCard(memory_mib=1000, reserved_mib=100, minor=3, numa_node=1), SimCard(model="NVIDIA L4")]
    machine = SimMachine(tmp_path / "described", cards)
    machine.create()
    program = """
for i in range(pynvml.nvmlDeviceGetCount()):
    card = pynvml.nvmlDeviceGetHandleByIndex(i)
    one, two = pynvml.nvmlDeviceGetMemoryInfo(card), pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
    print(pynvml.nvmlDeviceGetName(card), pynvml.nvmlDeviceGetUUID(card), pynvml.nvmlDeviceGetMinorNumber(card),
          pynvml.nvmlDeviceGetNumaNodeId(card), pynvml.nvmlDeviceGetPciInfo(card).busId, one.used >> 20, two.used >> 20,
          two.reserved >> 20, two.total >> 20, two.free >> 20, sep="|")
print(refused(pynvml.nvmlDeviceGetFanSpeed, card), refused(pynvml.nvmlDeviceGetHandleByUUID, "GPU-no"))
"""
    uuids = [card.uuid for card in machine.cards]
    assert run_python(machine, NVML + program).splitlines() == [
        f"NVIDIA H200|{uuids[0]}|3|1|00000000:18:00.0|100|0|100|1000|900",
        f"NVIDIA L4|{uuids[1]}|1|0|00000000:19:00.0|0|0|0|16384|16384",
        "NVMLError_NotSupported NVMLError_NotFound",
    ]


def test_nvml_sees_processes_and_their_work(machine: SimMachine):
    """Who holds how much, how busy the card is and who keeps it so."""
    program = """
import os, time
start()
check(cuda.cuMemAlloc(4 << 20))
card = pynvml.nvmlDeviceGetHandleByIndex(0)
print([(p.pid == os.getpid(), p.usedGpuMemory >> 20) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)])
print(pynvml.nvmlDeviceGetUtilizationRates(card).gpu, refused(pynvml.nvmlDeviceGetProcessUtilization, card, 0))
from pathlib import Path
import ctypes
module = check(cuda.cuModuleLoadData(Path(sys.argv[1]).read_bytes() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
ns = ctypes.c_uint64(300_000_000)
params = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
while True:
    begun = time.monotonic()
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(params), 0))
    check(cuda.cuCtxSynchronize())
    busy = pynvml.nvmlDeviceGetUtilizationRates(card).gpu
    sample, = pynvml.nvmlDeviceGetProcessUtilization(card, 0)
    if time.monotonic() - begun < 0.9:  # both are of the last second
        break
    time.sleep(1.1)
print(25 <= busy <= 31, 25 <= sample.smUtil <= 31, sample.pid == os.getpid())
"""
    assert run_python(machine, NVML + program, SPIN).splitlines() == [
        "[(True, 4)]",
        "0 NVMLError_NotFound",
        "True True True",
    ]


def test_nvml_reports_errors_and_losses_as_they_happen(machine: SimMachine):
    """XIDs wake who waits for events; a card that falls off the bus is lost to every call."""
    program = f"""
from pathlib import Path
sys.path.insert(0, {str(SOURCES.parents[1])!r})
from aliquot.sandbox.gpus import SimCard, SimMachine
machine = SimMachine(Path(sys.argv[1]), [SimCard(), SimCard()])
card = pynvml.nvmlDeviceGetHandleByIndex(1)
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(card, pynvml.nvmlEventTypeXidCriticalError, events)
print(refused(pynvml.nvmlEventSetWait_v2, events, 20))
machine.raise_xid(1, 79)
event = pynvml.nvmlEventSetWait_v2(events, 5000)
print(event.eventData, pynvml.nvmlDeviceGetUUID(event.device) == machine.cards[1].uuid)
machine.update(1, lost=True)
print(refused(pynvml.nvmlDeviceGetMemoryInfo, card), refused(pynvml.nvmlDeviceGetHandleByIndex, 1))
"""
    assert run_python(machine, NVML + program, machine.root).splitlines() == [
        "NVMLError_Timeout",
        "79 True",
        "NVMLError_GpuIsLost NVMLError_GpuIsLost",
    ]


def test_nvml_lists_mig_instances(tmp_path: Path):
    """Their names, ids, memory and parent; a card without MIG has none."""
    instances = (SimMig("1g.18gb", gi=7), SimMig("3g.71gb", gi=2))
    machine = SimMachine(tmp_path / "mig", [SimCard(memory_mib=143771, mig=instances), SimCard()])
    machine.create()
    program = """
card, plain = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
print(pynvml.nvmlDeviceGetMigMode(card), pynvml.nvmlDeviceGetMigMode(plain))
for i in range(2):
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, i)
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    print(pynvml.nvmlDeviceGetName(mig), pynvml.nvmlDeviceGetUUID(mig), pynvml.nvmlDeviceGetGpuInstanceId(mig),
          pynvml.nvmlDeviceGetComputeInstanceId(mig), pynvml.nvmlDeviceGetAttributes(mig).memorySizeMB,
          pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(card), sep="|")
print(refused(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, 2))
"""
    small, large = machine.cards[0].mig
    assert run_python(machine, NVML + program).splitlines() == [
        "[1, 1] [0, 0]",
        f"NVIDIA H200 MIG 1g.18gb|{small.uuid}|7|0|18432|True",
        f"NVIDIA H200 MIG 3g.71gb|{large.uuid}|2|0|72704|True",
        "NVMLError_NotFound",
    ]


def test_nvml_has_no_driver_on_a_broken_machine(machine: SimMachine, tmp_path: Path):
    """It says so in its own terms."""
    program = (
        "import pynvml\ntry:\n    pynvml.nvmlInit()\nexcept pynvml.NVMLError as error:\n    print(error)"
    )
    assert run_python(machine, program, SIMGPU_DIR=str(tmp_path)).strip() == "Driver Not Loaded"
