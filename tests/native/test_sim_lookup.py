"""How the simulated driver's entries are found (names, versions, default streams), and what a process may see."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SOURCES, SimCard, SimMachine, SimMig, SimulationError
from tests.native.sims import Answers, ask, environment, run_python, start

LEGACY, PER_THREAD = 1, 2
FOUND, UNKNOWN, TOO_OLD = 0, 1, 2


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("cuMemAlloc", 2000, LEGACY), (FOUND, "cuMemAlloc")),
        (("cuMemAlloc", 3010, LEGACY), (FOUND, "cuMemAlloc")),
        (("cuMemAlloc", 3020, LEGACY), (FOUND, "cuMemAlloc_v2")),
        (("cuMemAlloc", 13000, PER_THREAD), (FOUND, "cuMemAlloc_v2")),
        (("cuCtxCreate", 11040, LEGACY), (FOUND, "cuCtxCreate_v3")),
        (("cuCtxCreate", 12050, LEGACY), (FOUND, "cuCtxCreate_v4")),
        (("cuLaunchKernel", 4000, PER_THREAD), (TOO_OLD, "")),
        (("cuLaunchKernel", 7000, PER_THREAD), (FOUND, "cuLaunchKernel_ptsz")),
        (("cuMemcpyHtoD", 7000, PER_THREAD), (FOUND, "cuMemcpyHtoD_v2_ptds")),
        (("cuMemAllocAsync", 11010, LEGACY), (TOO_OLD, "")),
        (("cuMemAlloc_v2", 13000, LEGACY), (UNKNOWN, "")),
        (("cuNothing", 13000, LEGACY), (UNKNOWN, "")),
    ],
)
def test_a_name_is_answered_by_version_and_stream(
    machine: SimMachine, question: tuple[str, int, int], answer: tuple[int, str]
):
    """The newest ABI that the version may have, its per-thread twin if asked for; a status where there is none."""
    status, symbol = answer
    expected = {"do": "lookup", "result": 0, "status": status, "symbol": symbol}
    assert ask(machine, "lookup", *question) == [expected]


@pytest.mark.parametrize(
    ("version", "flags", "result"),
    [(99990, 0, 0), (-1, 0, 0), (2000, 3, 0), (2000, 4, 1), (99990, 1 << 32, 1)],
)
def test_versions_from_the_future_mean_the_newest_and_other_flags_are_invalid(
    machine: SimMachine, version: int, flags: int, result: int
):
    """As NVIDIA's driver has it (tests/driver); both kinds of streams may be asked for at once."""
    assert ask(machine, "lookup", "cuInit", version, flags)[0]["result"] == result


def everything(machine: SimMachine, *options: str) -> Answers:
    """One of each command of the client."""
    commands = "alloc 9 free pitch 9 9 free managed 9 free async 9 freeasync pool 9 free create 2097152 free"
    more = "map 2097152 fill 1 free array 9 9 free host 9 free launch 1000 2 launchex 1000 2 graph 1000 2 sync total"
    return ask(machine, *options, *commands.split(), *more.split())


@pytest.mark.parametrize(
    "options", [[], ["--per-thread"], ["--by", "dlsym"], ["--by", "dlvsym", "--per-thread"]]
)
def test_entries_work_however_they_are_found(machine: SimMachine, options: list[str]):
    """cuGetProcAddress_v2, dlsym and dlvsym, for both kinds of default stream."""
    assert {answer["result"] for answer in everything(machine, *options)} == {0}


def test_entries_that_the_simulation_lacks_are_not_supported(machine: SimMachine):
    """They exist and say so, as on a card that cannot do it."""
    program = "start()\nprint(int(cuda.cuCtxGetExecAffinity(cuda.CUexecAffinityType(0))[0]))"
    assert run_python(machine, program).strip() == "801"


ABSENT = """
import ctypes
names = ("cuMemAlloc", "cuMemAlloc_v2", "cuMemCreate", "cuMemAllocAsync")
driver = ctypes.CDLL("libcuda.so.1")
print(*[name for name in names if hasattr(driver, name)])
for name in ("cuMemAlloc", "cuMemCreate", "cuMemAllocAsync"):
    entry, status = ctypes.c_void_p(), ctypes.c_int()
    assert driver.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(entry), 13000, ctypes.c_uint64(0), ctypes.byref(status)
    ) == 0
    print(int(bool(entry)), status.value)
"""


def test_a_driver_may_lack_entries(tmp_path: Path):
    """What a machine's driver is said to lack is found neither by dlsym nor by cuGetProcAddress."""
    machine = SimMachine(tmp_path / "old", [SimCard()], missing=("cuMemAlloc_v2", "cuMemCreate"))
    machine.create()
    assert run_python(machine, ABSENT).splitlines() == ["cuMemAlloc cuMemAllocAsync", "1 0", "0 1", "1 0"]


def test_an_entry_that_no_driver_has_cannot_be_lacking(tmp_path: Path):
    """The name is checked, as a test that lacks nothing would prove nothing."""
    with pytest.raises(SimulationError, match="cuMemForget"):
        SimMachine(tmp_path / "odd", [SimCard()], missing=("cuMemForget",)).create()


def test_a_broken_machine_has_no_device(tmp_path: Path, machine: SimMachine):
    """CUDA says so in its own terms, with one line for a person."""
    process = start(machine, "info", SIMGPU_DIR=str(tmp_path / "nothing"))
    output, errors = process.communicate(timeout=30)
    assert json.loads(output.splitlines()[0]) == {"do": "start", "result": 100}
    assert errors == f"simgpu: no scenario at {tmp_path}/nothing/scenario\n"


COUNT = """
print(int(cuda.cuInit(0)[0]))
count = cuda.cuDeviceGetCount()[1] or 0
for i in range(count):
    print(bytes(check(cuda.cuDeviceGetUuid_v2(i)).bytes).hex() if hasattr(cuda, "cuDeviceGetUuid_v2")
          else bytes(check(cuda.cuDeviceGetUuid(i)).bytes).hex())
"""


def seen(machine: SimMachine, **extra: str) -> list[str]:
    """UUIDs of the devices that CUDA shows a process, in order; the first entry is what cuInit answered."""
    return run_python(machine, COUNT, **extra).split()


def digits(uuid: str) -> str:
    """A UUID as CUDA's bytes print."""
    return uuid.partition("-")[2].replace("-", "")


def test_visible_devices_are_honoured_as_by_the_driver(machine: SimMachine):
    """Indexes and UUIDs (also shortened) choose and order; the first that names nothing ends the list."""
    first, second = (digits(card.uuid) for card in machine.cards)
    assert seen(machine) == ["0", first, second]
    assert seen(machine, CUDA_VISIBLE_DEVICES="1,0") == ["0", second, first]
    assert seen(machine, CUDA_VISIBLE_DEVICES=machine.cards[1].uuid) == ["0", second]
    assert seen(machine, CUDA_VISIBLE_DEVICES=machine.cards[1].uuid[:12]) == ["0", second]
    assert seen(machine, CUDA_VISIBLE_DEVICES="0,7,1") == ["0", first]
    assert seen(machine, CUDA_VISIBLE_DEVICES="") == ["100"]
    assert seen(machine, CUDA_VISIBLE_DEVICES="0,0") == ["100"]


def test_only_cards_with_a_node_are_seen(machine: SimMachine, tmp_path: Path):
    """A container's /dev decides."""
    (tmp_path / "dev").mkdir()
    assert seen(machine, SIMGPU_DEV=str(tmp_path / "dev")) == ["100"]
    (tmp_path / "dev" / "nvidia1").touch()
    assert seen(machine, SIMGPU_DEV=str(tmp_path / "dev")) == ["0", digits(machine.cards[1].uuid)]


def test_a_mig_instance_is_a_device_of_its_own(tmp_path: Path):
    """CUDA shows one instance, the one that is named, with its own memory."""
    instances = (SimMig("1g.18gb", gi=7), SimMig("2g.35gb", gi=3))
    machine = SimMachine(tmp_path / "mig", [SimCard(memory_mib=143771, mig=instances)])
    machine.create()
    small, large = machine.cards[0].mig
    totals = [
        ask(machine, "alloc", 1 << 30, "info", CUDA_VISIBLE_DEVICES=mig.uuid)[1]["total"]
        for mig in (small, large)
    ]
    assert totals == [18 << 30, 35 << 30]
    assert ask(machine, "total")[0]["bytes"] == 18 << 30


def test_a_forked_child_cannot_use_its_parents_driver(machine: SimMachine):
    """CUDA does not survive fork; a child that asks is told so."""
    program = """
import os
start()
child = os.fork()
if child == 0:
    os._exit(int(cuda.cuInit(0)[0]) * 10 + int(cuda.cuMemAlloc(1)[0]))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(machine, program).strip() == "33"


def test_both_libraries_need_nothing_but_libc(machine: SimMachine):
    """They load wherever a C library does, and define no name that is not the driver's."""
    for name, prefix in (("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")):
        listing = subprocess.run(
            ["nm", "-D", "--defined-only", machine.lib_dir / name],
            capture_output=True, text=True, check=True, env=environment(machine),
        )  # fmt: skip
        names = [line.split()[-1] for line in listing.stdout.splitlines()]
        assert len(names) > 400
        assert all(symbol.startswith(prefix) for symbol in names)


def test_no_entry_crashes_on_nothing(machine: SimMachine):
    """Every entry of the table answers when all its arguments are NULL and zero."""
    names = re.findall(
        r"^ENTRY\(\w+, (\w+), ", "".join(p.read_text() for p in SOURCES.glob("entries/*.def")), re.MULTILINE
    )
    program = f"""
import ctypes
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
for name in {names!r}:
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    getattr(driver, name)(*[ctypes.c_void_p(0)] * 14)
print("alive")
"""
    assert len(names) > 600
    assert run_python(machine, program).strip() == "alive"
