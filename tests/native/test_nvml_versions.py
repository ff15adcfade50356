"""Every version of an NVML function that has a hook shows the slice, found by its name."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native import sims
from tests.native.tenants import Tenant

MIB = 1 << 20
INVALID_ARGUMENT, NOT_FOUND = 2, 6

# Holds memory on a card, then asks NVML by every version of every function. Arguments: the card's number for CUDA, the
# UUIDs of both cards, their PCI addresses.
ASK = """
import ctypes, json, sys
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(int(sys.argv[1]))[1])
held = cuda.cuMemAlloc(8 << 20)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()

class V1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]

class V2(ctypes.Structure):
    _fields_ = [*V1._fields_, ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]

def uuid(handle):
    text = ctypes.create_string_buffer(96)
    return text.value.decode() if nvml.nvmlDeviceGetUUID(handle, text, 96) == 0 else None

def count(name):
    number = ctypes.c_uint()
    return [getattr(nvml, name)(ctypes.byref(number)), number.value]

def handle(name, argument):
    found = ctypes.c_void_p()
    status = getattr(nvml, name)(argument, ctypes.byref(found))
    return [status, uuid(found) if status == 0 else None]

def processes(kind, version, Info):
    many, infos = ctypes.c_uint(8), (Info * 8)()
    own = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(own))
    status = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}")(own, ctypes.byref(many), infos)
    return [status, [info.used for info in infos[:many.value]]]

uuids, buses = sys.argv[2:4], sys.argv[4:6]
print(json.dumps({
    "count": [count("nvmlDeviceGetCount" + v) for v in ("", "_v2")],
    "index": [[handle("nvmlDeviceGetHandleByIndex" + v, i) for i in range(2)] for v in ("", "_v2")],
    "uuid": [handle("nvmlDeviceGetHandleByUUID", text.encode()) for text in uuids],
    "bus": [[handle("nvmlDeviceGetHandleByPciBusId" + v, text.encode()) for text in buses] for v in ("", "_v2")],
    "serial": handle("nvmlDeviceGetHandleBySerial", b"1"),
    "uuidv": handle("nvmlDeviceGetHandleByUUIDV", None),
    "compute": [processes("Compute", v, info) for v, info in (("", V1), ("_v2", V2), ("_v3", V2))],
    "graphics": [processes("Graphics", v, info) for v, info in (("", V1), ("_v2", V2), ("_v3", V2))],
    "mps": [processes("MPSCompute", v, info) for v, info in (("", V1), ("_v2", V2), ("_v3", V2))],
}))
"""


@pytest.fixture
def answers(machine: SimMachine, tenant: Callable[..., Tenant]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a program outside of any slice gets, and one in a slice of the machine's second card."""
    uuids = [card.uuid for card in machine.cards]
    buses = json.loads(sims.run_python(machine, BUSES))
    bare = sims.run_python(machine, ASK, 1, *uuids, *buses)
    return json.loads(bare), json.loads(tenant(64 * MIB, card=1).run(ASK, 1, *uuids, *buses))


BUSES = """
import json, pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
print(json.dumps([pynvml.nvmlDeviceGetPciInfo(card).busId for card in cards]))
"""


def test_every_version_shows_the_slice(machine: SimMachine, answers: tuple[dict[str, Any], dict[str, Any]]):
    """Its card alone, by whatever name; its own process; and what NVML does not know is its own business."""
    bare, ours = answers
    first, second = (card.uuid for card in machine.cards)
    assert bare["count"] == [[0, 2]] * 2
    assert ours["count"] == [[0, 1]] * 2
    assert bare["index"] == [[[0, first], [0, second]]] * 2
    assert ours["index"] == [[[0, second], [INVALID_ARGUMENT, None]]] * 2
    assert bare["uuid"] == [[0, first], [0, second]]
    assert ours["uuid"] == [[NOT_FOUND, None], [0, second]]
    assert bare["bus"] == [[[0, first], [0, second]]] * 2
    assert ours["bus"] == [[[NOT_FOUND, None], [0, second]]] * 2
    assert (ours["serial"], ours["uuidv"]) == (bare["serial"], bare["uuidv"])
    assert ours["compute"] == [[0, [8 * MIB]]] * 3
    assert ours["graphics"] == ours["mps"] == [[0, []]] * 3
